//! Simplifies elementwise operators: removes operators without effect, and rewrites equivalent ones to one form.
//!
//! Scalars merge only if the result changes by at most one rounding. They never merge before a function that turns
//! a rounding difference into a step: `floor(x / 49)` must not become `floor(x * (1 / 49))`.

use super::super::matching::{
    add_affine, add_binary, add_floats, add_unary, affine, binary, binary_of, elementwise, floats, name,
    same_type_and_shape, single_use, splat, unary, unary_of,
};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Element, Elementwise, UnaryFn};
use crate::ir::tensor::DType;

/// Maximum depth to which the elementwise users of a value are searched for a rounding function.
const ROUNDING_DEPTH: usize = 4;
/// Minimum absolute value of a shift that is not merged with other shifts: models add and subtract such large numbers to round a
/// value.
const ROUNDING_SHIFT: f32 = 65536.0;

/// Removes `x + 0`, `x - 0`, `x * 1`, `x / 1`, `x and true`, `x or false`, and a cast to the same type.
pub(super) fn neutral(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((element, operands)) = elementwise(graph, id) else { return Ok(None) };
    let [x, rest @ ..] = operands.as_slice() else { return Ok(None) };
    let found = match element {
        Element::Cast(_) => Some(*x),
        Element::Unary(UnaryFn::Affine { scale: 1.0, shift: 0.0 }) => Some(*x),
        Element::Unary(UnaryFn::Clip { low: f32::NEG_INFINITY, high: f32::INFINITY }) => Some(*x),
        Element::Binary(f) => rest.first().and_then(|y| {
            let is = |id: NodeId, value: f64| splat(graph, id) == Some(value);
            let (neutral, both) = match f {
                BinaryFn::Add => (0.0, true),
                BinaryFn::Sub => (0.0, false),
                BinaryFn::Mul => (1.0, true),
                BinaryFn::Div | BinaryFn::Pow => (1.0, false),
                BinaryFn::And => (1.0, true),
                BinaryFn::Or => (0.0, true),
                _ => return None,
            };
            if is(*y, neutral) { Some(*x) } else { (both && is(*x, neutral)).then_some(*y) }
        }),
        _ => None,
    };
    Ok(found.filter(|x| same_type_and_shape(graph, *x, id)))
}

/// Removes the first of two consecutive casts if that cast loses no information.
pub(super) fn cast_of_cast(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Element::Cast(to), operands)) = elementwise(graph, id) else { return Ok(None) };
    let Some((Element::Cast(through), inner)) = operands.first().and_then(|x| elementwise(graph, *x)) else {
        return Ok(None);
    };
    let Some(x) = inner.first() else { return Ok(None) };
    let from = graph.tensor(*x).dtype;
    if !holds(through, from) {
        return Ok(None);
    }
    if from == to {
        return Ok(Some(*x));
    }
    graph.add(Elementwise { element: Element::Cast(to) }, &[*x], &name(graph, id)).map(Some)
}

/// Returns true if type `wide` represents every value of type `narrow`.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    match narrow {
        Bool => true,
        I8 => matches!(wide, I16 | I32 | I64 | F16 | Bf16 | F32 | F64),
        U8 => matches!(wide, I16 | U16 | I32 | U32 | I64 | U64 | F16 | Bf16 | F32 | F64),
        I16 => matches!(wide, I32 | I64 | F32 | F64),
        U16 => matches!(wide, I32 | U32 | I64 | U64 | F32 | F64),
        I32 => matches!(wide, I64),
        U32 => matches!(wide, I64 | U64),
        F16 | Bf16 => matches!(wide, F32 | F64),
        F32 => matches!(wide, F64),
        I64 | U64 | F64 => false,
    }
}

/// Replaces a select with a constant condition by the selected operand.
pub(super) fn known_select(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Element::Select, operands)) = elementwise(graph, id) else { return Ok(None) };
    let [condition, yes, no] = operands.as_slice() else { return Ok(None) };
    Ok(splat(graph, *condition)
        .map(|c| if c != 0.0 { *yes } else { *no })
        .filter(|taken| same_type_and_shape(graph, *taken, id)))
}

/// Replaces powers with small constant exponents. The device's `pow` is slow, and undefined for a negative base.
pub(super) fn power(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((x, exponent)) = binary_of(graph, id, BinaryFn::Pow) else { return Ok(None) };
    let Some(exponent) = splat(graph, exponent) else { return Ok(None) };
    let name = name(graph, id);
    let float = graph.tensor(x).dtype.is_float();
    let new = if exponent == 2.0 {
        add_binary(graph, BinaryFn::Mul, x, x, &name)?
    } else if exponent == 3.0 {
        let square = add_binary(graph, BinaryFn::Mul, x, x, &name)?;
        add_binary(graph, BinaryFn::Mul, square, x, &name)?
    } else if exponent == 0.5 && float {
        add_unary(graph, UnaryFn::Sqrt, x, &name)?
    } else if exponent == -0.5 && float {
        add_unary(graph, UnaryFn::Rsqrt, x, &name)?
    } else if exponent == -1.0 && float {
        add_unary(graph, UnaryFn::Reciprocal, x, &name)?
    } else {
        return Ok(None);
    };
    Ok(Some(new))
}

/// Replaces arithmetic of a float and a scalar constant by `affine`.
pub(super) fn scalar(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((f, a, b)) = binary(graph, id) else { return Ok(None) };
    if !graph.tensor(id).dtype.is_float() {
        return Ok(None);
    }
    let (x, c, constant_first) = match (splat(graph, a), splat(graph, b)) {
        (None, Some(c)) => (a, c as f32, false),
        (Some(c), None) => (b, c as f32, true),
        _ => return Ok(None),
    };
    let map = match f {
        BinaryFn::Add => (1.0, c),
        BinaryFn::Mul => (c, 0.0),
        BinaryFn::Sub if constant_first => (-1.0, c),
        BinaryFn::Sub => (1.0, -c),
        BinaryFn::Div if !constant_first && c != 0.0 && (exact(c) || !feeds_rounding(graph, id)) => {
            (1.0 / c, 0.0)
        }
        _ => return Ok(None),
    };
    if !map.0.is_finite() || !map.1.is_finite() || !same_type_and_shape(graph, x, id) {
        return Ok(None);
    }
    add_affine(graph, map.0, map.1, x, &name(graph, id)).map(Some)
}

/// Returns true if the reciprocal of a number is exact, that is, if the number is a power of two.
fn exact(c: f32) -> bool {
    c.is_normal() && (1.0 / c).is_normal() && c.to_bits() & 0x007f_ffff == 0
}

/// Returns true if a value reaches a rounding, a comparison or a cast to integers through a few elementwise operators.
fn feeds_rounding(graph: &Graph, id: NodeId) -> bool {
    let mut frontier = vec![id];
    for _ in 0..ROUNDING_DEPTH {
        let mut next = Vec::new();
        for user in frontier.iter().flat_map(|x| graph.users(*x)) {
            let Some((element, _)) = elementwise(graph, user) else { continue };
            match element {
                Element::Unary(
                    UnaryFn::Floor
                    | UnaryFn::Ceil
                    | UnaryFn::Round
                    | UnaryFn::Sign
                    | UnaryFn::Quantize { .. },
                ) => {
                    return true;
                }
                Element::Binary(f) if f.is_comparison() || matches!(f, BinaryFn::Mod | BinaryFn::Fmod) => {
                    return true;
                }
                Element::Cast(to) if !to.is_float() => return true,
                _ => next.push(user),
            }
        }
        frontier = next;
    }
    false
}

/// Returns `(scale, shift, x)` of a float node that computes `x * scale + shift`; `-x` counts as a scale of -1.
fn linear(graph: &Graph, id: NodeId) -> Option<(f32, f32, NodeId)> {
    affine(graph, id).or_else(|| {
        let x = unary_of(graph, id, UnaryFn::Neg)?;
        graph.tensor(x).dtype.is_float().then_some((-1.0, 0.0, x))
    })
}

/// Merges two consecutive affine functions, unless the first has other users or the merged function rounds differently.
pub(super) fn affine_of_affine(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((s2, b2, inner)) = linear(graph, id) else { return Ok(None) };
    let Some((s1, b1, x)) = linear(graph, inner) else { return Ok(None) };
    if !single_use(graph, inner) {
        return Ok(None);
    }
    let (scale, carried) = (s1 * s2, b1 * s2);
    let shift = carried + b2;
    let lost = (scale == 0.0 && s1 != 0.0 && s2 != 0.0) || scale.is_subnormal();
    let rounds = b2 != 0.0 && carried.abs().max(b2.abs()) >= ROUNDING_SHIFT && b1 != 0.0;
    if lost || rounds || !scale.is_finite() || !shift.is_finite() {
        return Ok(None);
    }
    add_affine(graph, scale, shift, x, &name(graph, id)).map(Some)
}

/// Removes `-(-x)`, `not not x` and a double bitwise not.
pub(super) fn involution(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((f @ (UnaryFn::Neg | UnaryFn::Not | UnaryFn::BitNot), inner)) = unary(graph, id) else {
        return Ok(None);
    };
    Ok(unary_of(graph, inner, f))
}

/// Replaces `max(x, low)` and `min(x, high)` of floats by `clip`, and a clip to `0..inf` by ReLU.
pub(super) fn bound(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    if !graph.tensor(id).dtype.is_float() {
        return Ok(None);
    }
    if let Some(x) = unary_of(graph, id, UnaryFn::Clip { low: 0.0, high: f32::INFINITY }) {
        return add_unary(graph, UnaryFn::Relu, x, &name(graph, id)).map(Some);
    }
    let Some((f, a, b)) = binary(graph, id) else { return Ok(None) };
    let (x, c) = match (splat(graph, a), splat(graph, b)) {
        (None, Some(c)) => (a, c as f32),
        (Some(c), None) => (b, c as f32),
        _ => return Ok(None),
    };
    if c.is_nan() || !same_type_and_shape(graph, x, id) {
        return Ok(None);
    }
    let clip = match f {
        BinaryFn::Max => UnaryFn::Clip { low: c, high: f32::INFINITY },
        BinaryFn::Min => UnaryFn::Clip { low: f32::NEG_INFINITY, high: c },
        _ => return Ok(None),
    };
    add_unary(graph, clip, x, &name(graph, id)).map(Some)
}

/// Returns the interval of values that a clip or ReLU keeps.
fn interval(f: UnaryFn) -> Option<(f32, f32)> {
    match f {
        UnaryFn::Relu => Some((0.0, f32::INFINITY)),
        UnaryFn::Clip { low, high } => Some((low, high)),
        _ => None,
    }
}

/// Merges two consecutive clips whose intervals overlap.
pub(super) fn clip_of_clip(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((outer, inner)) = unary(graph, id) else { return Ok(None) };
    let Some((first, x)) = unary(graph, inner) else { return Ok(None) };
    let (Some((l1, h1)), Some((l2, h2))) = (interval(first), interval(outer)) else { return Ok(None) };
    let (low, high) = (l1.max(l2), h1.min(h2));
    if !graph.tensor(id).dtype.is_float() || l1 > h1 || l2 > h2 || low > high {
        return Ok(None);
    }
    let f = if low == 0.0 && high == f32::INFINITY { UnaryFn::Relu } else { UnaryFn::Clip { low, high } };
    add_unary(graph, f, x, &name(graph, id)).map(Some)
}

/// Removes a clip or ReLU before a quantization that saturates at its bounds or inside them.
pub(super) fn clip_before_quantize(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((quantize, inner)) = unary(graph, id) else { return Ok(None) };
    let UnaryFn::Quantize { scale, zero_point, low, high } = quantize else { return Ok(None) };
    let Some((clip, x)) = unary(graph, inner) else { return Ok(None) };
    let Some((first, last)) = interval(clip) else { return Ok(None) };
    let saturates = scale > 0.0
        && first <= last
        && (first / scale).round_ties_even() + zero_point <= low
        && (last / scale).round_ties_even() + zero_point >= high;
    if saturates { add_unary(graph, quantize, x, &name(graph, id)).map(Some) } else { Ok(None) }
}

/// Merges the scale of integer sums with the scale of the quantization that follows: `quantize(sum * a, b)` becomes
/// `quantize(sum * (a / b), 1)`. Integer kernels of other runtimes requantize with this factor too.
pub(super) fn requantize(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((UnaryFn::Quantize { scale, zero_point, low, high }, inner)) = unary(graph, id) else {
        return Ok(None);
    };
    let is_sum = |graph: &Graph, x: NodeId| {
        let cast = elementwise(graph, x).filter(|(element, _)| matches!(element, Element::Cast(_)));
        cast.and_then(|(_, operands)| operands.first().copied())
            .is_some_and(|sum| graph.tensor(sum).dtype == DType::I32)
    };
    if scale == 1.0 || !single_use(graph, inner) {
        return Ok(None);
    }
    let name = name(graph, id);
    let scaled = match (affine(graph, inner), binary_of(graph, inner, BinaryFn::Mul)) {
        (Some((factor, 0.0, x)), _) if is_sum(graph, x) => add_affine(graph, factor / scale, 0.0, x, &name)?,
        (_, Some((x, factors))) if is_sum(graph, x) => {
            let Some((shape, values)) = floats(graph, factors) else { return Ok(None) };
            let values = values.into_iter().map(|factor| factor / scale).collect();
            let factors = add_floats(graph, DType::F32, &shape, values, &name)?;
            add_binary(graph, BinaryFn::Mul, x, factors, &name)?
        }
        _ => return Ok(None),
    };
    let quantize = UnaryFn::Quantize { scale: 1.0, zero_point, low, high };
    add_unary(graph, quantize, scaled, &name).map(Some)
}

/// Replaces `1 / x` by `reciprocal`, and the reciprocal of a square root by `rsqrt`.
pub(super) fn reciprocal(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let name = name(graph, id);
    if let Some((one, x)) = binary_of(graph, id, BinaryFn::Div) {
        if splat(graph, one) == Some(1.0)
            && graph.tensor(id).dtype.is_float()
            && same_type_and_shape(graph, x, id)
        {
            return add_unary(graph, UnaryFn::Reciprocal, x, &name).map(Some);
        }
        return Ok(None);
    }
    let Some((outer, inner)) = unary(graph, id) else { return Ok(None) };
    let Some((first, x)) = unary(graph, inner) else { return Ok(None) };
    match (outer, first) {
        (UnaryFn::Reciprocal, UnaryFn::Sqrt) | (UnaryFn::Sqrt, UnaryFn::Reciprocal) => {
            add_unary(graph, UnaryFn::Rsqrt, x, &name).map(Some)
        }
        _ => Ok(None),
    }
}
