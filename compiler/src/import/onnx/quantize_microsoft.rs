//! Quantized operators of com.microsoft, which onnxruntime's quantization tools write. Matmuls use integers, as in
//! [`super::integer_sums`]. All other operators dequantize, compute in floats and quantize again.

use super::integer_sums::{integer_matmul, per_row, scaled_sum};
use super::lowering::{Call, Lowered, OpEntry, microsoft};
use super::quantize::{dequantize, dequantize_linear, dynamic_scale, quantize, quantize_linear};
use super::quantized_operands::{as_scalar, zero_point};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::Concat;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::{DType, normalize_axis};

pub(super) const OPS: &[OpEntry] = &[
    microsoft("QuantizeLinear", quantize_linear),
    microsoft("DequantizeLinear", dequantize_linear),
    microsoft("QLinearAdd", |c| binary(c, BinaryFn::Add)),
    microsoft("QLinearMul", |c| binary(c, BinaryFn::Mul)),
    microsoft("QLinearSigmoid", sigmoid),
    microsoft("QLinearLeakyRelu", leaky_relu),
    microsoft("QLinearSoftmax", softmax),
    microsoft("QLinearGlobalAveragePool", global_average_pool),
    microsoft("QLinearConcat", concat),
    microsoft("QGemm", gemm),
    microsoft("MatMulIntegerToFloat", matmul_to_float),
    microsoft("DynamicQuantizeMatMul", dynamic_matmul),
];

/// Dequantizes the operand with index `x`. Its scale and zero point are the two operands after it.
fn dequantized(call: &mut Call<'_>, x: usize) -> Lowered<NodeId> {
    let (value, scale) = (call.node(x)?, call.node(x + 1)?);
    let zero = zero_point(call, x + 2, call.dtype(value))?;
    let scale = as_scalar(call, scale)?;
    dequantize(call, value, scale, zero, DType::F32)
}

/// Quantizes a float value. The operand with index `scale` is its scale, the operand after it the zero point. Without a
/// zero point, the result has the type of operand 0.
fn quantized(call: &mut Call<'_>, value: NodeId, scale: usize) -> Lowered<NodeId> {
    let step = call.node(scale)?;
    let like = call.optional(scale + 1)?.unwrap_or(call.node(0)?);
    let to = call.dtype(like);
    let zero = zero_point(call, scale + 1, to)?;
    let step = as_scalar(call, step)?;
    quantize(call, value, step, zero, to)
}

fn binary(call: &mut Call<'_>, f: BinaryFn) -> Lowered {
    let (a, b) = (dequantized(call, 0)?, dequantized(call, 3)?);
    let value = call.b.binary(f, a, b)?;
    Ok(quantized(call, value, 6)?.into())
}

fn sigmoid(call: &mut Call<'_>) -> Lowered {
    let x = dequantized(call, 0)?;
    let value = call.b.unary(UnaryFn::Sigmoid, x)?;
    Ok(quantized(call, value, 3)?.into())
}

fn leaky_relu(call: &mut Call<'_>) -> Lowered {
    let alpha = call.attributes.float("alpha", 0.01)?;
    let x = dequantized(call, 0)?;
    let value = call.b.unary(UnaryFn::LeakyRelu { alpha }, x)?;
    Ok(quantized(call, value, 3)?.into())
}

/// Lowers QLinearSoftmax. Its attribute `opset` is the operator set whose Softmax it computes.
fn softmax(call: &mut Call<'_>) -> Lowered {
    let opset = call.attributes.int_opt("opset")?;
    let opset = opset.ok_or_else(|| Refused::new("attribute `opset` is missing"))?;
    let x = dequantized(call, 0)?;
    let value = super::softmax::softmax(call, x, opset)?;
    Ok(quantized(call, value, 3)?.into())
}

fn global_average_pool(call: &mut Call<'_>) -> Lowered {
    let x = dequantized(call, 0)?;
    let rank = call.rank(x);
    if rank < 3 {
        return Err(Refused::new(format!(
            "operand 0 has rank {rank}; at least 3 is needed for a spatial axis"
        )));
    }
    let last = call.attributes.flag("channels_last", false)?;
    let axes = if last { (1..rank - 1).collect() } else { (2..rank).collect() };
    let value = call.b.reduce(ReduceKind::Mean, x, axes, true)?;
    Ok(quantized(call, value, 3)?.into())
}

/// Lowers QLinearConcat. Operands 0 and 1 are the scale and zero point of the result. Each input is followed by its
/// scale and zero point.
fn concat(call: &mut Call<'_>) -> Lowered {
    let axis = call.attributes.int("axis", 1)?;
    let (step, like) = (call.node(0)?, call.node(1)?);
    let to = call.dtype(like);
    let zero = zero_point(call, 1, to)?;
    let inputs: Vec<NodeId> =
        (2..call.operand_count()).step_by(3).map(|at| dequantized(call, at)).collect::<Lowered<_>>()?;
    let rank = inputs.first().map_or(0, |x| call.rank(*x));
    let step = as_scalar(call, step)?;
    let parts: Vec<NodeId> =
        inputs.into_iter().map(|x| quantize(call, x, step, zero, to)).collect::<Lowered<_>>()?;
    Ok(call.add(Concat { axis: normalize_axis(axis, rank)? }, &parts)?.into())
}

/// Transposes a matrix if the attribute `attribute` of the node is 1.
fn transposed_if(call: &mut Call<'_>, x: NodeId, attribute: &str) -> Lowered<NodeId> {
    if call.rank(x) != 2 {
        return Err(Refused::new("operands 0 and 3 must have rank 2"));
    }
    Ok(if call.attributes.flag(attribute, false)? { call.b.transpose(x, vec![1, 0])? } else { x })
}

/// Converts the integer sums of a matmul to floats: multiplies by the scales of both operands and adds an optional
/// bias.
fn dequantize_sum(
    call: &mut Call<'_>,
    sum: NodeId,
    [first, second]: [NodeId; 2],
    bias: Option<NodeId>,
) -> Lowered<NodeId> {
    let first = per_row(call, first)?;
    let (first, second) = (as_scalar(call, first)?, as_scalar(call, second)?);
    let scale = call.b.binary(BinaryFn::Mul, first, second)?;
    scaled_sum(call, sum, scale, bias, DType::F32)
}

fn gemm(call: &mut Call<'_>) -> Lowered {
    let (a, b) = (call.node(0)?, call.node(3)?);
    let operands = [transposed_if(call, a, "transA")?, transposed_if(call, b, "transB")?];
    let alpha = call.attributes.float("alpha", 1.0)?;
    let [first, second] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, first)?, zero_point(call, 5, second)?];
    let mut sum = integer_matmul(call, operands, zeros)?;
    if let Some(bias) = call.optional(6)? {
        sum = call.b.binary(BinaryFn::Add, sum, bias)?;
    }
    let scales = [call.node(1)?, call.node(4)?];
    let mut value = dequantize_sum(call, sum, scales, None)?;
    if alpha != 1.0 {
        value = call.b.unary(UnaryFn::Affine { scale: alpha, shift: 0.0 }, value)?;
    }
    Ok(if call.has(7) { quantized(call, value, 7)? } else { value }.into())
}

fn matmul_to_float(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(1)?];
    let [first, second] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 4, first)?, zero_point(call, 5, second)?];
    let sum = integer_matmul(call, operands, zeros)?;
    let scales = [call.node(2)?, call.node(3)?];
    let bias = call.optional(6)?;
    Ok(dequantize_sum(call, sum, scales, bias)?.into())
}

/// Lowers DynamicQuantizeMatMul: operand 0 is quantized with a scale and zero point that are computed from its values.
fn dynamic_matmul(call: &mut Call<'_>) -> Lowered {
    let (a, b, second) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let zero_b = zero_point(call, 3, call.dtype(b))?;
    let [a, first, zero_a] = dynamic_scale(call, a)?;
    let sum = integer_matmul(call, [a, b], [Some(zero_a), zero_b])?;
    let one = call.b.reshape(first, vec![Dim::known(1)])?;
    let bias = call.optional(4)?;
    Ok(dequantize_sum(call, sum, [one, second], bias)?.into())
}
