//! Recognizes LayerNorm and RMSNorm that a model spells out.
//!
//! ```text
//! %1 = reduce mean %0                                      (last axes, kept)
//! %2 = sub %0 %1
//! %3 = mul %2 %2
//! %4 = reduce mean %3
//! %5 = affine %4 {"shift":1e-5}
//! %6 = sqrt %5
//! %7 = div %2 %6
//! %8 = mul %7 %scale
//! %9 = add %8 %bias                          ->      %9 = layer-norm %0 %scale %bias
//! ```
//!
//! Without the subtraction it is an RMSNorm. The core is recognized first, with a scale of ones. Then scale, bias and
//! the casts around a norm in a half-precision model are folded into it one by one.

use super::matching::{
    Rule, add_floats, affine, binary_of, both_orders, elementwise, name, plain, rewrite, single_use, splat,
    unary_of,
};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Element, LayerNorm, Op, Reshape, UnaryFn};
use crate::ir::ops::reduce::ReduceKind;

const RULES: &[(&str, Rule)] = &[
    ("recognized as LayerNorm or RMSNorm", core),
    ("multiplication folded into the norm as its scale", scale),
    ("addition folded into the norm as its bias", bias),
    ("casts removed: the norm reads and writes the narrower type", casts),
];

/// Recognizes LayerNorm and RMSNorm over the last axes of a tensor.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, RULES)
}

/// Returns the axis `a` and the operand of a mean over axis `a` and all later axes.
fn mean(graph: &Graph, id: NodeId) -> Option<(usize, NodeId)> {
    let (Op::Reduce(reduce), operands) = plain(graph, id)? else { return None };
    let first = *reduce.axes.first()?;
    let last_axes = reduce.axes.iter().copied().eq(first..graph.tensor(id).rank());
    (reduce.kind == ReduceKind::Mean && reduce.keepdims && last_axes).then_some((first, *operands.first()?))
}

/// Recognizes `d / sqrt(mean(d * d) + epsilon)`; for a LayerNorm `d` is `x - mean(x)`.
fn core(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let quotient = || {
        let (d, root) = binary_of(graph, id, BinaryFn::Div)?;
        Some((d, unary_of(graph, root, UnaryFn::Sqrt)?))
    };
    let product = || {
        both_orders(graph, id, BinaryFn::Mul)
            .into_iter()
            .find_map(|(d, root)| Some((d, unary_of(graph, root, UnaryFn::Rsqrt)?)))
    };
    let found = quotient().or_else(product).and_then(|(d, radicand)| {
        let (epsilon, variance) = match affine(graph, radicand) {
            Some((1.0, epsilon, variance)) if epsilon >= 0.0 => (epsilon, variance),
            Some(_) => return None,
            None => (0.0, radicand),
        };
        let (axis, square) = mean(graph, variance)?;
        let (a, b) = binary_of(graph, square, BinaryFn::Mul)?;
        (a == d && b == d).then_some((d, axis, epsilon))
    });
    let Some((d, axis, epsilon)) = found else { return Ok(None) };
    let centered = binary_of(graph, d, BinaryFn::Sub).and_then(|(x, m)| {
        let (along, averaged) = mean(graph, m)?;
        (along == axis && averaged == x).then_some(x)
    });
    let x = centered.unwrap_or(d);
    let tensor = graph.tensor(x);
    let extents: Option<Vec<usize>> =
        tensor.shape.iter().skip(axis).map(|n| usize::try_from(n.as_known()?).ok()).collect();
    let Some(extents) = extents else { return Ok(None) };
    let (dtype, name) = (tensor.dtype, name(graph, id));
    let ones = vec![1.0; crate::ir::array::count(&extents)];
    let scale = add_floats(graph, dtype, &extents, ones, &name)?;
    let norm = LayerNorm { axis, epsilon, rms: centered.is_none() };
    graph.add(norm, &[x, scale], &name).map(Some)
}

/// Returns the LayerNorm or RMSNorm that a node computes, with its operands, if the node has no epilogue and one user.
fn norm(graph: &Graph, id: NodeId) -> Option<(LayerNorm, Vec<NodeId>)> {
    match plain(graph, id)? {
        (Op::LayerNorm(norm), operands) if single_use(graph, id) => Some((norm.clone(), operands)),
        _ => None,
    }
}

/// Returns the value `w`, with its leading axes of size 1 removed, if it is a float and varies along the normalized
/// axes only; otherwise `None`.
fn along_axes(graph: &mut Graph, w: NodeId, norm: &LayerNorm, x: NodeId) -> Result<Option<NodeId>> {
    let (tensor, input) = (graph.tensor(w), graph.tensor(x));
    let normalized = input.rank().saturating_sub(norm.axis);
    let extra = tensor.rank().saturating_sub(normalized);
    if !tensor.dtype.is_float() || w == x || tensor.shape.iter().take(extra).any(|n| !n.is(1)) {
        return Ok(None);
    }
    if extra == 0 {
        return Ok(Some(w));
    }
    let shape = tensor.shape.iter().skip(extra).cloned().collect();
    graph.add(Reshape { shape }, &[w], &name(graph, w)).map(Some)
}

/// Folds a multiplication into a norm whose scale is still ones.
fn scale(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    for (n, w) in both_orders(graph, id, BinaryFn::Mul) {
        let Some((layer_norm, operands)) = norm(graph, n) else { continue };
        let [x, ones] = operands.as_slice() else { continue };
        if splat(graph, *ones) != Some(1.0) {
            continue;
        }
        let Some(w) = along_axes(graph, w, &layer_norm, *x)? else { continue };
        return graph.add(layer_norm, &[*x, w], &name(graph, n)).map(Some);
    }
    Ok(None)
}

/// Folds an addition into a LayerNorm without a bias.
fn bias(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    for (n, b) in both_orders(graph, id, BinaryFn::Add) {
        let Some((layer_norm, operands)) = norm(graph, n) else { continue };
        let [x, scale] = operands.as_slice() else { continue };
        if layer_norm.rms {
            continue;
        }
        let Some(b) = along_axes(graph, b, &layer_norm, *x)? else { continue };
        return graph.add(layer_norm, &[*x, *scale, b], &name(graph, n)).map(Some);
    }
    Ok(None)
}

/// Removes the casts of `cast(norm(cast(x)))` if the result has the type of x: a norm computes in f32 anyway.
fn casts(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Element::Cast(to), outer)) = elementwise(graph, id) else { return Ok(None) };
    let Some((layer_norm, mut operands)) = outer.first().and_then(|n| norm(graph, *n)) else {
        return Ok(None);
    };
    let Some((Element::Cast(_), inner)) = operands.first().and_then(|x| elementwise(graph, *x)) else {
        return Ok(None);
    };
    let Some(x) = inner.first().copied().filter(|x| graph.tensor(*x).dtype == to && to.is_float()) else {
        return Ok(None);
    };
    operands[0] = x;
    graph.add(layer_norm, &operands, &name(graph, id)).map(Some)
}
