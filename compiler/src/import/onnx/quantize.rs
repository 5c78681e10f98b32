//! Quantized tensors: `real = (quantized - zero point) * scale`, with scales per tensor, per index of an axis or per
//! block of an axis.
//!
//! [`super::integer_sums`] has the matmuls and convolutions of quantized tensors.

use super::integer_sums::{integer_conv, integer_matmul, per_channel, per_row, scaled_sum};
use super::lowering::{Call, Lowered, OpEntry, Value, op};
use super::quantization::same_quantization;
use super::quantized_operands::{as_scalar, check_zero, subtract_zero_point, zero_point};
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::Op;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    op("QuantizeLinear", 10, quantize_linear),
    op("DequantizeLinear", 10, dequantize_linear),
    op("DynamicQuantizeLinear", 11, dynamic_quantize_linear),
    op("MatMulInteger", 10, matmul_integer),
    op("QLinearMatMul", 10, q_linear_matmul),
    op("ConvInteger", 10, conv_integer),
    op("QLinearConv", 10, q_linear_conv),
];

/// Returns the smallest and largest number of a quantized type.
fn range(dtype: DType) -> Lowered<(f32, f32)> {
    Ok(match dtype {
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U16 => (0.0, 65535.0),
        other => {
            return Err(Refused::new(format!(
                "quantization to {} is not supported; i8, u8, i16 and u16 are",
                other.name()
            )));
        }
    })
}

/// Reshapes or repeats a scale or zero point so that it broadcasts to `x`. The parameter has one number, one number per
/// index of an axis, or one per block.
fn broadcast_parameter(call: &mut Call<'_>, parameter: NodeId, x: NodeId) -> Lowered<NodeId> {
    let (sizes, shape) = (call.shape(parameter), call.shape(x));
    let block = call.attributes.int("block_size", 0)?;
    // With one number for all, the attribute `axis` has no meaning.
    call.attributes.ignore(&["axis"]);
    if sizes.is_empty() || block == 0 && sizes.iter().all(|d| d.is(1)) {
        call.attributes.ignore(&["axis"]);
        return as_scalar(call, parameter);
    }
    let axis = normalize_axis(call.attributes.int("axis", 1)?, shape.len())?;
    if let ([_], 0) = (sizes.as_slice(), block) {
        let mut aligned = vec![Dim::known(1); shape.len() - axis];
        aligned[0] = sizes[0].clone();
        return Ok(call.b.reshape(parameter, aligned)?);
    }
    if block <= 0 || sizes.len() != shape.len() {
        return Err(Refused::new(
            "the scale or zero point must have one element, one per index of an axis, or one per block",
        ));
    }
    // `[.., n, ..]` -> `[.., n, 1, ..]` -> `[.., n, block, ..]` -> `[.., n * block, ..]`, sliced to the size of x.
    let (mut with_block_axis, mut repeated, mut joined) = (sizes.clone(), sizes.clone(), sizes.clone());
    with_block_axis.insert(axis + 1, Dim::known(1));
    repeated.insert(axis + 1, Dim::known(block));
    joined[axis] = sizes[axis].scale(block);
    let with_block_axis = call.b.reshape(parameter, with_block_axis)?;
    let repeated = call.b.expand(with_block_axis, repeated)?;
    let joined = call.b.reshape(repeated, joined)?;
    Ok(call.b.slice(joined, axis, Dim::known(0), shape[axis].clone())?)
}

/// Quantizes a float tensor that is already divided by its scale: `round(x) + zero point`, clamped to the range of the
/// type `to`.
fn round_saturating(call: &mut Call<'_>, x: NodeId, zero: Option<NodeId>, to: DType) -> Lowered<NodeId> {
    let (low, high) = range(to)?;
    let mut value = call.b.unary(UnaryFn::Round, x)?;
    if let Some(zero) = zero {
        let zero = call.b.cast(zero, DType::F32)?;
        value = call.b.binary(BinaryFn::Add, value, zero)?;
    }
    value = call.b.unary(UnaryFn::Clip { low, high }, value)?;
    Ok(call.b.cast(value, to)?)
}

pub(super) fn quantize_linear(call: &mut Call<'_>) -> Lowered {
    // `saturate` concerns float8 types, which are refused; `precision` is always f32.
    call.attributes.ignore(&["saturate", "precision"]);
    let (x, scale) = (call.node(0)?, call.node(1)?);
    let zero = call.optional(2)?;
    let to = match (zero, call.output_dtype()?) {
        (Some(zero), Some(to)) => {
            check_zero(call, zero, to)?;
            to
        }
        (Some(zero), None) => call.dtype(zero),
        (None, to) => to.unwrap_or(DType::U8),
    };
    let concat = match call.b.graph.op(x) {
        Op::Concat(concat) if call.shape(scale).iter().all(|d| d.is(1)) => Some(concat.clone()),
        _ => None,
    };
    let parts = call.b.graph.operands(x);
    let Some(concat) = concat.filter(|_| parts.iter().any(|part| call.dequantized.contains_key(part))) else {
        return Ok(quantize(call, x, scale, zero, to)?.into());
    };
    let parts: Vec<NodeId> =
        parts.into_iter().map(|part| quantize(call, part, scale, zero, to)).collect::<Lowered<_>>()?;
    Ok(call.add(concat, &parts)?.into())
}

/// Quantizes a float tensor.
pub(super) fn quantize(
    call: &mut Call<'_>,
    x: NodeId,
    scale: NodeId,
    zero: Option<NodeId>,
    to: DType,
) -> Lowered<NodeId> {
    if let Some(values) = same_quantization(call.b.graph, call.dequantized, x, (scale, zero, to)) {
        call.attributes.ignore(&["axis", "block_size"]);
        return Ok(values);
    }
    if let Some((scale, zero_point)) = known_parameters(call, scale, zero) {
        call.attributes.ignore(&["axis", "block_size"]);
        let (low, high) = range(to)?;
        let x = call.b.cast(x, DType::F32)?;
        let value = call.b.unary(UnaryFn::Quantize { scale, zero_point, low, high }, x)?;
        return Ok(call.b.cast(value, to)?);
    }
    let scale = broadcast_parameter(call, scale, x)?;
    let zero = zero.map(|z| broadcast_parameter(call, z, x)).transpose()?;
    let (x, scale) = (call.b.cast(x, DType::F32)?, call.b.cast(scale, DType::F32)?);
    let scaled = call.b.binary(BinaryFn::Div, x, scale)?;
    round_saturating(call, scaled, zero, to)
}

/// Returns the scale and the zero point of a quantization if both are one known number, which f32 can represent.
fn known_parameters(call: &Call<'_>, scale: NodeId, zero: Option<NodeId>) -> Option<(f32, f32)> {
    let one = |array: Array| (array.len() == 1).then(|| array.to_floats().first().copied()).flatten();
    let scale = one(call.constant(scale)?)?;
    let zero = match zero {
        Some(zero) => one(call.constant(zero)?).filter(|zero| zero.abs() < 65536.0)?,
        None => 0.0,
    };
    (scale.is_finite() && scale != 0.0).then_some((scale, zero))
}

/// Dequantizes integers to floats of type `to`: `(x - zero point) * scale`.
pub(super) fn dequantize(
    call: &mut Call<'_>,
    x: NodeId,
    scale: NodeId,
    zero: Option<NodeId>,
    to: DType,
) -> Lowered<NodeId> {
    // Floats represent all integers of 16 bits.
    let narrow = call.dtype(x).bytes() <= 2;
    if let Some((scale, zero_point)) = known_parameters(call, scale, zero).filter(|_| narrow) {
        call.attributes.ignore(&["axis", "block_size"]);
        let value = call.b.cast(x, DType::F32)?;
        let value = call.b.unary(UnaryFn::Dequantize { scale, zero_point }, value)?;
        return Ok(call.b.cast(value, to)?);
    }
    let mut value = x;
    if let Some(zero) = zero {
        let zero = broadcast_parameter(call, zero, x)?;
        value = subtract_zero_point(call, value, Some(zero))?;
    }
    let scale = broadcast_parameter(call, scale, x)?;
    let (value, scale) = (call.b.cast(value, DType::F32)?, call.b.cast(scale, DType::F32)?);
    let value = call.b.binary(BinaryFn::Mul, value, scale)?;
    Ok(call.b.cast(value, to)?)
}

pub(super) fn dequantize_linear(call: &mut Call<'_>) -> Lowered {
    if let Some(Value::Int4(x)) = call.operand(0) {
        let x = x.clone();
        return Ok(super::block_quantized::dequantize(call, &x)?.into());
    }
    let (x, scale) = (call.node(0)?, call.node(1)?);
    let to = call.output_dtype()?.unwrap_or(call.dtype(scale));
    let zero = call.optional(2)?;
    if let Some(zero) = zero {
        check_zero(call, zero, call.dtype(x))?;
    }
    Ok(dequantize(call, x, scale, zero, to)?.into())
}

fn dynamic_quantize_linear(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    Ok(dynamic_scale(call, x)?.to_vec().into())
}

/// Quantizes a tensor to u8, with a range that contains its minimum, its maximum and zero. Returns the quantized
/// tensor, its scale and its zero point.
pub(super) fn dynamic_scale(call: &mut Call<'_>, x: NodeId) -> Lowered<[NodeId; 3]> {
    let axes: Vec<usize> = (0..call.rank(x)).collect();
    let zero = call.b.scalar(DType::F32, 0.0)?;
    let largest = call.b.reduce(ReduceKind::Max, x, axes.clone(), false)?;
    let smallest = call.b.reduce(ReduceKind::Min, x, axes, false)?;
    let largest = call.b.binary(BinaryFn::Max, largest, zero)?;
    let smallest = call.b.binary(BinaryFn::Min, smallest, zero)?;
    let width = call.b.binary(BinaryFn::Sub, largest, smallest)?;
    let levels = call.b.scalar(DType::F32, 255.0)?;
    let scale = call.b.binary(BinaryFn::Div, width, levels)?;
    // A tensor of zeros would have scale 0; use 1.
    let all_zero = call.b.binary(BinaryFn::Equal, width, zero)?;
    let one = call.b.scalar(DType::F32, 1.0)?;
    let divisor = call.b.select(all_zero, one, scale)?;
    let negated = call.b.unary(UnaryFn::Neg, smallest)?;
    let quotient = call.b.binary(BinaryFn::Div, negated, divisor)?;
    let point = round_saturating(call, quotient, None, DType::U8)?;
    let scaled = call.b.binary(BinaryFn::Div, x, divisor)?;
    let y = round_saturating(call, scaled, Some(point), DType::U8)?;
    Ok([y, divisor, point])
}

fn matmul_integer(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(1)?];
    let [a, b] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, a)?, zero_point(call, 3, b)?];
    Ok(integer_matmul(call, operands, zeros)?.into())
}

/// Computes `first scale * second scale / result scale`, the factor that converts an integer sum to quantized results.
/// The result scale is operand 6.
fn combined_scale(call: &mut Call<'_>, [first, second]: [NodeId; 2]) -> Lowered<NodeId> {
    let mut scales = [first, second, call.node(6)?];
    for scale in &mut scales {
        let value = as_scalar(call, *scale)?;
        *scale = call.b.cast(value, DType::F32)?;
    }
    let [first, second, result] = scales;
    let scale = call.b.binary(BinaryFn::Mul, first, second)?;
    Ok(call.b.binary(BinaryFn::Div, scale, result)?)
}

/// Converts an integer sum to the quantized result: multiplies by `scale`, rounds, and adds the result's zero point,
/// operand 7.
fn requantized(call: &mut Call<'_>, sum: NodeId, scale: NodeId) -> Lowered<NodeId> {
    let to = call.node(7)?;
    let to = call.dtype(to);
    let zero = zero_point(call, 7, to)?;
    let scaled = scaled_sum(call, sum, scale, None, DType::F32)?;
    let one = call.b.scalar(DType::F32, 1.0)?;
    quantize(call, scaled, one, zero, to)
}

fn q_linear_matmul(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(3)?];
    let [a, b] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, a)?, zero_point(call, 5, b)?];
    let sum = integer_matmul(call, operands, zeros)?;
    let (first, second) = (call.node(1)?, call.node(4)?);
    let first = per_row(call, first)?;
    let scale = combined_scale(call, [first, second])?;
    Ok(requantized(call, sum, scale)?.into())
}

fn conv_integer(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(1)?];
    let [a, b] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, a)?, zero_point(call, 3, b)?];
    Ok(integer_conv(call, operands, zeros)?.into())
}

fn q_linear_conv(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(3)?];
    let [a, b] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, a)?, zero_point(call, 5, b)?];
    let mut sum = integer_conv(call, operands, zeros)?;
    let rank = call.rank(sum);
    if let Some(bias) = call.optional(8)? {
        let bias = per_channel(call, bias, rank)?;
        sum = call.b.binary(BinaryFn::Add, sum, bias)?;
    }
    let (first, second) = (call.node(1)?, call.node(4)?);
    let second = per_channel(call, second, rank)?;
    let scale = combined_scale(call, [first, second])?;
    Ok(requantized(call, sum, scale)?.into())
}
