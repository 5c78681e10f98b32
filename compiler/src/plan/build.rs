//! Building a plan: one walk over the graph in topological order.

mod states;

use std::collections::BTreeMap;

use super::allocations::{self, Allocations, lives};
use super::choice::Choice;
use super::estimate::problem;
use super::faults;
use super::fit;
use super::images::{self, Image};
use super::limits;
use super::parts::{self, Parts};
use super::schedule;
use super::select::candidates;
use super::start::Shaders;
use super::views::{is_view, transposed_in_place, view};
use super::{Decision, Dispatch, Location, Options, Plan, Port, StateSize};
use crate::error::{Error, OpError, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Op, Relayout};
use crate::ir::storage::Storage;
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::kernels::InPlace;
use crate::shader::codes::Coded;
use crate::shader::pack::{Identity, Packed};
use crate::shader::problem::{Operand, Placement, Problem, storage_elements};
use crate::shader::resource::Resource;
use crate::shader::{Bound, Launch};
use crate::target::TargetProfile;

/// Storage is rounded up so that a vector of four may be read at the end of any tensor.
const ROUND: u64 = 16;
/// How much slower a kernel may be that shares its packed constants with another function: that costs time in each run,
/// a further copy costs memory once.
const SHARE: f64 = 1.15;
/// The same of a function that the model could do without.
const SHARE_SPARE: f64 = 1.5;
/// How much slower a kernel may be whose shader is short, on drivers that fail on some long ones.
const TRUST: f64 = 4.0;
/// Bytes of a constant whose copies do not count.
const SMALL: u64 = 1 << 16;

/// Where a value is.
#[derive(Debug, Clone)]
struct PlannedValue {
    location: ValueLocation,
    shape: Vec<Dim>,
    dtype: DType,
    placement: Placement,
    kind: Storage,
}

/// The storage of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ValueLocation {
    Arena(usize),
    Image(usize),
    Input(usize),
    Output(usize),
    /// By index into the plan's states.
    State(usize),
    Constant(NodeId),
    /// In the arena, once it is known whether the result overwrites an operand.
    Undecided,
}

impl ValueLocation {
    /// The allocation of storage in the arena.
    fn allocation(self) -> Option<usize> {
        match self {
            Self::Arena(allocation) => Some(allocation),
            _ => None,
        }
    }
}

struct Planner<'g> {
    graph: &'g Graph,
    target: &'g TargetProfile,
    options: &'g Options,
    copy: Op,
    values: BTreeMap<NodeId, PlannedValue>,
    dense: BTreeMap<NodeId, PlannedValue>,
    allocations: Allocations,
    images: Vec<Image>,
    /// The last use of each value.
    lives: BTreeMap<NodeId, usize>,
    /// Place of the node at hand in the order of computation.
    now: usize,
    /// Concatenations that are assembled in place, and where: the storage of their result and of each part.
    parts: Parts,
    assembled: BTreeMap<NodeId, (usize, Vec<usize>)>,
    states: Vec<StateSize>,
    weights: Vec<Packed>,
    /// The constants among `weights`; the last says whether it is read as a texture.
    known_weights: BTreeMap<(Identity, bool), usize>,
    dispatches: Vec<Dispatch>,
    decisions: Vec<Decision>,
    shaders: Shaders,
    visit: &'g mut Visit<'g>,
}

/// Is told each problem with the name of its node (empty for a copy) and its candidates, the pick first.
pub type Visit<'a> = dyn FnMut(&str, &Problem<'_>, &[Choice]) + 'a;

/// Plans a graph for a target.
///
/// # Errors
/// A node that no kernel computes, or a tensor that exceeds a limit of the target.
pub fn build(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Plan> {
    build_visiting(graph, target, options, &mut |_, _, _| {})
}

/// As [`build`], with a look at every problem on the way.
///
/// # Errors
/// As [`build`].
pub fn build_visiting<'g>(
    graph: &'g Graph,
    target: &'g TargetProfile,
    options: &'g Options,
    visit: &'g mut Visit<'g>,
) -> Result<Plan> {
    let order = schedule::order(graph);
    let lives = lives(graph, &order);
    let mut alignment = u64::from(target.limits.storage_buffer_alignment).max(ROUND);
    if order.iter().any(|id| graph.tensor(*id).layout.storage() == Storage::TexelBuffer) {
        alignment = alignment.max(target.limits.texel_buffer_alignment.into());
    }
    let mut planner = Planner {
        graph,
        target,
        options,
        copy: Relayout { layout: Layout::RowMajor }.into(),
        values: BTreeMap::new(),
        dense: BTreeMap::new(),
        allocations: Allocations::new(target.limits.separate_read_write_buffers),
        images: Vec::new(),
        now: 0,
        // Whoever asks for a kernel that copies them gets it.
        parts: parts::find(graph, &order, &lives, alignment)
            .into_iter()
            .filter(|(id, _)| !is_computed_by(options.prefer_kernel.as_deref(), graph, *id, target))
            .collect(),
        lives,
        assembled: BTreeMap::new(),
        states: Vec::new(),
        weights: Vec::new(),
        known_weights: BTreeMap::new(),
        dispatches: Vec::new(),
        decisions: Vec::new(),
        shaders: Shaders::default(),
        visit,
    };
    for (i, id) in graph.inputs().iter().enumerate() {
        let value = planner.fresh(ValueLocation::Input(i), graph.tensor(*id));
        planner.values.insert(*id, value);
    }
    planner.start_states()?;
    for (place, id) in order.into_iter().enumerate() {
        planner.now = place;
        planner.node(id)?;
    }
    planner.now = usize::MAX;
    planner.finish_outputs()?;
    planner.finish(alignment)
}

/// Whether a kernel that is asked for computes a node.
fn is_computed_by(kernel: Option<&str>, graph: &Graph, id: NodeId, target: &TargetProfile) -> bool {
    let problem = kernel.and_then(|kernel| Some((kernel, problem(graph, id, target)?)));
    problem.is_some_and(|(kernel, problem)| !candidates(&problem, Some(kernel), None).is_empty())
}

impl<'g> Planner<'g> {
    fn node(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(id);
        match &node.op {
            Op::Input(_) | Op::State(_) => return Ok(()),
            Op::Update(update) => return self.update(id, update),
            Op::Constant(_) => {
                let value = self.fresh(ValueLocation::Constant(id), &node.tensor);
                self.values.insert(id, value);
                return Ok(());
            }
            op if is_view(op) && node.epilogue.is_empty() => return self.view(id),
            _ => {}
        }
        if self.parts.contains_key(&id) {
            return self.assemble(id);
        }
        let mut result = match self.place_in_state(id) {
            Some(result) => result,
            None => {
                let location = match graph.outputs().iter().position(|o| o.node == id) {
                    Some(i) if node.tensor.layout == Layout::RowMajor => Some(ValueLocation::Output(i)),
                    _ if node.tensor.layout.storage().is_texture() => Some(self.image(&node.tensor)?),
                    _ => self.part_for(id)?,
                };
                let mut result = self.fresh(location.unwrap_or(ValueLocation::Undecided), &node.tensor);
                if result.location == ValueLocation::Undecided {
                    result.placement = transposed_in_place(graph, id).unwrap_or(result.placement);
                }
                result
            }
        };
        let operands =
            graph.operands(id).into_iter().map(|o| self.value(o)).collect::<Result<Vec<PlannedValue>>>()?;
        let computed = graph
            .operands(id)
            .iter()
            .take(node.arity)
            .map(|o| graph.tensor(*o))
            .collect::<Vec<&TensorDesc>>();
        let computed = node.op.operation().infer(&computed).map_err(|e| graph.error(id, e))?.dtype;
        self.launch(Some(id), &node.op, &operands, node.arity, computed, &mut result)?;
        self.values.insert(id, result);
        Ok(())
    }

    /// The part of a concatenation's storage that a value is to be written to, if there is one.
    fn part_for(&mut self, id: NodeId) -> Result<Option<ValueLocation>> {
        for user in self.graph.users(id) {
            let place = self.graph.operands(user).iter().position(|o| *o == id);
            let part = place.and_then(|k| Some((k, self.parts.get(&user)?.get(k)?)));
            if let Some((k, part)) = part
                && part.direct
            {
                let (_, parts) = self.assembly(user)?;
                return Ok(parts.get(k).map(|p| ValueLocation::Arena(*p)));
            }
        }
        Ok(None)
    }

    /// The storage of a concatenation that is assembled in place, and of its parts; made when first needed.
    fn assembly(&mut self, id: NodeId) -> Result<(usize, Vec<usize>)> {
        if let Some(known) = self.assembled.get(&id) {
            return Ok(known.clone());
        }
        let parts = self.parts.get(&id).cloned().unwrap_or_default();
        let direct = self.graph.operands(id).into_iter().zip(&parts).filter(|(_, p)| p.direct);
        let until = direct.map(|(o, _)| self.until(o)).fold(self.until(id), usize::max);
        let desc = self.graph.tensor(id).clone();
        let whole = self.arena(&desc, &self.graph.node(id).name, until)?;
        let parts: Vec<usize> = parts
            .iter()
            .map(|p| self.allocations.add_part(whole, p.offset, p.bytes.next_multiple_of(ROUND), p.direct))
            .collect();
        self.assembled.insert(id, (whole, parts.clone()));
        Ok((whole, parts))
    }

    /// Completes a concatenation that is assembled in place: copies the operands that are not there already.
    fn assemble(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let (whole, locations) = self.assembly(id)?;
        let parts = self.parts.get(&id).cloned().unwrap_or_default();
        for ((operand, part), location) in graph.operands(id).into_iter().zip(parts).zip(locations) {
            if !part.direct {
                let from = self.value(operand)?;
                let layout = graph.tensor(id).layout;
                let placement = Placement::of(layout, &from.shape);
                let kind = layout.storage();
                let mut to = PlannedValue {
                    location: ValueLocation::Arena(location),
                    placement,
                    kind,
                    ..from.clone()
                };
                self.copy_value(&from, &mut to, &graph.node(id).name)?;
            }
        }
        let value = self.fresh(ValueLocation::Arena(whole), graph.tensor(id));
        self.decisions.push(self.decision(id, Vec::new()));
        self.values.insert(id, value);
        Ok(())
    }

    /// Makes the result of a view operator another view of its operand's storage, moving elements if it must.
    fn view(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let operand = *graph.operands(id).first().ok_or_else(|| {
            Error::internal("plan", format!("view `{}` has no operand", graph.node(id).name))
        })?;
        let shape = &graph.tensor(id).shape;
        let mut base = self.value(operand)?;
        let mut placement = view(graph.op(id), &base.shape, &base.placement, shape);
        if placement.is_none() {
            base = self.densify(operand)?;
            placement = view(graph.op(id), &base.shape, &base.placement, shape);
        }
        let placement = placement.ok_or_else(|| {
            Error::internal("plan", format!("`{}` is no view of a dense tensor", graph.node(id).name))
        })?;
        let value = PlannedValue {
            location: base.location,
            shape: shape.clone(),
            dtype: base.dtype,
            placement,
            kind: base.kind,
        };
        self.decisions.push(self.decision(id, Vec::new()));
        self.values.insert(id, value);
        Ok(())
    }

    /// A dense row-major copy of a value, made once.
    fn densify(&mut self, id: NodeId) -> Result<PlannedValue> {
        if let Some(value) = self.dense.get(&id) {
            return Ok(value.clone());
        }
        let from = self.value(id)?;
        let desc = TensorDesc::new(from.dtype, from.shape.clone());
        let location = self.arena(&desc, &self.graph.node(id).name, self.until(id))?;
        let mut to = self.fresh(ValueLocation::Arena(location), &desc);
        self.copy_value(&from, &mut to, &self.graph.node(id).name)?;
        self.dense.insert(id, to.clone());
        Ok(to)
    }

    fn copy_value(&mut self, from: &PlannedValue, to: &mut PlannedValue, label: &str) -> Result<()> {
        let op = self.copy.clone();
        let before = self.dispatches.len();
        self.launch(None, &op, std::slice::from_ref(from), 1, from.dtype, to)?;
        for dispatch in &mut self.dispatches[before..] {
            dispatch.label = format!("{label} (copy)");
        }
        Ok(())
    }

    /// Chooses a kernel for one problem and appends its dispatches; decides where the result lies if nobody has.
    fn launch(
        &mut self,
        id: Option<NodeId>,
        op: &Op,
        operands: &[PlannedValue],
        arity: usize,
        computed: DType,
        result: &mut PlannedValue,
    ) -> Result<()> {
        let graph = self.graph;
        // Nothing is computed for a tensor without elements.
        if result.shape.iter().any(|d| d.is(0)) {
            return self.decide(id, result, None);
        }
        if operands.iter().any(|operand| self.clash(operand.location, result.location)) {
            return self.launch_apart(id, op, operands, arity, computed, result);
        }
        let name = id.map_or(String::new(), |id| graph.node(id).name.clone());
        let fail =
            |reason: String| Error::Node { node: name.clone(), operator: op.name().to_string(), reason };
        let problem = Problem {
            op,
            operands: operands.iter().map(|v| operand(graph, v)).collect(),
            arity,
            epilogue: id.map_or(&[], |id| graph.node(id).epilogue.as_slice()),
            computed,
            result: operand(graph, result),
            bounds: &graph.bounds,
            target: self.target,
        };
        let tuning = self.options.tuning.as_deref();
        let mut choices = candidates(&problem, self.options.prefer_kernel.as_deref(), tuning);
        if choices.is_empty() {
            choices = candidates(&problem, None, tuning);
        } else if self.options.prefer_kernel.is_some() {
            let last = choices.len() - 1;
            choices[..=self.options.prefer_candidate.min(last)].rotate_right(1);
        }
        if choices.is_empty() {
            let types: Vec<String> = operands.iter().map(describe).collect();
            return Err(fail(format!(
                "no kernel computes it on {} for {}",
                self.target.name,
                types.join(", ")
            )));
        }
        let forced = self.options.prefer_kernel.is_some();
        let starts = self.target.prefer.short_shaders;
        if starts && !forced {
            self.shaders.prefer(&problem, &mut choices).map_err(|e| fail(e.0))?;
        }
        // Constants that a launch reads as they are in the model.
        let plain: Vec<Option<Packed>> = operands
            .iter()
            .map(|operand| match operand.location {
                ValueLocation::Constant(id) => self.graph.constant(id).map(Packed::dense),
                _ => None,
            })
            .collect();
        let shared = |launches: &[Launch]| {
            self.options.packed.as_deref().is_none_or(|packed| {
                let own = launches.iter().flat_map(|launch| &launch.packed);
                let bound = launches.iter().flat_map(|launch| &launch.bindings);
                let read = bound.filter_map(|binding| match binding.bound {
                    Bound::Operand(k) => plain.get(k)?.as_ref(),
                    _ => None,
                });
                let mut large = own.chain(read).filter(|p| p.bytes() > SMALL);
                large.all(|p| packed.contains(&p.identity()))
            })
        };
        let share = if self.options.spare { SHARE_SPARE } else { SHARE };
        let Some(mut launches) =
            pick(&problem, &mut choices, forced, (share, shared)).map_err(|e| fail(e.0))?
        else {
            // No kernel that writes whole texels is worth it: through a buffer, then.
            return self.launch_apart(id, op, operands, arity, computed, result);
        };
        if starts {
            self.shaders.add(&launches);
        }
        (self.visit)(&name, &problem, &choices);
        let bytes = problem.traffic_dim();
        if let (Some(node), ValueLocation::Undecided) = (id, result.location) {
            let locations: Vec<Option<usize>> = operands.iter().map(|v| v.location.allocation()).collect();
            let time = (self.now, self.until(node));
            let of = (problem.operands.as_slice(), arity);
            let launched =
                (choices.first().map_or(InPlace::Nothing, |choice| choice.kernel.in_place), &launches[..]);
            let place = self.allocations.in_place(launched, of, &locations, &problem.result, time);
            let apart = self.target.limits.separate_read_write_buffers;
            if let (Some(allocation), Some(last), true) = (place, launches.last_mut(), apart)
                && let Some(merged) = allocations::merged(last, &locations, allocation)
            {
                *last = merged;
            }
            self.decide(id, result, place)?;
        }
        let mut scratch = Vec::new();
        for launch in launches {
            for size in &launch.scratch {
                scratch.push(self.tensor(size, &name, self.now)?);
            }
            let mut locations = Vec::with_capacity(launch.bindings.len());
            for binding in &launch.bindings {
                locations.push(match binding.bound {
                    Bound::Operand(k) => self.location(operands[k].location),
                    Bound::Result => self.location(result.location),
                    Bound::Packed(k) => {
                        let texture = matches!(binding.resource, Resource::Texels(_) | Resource::Texture(..));
                        Location::Weight(self.weight(launch.packed[k].clone(), texture))
                    }
                    Bound::Scratch(k) => Location::Arena(
                        *scratch.get(k).ok_or_else(|| fail("a missing scratch buffer".into()))?,
                    ),
                    Bound::Params => Location::Params,
                });
            }
            self.dispatches.push(Dispatch {
                launch,
                locations,
                barrier: false,
                label: name.clone(),
                bytes: bytes.clone(),
            });
        }
        if let Some(id) = id {
            let decision = self.decision(id, choices);
            self.decisions.push(decision);
        }
        Ok(())
    }

    /// Whether a dispatch would read and write one buffer where the target takes that for neither.
    fn clash(&self, read: ValueLocation, written: ValueLocation) -> bool {
        let same = match (read, written) {
            (ValueLocation::Arena(a), ValueLocation::Arena(b)) => {
                self.allocations.root(a) == self.allocations.root(b)
            }
            (ValueLocation::State(a), ValueLocation::State(b))
            | (ValueLocation::Output(a), ValueLocation::Output(b)) => a == b,
            _ => false,
        };
        same && self.target.limits.separate_read_write_buffers
    }

    /// Launches into storage of its own and copies the result to its place.
    fn launch_apart(
        &mut self,
        id: Option<NodeId>,
        op: &Op,
        operands: &[PlannedValue],
        arity: usize,
        computed: DType,
        result: &mut PlannedValue,
    ) -> Result<()> {
        let layout = match result.placement {
            Placement::Slices4 => Layout::SLICES4,
            Placement::Strided { .. } => Layout::RowMajor,
        };
        let through = TensorDesc { layout, ..TensorDesc::new(result.dtype, result.shape.clone()) };
        let name = id.map_or(String::new(), |id| self.graph.node(id).name.clone());
        let location = self.arena(&through, &name, self.now)?;
        let mut through = self.fresh(ValueLocation::Arena(location), &through);
        self.launch(id, op, operands, arity, computed, &mut through)?;
        self.copy_value(&through, result, &name)
    }

    fn decision(&self, id: NodeId, choices: Vec<Choice>) -> Decision {
        let node = self.graph.node(id);
        let operands: Vec<String> =
            self.graph.operands(id).iter().map(|o| self.graph.tensor(*o).to_string()).collect();
        let what = format!("{}({}) -> {}", node.op.name(), operands.join(", "), node.tensor);
        Decision { node: id, name: node.name.clone(), what, choices }
    }

    fn value(&self, id: NodeId) -> Result<PlannedValue> {
        self.values.get(&id).cloned().ok_or_else(|| {
            Error::internal("plan", format!("`{}` is used before it is computed", self.graph.node(id).name))
        })
    }

    fn fresh(&self, location: ValueLocation, desc: &TensorDesc) -> PlannedValue {
        PlannedValue {
            location,
            shape: desc.shape.clone(),
            dtype: desc.dtype,
            placement: Placement::of(desc.layout, &desc.shape),
            kind: desc.layout.storage(),
        }
    }

    /// A texture for a tensor.
    fn image(&mut self, desc: &TensorDesc) -> Result<ValueLocation> {
        let storage = desc.layout.storage();
        let extent = storage.extent(&desc.shape, &self.graph.bounds);
        let extent = extent.filter(|extent| self.target.limits.holds_texture(storage, *extent));
        let extent = extent.ok_or_else(|| {
            Error::internal("plan", format!("{desc} exceeds the textures of {}", self.target.name))
        })?;
        self.images.push(Image { storage, device: desc.dtype.on_device(), extent });
        Ok(ValueLocation::Image(self.images.len() - 1))
    }

    /// The last use of a value.
    fn until(&self, id: NodeId) -> usize {
        self.lives.get(&id).copied().unwrap_or(usize::MAX)
    }

    /// Gives an undecided result its location: a allocation that it overwrites, or a new one.
    fn decide(&mut self, id: Option<NodeId>, result: &mut PlannedValue, place: Option<usize>) -> Result<()> {
        if result.location == ValueLocation::Undecided {
            let until = id.map_or(usize::MAX, |id| self.until(id));
            let elements = storage_elements(&result.shape, &result.placement);
            let bytes = elements.scale(result.dtype.on_device().bytes());
            let allocation = match place {
                Some(allocation) => allocation,
                None => self.tensor(&bytes, id.map_or("", |id| &self.graph.node(id).name), until)?,
            };
            result.location = ValueLocation::Arena(allocation);
        }
        Ok(())
    }

    /// Storage for a tensor of a node that is used until another.
    fn arena(&mut self, desc: &TensorDesc, name: &str, until: usize) -> Result<usize> {
        let elements = storage_elements(&desc.shape, &Placement::of(desc.layout, &desc.shape));
        self.tensor(&elements.scale(desc.dtype.on_device().bytes()), name, until)
    }

    /// Adds an intermediate tensor of so many bytes.
    fn tensor(&mut self, bytes: &Dim, name: &str, until: usize) -> Result<usize> {
        let size = bytes;
        let bytes =
            u64::try_from(size.range(&self.graph.bounds).1).unwrap_or(0).max(1).next_multiple_of(ROUND);
        let limit = self.target.limits.max_storage_buffer_range;
        if bytes > limit {
            return Err(Error::request(
                format!(
                    "`{name}` needs an intermediate tensor of {bytes} bytes, and {} binds at most {limit} bytes",
                    self.target.name
                ),
                limits::remedy(size, &self.graph.bounds, limit),
            ));
        }
        Ok(self.allocations.add(bytes, until))
    }

    fn location(&mut self, source: ValueLocation) -> Location {
        match source {
            ValueLocation::Arena(i) => Location::Arena(i),
            ValueLocation::Image(i) => Location::Image(i),
            ValueLocation::Input(i) => Location::Input(i),
            ValueLocation::Output(i) => Location::Output(i),
            ValueLocation::State(i) => Location::State(i),
            ValueLocation::Constant(id) => match self.graph.constant(id) {
                Some(constant) => Location::Weight(self.weight(Packed::dense(constant), false)),
                None => Location::Params,
            },
            ValueLocation::Undecided => Location::Params,
        }
    }

    fn weight(&mut self, packed: Packed, texture: bool) -> usize {
        let key = (packed.identity(), texture);
        if let Some(index) = self.known_weights.get(&key) {
            return *index;
        }
        self.weights.push(packed);
        self.known_weights.insert(key, self.weights.len() - 1);
        self.weights.len() - 1
    }

    /// Copies outputs that no kernel wrote: views, inputs, constants and values returned twice.
    fn finish_outputs(&mut self) -> Result<()> {
        let graph = self.graph;
        for (i, output) in graph.outputs().iter().enumerate() {
            let from = self.value(output.node)?;
            if from.location == ValueLocation::Output(i) && from.placement.is_dense(&from.shape) {
                continue;
            }
            let desc = TensorDesc::new(graph.tensor(output.node).dtype, from.shape.clone());
            let mut to = self.fresh(ValueLocation::Output(i), &desc);
            self.copy_value(&from, &mut to, &output.name)?;
        }
        self.finish_states()
    }

    fn finish(mut self, alignment: u64) -> Result<Plan> {
        let graph = self.graph;
        let port = |name: &str, dtype: DType, id: NodeId| Port {
            name: name.to_string(),
            dtype,
            device: graph.tensor(id).dtype.on_device(),
            shape: graph.tensor(id).shape.clone(),
        };
        let inputs = graph.inputs().iter().filter_map(|id| Some((graph.input(*id)?, *id)));
        let inputs = inputs.map(|(input, id)| port(&input.name, input.dtype, id)).collect();
        let outputs = graph.outputs().iter().map(|o| port(&o.name, o.dtype, o.node)).collect();
        let images = images::place(&self.images, &self.dispatches);
        let (tensors, records, memory) = self.allocations.place(&mut self.dispatches, alignment, &images);
        Ok(Plan {
            bounds: graph.bounds.clone(),
            inputs,
            outputs,
            tensors,
            images,
            states: self.states,
            weights: self.weights,
            dispatches: self.dispatches,
            records,
            memory,
            decisions: self.decisions,
        })
    }
}

/// The launches of the cheapest candidate, which becomes the first; `None` where it would be cheaper to compute
/// slices of four in a buffer and to copy them into the result's texture, because the candidate writes texels in
/// part. With `forced` the first candidate is taken, whatever it costs. A candidate of which `shared` says that its
/// constants are there anyway goes before one that costs up to [`SHARE`] times less and needs a copy of its own.
fn pick(
    problem: &Problem<'_>,
    choices: &mut [Choice],
    forced: bool,
    (share, shared): (f64, impl Fn(&[Launch]) -> bool),
) -> std::result::Result<Option<Vec<Launch>>, OpError> {
    let machine = &problem.target.machine;
    let moved = 2.0 * problem.result.bytes(problem.bounds) as f64;
    let copy = machine.launch_us * 1e3 + moved / machine.bandwidth_gb_s;
    let mut limit = f64::INFINITY;
    let mut refused = None;
    let mut own_copy: Option<(usize, Vec<Launch>)> = None;
    // The cheapest whose shader is longer than the driver should be trusted with.
    let mut long: Option<(usize, Vec<Launch>)> = None;
    for at in 0..choices.len() {
        let choice = &choices[at];
        if choice.candidate.cost > limit {
            break;
        }
        let launches = (choice.kernel.launches)(problem, &choice.candidate)?;
        let over = fit::exceeded(&launches, problem.bounds, problem.target);
        if let Some(reason) = over.or_else(|| faults::refused(&launches, problem.target)) {
            refused = Some(reason);
            continue;
        }
        if !launches.iter().any(|launch| launch.partial_texels) {
            if faults::too_long(&launches, problem.target) {
                limit = limit.min(choice.candidate.cost * TRUST);
                long.get_or_insert((at, launches));
                continue;
            }
            if shared(&launches) {
                choices[..=at].rotate_right(1);
                return Ok(Some(launches));
            }
            limit = limit.min(choice.candidate.cost * share);
            own_copy.get_or_insert((at, launches));
            continue;
        }
        if forced {
            break;
        }
        limit = limit.min(choice.candidate.cost + copy);
    }
    match (own_copy.or(long), refused) {
        (Some((at, launches)), _) => {
            choices[..=at].rotate_right(1);
            Ok(Some(launches))
        }
        (None, Some(reason)) if limit == f64::INFINITY => Err(OpError::new(reason)),
        _ => Ok(None),
    }
}

fn operand<'g>(graph: &'g Graph, value: &PlannedValue) -> Operand<'g> {
    let constant: Option<&Constant> = match value.location {
        // A view of a constant is read through its placement, so the constant itself is not handed out.
        ValueLocation::Constant(id) if value.placement.is_dense(&value.shape) => graph.constant(id),
        _ => None,
    };
    let constant = constant.filter(|c| c.shape.len() == value.shape.len());
    let codes = match value.location {
        ValueLocation::Constant(id) => graph.constant(id).and_then(Coded::of),
        _ => None,
    };
    Operand {
        dtype: value.dtype,
        shape: value.shape.clone(),
        placement: value.placement.clone(),
        storage: value.kind,
        constant,
        codes,
    }
}

fn describe(value: &PlannedValue) -> String {
    TensorDesc::new(value.dtype, value.shape.clone()).to_string()
}
