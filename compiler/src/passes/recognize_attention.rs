//! Recognises scaled dot-product attention.
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
//! `affine(cap) . tanh . affine(1 / cap)` behind the scale becomes `softcap`. The scale may stand before or after the product, on the query, the key or both. The key may come through any
//! transpose, and query heads may share keys that an expansion repeats. Masks are added or selected; a constant
//! triangular one becomes `causal`, one of a band `window` besides. The transposes that split and merge heads stay where they are: they are views.
//!
//! A guard `select(isnan(p), 0, p)` around the softmax makes a row zero whose keys are all masked. Attention gives
//! no such promise, so the guard is dropped only when no row can be masked throughout: without a mask, with a
//! constant mask that leaves a key to every row, or with a mask of finite numbers. Otherwise the mask is made
//! finite, and the rows of the result whose largest mask element is minus infinity are set to zero.

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

const RULES: &[(&str, Rule)] = &[("is an attention", attention)];

/// Recognises attention.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}

/// The scores before softmax: `scale * q k^T` and what masks them.
struct Scores {
    q: NodeId,
    k: NodeId,
    /// Whether the key's last two axes are swapped already.
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
    let Some(heads) = Heads::of(graph, q, k, v) else { return Ok(None) };
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
    let what = Replacement { op: op.into(), arity: operands.len(), operands, epilogue: Vec::new() };
    if graph.infer(&what).is_err() {
        return Ok(None);
    }
    let mut result = graph.add_fused(what, &name)?;
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

/// The softmax over the last axis below casts and a guard against rows without keys.
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

fn is_softmax(graph: &Graph, id: NodeId) -> bool {
    match plain(graph, id) {
        Some((Op::Softmax(softmax), _)) => !softmax.log && softmax.axis + 1 == graph.tensor(id).rank(),
        _ => false,
    }
}

/// What is below casts between floats that nothing else uses.
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

/// Takes the scores apart down to the product of query and key.
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
        // A scaled mask would be another mask, and a scaled cap is none.
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

/// How the operands carry their heads.
#[derive(Clone, Copy, PartialEq)]
enum Heads {
    /// `[batch, heads, length, size]`.
    Axis,
    /// `[batch * heads, length, size]`.
    Flat,
}

impl Heads {
    /// The form of three operands whose leading axes agree.
    fn of(graph: &Graph, q: NodeId, k: NodeId, v: NodeId) -> Option<Self> {
        let [q, k, v] = [q, k, v].map(|x| graph.tensor(x).shape.as_slice());
        match (q, k, v) {
            ([bq, hq, _, _], [bk, hk, _, _], [bv, hv, _, _]) => {
                let shared = hq == hk
                    || matches!((hq.as_known(), hk.as_known()), (Some(h), Some(k)) if h.checked_rem(k) == Some(0));
                (bq == bk && bk == bv && hk == hv && shared).then_some(Self::Axis)
            }
            ([bq, _, _], [bk, _, _], [bv, _, _]) => (bq == bk && bk == bv).then_some(Self::Flat),
            _ => None,
        }
    }
}
