//! Quantized tensors: `real = (quantized - zero point) * scale`, with scales per tensor, per index of an axis or per
//! block of an axis.
//!
//! Matmuls and convolutions of 8-bit integers stay 8-bit, because devices have dot products of four 8-bit integers.
//! Zero points are multiplied out: `sum (a - p)(b - q) = sum a b - q sum a - p sum (b - q)`. The last term is constant
//! if the second operand b is constant. The middle term vanishes if q is zero, which is usual for weights. All sums are
//! exact modulo 2^32, as ONNX defines.

use super::conv::convolve;
use super::lowering::{Call, Lowered, OpEntry, Value, op};
use super::matmul::numpy_matmul;
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{Conv, Op, Pad};
use crate::ir::ops::pad::PadMode;
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

/// Reshapes a value with one element to a scalar; returns other values as they are.
pub(super) fn as_scalar(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    if call.shape(x).iter().all(|d| d.is(1)) {
        return Ok(call.b.reshape(x, Vec::new())?);
    }
    Ok(x)
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
pub(super) fn round_saturating(
    call: &mut Call<'_>,
    x: NodeId,
    zero: Option<NodeId>,
    to: DType,
) -> Lowered<NodeId> {
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
    let scale = broadcast_parameter(call, scale, x)?;
    let zero = zero.map(|z| broadcast_parameter(call, z, x)).transpose()?;
    let (x, scale) = (call.b.cast(x, DType::F32)?, call.b.cast(scale, DType::F32)?);
    let scaled = call.b.binary(BinaryFn::Div, x, scale)?;
    Ok(round_saturating(call, scaled, zero, to)?.into())
}

pub(super) fn dequantize_linear(call: &mut Call<'_>) -> Lowered {
    if let Some(Value::Int4(x)) = call.operand(0) {
        let x = x.clone();
        return Ok(super::block_quantized::dequantize(call, &x)?.into());
    }
    let (x, scale) = (call.node(0)?, call.node(1)?);
    let to = call.output_dtype()?.unwrap_or(call.dtype(scale));
    let mut value = x;
    if let Some(zero) = call.optional(2)? {
        check_zero(call, zero, call.dtype(x))?;
        let zero = broadcast_parameter(call, zero, x)?;
        value = subtract_zero_point(call, value, Some(zero))?;
    }
    let scale = broadcast_parameter(call, scale, x)?;
    let (value, scale) = (call.b.cast(value, DType::F32)?, call.b.cast(scale, DType::F32)?);
    let value = call.b.binary(BinaryFn::Mul, value, scale)?;
    Ok(call.b.cast(value, to)?.into())
}

/// Converts a quantized tensor to i32 and subtracts its zero point.
pub(super) fn subtract_zero_point(call: &mut Call<'_>, x: NodeId, zero: Option<NodeId>) -> Lowered<NodeId> {
    let x = call.b.cast(x, DType::I32)?;
    match zero {
        Some(zero) => {
            let zero = call.b.cast(zero, DType::I32)?;
            Ok(call.b.binary(BinaryFn::Sub, x, zero)?)
        }
        None => Ok(x),
    }
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

/// Returns true if a zero point is absent or known to be zero.
fn is_zero(call: &Call<'_>, zero: Option<NodeId>) -> bool {
    let Some(zero) = zero else { return true };
    let zeros = |a: Array| a.ints().is_ok_and(|v| v.iter().all(|v| *v == 0));
    call.constant(zero).is_some_and(zeros)
}

/// Fails unless a zero point has the type of its quantized tensor.
fn check_zero(call: &Call<'_>, zero: NodeId, quantized: DType) -> Lowered<()> {
    let dtype = call.dtype(zero);
    if dtype == quantized {
        return Ok(());
    }
    Err(Refused::new(format!(
        "the zero point has type {}, but the quantized tensor has type {}",
        dtype.name(),
        quantized.name()
    )))
}

/// Returns operand `index` as the zero point of a tensor of type `quantized`; `None` if it is absent or known to be
/// zero.
pub(super) fn zero_point(call: &mut Call<'_>, index: usize, quantized: DType) -> Lowered<Option<NodeId>> {
    let zero = call.optional(index)?;
    if let Some(zero) = zero {
        check_zero(call, zero, quantized)?;
    }
    if is_zero(call, zero) {
        return Ok(None);
    }
    zero.map(|z| as_scalar(call, z)).transpose()
}

/// Subtracts the zero point from constant weights if the results fit i8. The weights then have no zero point, which is
/// returned as `None`. Unsigned weights with zero point 128 always fit.
fn fold_zero_point(
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
    let sum = call.b.cast(sum, DType::F32)?;
    let scaled = call.b.binary(BinaryFn::Mul, sum, scale)?;
    round_saturating(call, scaled, zero, to)
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

/// Reshapes a vector with one number per output channel so that it broadcasts to a result of rank `rank`.
fn per_channel(call: &mut Call<'_>, x: NodeId, rank: usize) -> Lowered<NodeId> {
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
fn integer_conv(
    call: &mut Call<'_>,
    [x, w]: [NodeId; 2],
    [zero_x, zero_w]: [Option<NodeId>; 2],
) -> Lowered<NodeId> {
    check_8_bit(call, [x, w])?;
    let (w, zero_w) = fold_zero_point(call, w, zero_w)?;
    let known = zero_x.and_then(|zero| call.constant(zero)).filter(|zero| zero.len() == 1);
    let outside = match (&known, zero_x) {
        (Some(zero), _) => zero.ints()?.first().map(|v| *v as f64),
        (None, Some(_)) => None,
        (None, None) => Some(0.0),
    };
    let plain = convolve(call, x, w, None, outside)?;
    let rank = call.rank(plain);
    let zero_w = zero_w.map(|zero| per_channel(call, zero, rank)).transpose()?;
    let Op::Conv(conv) = call.b.graph.op(plain).clone() else {
        return Err(Refused::new("the integer convolution did not become a Conv node of the graph"));
    };
    let x = call.b.graph.operands(plain).first().copied().unwrap_or(x);
    let padded = conv.pads_begin.iter().chain(&conv.pads_end).any(|p| *p > 0);
    // Pad with a known zero point first. Its contribution is then the same at every position.
    let (x, conv, mut result) = match known {
        Some(zero) if padded => {
            let value = zero.ints()?.first().copied().unwrap_or(0) as f64;
            let (none, mut inside) = (vec![0; rank - 2], conv.clone());
            let around = |pads: &[usize]| [&[0, 0], pads].concat().into_iter().map(Dim::from).collect();
            let (before, after) = (around(&conv.pads_begin), around(&conv.pads_end));
            let x = call.add(Pad { mode: PadMode::Constant, before, after, value }, &[x])?;
            (inside.pads_begin, inside.pads_end) = (none.clone(), none);
            let result = call.add(inside.clone(), &[x, w])?;
            (x, inside, result)
        }
        _ => (x, conv, plain),
    };
    if let Some(zero) = zero_w {
        let sums = window_sums(call, &conv, [x, w])?;
        result = subtract_scaled(call, result, zero, sums)?;
    }
    if let Some(zero) = zero_x {
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

/// Computes the sums of an image's elements over the windows of a convolution, one sum per channel group and output
/// position.
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
    let planes = call.b.reshape(planes, merged)?;
    let planes = call.b.cast(planes, DType::F32)?;
    filter[1] = Dim::known(1);
    let filter = ones(call, DType::F32, filter)?;
    let sums = call.add(conv.clone(), &[planes, filter])?;
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
