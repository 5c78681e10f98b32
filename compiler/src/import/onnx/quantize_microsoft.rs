//! Quantised operators of com.microsoft, which onnxruntime's quantisation tools write. Products are of integers, as in
//! [`super::quantize`]; everything else is dequantised, computed in floats and quantised again.

use super::lowering::{Call, Lowered, OpEntry, Refused, microsoft};
use super::quantize::{
    dequantize_linear, dynamic_scale, integer_product, per_row, quantize_linear, saturated, scalar, shifted,
    zero_point,
};
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
    microsoft("QLinearGlobalAveragePool", global_average_pool),
    microsoft("QLinearConcat", concat),
    microsoft("QGemm", gemm),
    microsoft("MatMulIntegerToFloat", matmul_to_float),
    microsoft("DynamicQuantizeMatMul", dynamic_matmul),
];

/// The float that operand `x` stands for, with its scale and zero point in the operands after it.
fn real(call: &mut Call<'_>, x: usize) -> Lowered<NodeId> {
    let (value, scale) = (call.node(x)?, call.node(x + 1)?);
    let zero = zero_point(call, x + 2, call.dtype(value))?;
    let scale = scalar(call, scale)?;
    let value = shifted(call, value, zero)?;
    let (value, scale) = (call.b.cast(value, DType::F32)?, call.b.cast(scale, DType::F32)?);
    Ok(call.b.binary(BinaryFn::Mul, value, scale)?)
}

/// A float in steps of operand `scale`, with the operand after it as the zero point; in the type of operand 0 where
/// there is none.
fn stored(call: &mut Call<'_>, value: NodeId, scale: usize) -> Lowered<NodeId> {
    let step = call.node(scale)?;
    let like = call.optional(scale + 1)?.unwrap_or(call.node(0)?);
    let to = call.dtype(like);
    let zero = zero_point(call, scale + 1, to)?;
    let step = scalar(call, step)?;
    let step = call.b.cast(step, DType::F32)?;
    let value = call.b.binary(BinaryFn::Div, value, step)?;
    saturated(call, value, zero, to)
}

fn binary(call: &mut Call<'_>, f: BinaryFn) -> Lowered {
    let (a, b) = (real(call, 0)?, real(call, 3)?);
    let value = call.b.binary(f, a, b)?;
    Ok(stored(call, value, 6)?.into())
}

fn sigmoid(call: &mut Call<'_>) -> Lowered {
    let x = real(call, 0)?;
    let value = call.b.unary(UnaryFn::Sigmoid, x)?;
    Ok(stored(call, value, 3)?.into())
}

fn leaky_relu(call: &mut Call<'_>) -> Lowered {
    let alpha = call.attributes.float("alpha", 0.01)?;
    let x = real(call, 0)?;
    let value = call.b.unary(UnaryFn::LeakyRelu { alpha }, x)?;
    Ok(stored(call, value, 3)?.into())
}

fn global_average_pool(call: &mut Call<'_>) -> Lowered {
    let x = real(call, 0)?;
    let rank = call.rank(x);
    if rank < 3 {
        return Err(Refused::new(format!("an input of rank {rank} has no spatial axis")));
    }
    let last = call.attributes.flag("channels_last", false)?;
    let axes = if last { (1..rank - 1).collect() } else { (2..rank).collect() };
    let value = call.b.reduce(ReduceKind::Mean, x, axes, true)?;
    Ok(stored(call, value, 3)?.into())
}

/// The result's scale and zero point, then each part with its own.
fn concat(call: &mut Call<'_>) -> Lowered {
    let axis = call.attributes.int("axis", 1)?;
    let (step, like) = (call.node(0)?, call.node(1)?);
    let to = call.dtype(like);
    let zero = zero_point(call, 1, to)?;
    let parts: Vec<NodeId> =
        (2..call.operands()).step_by(3).map(|at| real(call, at)).collect::<Lowered<_>>()?;
    let rank = parts.first().map_or(0, |part| call.rank(*part));
    let value = call.add(Concat { axis: normalize_axis(axis, rank)? }, &parts)?;
    let step = scalar(call, step)?;
    let value = call.b.binary(BinaryFn::Div, value, step)?;
    Ok(saturated(call, value, zero, to)?.into())
}

/// A matrix with its axes swapped where the attribute says so.
fn turned(call: &mut Call<'_>, x: NodeId, attribute: &str) -> Lowered<NodeId> {
    if call.rank(x) != 2 {
        return Err(Refused::new("the operands are not matrices"));
    }
    Ok(if call.attributes.flag(attribute, false)? { call.b.transpose(x, vec![1, 0])? } else { x })
}

/// A sum of products as a float: times both scales, plus a bias where there is one.
fn scaled(
    call: &mut Call<'_>,
    sum: NodeId,
    [first, second]: [NodeId; 2],
    bias: Option<NodeId>,
) -> Lowered<NodeId> {
    let first = per_row(call, first)?;
    let (first, second) = (scalar(call, first)?, scalar(call, second)?);
    let scale = call.b.binary(BinaryFn::Mul, first, second)?;
    let sum = call.b.cast(sum, DType::F32)?;
    let mut value = call.b.binary(BinaryFn::Mul, sum, scale)?;
    if let Some(bias) = bias {
        value = call.b.binary(BinaryFn::Add, value, bias)?;
    }
    Ok(value)
}

fn gemm(call: &mut Call<'_>) -> Lowered {
    let (a, b) = (call.node(0)?, call.node(3)?);
    let operands = [turned(call, a, "transA")?, turned(call, b, "transB")?];
    let alpha = call.attributes.float("alpha", 1.0)?;
    let [first, second] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 2, first)?, zero_point(call, 5, second)?];
    let mut sum = integer_product(call, operands, zeros)?;
    if let Some(bias) = call.optional(6)? {
        sum = call.b.binary(BinaryFn::Add, sum, bias)?;
    }
    let scales = [call.node(1)?, call.node(4)?];
    let mut value = scaled(call, sum, scales, None)?;
    if alpha != 1.0 {
        value = call.b.unary(UnaryFn::Affine { scale: alpha, shift: 0.0 }, value)?;
    }
    Ok(if call.has(7) { stored(call, value, 7)? } else { value }.into())
}

fn matmul_to_float(call: &mut Call<'_>) -> Lowered {
    let operands = [call.node(0)?, call.node(1)?];
    let [first, second] = operands.map(|x| call.dtype(x));
    let zeros = [zero_point(call, 4, first)?, zero_point(call, 5, second)?];
    let sum = integer_product(call, operands, zeros)?;
    let scales = [call.node(2)?, call.node(3)?];
    let bias = call.optional(6)?;
    Ok(scaled(call, sum, scales, bias)?.into())
}

/// The first operand is quantised with what its numbers need.
fn dynamic_matmul(call: &mut Call<'_>) -> Lowered {
    let (a, b, second) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let zero_b = zero_point(call, 3, call.dtype(b))?;
    let [a, first, zero_a] = dynamic_scale(call, a)?;
    let sum = integer_product(call, [a, b], [Some(zero_a), zero_b])?;
    let one = call.b.reshape(first, vec![Dim::known(1)])?;
    let bias = call.optional(4)?;
    Ok(scaled(call, sum, [one, second], bias)?.into())
}
