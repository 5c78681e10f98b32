//! Recognizes scaled dot-product attention.
//!
//! ```text
//! %3 = transpose %k {"perm":[0, 1, 3, 2]}
//! %4 = matmul %q %3
//! %5 = affine %4 {"scale":0.125}
//! %6 = add %5 %mask
//! %7 = softmax %6 {"axis":3}
//! %8 = matmul %7 %v                          ->      %8 = attention %q %k %v %mask {"scale":0.125}
//! ```
//!
//! `affine(cap) . tanh . affine(1 / cap)` after the scale becomes `softcap`. The scale may be before or after the
//! matmul: on the query, the key or both, also before the views that split heads. Any transpose of the key is followed.
//! An expand that repeats key heads for groups of query heads is removed (GQA). A mask may be added to the scores, or a
//! condition may select scores to replace. A constant triangular mask becomes `causal`, a constant banded mask `causal`
//! with `window`. The transposes that split and merge heads stay: they are views.
//!
//! A guard `select(isnan(p), 0, p)` around the softmax zeroes rows whose keys are all masked. The attention operator
//! does not zero them. So the guard is dropped only if no row can be masked entirely: without a mask, with a constant
//! mask that leaves a key in every row, or with a mask of finite numbers. Otherwise the mask is clipped to finite
//! numbers, and result rows whose largest mask element is minus infinity are set to zero.

mod mask;
mod operands;

use super::matching::{
    Rule, add_floats, affine, elementwise, name, only_operand, plain, rewrite, single_use, splat, unary_of,
};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Attention, BinaryFn, Element, Elementwise, MatMul, Op, Reshape, UnaryFn};
use mask::Mask;

const RULES: &[(&str, Rule)] = &[
    ("recognized as attention", attention),
    ("scale of the query or key moved into attention", scaled_operand),
];

/// Recognizes attention.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}

/// Attention scores before softmax: `scale * q k^T`, the soft cap and the masks.
struct Scores {
    q: NodeId,
    k: NodeId,
    /// True if the last two axes of the attention key are already swapped.
    k_transposed: bool,
    scale: f32,
    softcap: Option<f32>,
    masks: Vec<Mask>,
}

fn attention(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::MatMul(MatMul { trans_a: false, trans_b }), factors)) = plain(graph, id) else {
        return Ok(None);
    };
    let v_transposed = *trans_b;
    let [p, v] = factors.as_slice() else { return Ok(None) };
    let v = *v;
    let Some((softmax, guarded)) = probabilities(graph, *p) else { return Ok(None) };
    let Some(top) = only_operand(graph, softmax) else { return Ok(None) };
    let shape = graph.tensor(softmax).shape.clone();
    let Some(mut scores) = scores(graph, top, &shape) else { return Ok(None) };
    let name = name(graph, id);
    let (q, q_scale) = operands::without_scale(graph, scores.q);
    let (k, k_scale) = operands::key(graph, scores.k, !scores.k_transposed)?;
    scores.scale *= q_scale * k_scale;
    let v = if v_transposed { operands::swap_last_two(graph, v)? } else { v };
    let (k, v) = operands::without_repetition(graph, k, v);
    let Some(heads) = Heads::from_operands(graph, q, k, v) else { return Ok(None) };
    let mut mask = mask::combine(graph, &scores.masks, &name)?;
    let mut row_has_key = None;
    if let Some(open) = mask.filter(|m| guarded && !mask::leaves_a_key(graph, &scores.masks, *m)) {
        row_has_key = Some(mask::row_has_key(graph, open, &name)?);
        mask = Some(mask::finite(graph, open, &name)?);
    }
    let band = mask.and_then(|m| mask::band(graph, m));
    let causal = band.is_some();
    let window = band.and_then(|band| band.window);
    let op = Attention { scale: scores.scale, causal, window, softcap: scores.softcap };
    let mut operands = vec![q, k, v];
    if heads == Heads::Flat {
        for operand in &mut operands {
            let mut shape = graph.tensor(*operand).shape.clone();
            shape.insert(0, Dim::known(1));
            *operand = graph.add(Reshape { shape }, &[*operand], &name)?;
        }
    }
    operands.extend(mask.filter(|_| !causal));
    let replacement = Replacement { op: op.into(), arity: operands.len(), operands, epilogue: Vec::new() };
    if graph.infer(&replacement).is_err() {
        return Ok(None);
    }
    let mut result = graph.add_fused(replacement, &name)?;
    if heads == Heads::Flat {
        let shape = graph.tensor(id).shape.clone();
        result = graph.add(Reshape { shape }, &[result], &name)?;
    }
    if let Some(condition) = row_has_key {
        let zero = add_floats(graph, graph.tensor(id).dtype, &[], vec![0.0], &name)?;
        let select = Elementwise { element: Element::Select };
        result = graph.add(select, &[condition, result, zero], &name)?;
    }
    Ok(Some(result))
}

/// Finds the softmax over the last axis from which a value is computed by float casts and possibly a NaN guard
/// (`select(isnan(p), 0, p)`). Returns the softmax, and true if there is a guard.
fn probabilities(graph: &Graph, id: NodeId) -> Option<(NodeId, bool)> {
    let p = without_casts(graph, id)?;
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

/// Moves the scale of a query or key, which views separate from attention, into the attention operator.
fn scaled_operand(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::Attention(op), mut operands)) = plain(graph, id) else { return Ok(None) };
    let mut op = op.clone();
    for operand in operands.iter_mut().take(2) {
        let mut views = Vec::new();
        let mut x = *operand;
        while let Some((view @ (Op::Reshape(_) | Op::Transpose(_)), inner)) = plain(graph, x)
            && single_use(graph, x)
            && let [source] = inner[..]
        {
            views.push(view.clone());
            x = source;
        }
        let Some((scale, 0.0, unscaled)) = affine(graph, x).filter(|_| single_use(graph, x)) else {
            continue;
        };
        let name = name(graph, x);
        op.scale *= scale;
        *operand = unscaled;
        for view in views.into_iter().rev() {
            *operand = graph.add(view, &[*operand], &name)?;
        }
        return graph.add(op, &operands, &self::name(graph, id)).map(Some);
    }
    Ok(None)
}

fn is_softmax(graph: &Graph, id: NodeId) -> bool {
    match plain(graph, id) {
        Some((Op::Softmax(softmax), _)) => !softmax.log && softmax.axis + 1 == graph.tensor(id).rank(),
        _ => false,
    }
}

/// Returns the value at the start of a chain of float casts. Returns `None` if a cast has several users.
fn without_casts(graph: &Graph, mut id: NodeId) -> Option<NodeId> {
    while let Some((Element::Cast(to), operands)) = elementwise(graph, id) {
        let x = *operands.first()?;
        if !to.is_float() || !graph.tensor(x).dtype.is_float() || !single_use(graph, id) {
            return None;
        }
        id = x;
    }
    Some(id)
}

/// Matches the attention scores, from the operand of the softmax down to the matmul of query and key.
fn scores(graph: &Graph, id: NodeId, shape: &[Dim]) -> Option<Scores> {
    let id = without_casts(graph, id)?;
    if graph.tensor(id).shape != shape || !single_use(graph, id) {
        return None;
    }
    if let Some((Op::MatMul(MatMul { trans_a: false, trans_b }), operands)) = plain(graph, id) {
        let [q, k] = operands.as_slice() else { return None };
        let (scale, softcap) = (1.0, None);
        return Some(Scores { q: *q, k: *k, k_transposed: *trans_b, scale, softcap, masks: Vec::new() });
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
    let (mut inner, mask) = match (element, operands.as_slice()) {
        (Element::Binary(BinaryFn::Add), [a, b]) => match scores(graph, *a, shape) {
            Some(inner) => (inner, Mask::Added(*b)),
            None => (scores(graph, *b, shape)?, Mask::Added(*a)),
        },
        (Element::Select, [condition, yes, no]) => match (splat(graph, *no), splat(graph, *yes)) {
            (Some(out), _) => {
                let inner = scores(graph, *yes, shape)?;
                (inner, Mask::Selected { condition: *condition, keeps: true, out: out as f32 })
            }
            (_, Some(out)) => {
                let inner = scores(graph, *no, shape)?;
                (inner, Mask::Selected { condition: *condition, keeps: false, out: out as f32 })
            }
            _ => return None,
        },
        _ => return None,
    };
    if !mask.excludes() {
        return None;
    }
    inner.masks.push(mask);
    Some(inner)
}

/// Position of the attention heads in the axes of query, key and value.
#[derive(Clone, Copy, PartialEq)]
enum Heads {
    /// Heads have their own axis: `[batch, heads, length, size]`.
    Axis,
    /// Heads are part of the batch axis: `[batch * heads, length, size]`.
    Flat,
}

impl Heads {
    /// Returns the position of the heads in query, key and value; `None` if their leading axes do not agree.
    fn from_operands(graph: &Graph, q: NodeId, k: NodeId, v: NodeId) -> Option<Self> {
        let [q, k, v] = [q, k, v].map(|x| graph.tensor(x).shape.as_slice());
        match (q, k, v) {
            ([bq, hq, _, _], [bk, hk, _, _], [bv, hv, _, _]) => {
                let grouped = hq == hk
                    || matches!((hq.as_known(), hk.as_known()), (Some(h), Some(k)) if h.checked_rem(k) == Some(0));
                (bq == bk && bk == bv && hk == hv && grouped).then_some(Self::Axis)
            }
            ([bq, _, _], [bk, _, _], [bv, _, _]) => (bq == bk && bk == bv).then_some(Self::Flat),
            _ => None,
        }
    }
}
