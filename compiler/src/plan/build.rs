//! Builds a plan in one walk over the graph in topological order.

mod concats;
mod launch;
mod select_launches;
mod states;

use std::collections::BTreeMap;

use super::allocations::{Allocations, last_uses};
use super::bound_remedies;
use super::choice::Choice;
use super::concat_in_place::{InPlaceConcats, find_in_place_concats};
use super::estimate::problem;
use super::images::{self, Image};
use super::params::Params;
use super::schedule;
use super::select::candidates;
use super::startup::CompiledShaders;
use super::views::{is_view, transposed_in_place, view};
use super::{Decision, Dispatch, Location, Options, Plan, Port, StateSize};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Relayout};
use crate::ir::storage::Storage;
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::shader::pack::{Identity, Packed};
use crate::shader::problem::{Placement, Problem, storage_elements};
use crate::target::TargetProfile;

/// Sizes of tensors are rounded up to this many bytes, so that a vec4 can be read at the end of any tensor.
const TENSOR_ALIGNMENT: u64 = 16;
/// A value with its place in memory.
#[derive(Debug, Clone)]
struct PlannedValue {
    location: ValueLocation,
    shape: Vec<Dim>,
    dtype: DType,
    placement: Placement,
    kind: Storage,
}

/// Memory in which a value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ValueLocation {
    Arena(usize),
    Image(usize),
    Input(usize),
    Output(usize),
    /// A state, by its index in the plan's list of states.
    State(usize),
    Constant(NodeId),
    /// A place in the arena that is decided once a kernel is selected: an operand's allocation that the result
    /// overwrites, or a new one.
    Undecided,
}

impl ValueLocation {
    /// Returns the allocation of a value in the arena; `None` for values elsewhere.
    fn allocation(self) -> Option<usize> {
        match self {
            Self::Arena(allocation) => Some(allocation),
            _ => None,
        }
    }
}

/// State of the walk over the graph that builds a plan.
struct Planner<'g> {
    graph: &'g Graph,
    target: &'g TargetProfile,
    options: &'g Options,
    params: Params,
    copy: Op,
    values: BTreeMap<NodeId, PlannedValue>,
    /// Dense row-major copies of values, by the node whose value is copied.
    dense: BTreeMap<NodeId, PlannedValue>,
    allocations: Allocations,
    images: Vec<Image>,
    /// Last node that uses each value, as an index into the order of computation.
    last_uses: BTreeMap<NodeId, usize>,
    /// Index of the current node in the order of computation.
    now: usize,
    /// Concatenations whose operands are written directly into the result.
    concats: InPlaceConcats,
    /// Allocations of the results of concatenations whose operands are written directly into them, and of the operands'
    /// slices.
    concat_allocations: BTreeMap<NodeId, (usize, Vec<usize>)>,
    states: Vec<StateSize>,
    weights: Vec<Packed>,
    /// Index of each packed constant in the plan's list of weights, by identity key and by whether the constant is read as a
    /// texture.
    known_weights: BTreeMap<(Identity, bool), usize>,
    dispatches: Vec<Dispatch>,
    decisions: Vec<Decision>,
    shaders: CompiledShaders,
    visit: &'g mut Visit<'g>,
}

/// Callback for each problem, with the name of its node (empty for a copy) and its candidates, the selected one first.
pub type Visit<'a> = dyn FnMut(&str, &Problem<'_>, &[Choice]) + 'a;

/// Plans a graph for a target.
///
/// # Errors
/// If no kernel computes a node, or a tensor exceeds a limit of the target.
pub fn build(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Plan> {
    build_visiting(graph, target, options, &mut |_, _, _| {})
}

/// Plans a graph for a target, and calls `visit` for every problem.
///
/// # Errors
/// If no kernel computes a node, or a tensor exceeds a limit of the target.
pub fn build_visiting<'g>(
    graph: &'g Graph,
    target: &'g TargetProfile,
    options: &'g Options,
    visit: &'g mut Visit<'g>,
) -> Result<Plan> {
    let params = Params::for_stage(target, "plan")?;
    let order = schedule::order(graph, &params);
    let last_uses = last_uses(graph, &order);
    let mut alignment = u64::from(target.limits.storage_buffer_alignment).max(TENSOR_ALIGNMENT);
    if order.iter().any(|id| graph.tensor(*id).layout.storage() == Storage::TexelBuffer) {
        alignment = alignment.max(target.limits.texel_buffer_alignment.into());
    }
    let mut planner = Planner {
        graph,
        target,
        options,
        params,
        copy: Relayout { layout: Layout::RowMajor }.into(),
        values: BTreeMap::new(),
        dense: BTreeMap::new(),
        allocations: Allocations::new(target.limits.separate_read_write_buffers),
        images: Vec::new(),
        now: 0,
        // A preferred concatenation kernel is used instead of writing in place.
        concats: find_in_place_concats(graph, &order, &last_uses, alignment)
            .into_iter()
            .filter(|(id, _)| !is_computed_by(options.prefer_kernel.as_deref(), graph, *id, target))
            .collect(),
        last_uses,
        concat_allocations: BTreeMap::new(),
        states: Vec::new(),
        weights: Vec::new(),
        known_weights: BTreeMap::new(),
        dispatches: Vec::new(),
        decisions: Vec::new(),
        shaders: CompiledShaders::default(),
        visit,
    };
    for (i, id) in graph.inputs().iter().enumerate() {
        let value = planner.planned_value(ValueLocation::Input(i), graph.tensor(*id));
        planner.values.insert(*id, value);
    }
    planner.place_states()?;
    for (index, id) in order.into_iter().enumerate() {
        planner.now = index;
        planner.plan_node(id)?;
    }
    planner.now = usize::MAX;
    planner.finish_outputs()?;
    planner.finish(alignment)
}

/// True if `kernel` names a kernel that can compute a node.
fn is_computed_by(kernel: Option<&str>, graph: &Graph, id: NodeId, target: &TargetProfile) -> bool {
    let problem = kernel.and_then(|kernel| Some((kernel, problem(graph, id, target)?)));
    problem.is_some_and(|(kernel, problem)| !candidates(&problem, Some(kernel), None).is_empty())
}

impl<'g> Planner<'g> {
    fn plan_node(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(id);
        match &node.op {
            Op::Input(_) | Op::State(_) => return Ok(()),
            Op::Update(update) => return self.update(id, update),
            Op::Constant(_) => {
                let value = self.planned_value(ValueLocation::Constant(id), &node.tensor);
                self.values.insert(id, value);
                return Ok(());
            }
            op if is_view(op) && node.epilogue.is_empty() => return self.plan_view(id),
            _ => {}
        }
        if self.concats.contains_key(&id) {
            return self.finish_concat(id);
        }
        let mut result = match self.place_in_state(id) {
            Some(result) => result,
            None => {
                let location = match graph.outputs().iter().position(|o| o.node == id) {
                    Some(i) if node.tensor.layout == Layout::RowMajor => Some(ValueLocation::Output(i)),
                    _ if node.tensor.layout.storage().is_texture() => Some(self.image(&node.tensor)?),
                    _ => self.concat_slice_for(id)?,
                };
                let location = location.unwrap_or(ValueLocation::Undecided);
                let mut result = self.planned_value(location, &node.tensor);
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

    /// Makes the result of a view operator a view of its operand's storage. Copies the operand if no view can express
    /// the result.
    fn plan_view(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let operand = *graph.operands(id).first().ok_or_else(|| {
            Error::internal("plan", format!("view `{}` has no operand", graph.node(id).name))
        })?;
        let shape = &graph.tensor(id).shape;
        let mut base = self.value(operand)?;
        let mut placement = view(graph.op(id), &base.shape, &base.placement, shape);
        if placement.is_none() {
            base = self.dense_copy(operand)?;
            placement = view(graph.op(id), &base.shape, &base.placement, shape);
        }
        let placement = placement.ok_or_else(|| {
            Error::internal(
                "plan",
                format!("node `{}` is not a view of a contiguous row-major tensor", graph.node(id).name),
            )
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

    fn decision(&self, id: NodeId, choices: Vec<Choice>) -> Decision {
        let node = self.graph.node(id);
        let operands: Vec<String> =
            self.graph.operands(id).iter().map(|o| self.graph.tensor(*o).to_string()).collect();
        let what = format!("{}({}) -> {}", node.op.name(), operands.join(", "), node.tensor);
        Decision { node: id, name: node.name.clone(), what, choices }
    }

    fn value(&self, id: NodeId) -> Result<PlannedValue> {
        self.values.get(&id).cloned().ok_or_else(|| {
            Error::internal(
                "plan",
                format!("the result of node `{}` is used before it is computed", self.graph.node(id).name),
            )
        })
    }

    fn planned_value(&self, location: ValueLocation, desc: &TensorDesc) -> PlannedValue {
        PlannedValue {
            location,
            shape: desc.shape.clone(),
            dtype: desc.dtype,
            placement: Placement::from_layout(desc.layout, &desc.shape),
            kind: desc.layout.storage(),
        }
    }

    /// Adds a texture for a tensor.
    fn image(&mut self, desc: &TensorDesc) -> Result<ValueLocation> {
        let storage = desc.layout.storage();
        let extent = storage.extent(&desc.shape, &self.graph.bounds);
        let extent = extent.filter(|extent| self.target.limits.holds_texture(storage, *extent));
        let extent = extent.ok_or_else(|| {
            Error::internal(
                "plan",
                format!("the tensor {desc} exceeds the texture limits of {}", self.target.name),
            )
        })?;
        self.images.push(Image { storage, device: desc.dtype.on_device(), extent });
        Ok(ValueLocation::Image(self.images.len() - 1))
    }

    /// Index of the last node that uses a value.
    fn last_use(&self, id: NodeId) -> usize {
        self.last_uses.get(&id).copied().unwrap_or(usize::MAX)
    }

    /// Decides the location of an undecided result: the allocation that it overwrites, or a new one.
    fn decide_location(
        &mut self,
        id: Option<NodeId>,
        result: &mut PlannedValue,
        overwritten: Option<usize>,
    ) -> Result<()> {
        if result.location == ValueLocation::Undecided {
            let until = id.map_or(usize::MAX, |id| self.last_use(id));
            let elements = storage_elements(&result.shape, &result.placement);
            let bytes = elements.scale(result.dtype.on_device().bytes());
            let allocation = match overwritten {
                Some(allocation) => allocation,
                None => self.add_bytes(&bytes, id.map_or("", |id| &self.graph.node(id).name), until)?,
            };
            result.location = ValueLocation::Arena(allocation);
        }
        Ok(())
    }

    /// Adds an allocation for a tensor of node `name` that is last used by node `until`.
    fn add_tensor(&mut self, desc: &TensorDesc, name: &str, until: usize) -> Result<usize> {
        let elements = storage_elements(&desc.shape, &Placement::from_layout(desc.layout, &desc.shape));
        self.add_bytes(&elements.scale(desc.dtype.on_device().bytes()), name, until)
    }

    /// Adds an allocation of a size in bytes.
    fn add_bytes(&mut self, size: &Dim, name: &str, until: usize) -> Result<usize> {
        let bytes = u64::try_from(size.range(&self.graph.bounds).1).unwrap_or(0).max(1);
        let bytes = bytes.next_multiple_of(TENSOR_ALIGNMENT);
        let limit = self.target.limits.max_storage_buffer_range;
        if bytes > limit {
            return Err(Error::TooLarge {
                reason: format!(
                    "node `{name}` needs an intermediate tensor of {bytes} bytes, but {} binds at most {limit} bytes",
                    self.target.name
                ),
                remedies: bound_remedies::remedies(size, &self.graph.bounds, limit),
            });
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

    /// Copies outputs that no kernel wrote: views, inputs, constants and values that are returned twice.
    fn finish_outputs(&mut self) -> Result<()> {
        let graph = self.graph;
        for (i, output) in graph.outputs().iter().enumerate() {
            let from = self.value(output.node)?;
            if from.location == ValueLocation::Output(i) && from.placement.is_dense(&from.shape) {
                continue;
            }
            let desc = TensorDesc::new(graph.tensor(output.node).dtype, from.shape.clone());
            let mut to = self.planned_value(ValueLocation::Output(i), &desc);
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
        let (tensors, live_ranges, memory) = self.allocations.place(&mut self.dispatches, alignment, &images);
        Ok(Plan {
            bounds: graph.bounds.clone(),
            inputs,
            outputs,
            tensors,
            images,
            states: self.states,
            weights: self.weights,
            dispatches: self.dispatches,
            live_ranges,
            memory,
            decisions: self.decisions,
        })
    }
}
