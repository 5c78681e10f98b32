//! Masks of attention scores: added to the scores, or selected in place of them.

use super::super::fold_constants::folded;
use super::super::matching::{add_binary, add_floats, add_unary, affine, elementwise, floats, plain, splat};
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Element, Elementwise, Expand, Op, Reduce, Reshape, UnaryFn};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

/// A mask value of this number or less excludes its key from attention.
const EXCLUDED: f32 = -1e9;
/// Finite mask value that excludes a key from attention, whatever its score.
const FINITE: f32 = -1e30;

/// One mask of attention scores.
#[derive(Debug, Clone)]
pub(super) struct Mask {
    pub(super) term: Term,
    /// Shape of the scores that the mask applies to.
    pub(super) scores: Vec<Dim>,
}

/// The change that a mask makes to attention scores.
#[derive(Debug, Clone, Copy)]
pub(super) enum Term {
    /// A tensor that is added to the attention scores.
    Added(NodeId),
    /// A condition. Attention scores for which the condition is not `keeps` become `out`.
    Selected {
        /// Bool tensor.
        condition: NodeId,
        /// Value of the condition for which an attention score is kept.
        keeps: bool,
        /// Value that replaces the attention score of a masked key.
        out: f32,
    },
}

impl Term {
    /// Returns true if adding `out` to an attention score is equivalent to replacing the score by `out`, because the
    /// key gets no weight either way.
    pub(super) fn excludes(&self) -> bool {
        match self {
            Self::Added(_) => true,
            Self::Selected { out, .. } => *out <= EXCLUDED,
        }
    }
}

/// Returns true if the masks leave at least one key in every row of scores, so that no row is minus infinity
/// throughout.
pub(super) fn leaves_a_key(graph: &Graph, masks: &[Mask], combined: NodeId) -> bool {
    let row_has_key = |id: NodeId| {
        floats(graph, id).map(|(shape, values)| {
            let row = shape.last().copied().unwrap_or(1).max(1);
            let wrong = values.iter().any(|v| v.is_nan() || *v == f32::INFINITY);
            !wrong && values.chunks(row).all(|r| r.iter().any(|v| v.is_finite()))
        })
    };
    if let Some(known) = row_has_key(combined) {
        return known;
    }
    // One constant mask may hold infinities if no other mask can.
    let mut constants = 0;
    masks.iter().all(|mask| match mask.term {
        Term::Selected { out, .. } => out.is_finite(),
        Term::Added(id) => match row_has_key(unexpanded(graph, id)) {
            Some(known) => {
                constants += 1;
                known && constants == 1
            }
            None => is_finite(graph, id),
        },
    })
}

/// Returns true if a computed mask is finite: a select of two finite numbers, or an affine function of integers.
fn is_finite(graph: &Graph, id: NodeId) -> bool {
    let from_integers = |x: NodeId| match elementwise(graph, x) {
        Some((Element::Cast(_), operands)) => {
            operands.first().is_some_and(|o| !graph.tensor(*o).dtype.is_float())
        }
        _ => false,
    };
    if let Some((_, _, x)) = affine(graph, id) {
        return from_integers(x);
    }
    match elementwise(graph, id) {
        Some((Element::Select, operands)) => {
            operands.iter().skip(1).all(|o| splat(graph, *o).is_some_and(f64::is_finite))
        }
        _ => false,
    }
}

/// Combines all masks of attention scores to one additive mask, folded to a constant where possible. Returns `None`
/// without masks. `leading` are the axes of the batch and of the heads, to which the mask broadcasts. The mask is f32,
/// since the number that excludes a key may exceed the range of f16.
pub(super) fn combine(
    graph: &mut Graph,
    masks: &[Mask],
    leading: &[Dim; 2],
    name: &str,
) -> Result<Option<NodeId>> {
    let mut sum: Option<NodeId> = None;
    for mask in masks {
        let added = match mask.term {
            Term::Added(id) => unexpanded(graph, id),
            Term::Selected { condition, keeps, out } => {
                let zero = add_floats(graph, DType::F32, &[], vec![0.0], name)?;
                let out = add_floats(graph, DType::F32, &[], vec![out], name)?;
                let (yes, no) = if keeps { (zero, out) } else { (out, zero) };
                let select = Elementwise { element: Element::Select };
                let id = graph.add(select, &[condition, yes, no], name)?;
                folded(graph, id, name)?
            }
        };
        let added = with_leading_axes(graph, added, &mask.scores, leading, name)?;
        sum = Some(match sum {
            Some(other) => {
                let id = add_binary(graph, BinaryFn::Add, other, added, name)?;
                folded(graph, id, name)?
            }
            None => added,
        });
    }
    Ok(sum)
}

/// Reshapes a mask that broadcasts to scores of shape `from`, so that it broadcasts to `[batch, heads, queries, keys]`.
/// `leading` is `[batch, heads]`. Only leading axes of `from` that differ are joined or split. A mask that broadcasts
/// along some of these axes alone is expanded along them.
fn with_leading_axes(
    graph: &mut Graph,
    mask: NodeId,
    from: &[Dim],
    leading: &[Dim; 2],
    name: &str,
) -> Result<NodeId> {
    let from = from.get(..from.len().saturating_sub(2)).unwrap_or_default();
    let equal = from.iter().rev().zip(leading.iter().rev()).take_while(|(a, b)| a == b).count();
    let shape = graph.tensor(mask).shape.clone();
    let (differing, kept) = shape.split_at(shape.len().saturating_sub(2 + equal));
    if differing.is_empty() {
        return Ok(mask);
    }
    let (from, to) = (&from[..from.len() - equal], &leading[..leading.len() - equal]);
    let broadcast = differing.iter().all(|size| size.is(1));
    let mut result = mask;
    if !broadcast && differing != from {
        let id = graph.add(Expand { shape: [from, kept].concat() }, &[result], name)?;
        result = folded(graph, id, name)?;
    }
    let shape = if broadcast { kept.to_vec() } else { [to, kept].concat() };
    let id = graph.add(Reshape { shape }, &[result], name)?;
    folded(graph, id, name)
}

/// Returns the operand of a mask's expand, because attention broadcasts its mask itself; otherwise the mask.
fn unexpanded(graph: &Graph, id: NodeId) -> NodeId {
    match plain(graph, id) {
        Some((Op::Expand(_), operands)) => operands.first().copied().unwrap_or(id),
        _ => id,
    }
}

/// Adds a node that is true for each row of a mask that leaves at least one key. The condition broadcasts to the result
/// of attention.
pub(super) fn row_has_key(graph: &mut Graph, mask: NodeId, name: &str) -> Result<NodeId> {
    let axes = graph.tensor(mask).rank().checked_sub(1).into_iter().collect();
    let largest = graph.add(Reduce { kind: ReduceKind::Max, axes, keepdims: true }, &[mask], name)?;
    let limit = add_floats(graph, DType::F32, &[], vec![FINITE], name)?;
    add_binary(graph, BinaryFn::Greater, largest, limit, name)
}

/// Clips an attention mask, so that minus infinity becomes a large finite number.
pub(super) fn finite(graph: &mut Graph, mask: NodeId, name: &str) -> Result<NodeId> {
    add_unary(graph, UnaryFn::Clip { low: FINITE, high: f32::INFINITY }, mask, name)
}

/// The range of keys that a causal mask lets a query attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Band {
    /// Maximum number of keys of a query; `None` if a query attends to all earlier keys.
    pub(super) window: Option<u32>,
}

/// Returns the band of a constant causal mask. In a causal mask query i attends to the keys up to `i + keys - queries`:
/// to all of them, or to the last `window`.
pub(super) fn band(graph: &Graph, id: NodeId) -> Option<Band> {
    let Op::Constant(constant) = graph.op(id) else { return None };
    let [leading @ .., queries, keys] = constant.shape.as_slice() else { return None };
    let offset = keys.checked_sub(*queries).filter(|_| leading.iter().all(|n| *n == 1))?;
    // A single query attends to every key, which needs no mask; it is not handled.
    let (_, values) = floats(graph, id).filter(|_| *keys > 1)?;
    // The last query attends to the last key and the keys before it; their number is the window.
    let last = values.chunks_exact(*keys).next_back()?;
    let size = last.iter().rev().take_while(|v| **v == 0.0).count();
    let is_band = size > 0
        && values.chunks_exact(*keys).enumerate().all(|(i, row)| {
            let sees = |j: usize| j <= i + offset && j + size > i + offset;
            row.iter().enumerate().all(|(j, v)| if sees(j) { *v == 0.0 } else { *v <= EXCLUDED })
        });
    let window = u32::try_from(size).ok().filter(|_| size < *keys);
    is_band.then_some(Band { window })
}
