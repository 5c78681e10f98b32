//! Simplifies views such as reshapes and slices: removes views without effect, and merges a view of a view.

use super::super::matching::{name, only_operand, plain, splat};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Expand, Op, Slice, Transpose};
use crate::ir::ops::reduce::ReduceKind;

/// Removes a view that equals its operand.
pub(in super::super) fn identity(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, operands)) = plain(graph, id) else { return Ok(None) };
    let [x] = operands.as_slice() else { return Ok(None) };
    let shape = &graph.tensor(*x).shape;
    let nothing = match op {
        Op::Reshape(o) => o.shape == *shape,
        Op::Expand(o) => o.shape == *shape,
        Op::Transpose(o) => o.perm.iter().enumerate().all(|(i, p)| i == *p),
        Op::Slice(o) => {
            o.sizes == *shape && o.starts.iter().all(|s| s.is(0)) && o.steps.iter().all(|s| *s == 1)
        }
        Op::Pad(o) => o.before.iter().chain(&o.after).all(|n| n.is(0)),
        Op::Concat(_) => true,
        Op::Relayout(o) => graph.tensor(*x).layout == o.layout,
        Op::Reduce(o) => {
            use ReduceKind::{Max, Mean, Min, Prod, Sum};
            o.axes.is_empty() && matches!(o.kind, Sum | Mean | Max | Min | Prod)
        }
        _ => false,
    };
    Ok(nothing.then_some(*x))
}

/// Merges two reshapes.
pub(super) fn reshape_of_reshape(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Op::Reshape(outer) = graph.op(id).clone() else { return Ok(None) };
    let Some(inner) = operand_of_kind(graph, id, |op| matches!(op, Op::Reshape(_))) else { return Ok(None) };
    let Some(x) = only_operand(graph, inner) else { return Ok(None) };
    graph.add(outer, &[x], &name(graph, id)).map(Some)
}

/// Merges two transposes.
pub(in super::super) fn transpose_of_transpose(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Op::Transpose(outer) = graph.op(id).clone() else { return Ok(None) };
    let Some(inner) = operand_of_kind(graph, id, |op| matches!(op, Op::Transpose(_))) else {
        return Ok(None);
    };
    let (Op::Transpose(first), Some(x)) = (graph.op(inner), only_operand(graph, inner)) else {
        return Ok(None);
    };
    let perm: Option<Vec<usize>> = outer.perm.iter().map(|p| first.perm.get(*p).copied()).collect();
    let Some(perm) = perm else { return Ok(None) };
    if perm.iter().enumerate().all(|(i, p)| i == *p) {
        return Ok(Some(x));
    }
    graph.add(Transpose { perm }, &[x], &name(graph, id)).map(Some)
}

/// Merges two slices.
pub(super) fn slice_of_slice(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Op::Slice(outer) = graph.op(id).clone() else { return Ok(None) };
    let Some(inner) = operand_of_kind(graph, id, |op| matches!(op, Op::Slice(_))) else { return Ok(None) };
    let (Op::Slice(first), Some(x)) = (graph.op(inner), only_operand(graph, inner)) else {
        return Ok(None);
    };
    // out[i] = y[s2 + i * t2] and y[j] = x[s1 + j * t1].
    let starts =
        first.starts.iter().zip(&first.steps).zip(&outer.starts).map(|((s1, t1), s2)| s1.add(&s2.scale(*t1)));
    let steps: Option<Vec<i64>> =
        first.steps.iter().zip(&outer.steps).map(|(t1, t2)| t1.checked_mul(*t2)).collect();
    let Some(steps) = steps else { return Ok(None) };
    let slice = Slice { starts: starts.collect(), steps, sizes: outer.sizes };
    graph.add(slice, &[x], &name(graph, id)).map(Some)
}

/// Merges two expands.
pub(super) fn expand_of_expand(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Op::Expand(Expand { shape }) = graph.op(id).clone() else { return Ok(None) };
    let Some(inner) = operand_of_kind(graph, id, |op| matches!(op, Op::Expand(_))) else { return Ok(None) };
    let Some(x) = only_operand(graph, inner) else { return Ok(None) };
    graph.add(Expand { shape }, &[x], &name(graph, id)).map(Some)
}

/// Removes an expand whose user broadcasts its operands itself, if the shape of the user's result stays the same.
pub(super) fn expand_before_broadcast(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, operands)) = plain(graph, id) else { return Ok(None) };
    if !matches!(op, Op::Elementwise(_) | Op::MatMul(_)) {
        return Ok(None);
    }
    let op = op.clone();
    for (i, operand) in operands.iter().enumerate() {
        let Some((Op::Expand(_), inner)) = plain(graph, *operand) else { continue };
        let Some(x) = inner.first() else { continue };
        if matches!(op, Op::MatMul(_)) && !same_matrix(graph, *operand, *x) {
            continue;
        }
        let mut narrow = operands.clone();
        narrow[i] = *x;
        let replacement =
            Replacement { op: op.clone(), arity: narrow.len(), operands: narrow, epilogue: Vec::new() };
        if graph.infer(&replacement).is_ok_and(|t| t.shape == graph.tensor(id).shape) {
            return graph.add_fused(replacement, &name(graph, id)).map(Some);
        }
    }
    Ok(None)
}

/// Computes an elementwise node before the expand of its operands, and expands the result. A constant with equal
/// elements counts as an expanded scalar.
pub(super) fn expand_after_elementwise(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op @ Op::Elementwise(_), operands)) = plain(graph, id) else { return Ok(None) };
    let op = op.clone();
    if operands.iter().all(|o| graph.constant(*o).is_some()) {
        return Ok(None);
    }
    let mut narrow = Vec::with_capacity(operands.len());
    for operand in &operands {
        narrow.push(unexpanded(graph, *operand)?);
    }
    if narrow == operands {
        return Ok(None);
    }
    let shape = graph.tensor(id).shape.clone();
    let replacement = Replacement { op, arity: narrow.len(), operands: narrow, epilogue: Vec::new() };
    if graph.infer(&replacement).is_err() {
        return Ok(None);
    }
    let name = name(graph, id);
    let computed = graph.add_fused(replacement, &name)?;
    if graph.tensor(computed).shape == shape {
        return Ok(Some(computed));
    }
    graph.add(Expand { shape }, &[computed], &name).map(Some)
}

/// Returns the operand of an expand, or a scalar for a constant with equal elements; other values as they are.
fn unexpanded(graph: &mut Graph, id: NodeId) -> Result<NodeId> {
    if let Some((Op::Expand(_), inner)) = plain(graph, id) {
        return Ok(inner.first().copied().unwrap_or(id));
    }
    let Some(constant) = graph.constant(id).filter(|c| c.elements() > 1) else { return Ok(id) };
    if splat(graph, id).is_none() {
        return Ok(id);
    }
    let Some(plain) = constant.encoding.plain_dtype() else { return Ok(id) };
    let (dtype, encoding) = (constant.dtype, constant.encoding.clone());
    let bytes = constant.bytes.slice(0..plain.bytes());
    graph
        .add_constant(Constant { dtype, shape: Vec::new(), encoding, strides: None, bytes }, &name(graph, id))
}

/// Returns true if an expand leaves the last two axes of its operand unchanged.
fn same_matrix(graph: &Graph, expanded: NodeId, x: NodeId) -> bool {
    let (a, b) = (&graph.tensor(expanded).shape, &graph.tensor(x).shape);
    b.len() >= 2 && a.iter().rev().zip(b.iter().rev()).take(2).all(|(a, b)| a == b)
}

/// Returns the only operand of a node if that operand has the wanted kind of operator and no epilogue.
fn operand_of_kind(graph: &Graph, id: NodeId, kind: fn(&Op) -> bool) -> Option<NodeId> {
    let x = only_operand(graph, id)?;
    plain(graph, x).filter(|(op, _)| kind(op)).map(|_| x)
}
