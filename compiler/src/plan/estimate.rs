//! What a node of a graph will cost, before there is a plan: the estimate of its cheapest candidate.
//!
//! Whoever rewrites a graph by cost asks here, so that what is compared is what the plan will choose by.

use super::select::candidates;
use super::tuning::Database;
use super::views::{is_view, view};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::ir::tensor::TensorDesc;
use crate::kernels::problem::{Operand, Placement, Problem};
use crate::target::TargetProfile;

/// What a node costs in nanoseconds; with a database only where it was measured, and none where it has no kernel.
pub fn cost(graph: &Graph, id: NodeId, target: &TargetProfile, tuning: Option<&Database>) -> Option<f64> {
    let node = graph.node(id);
    if matches!(node.op, Op::Input(_) | Op::Constant(_)) {
        return Some(0.0);
    }
    if is_view(&node.op) && node.chain.is_empty() {
        return placement(graph, id).map(|_| 0.0);
    }
    let choices = candidates(&problem(graph, id, target)?, None, tuning);
    let first = choices.first()?;
    (tuning.is_none() || first.measured.is_some()).then_some(first.candidate.cost)
}

/// A node as the plan will hand it to kernels; none where its types do not fit.
pub fn problem<'g>(graph: &'g Graph, id: NodeId, target: &'g TargetProfile) -> Option<Problem<'g>> {
    let node = graph.node(id);
    let operands = graph.operands(id);
    let own: Vec<&TensorDesc> = operands.iter().take(node.own).map(|o| graph.tensor(*o)).collect();
    Some(Problem {
        op: &node.op,
        operands: operands.iter().map(|o| operand(graph, *o)).collect(),
        own: node.own,
        chain: &node.chain,
        computed: node.op.operation().infer(&own).ok()?.dtype,
        result: operand(graph, id),
        bounds: &graph.bounds,
        target,
    })
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
    }
}

/// Where a value lies, seen through views; none for a view whose elements must move.
fn placement(graph: &Graph, id: NodeId) -> Option<Placement> {
    let mut views = Vec::new();
    let mut base = id;
    while is_view(graph.op(base)) && graph.node(base).chain.is_empty() {
        views.push(base);
        base = *graph.operands(base).first()?;
    }
    let tensor = graph.tensor(base);
    let mut shape = &tensor.shape;
    let mut placement = Placement::of(tensor.layout, shape);
    for id in views.into_iter().rev() {
        let result = &graph.tensor(id).shape;
        placement = view(graph.op(id), shape, &placement, result)?;
        shape = result;
    }
    Some(placement)
}
