//! What a node of a graph will cost, before there is a plan: the estimate of its cheapest candidate.
//!
//! Whoever rewrites a graph by cost asks here, so that what is compared is what the plan will choose by.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::Choice;
use super::fit;
use super::select::candidates;
use super::tuning::{self, Database};
use super::views::{is_view, transposed_in_place, view};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::TensorDesc;
use crate::shader::codes::Coded;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::target::TargetProfile;

/// What a node costs in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// By the cost model; none where it has no kernel.
    pub estimated: Option<f64>,
    /// By the database, where it was measured.
    pub measured: Option<f64>,
}

impl Cost {
    const NOTHING: Self = Self { estimated: Some(0.0), measured: Some(0.0) };

    /// The measurement if there is one; infinite where there is no kernel.
    pub fn best_known(self) -> f64 {
        self.measured.or(self.estimated).unwrap_or(f64::INFINITY)
    }

    /// Of two nodes together: measured where both were.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        Self { estimated: sum(self.estimated, other.estimated), measured: sum(self.measured, other.measured) }
    }
}

/// Costs of nodes on a target. What was found for a problem is kept, since a network asks the same many times.
#[derive(Debug)]
pub struct Costs<'a> {
    /// The target.
    pub target: &'a TargetProfile,
    tuning: Option<&'a Database>,
    known: BTreeMap<String, Cost>,
}

impl<'a> Costs<'a> {
    /// Nothing known yet.
    pub fn new(target: &'a TargetProfile, tuning: Option<&'a Database>) -> Self {
        Self { target, tuning, known: BTreeMap::new() }
    }

    /// Whether there is a database.
    pub fn has_measurements(&self) -> bool {
        self.tuning.is_some()
    }

    /// What a node costs.
    pub fn of(&mut self, graph: &Graph, id: NodeId) -> Cost {
        let node = graph.node(id);
        // Nothing is computed for a tensor without elements.
        let empty = node.tensor.shape.iter().any(|d| d.is(0));
        if empty || matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_)) {
            return Cost::NOTHING;
        }
        if is_view(&node.op) && node.epilogue.is_empty() {
            return placement(graph, id).map_or(Cost::default(), |_| Cost::NOTHING);
        }
        let Some(problem) = problem(graph, id, self.target) else { return Cost::default() };
        let key = tuning::key(&problem);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let measured = self.tuning.and_then(|tuning| first(&problem, Some(tuning)));
        let measured = measured.and_then(|choice| choice.measured);
        let cost = Cost { estimated: first(&problem, None).map(|choice| choice.candidate.cost), measured };
        self.known.insert(key, cost);
        cost
    }

    /// What nodes cost together.
    pub fn sum(&mut self, graph: &Graph, nodes: &[NodeId]) -> Cost {
        nodes.iter().fold(Cost::NOTHING, |sum, id| sum.plus(self.of(graph, *id)))
    }
}

/// The cheapest candidate that the target's limits allow.
fn first(problem: &Problem<'_>, tuning: Option<&Database>) -> Option<Choice> {
    let able = |choice: &Choice| {
        let launches = (choice.kernel.launches)(problem, &choice.candidate);
        launches.is_ok_and(|l| fit::exceeded(&l, problem.bounds, problem.target).is_none())
    };
    let choices = fit::holds_result(problem).then(|| candidates(problem, None, tuning));
    choices?.into_iter().find(able)
}

/// A node as the plan will hand it to kernels; none where its types do not fit.
pub fn problem<'g>(graph: &'g Graph, id: NodeId, target: &'g TargetProfile) -> Option<Problem<'g>> {
    let node = graph.node(id);
    let operands = graph.operands(id);
    let own: Vec<&TensorDesc> = operands.iter().take(node.arity).map(|o| graph.tensor(*o)).collect();
    Some(Problem {
        op: &node.op,
        operands: operands.iter().map(|o| operand(graph, *o)).collect(),
        arity: node.arity,
        epilogue: &node.epilogue,
        computed: node.op.operation().infer(&own).ok()?.dtype,
        result: operand(graph, id),
        bounds: &graph.bounds,
        target,
    })
}

/// The kernels that compute the operators of a graph on a target. Elementwise functions and copies count where there is
/// nothing else.
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

/// A value as the plan will hand it to kernels.
pub fn operand(graph: &Graph, id: NodeId) -> Operand<'_> {
    let tensor = graph.tensor(id);
    Operand {
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        placement: placement(graph, id).unwrap_or_else(|| Placement::dense(&tensor.shape)),
        storage: tensor.layout.storage(),
        constant: graph.constant(id),
        codes: graph.constant(views(graph, id).1).and_then(Coded::of),
    }
}

/// The views through which a value is seen, the last one first, and what lies behind them.
fn views(graph: &Graph, id: NodeId) -> (Vec<NodeId>, NodeId) {
    let mut views = Vec::new();
    let mut base = id;
    while is_view(graph.op(base)) && graph.node(base).epilogue.is_empty() {
        let Some(operand) = graph.operands(base).first().copied() else { break };
        views.push(base);
        base = operand;
    }
    (views, base)
}

/// Where a value lies, seen through views; none for a view whose elements must move.
fn placement(graph: &Graph, id: NodeId) -> Option<Placement> {
    let (views, base) = views(graph, id);
    let tensor = graph.tensor(base);
    let mut shape = &tensor.shape;
    let mut placement =
        transposed_in_place(graph, base).unwrap_or_else(|| Placement::of(tensor.layout, shape));
    for id in views.into_iter().rev() {
        let result = &graph.tensor(id).shape;
        placement = view(graph.op(id), shape, &placement, result)?;
        shape = result;
    }
    Some(placement)
}
