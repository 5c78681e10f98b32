//! Matmuls and convolutions of 8-bit integers minus their zero points, with sums in i32.
//!
//! The operands stay 8-bit, because devices multiply and add four pairs of 8-bit integers in one instruction. The zero
//! point of a convolution's input is an attribute. Other zero points are multiplied out:
//! `sum (a - p)(b - q) = sum a b - q sum a - p sum (b - q)`. The last term is constant if the second operand b is
//! constant. The middle term vanishes if q is zero, which is usual for weights. All sums are exact modulo 2^32, as ONNX
//! defines.

use super::conv::convolve;
use super::lowering::{Call, Lowered};
use super::matmul::numpy_matmul;
use super::quantized_operands::{as_scalar, subtract_zero_point};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{Conv, Op};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::DType;

/// Subtracts the zero point from constant weights if the results fit i8. The weights then have no zero point, which is
/// returned as `None`. Unsigned weights with zero point 128 always fit.
pub(super) fn fold_zero_point(
    call: &mut Call<'_>,
    weights: NodeId,
    zero: Option<NodeId>,
) -> Lowered<(NodeId, Option<NodeId>)> {
    let Some(point) = zero else { return Ok((weights, None)) };
    let point = call.constant(point).filter(|p| p.len() == 1);
    let (Some(array), Some(point)) = (call.constant(weights), point) else { return Ok((weights, zero)) };
    let point = point.ints()?.first().copied().unwrap_or(0);
    let values: Vec<i64> = array.ints()?.iter().map(|v| v - point).collect();
    if values.iter().any(|v| i8::try_from(*v).is_err()) {
        return Ok((weights, zero));
    }
    let weights = call.b.constant(&Array::int(DType::I8, &array.shape, values))?;
    Ok((weights, None))
}

/// Fails unless both operands are 8-bit integers.
fn check_8_bit(call: &Call<'_>, operands: [NodeId; 2]) -> Lowered<()> {
    for x in operands {
        if !matches!(call.dtype(x), DType::I8 | DType::U8) {
            let name = call.dtype(x).name();
            return Err(Refused::new(format!(
                "an operand has type {name}; only 8-bit integers are supported"
            )));
        }
    }
    Ok(())
}

/// Computes `x - factor * y` in i32. The factor may have any integer type.
fn subtract_scaled(call: &mut Call<'_>, x: NodeId, factor: NodeId, y: NodeId) -> Lowered<NodeId> {
    let factor = call.b.cast(factor, DType::I32)?;
    let term = call.b.binary(BinaryFn::Mul, factor, y)?;
    Ok(call.b.binary(BinaryFn::Sub, x, term)?)
}

/// Reshapes a vector with one number per matrix row so that it broadcasts over columns; returns other values as they
/// are.
pub(super) fn per_row(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    match call.shape(x).as_slice() {
        [rows] => Ok(call.b.reshape(x, vec![rows.clone(), Dim::known(1)])?),
        _ => Ok(x),
    }
}

/// Adds to the graph a matmul of 8-bit integers minus their zero points, in i32. A zero point is one number, a vector
/// with one number per row of the first or per column of the second operand, or a tensor of the operand's rank.
pub(super) fn integer_matmul(
    call: &mut Call<'_>,
    [a, b]: [NodeId; 2],
    [zero_a, zero_b]: [Option<NodeId>; 2],
) -> Lowered<NodeId> {
    check_8_bit(call, [a, b])?;
    let (rank_a, rank_b) = (call.rank(a), call.rank(b));
    if rank_a < 2 || rank_b < 2 {
        // Vectors are rare and small; no expansion is needed.
        let (a, b) = (subtract_zero_point(call, a, zero_a)?, subtract_zero_point(call, b, zero_b)?);
        return numpy_matmul(call, a, b);
    }
    let zero_a = zero_a.map(|zero| per_row(call, zero)).transpose()?;
    let (b, zero_b) = fold_zero_point(call, b, zero_b)?;
    let mut result = numpy_matmul(call, a, b)?;
    if let Some(zero) = zero_b {
        let wide = call.b.cast(a, DType::I32)?;
        let sums = call.b.reduce(ReduceKind::Sum, wide, vec![rank_a - 1], true)?;
        result = subtract_scaled(call, result, zero, sums)?;
    }
    if let Some(zero) = zero_a {
        let columns = subtract_zero_point(call, b, zero_b)?;
        let sums = call.b.reduce(ReduceKind::Sum, columns, vec![rank_b - 2], true)?;
        result = subtract_scaled(call, result, zero, sums)?;
    }
    Ok(result)
}

/// Reshapes a vector with one number per output channel so that it broadcasts to a result of rank `rank`.
pub(super) fn per_channel(call: &mut Call<'_>, x: NodeId, rank: usize) -> Lowered<NodeId> {
    match call.shape(x).as_slice() {
        [channels] if !channels.is(1) => {
            let mut shape = vec![Dim::known(1); rank - 1];
            shape[0] = channels.clone();
            Ok(call.b.reshape(x, shape)?)
        }
        _ => as_scalar(call, x),
    }
}

/// Adds to the graph a tensor of ones with the given type and shape.
fn ones(call: &mut Call<'_>, dtype: DType, shape: Vec<Dim>) -> Lowered<NodeId> {
    let one = call.b.scalar(dtype, 1.0)?;
    Ok(call.b.expand(one, shape)?)
}

/// Adds to the graph a convolution of 8-bit integers minus their zero points, in i32. The input's zero point is one
/// number; the filters' zero point is one number, or one per filter. Padding has the value of the input's zero point.
pub(super) fn integer_conv(
    call: &mut Call<'_>,
    [x, w]: [NodeId; 2],
    [zero_x, zero_w]: [Option<NodeId>; 2],
) -> Lowered<NodeId> {
    check_8_bit(call, [x, w])?;
    let (w, zero_w) = fold_zero_point(call, w, zero_w)?;
    let known = match zero_x {
        Some(zero) => call.constant(zero).filter(|zero| zero.len() == 1),
        None => Some(Array::int(call.dtype(x), &[], vec![0])),
    };
    let known = known.map(|zero| zero.ints().map(|v| v.first().copied().unwrap_or(0))).transpose()?;
    let mut result = convolve(call, x, w, None, known)?;
    let rank = call.rank(result);
    let zero_w = zero_w.map(|zero| per_channel(call, zero, rank)).transpose()?;
    let Op::Conv(conv) = call.b.graph.op(result).clone() else {
        return Err(Refused::new("the integer convolution did not become a Conv node of the graph"));
    };
    // Padding of symbolic size is an operator of its own.
    let x = call.b.graph.operands(result).first().copied().unwrap_or(x);
    if let Some(zero) = zero_w {
        let sums = window_sums(call, &conv, [x, w])?;
        result = subtract_scaled(call, result, zero, sums)?;
    }
    if let (Some(zero), None) = (zero_x, known) {
        let sums = filter_sums(call, &conv, [x, w], zero_w)?;
        result = subtract_scaled(call, result, zero, sums)?;
    }
    Ok(result)
}

/// Returns true if f32 can hold the sums over the windows of an 8-bit convolution exactly, because they are below 2^24.
fn exact_in_floats(call: &Call<'_>, w: NodeId) -> bool {
    let terms = call.shape(w).iter().skip(1).try_fold(1i64, |n, d| n.checked_mul(d.as_known()?));
    terms.is_some_and(|terms| terms.saturating_mul(255) < 1 << 24)
}

/// Computes the sums of an image's elements, minus the zero point, over the windows of a convolution: one sum per
/// channel group and output position.
fn window_sums(call: &mut Call<'_>, conv: &Conv, [x, w]: [NodeId; 2]) -> Lowered<NodeId> {
    let mut filter = call.shape(w);
    if conv.group == 1 {
        filter[0] = Dim::known(1);
    }
    if !exact_in_floats(call, w) {
        let filter = ones(call, DType::U8, filter)?;
        return call.add(conv.clone(), &[x, filter]);
    }
    // Sum over the channels of each group first, so that the convolution has one channel per group.
    let groups = Dim::from(conv.group);
    let (mut split, mut merged) = (call.shape(x), call.shape(x));
    let rest = split.split_off(2);
    split[1] = groups.clone();
    split.push(filter[1].clone());
    split.extend(rest);
    merged[1] = groups;
    let wide = call.b.cast(x, DType::I32)?;
    let wide = call.b.reshape(wide, split)?;
    let planes = call.b.reduce(ReduceKind::Sum, wide, vec![2], false)?;
    let mut planes = call.b.reshape(planes, merged)?;
    if let (true, Some(channels)) = (conv.zero_point != 0, filter[1].as_known()) {
        let zeros = call.b.scalar(DType::I32, (channels * conv.zero_point) as f32)?;
        planes = call.b.binary(BinaryFn::Sub, planes, zeros)?;
    }
    let planes = call.b.cast(planes, DType::F32)?;
    filter[1] = Dim::known(1);
    let filter = ones(call, DType::F32, filter)?;
    let sums = call.add(Conv { zero_point: 0, ..conv.clone() }, &[planes, filter])?;
    Ok(call.b.cast(sums, DType::I32)?)
}

/// Computes sums of a convolution's filter elements minus their zero points. A sum covers the taps that lie in the
/// image, not in the padding.
fn filter_sums(
    call: &mut Call<'_>,
    conv: &Conv,
    [x, w]: [NodeId; 2],
    zero: Option<NodeId>,
) -> Lowered<NodeId> {
    let rank = call.rank(w);
    let per_filter = |call: &mut Call<'_>| match zero {
        Some(zero) if call.rank(zero) > 0 => {
            let mut shape = vec![Dim::known(1); rank];
            shape[0] = call.shape(zero)[0].clone();
            call.b.reshape(zero, shape).map(Some)
        }
        other => Ok(other),
    };
    let inside = conv.pads_begin.iter().chain(&conv.pads_end).all(|p| *p == 0);
    if inside {
        let zero = per_filter(call)?;
        let filters = subtract_zero_point(call, w, zero)?;
        let sums = call.b.reduce(ReduceKind::Sum, filters, (1..rank).collect(), false)?;
        return per_channel(call, sums, rank);
    }
    let mut shape = call.shape(x);
    shape[0] = Dim::known(1);
    if exact_in_floats(call, w) {
        // Sum the filters over their channels, and convolve one channel of ones with them.
        shape[1] = Dim::known(1);
        let zero = per_filter(call)?;
        let filters = subtract_zero_point(call, w, zero)?;
        let filters = call.b.reduce(ReduceKind::Sum, filters, vec![1], true)?;
        let filters = call.b.cast(filters, DType::F32)?;
        let image = ones(call, DType::F32, shape)?;
        let sums = call.add(Conv { group: 1, ..conv.clone() }, &[image, filters])?;
        return Ok(call.b.cast(sums, DType::I32)?);
    }
    let image = ones(call, DType::U8, shape)?;
    let sums = call.add(conv.clone(), &[image, w])?;
    let Some(zero) = zero else { return Ok(sums) };
    let filter = ones(call, DType::U8, call.shape(w))?;
    let counts = call.add(conv.clone(), &[image, filter])?;
    subtract_scaled(call, sums, zero, counts)
}

/// Converts integer sums to real values: multiplies by the scale and adds a bias.
pub(super) fn scaled_sum(
    call: &mut Call<'_>,
    sum: NodeId,
    scale: NodeId,
    bias: Option<NodeId>,
    to: DType,
) -> Lowered<NodeId> {
    let sum = call.b.cast(sum, DType::F32)?;
    let mut value = call.b.binary(BinaryFn::Mul, sum, scale)?;
    if let Some(bias) = bias {
        let bias = call.b.cast(bias, DType::F32)?;
        value = call.b.binary(BinaryFn::Add, value, bias)?;
    }
    Ok(call.b.cast(value, to)?)
}
