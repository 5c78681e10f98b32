//! Attention scores and probabilities: the nodes between the matmul of query and key and the matmul with the value.

use super::super::matching::{affine, elementwise, plain, single_use, splat, unary_of};
use super::mask::{Mask, Term};
use crate::ir::dim::{Dim, product};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Element, Elementwise, MatMul, Op, UnaryFn};

/// Attention scores before softmax: `scale * q k^T`, the soft cap and the masks.
pub(super) struct Scores {
    pub(super) q: NodeId,
    pub(super) k: NodeId,
    /// True if the last two axes of the attention key are already swapped.
    pub(super) k_transposed: bool,
    pub(super) scale: f32,
    pub(super) softcap: Option<f32>,
    pub(super) masks: Vec<Mask>,
    /// Shape of the matmul of query and key.
    pub(super) shape: Vec<Dim>,
}

/// Finds the softmax over the last axis from which a value is computed by float casts, reshapes of leading axes
/// and possibly a NaN guard (`select(isnan(p), 0, p)`). Returns the softmax, and true if there is a guard.
pub(super) fn probabilities(graph: &Graph, id: NodeId) -> Option<(NodeId, bool)> {
    let p = without_casts_and_reshapes(graph, id)?;
    if is_softmax(graph, p) {
        return single_use(graph, p).then_some((p, false));
    }
    let (Element::Select, operands) = elementwise(graph, p)? else { return None };
    let [condition, zero, softmax] = operands.as_slice() else { return None };
    let guards = unary_of(graph, *condition, UnaryFn::IsNan)? == *softmax && splat(graph, *zero) == Some(0.0);
    let only_here = graph.users(*softmax).len() == 2 && !graph.is_output(*softmax);
    (guards
        && only_here
        && single_use(graph, p)
        && single_use(graph, *condition)
        && is_softmax(graph, *softmax))
    .then_some((*softmax, true))
}

fn is_softmax(graph: &Graph, id: NodeId) -> bool {
    match plain(graph, id) {
        Some((Op::Softmax(softmax), _)) => !softmax.log && softmax.axis + 1 == graph.tensor(id).rank(),
        _ => false,
    }
}

/// Returns the value before a sequence of float casts and reshapes of leading axes. Returns `None` if a node of
/// the sequence has more than one user.
fn without_casts_and_reshapes(graph: &Graph, mut id: NodeId) -> Option<NodeId> {
    loop {
        let x = match plain(graph, id) {
            Some((Op::Elementwise(Elementwise { element: Element::Cast(_) }) | Op::Reshape(_), operands)) => {
                *operands.first()?
            }
            _ => return Some(id),
        };
        let (from, to) = (graph.tensor(x), graph.tensor(id));
        let floats = from.dtype.is_float() && to.dtype.is_float();
        if !floats || !same_matrices(&from.shape, &to.shape) || !single_use(graph, id) {
            return None;
        }
        id = x;
    }
}

/// Returns true if two shapes differ in leading axes alone: the last two axes and the number of matrices are equal.
fn same_matrices(a: &[Dim], b: &[Dim]) -> bool {
    match (a.split_last_chunk::<2>(), b.split_last_chunk::<2>()) {
        (Some((a, m)), Some((b, n))) => m == n && product(a) == product(b),
        _ => false,
    }
}

/// Matches the attention scores of the given shape, from the operand of the softmax down to the matmul of query and key.
pub(super) fn scores(graph: &Graph, id: NodeId, shape: &[Dim]) -> Option<Scores> {
    if graph.tensor(id).shape != shape {
        return None;
    }
    let id = without_casts_and_reshapes(graph, id)?;
    if !single_use(graph, id) {
        return None;
    }
    let shape = &graph.tensor(id).shape;
    if let Some((Op::MatMul(MatMul { trans_a: false, trans_b }), operands)) = plain(graph, id) {
        let [q, k] = operands.as_slice() else { return None };
        let (q, k, k_transposed, masks, shape) = (*q, *k, *trans_b, Vec::new(), shape.clone());
        return Some(Scores { q, k, k_transposed, scale: 1.0, softcap: None, masks, shape });
    }
    if let Some((scale, 0.0, x)) = affine(graph, id) {
        let capped = unary_of(graph, x, UnaryFn::Tanh).filter(|_| scale > 0.0 && single_use(graph, x));
        let mut inner = scores(graph, capped.unwrap_or(x), shape)?;
        // The softcap operator applies neither to a scaled mask nor to another soft cap.
        let bare = inner.masks.is_empty() && inner.softcap.is_none();
        inner.scale *= scale;
        inner.softcap = capped.map(|_| scale);
        return bare.then_some(inner);
    }
    let (element, operands) = elementwise(graph, id)?;
    let (mut inner, term) = match (element, operands.as_slice()) {
        (Element::Binary(BinaryFn::Add), [a, b]) => match scores(graph, *a, shape) {
            Some(inner) => (inner, Term::Added(*b)),
            None => (scores(graph, *b, shape)?, Term::Added(*a)),
        },
        (Element::Select, [condition, yes, no]) => match (splat(graph, *no), splat(graph, *yes)) {
            (Some(out), _) => {
                let inner = scores(graph, *yes, shape)?;
                (inner, Term::Selected { condition: *condition, keeps: true, out: out as f32 })
            }
            (_, Some(out)) => {
                let inner = scores(graph, *no, shape)?;
                (inner, Term::Selected { condition: *condition, keeps: false, out: out as f32 })
            }
            _ => return None,
        },
        _ => return None,
    };
    if !term.excludes() {
        return None;
    }
    inner.masks.push(Mask { term, scores: shape.clone() });
    Some(inner)
}
