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
//! Scores and probabilities may be reshaped between the two matmuls if queries and keys keep their axes. Models split the
//! leading axis to add one mask per batch element to `[batch * heads, length, length]`, or one mask per window to `[batch *
//! windows, heads, length, length]` (Swin Transformer). Each mask is reshaped to the leading axes of attention.
//!
//! A guard `select(isnan(p), 0, p)` around the softmax zeroes rows whose keys are all masked. The attention operator
//! does not zero them. So the guard is dropped only if no row can be masked entirely: without a mask, with a constant
//! mask that leaves a key in every row, or with a mask of finite numbers. Otherwise the mask is clipped to finite
//! numbers, and result rows whose largest mask element is minus infinity are set to zero.

mod mask;
mod operands;
mod scores;

use super::matching::{Rule, add_floats, affine, name, only_operand, plain, rewrite, single_use};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Attention, Element, Elementwise, MatMul, Op, Reshape};
use operands::Heads;
use scores::{probabilities, scores};

const RULES: &[(&str, Rule)] = &[
    ("recognized as attention", attention),
    ("scale of the query or key moved into attention", scaled_operand),
];

/// Recognizes attention.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
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
    let Some(mut scores) = scores(graph, top, &graph.tensor(softmax).shape) else { return Ok(None) };
    if scores.shape != graph.tensor(*p).shape {
        return Ok(None);
    }
    let name = name(graph, id);
    let (q, q_scale) = operands::without_scale(graph, scores.q);
    let (k, k_scale) = operands::key(graph, scores.k, !scores.k_transposed)?;
    scores.scale *= q_scale * k_scale;
    let v = if v_transposed { operands::swap_last_two(graph, v)? } else { v };
    let (k, v) = operands::without_repetition(graph, k, v);
    let Some(heads) = Heads::from_operands(graph, [q, k, v], &scores) else { return Ok(None) };
    let mut mask = mask::combine(graph, &scores.masks, heads.leading(), &name)?;
    let mut row_has_key = None;
    if let Some(open) = mask.filter(|m| guarded && !mask::leaves_a_key(graph, &scores.masks, *m)) {
        row_has_key = Some(mask::row_has_key(graph, open, &name)?);
        mask = Some(mask::finite(graph, open, &name)?);
    }
    let band = mask.and_then(|m| mask::band(graph, m));
    let causal = band.is_some();
    let window = band.and_then(|band| band.window);
    let op = Attention { scale: scores.scale, causal, window, softcap: scores.softcap };
    let mut operands = heads.separate(graph, [q, k, v], &name)?;
    operands.extend(mask.filter(|_| !causal));
    let replacement = Replacement { op: op.into(), arity: operands.len(), operands, epilogue: Vec::new() };
    if graph.infer(&replacement).is_err() {
        return Ok(None);
    }
    let mut result = graph.add_fused(replacement, &name)?;
    if let Some(condition) = row_has_key {
        let zero = add_floats(graph, graph.tensor(id).dtype, &[], vec![0.0], &name)?;
        let select = Elementwise { element: Element::Select };
        result = graph.add(select, &[condition, result, zero], &name)?;
    }
    let shape = graph.tensor(id).shape.clone();
    if graph.tensor(result).shape != shape {
        result = graph.add(Reshape { shape }, &[result], &name)?;
    }
    Ok(Some(result))
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
