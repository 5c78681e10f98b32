//! Estimated cost of nodes before there is a plan: the cost of the cheapest candidate.
//!
//! All rewrites that are selected by cost use this module, so they compare the same costs by which the plan later selects
//! kernels.

use super::choice::Choice;
use super::device_limits;
use super::select::candidates;
use super::tuning::{self, Database};
use super::views::{is_view, transposed_in_place, view};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::TensorDesc;
use crate::shader::merged_rows::with_merged_rows;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::quantized::QuantizedConstant;
use crate::target::TargetProfile;
use std::collections::{BTreeMap, BTreeSet};

/// Cost of a node in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Estimate of the cost model in nanoseconds; `None` if no kernel computes the node.
    pub estimated: Option<f64>,
    /// Time in the tuning database in nanoseconds; `None` if the node was not measured.
    pub measured: Option<f64>,
}

impl Cost {
    const ZERO: Self = Self { estimated: Some(0.0), measured: Some(0.0) };

    /// Returns the measured time, else the estimate, in nanoseconds; infinite if no kernel computes the node.
    pub fn best_known(self) -> f64 {
        self.measured.or(self.estimated).unwrap_or(f64::INFINITY)
    }

    /// Returns the sum of two costs. The sum has a measured time only if both costs have one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        Self { estimated: sum(self.estimated, other.estimated), measured: sum(self.measured, other.measured) }
    }

    /// Returns the cost of two nodes that run at the same time: the larger cost, and the smaller cost times `ratio`.
    #[must_use]
    pub fn concurrent(self, other: Self, ratio: f64) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b) + ratio * a.min(b));
        Self {
            estimated: both(self.estimated, other.estimated),
            measured: both(self.measured, other.measured),
        }
    }
}

/// Costs of nodes on a target. Results are cached by problem, because networks repeat their problems.
#[derive(Debug)]
pub struct Costs<'a> {
    /// Target.
    pub target: &'a TargetProfile,
    tuning: Option<&'a Database>,
    cache: BTreeMap<String, Cost>,
}

impl<'a> Costs<'a> {
    /// Creates an empty cache of node costs.
    pub fn new(target: &'a TargetProfile, tuning: Option<&'a Database>) -> Self {
        Self { target, tuning, cache: BTreeMap::new() }
    }

    /// True if a tuning database with measured times is used.
    pub fn has_measurements(&self) -> bool {
        self.tuning.is_some()
    }

    /// Returns the estimated and the measured cost of one node.
    pub fn node(&mut self, graph: &Graph, id: NodeId) -> Cost {
        let node = graph.node(id);
        // Empty tensors need no dispatch.
        let empty = node.tensor.shape.iter().any(|d| d.is(0));
        if empty || matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_)) {
            return Cost::ZERO;
        }
        if is_view(&node.op) && node.epilogue.is_empty() {
            return placement(graph, id).map_or(Cost::default(), |_| Cost::ZERO);
        }
        let Some(problem) = problem(graph, id, self.target) else { return Cost::default() };
        let key = tuning::key(&problem);
        if let Some(cost) = self.cache.get(&key) {
            return *cost;
        }
        let measured = self.tuning.and_then(|tuning| cheapest(&problem, Some(tuning)));
        let measured = measured.and_then(|choice| choice.measured);
        let cost = Cost { estimated: cheapest(&problem, None).map(|choice| choice.candidate.cost), measured };
        self.cache.insert(key, cost);
        cost
    }

    /// Returns the sum of the costs of nodes, estimated and measured.
    pub fn sum(&mut self, graph: &Graph, nodes: &[NodeId]) -> Cost {
        nodes.iter().fold(Cost::ZERO, |sum, id| sum.plus(self.node(graph, *id)))
    }
}

/// Returns the cheapest candidate of a problem that stays within the target's limits.
fn cheapest(problem: &Problem<'_>, tuning: Option<&Database>) -> Option<Choice> {
    let able = |choice: &Choice| {
        let drafts = (choice.kernel.launches)(problem, &choice.candidate);
        drafts.is_ok_and(|l| device_limits::exceeded(&l, problem.bounds, problem.target).is_none())
    };
    let choices = device_limits::holds_result(problem).then(|| candidates(problem, None, tuning));
    choices?.into_iter().find(able)
}

/// Returns the problem of a node, as the plan will pass it to kernels. Returns `None` if the types of the node's
/// operands do not match.
pub fn problem<'g>(graph: &'g Graph, id: NodeId, target: &'g TargetProfile) -> Option<Problem<'g>> {
    let node = graph.node(id);
    let operands = graph.operands(id);
    let core: Vec<&TensorDesc> = operands.iter().take(node.arity).map(|o| graph.tensor(*o)).collect();
    Some(with_merged_rows(Problem {
        op: &node.op,
        operands: operands.iter().map(|o| operand(graph, *o)).collect(),
        arity: node.arity,
        epilogue: &node.epilogue,
        computed: node.op.operation().infer(&core).ok()?.dtype,
        result: operand(graph, id),
        bounds: &graph.bounds,
        target,
    }))
}

/// Names of the kernels with candidates for the operators of a graph. Elementwise operators and copies count only if
/// there are no other operators.
pub fn offering(graph: &Graph, target: &TargetProfile) -> BTreeSet<&'static str> {
    let offers = |plain: bool| -> BTreeSet<&'static str> {
        let wanted = |id: &NodeId| matches!(graph.op(*id), Op::Elementwise(_) | Op::Relayout(_)) == plain;
        let problems = graph.ids().into_iter().filter(wanted).filter_map(|id| problem(graph, id, target));
        problems
            .flat_map(|problem| candidates(&problem, None, None))
            .map(|choice| choice.kernel.name)
            .collect()
    };
    let found = offers(false);
    if found.is_empty() { offers(true) } else { found }
}

/// Returns a value as the plan will pass it to kernels.
pub fn operand(graph: &Graph, id: NodeId) -> Operand<'_> {
    let tensor = graph.tensor(id);
    Operand {
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        placement: placement(graph, id).unwrap_or_else(|| Placement::dense(&tensor.shape)),
        storage: tensor.layout.storage(),
        constant: graph.constant(id),
        quantized: graph.constant(view_chain(graph, id).1).and_then(QuantizedConstant::from_constant),
    }
}

/// Returns the views between a value and its storage, the last one first, and the value that the storage belongs to.
fn view_chain(graph: &Graph, id: NodeId) -> (Vec<NodeId>, NodeId) {
    let mut views = Vec::new();
    let mut base = id;
    while is_view(graph.op(base)) && graph.node(base).epilogue.is_empty() {
        let Some(operand) = graph.operands(base).first().copied() else { break };
        views.push(base);
        base = operand;
    }
    (views, base)
}

/// Returns the placement of a value in memory; for a view, its placement in the storage that it shows. Returns `None`
/// for a view whose elements must move.
fn placement(graph: &Graph, id: NodeId) -> Option<Placement> {
    let (views, base) = view_chain(graph, id);
    let tensor = graph.tensor(base);
    let mut shape = &tensor.shape;
    let mut placement =
        transposed_in_place(graph, base).unwrap_or_else(|| Placement::from_layout(tensor.layout, shape));
    for id in views.into_iter().rev() {
        let result = &graph.tensor(id).shape;
        placement = view(graph.op(id), shape, &placement, result)?;
        shape = result;
    }
    Some(placement)
}
