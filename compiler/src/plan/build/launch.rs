//! Launches of one kernel problem: selects a kernel and appends its dispatches to the plan.

use std::collections::BTreeSet;

use super::select_launches::select_launches;
use super::{PlannedValue, Planner, ValueLocation};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Op};
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::kernels::InPlace;
use crate::plan::choice::Choice;
use crate::plan::select::candidates;
use crate::plan::{Dispatch, Location, allocations};
use crate::shader::merged_rows::with_merged_rows;
use crate::shader::pack::{Identity, Packed};
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::quantized::QuantizedConstant;
use crate::shader::resource::Resource;
use crate::shader::{Bound, Launch, LaunchDraft};

/// Maximum bytes of a small constant. A function may pack a small constant again without penalty, although another function
/// already packed it in another form.
const SMALL_CONSTANT_BYTES: u64 = 1 << 16;

impl Planner<'_> {
    /// Returns a dense row-major copy of a value. The copy is made at the first call.
    pub(super) fn dense_copy(&mut self, id: NodeId) -> Result<PlannedValue> {
        if let Some(value) = self.dense.get(&id) {
            return Ok(value.clone());
        }
        let from = self.value(id)?;
        let desc = TensorDesc::new(from.dtype, from.shape.clone());
        let location = self.add_tensor(&desc, &self.graph.node(id).name, self.last_use(id))?;
        let mut to = self.planned_value(ValueLocation::Arena(location), &desc);
        self.copy_value(&from, &mut to, &self.graph.node(id).name)?;
        self.dense.insert(id, to.clone());
        Ok(to)
    }

    pub(super) fn copy_value(
        &mut self,
        from: &PlannedValue,
        to: &mut PlannedValue,
        label: &str,
    ) -> Result<()> {
        let op = self.copy.clone();
        let before = self.dispatches.len();
        self.launch(None, &op, std::slice::from_ref(from), 1, from.dtype, to)?;
        for dispatch in &mut self.dispatches[before..] {
            dispatch.label = format!("{label} (copy)");
            dispatch.is_copy = true;
        }
        Ok(())
    }

    /// Selects a kernel for one problem and appends its dispatches. Decides the result's location if it is undecided.
    pub(super) fn launch(
        &mut self,
        id: Option<NodeId>,
        op: &Op,
        operands: &[PlannedValue],
        arity: usize,
        computed: DType,
        result: &mut PlannedValue,
    ) -> Result<()> {
        let graph = self.graph;
        // Empty tensors need no dispatch.
        if result.shape.iter().any(|d| d.is(0)) {
            return self.decide_location(id, result, None);
        }
        if operands.iter().any(|operand| self.is_read_write_conflict(operand.location, result.location)) {
            return self.launch_through_copy(id, op, operands, arity, computed, result);
        }
        let name = id.map_or(String::new(), |id| graph.node(id).name.clone());
        let fail =
            |reason: String| Error::Node { node: name.clone(), operator: op.name().to_string(), reason };
        let problem = with_merged_rows(Problem {
            op,
            operands: operands.iter().map(|v| operand(graph, v)).collect(),
            arity,
            epilogue: id.map_or(&[], |id| graph.node(id).epilogue.as_slice()),
            computed,
            result: operand(graph, result),
            bounds: &graph.bounds,
            target: self.target,
        });
        let mut choices = self.choices(&problem);
        if choices.is_empty() {
            let types: Vec<String> = operands.iter().map(describe).collect();
            return Err(fail(format!(
                "no kernel computes this node on {} for {}",
                self.target.name,
                types.join(", ")
            )));
        }
        let forced = self.options.prefer_kernel.is_some();
        let short_shaders = self.target.prefer.short_shaders;
        if short_shaders && !forced {
            self.shaders.prefer(&problem, &mut choices, &self.params).map_err(|e| fail(e.0))?;
        }
        let plain = self.plain_constants(operands);
        let packed = self.options.packed.as_deref();
        let reuses_constants = |launches: &[LaunchDraft]| reuses_constants(packed, &plain, launches);
        let reuse_cost_ratio = match self.options.avoid_weight_copies {
            true => self.params.reuse_max_cost_ratio_avoiding_copies,
            false => self.params.reuse_max_cost_ratio,
        };
        let Some(mut launches) = select_launches(
            &problem,
            &mut choices,
            forced,
            (reuse_cost_ratio, reuses_constants),
            &self.params,
        )
        .map_err(|e| fail(e.0))?
        else {
            // A kernel that writes partial texels plus a copy is cheaper than any kernel that writes whole texels.
            return self.launch_through_copy(id, op, operands, arity, computed, result);
        };
        if short_shaders {
            self.shaders.add(&launches);
        }
        (self.visit)(&name, &problem, &choices);
        let bytes = problem.traffic_dim();
        if let (Some(node), ValueLocation::Undecided) = (id, result.location) {
            let in_place = choices.first().map_or(InPlace::Nothing, |choice| choice.kernel.in_place);
            let overwritten = self.overwritten_operand(node, &problem, operands, in_place, &mut launches);
            self.decide_location(id, result, overwritten)?;
        }
        self.append_dispatches(launches, operands, result, (&name, &bytes), fail)?;
        if let Some(id) = id {
            let decision = self.decision(id, choices);
            self.decisions.push(decision);
        }
        Ok(())
    }

    /// Returns the allocation of an operand that the launches of a node overwrite with the result. Returns `None` if
    /// there is none. Merges the bindings of both on targets with separate read and write buffers.
    fn overwritten_operand(
        &mut self,
        node: NodeId,
        problem: &Problem<'_>,
        operands: &[PlannedValue],
        in_place: InPlace,
        launches: &mut [Launch],
    ) -> Option<usize> {
        let locations: Vec<Option<usize>> = operands.iter().map(|v| v.location.allocation()).collect();
        let time = (self.now, self.last_use(node));
        let with_arity = (problem.operands.as_slice(), problem.arity);
        let launched = (in_place, &*launches);
        let overwritten =
            self.allocations.overwrite_operand(launched, with_arity, &locations, &problem.result, time);
        let separate = self.target.limits.separate_read_write_buffers;
        if let (Some(allocation), Some(last), true) = (overwritten, launches.last_mut(), separate)
            && let Some(merged) = allocations::merge_bindings(last, &locations, allocation)
        {
            *last = merged;
        }
        overwritten
    }

    /// Returns the candidates of a problem in order of cost, except that a candidate that the options prefer comes first.
    fn choices(&self, problem: &Problem<'_>) -> Vec<Choice> {
        let tuning = self.options.tuning.as_deref();
        let mut choices = candidates(problem, self.options.prefer_kernel.as_deref(), tuning);
        if choices.is_empty() {
            choices = candidates(problem, None, tuning);
        } else if self.options.prefer_kernel.is_some() {
            let last = choices.len() - 1;
            choices[..=self.options.prefer_candidate.min(last)].rotate_right(1);
        }
        choices
    }

    /// Returns, for each operand that is a constant, the constant in the model's element order, as a launch can read it
    /// without packing.
    fn plain_constants(&self, operands: &[PlannedValue]) -> Vec<Option<Packed>> {
        operands
            .iter()
            .map(|operand| match operand.location {
                ValueLocation::Constant(id) => self.graph.constant(id).map(Packed::dense),
                _ => None,
            })
            .collect()
    }

    /// Appends the dispatches of a node's launches to the plan.
    fn append_dispatches(
        &mut self,
        launches: Vec<Launch>,
        operands: &[PlannedValue],
        result: &PlannedValue,
        (name, bytes): (&str, &Dim),
        fail: impl Fn(String) -> Error,
    ) -> Result<()> {
        let mut scratch = Vec::new();
        for launch in launches {
            for size in &launch.scratch {
                scratch.push(self.add_bytes(size, name, self.now)?);
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
                label: name.to_string(),
                is_copy: false,
                bytes: bytes.clone(),
            });
        }
        Ok(())
    }

    /// True if a dispatch would read and write one buffer on a target that forbids that.
    fn is_read_write_conflict(&self, read: ValueLocation, written: ValueLocation) -> bool {
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

    /// Launches a node's kernel with a scratch tensor as its result, and copies the scratch tensor to the result's
    /// location.
    fn launch_through_copy(
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
        let scratch = TensorDesc { layout, ..TensorDesc::new(result.dtype, result.shape.clone()) };
        let name = id.map_or(String::new(), |id| self.graph.node(id).name.clone());
        let location = self.add_tensor(&scratch, &name, self.now)?;
        let mut scratch = self.planned_value(ValueLocation::Arena(location), &scratch);
        self.launch(id, op, operands, arity, computed, &mut scratch)?;
        self.copy_value(&scratch, result, &name)
    }
}

/// True if all large constants that the launches read are in `packed`, the set of constants that other functions packed, or if
/// `packed` is `None`. `plain` are the operands that are constants, in the model's element order.
fn reuses_constants(
    packed: Option<&BTreeSet<Identity>>,
    plain: &[Option<Packed>],
    launches: &[LaunchDraft],
) -> bool {
    packed.is_none_or(|packed| {
        let repacked = launches.iter().flat_map(|launch| &launch.packed);
        let bound = launches.iter().flat_map(|launch| &launch.bindings);
        let read = bound.filter_map(|binding| match binding.bound {
            Bound::Operand(k) => plain.get(k)?.as_ref(),
            _ => None,
        });
        let mut large = repacked.chain(read).filter(|p| p.bytes() > SMALL_CONSTANT_BYTES);
        large.all(|p| packed.contains(&p.identity()))
    })
}

fn operand<'g>(graph: &'g Graph, value: &PlannedValue) -> Operand<'g> {
    let constant: Option<&Constant> = match value.location {
        // A view of a constant is read through its placement, so kernels do not get the constant itself.
        ValueLocation::Constant(id) if value.placement.is_dense(&value.shape) => graph.constant(id),
        _ => None,
    };
    let constant = constant.filter(|c| c.shape.len() == value.shape.len());
    let quantized = match value.location {
        ValueLocation::Constant(id) => graph.constant(id).and_then(QuantizedConstant::from_constant),
        _ => None,
    };
    Operand {
        dtype: value.dtype,
        shape: value.shape.clone(),
        placement: value.placement.clone(),
        storage: value.kind,
        constant,
        quantized,
    }
}

fn describe(value: &PlannedValue) -> String {
    TensorDesc::new(value.dtype, value.shape.clone()).to_string()
}
