//! Operators on values that DequantizeLinear computes from integers.
//!
//! A QDQ model states integer arithmetic in floats: DequantizeLinear, a float operator, QuantizeLinear. The importer
//! keeps the integers:
//!
//! - a matmul or convolution of two dequantized tensors sums integers, and the sums are multiplied by both scales;
//! - an operator that only moves or selects values moves the integers, and its result is dequantized;
//! - QuantizeLinear of a dequantized tensor with the same scale and zero point is the tensor before DequantizeLinear;
//! - QuantizeLinear of a concatenation quantizes the parts.
//!
//! The other operators compute floats. They become part of the kernels before or after them.

use super::attributes::Attributes;
use super::integer_sums::{fold_zero_point, integer_conv, integer_matmul, per_channel, scaled_sum};
use super::lowering::{Call, Lowered, Value};
use super::matmul::scaled;
use super::quantization::{Dequantized, Table, is_positive, is_zero};
use super::quantize::dequantize;
use super::quantized_operands::nonzero;
use crate::ir::array::{Array, Data};
use crate::ir::element::BinaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::tensor::{DType, normalize_axis};

/// Replaces the results of an operator that moved integers by their real values, of type `to`. Returns the integers of
/// each real value.
pub(super) fn dequantize_results(
    call: &mut Call<'_>,
    moved: &Dequantized,
    results: &mut [Value],
    to: DType,
) -> Lowered<Vec<(NodeId, Dequantized)>> {
    let mut known = Vec::new();
    for result in results {
        if let Value::Node(node) = result {
            let integers = moved.with_values(*node);
            *node = dequantize(call, *node, moved.scale, moved.zero, to)?;
            known.push((*node, integers));
        }
    }
    Ok(known)
}

/// Returns the integers that a DequantizeLinear node with the given operands reads. Returns `None` if they have
/// another width than 8 or 32 bits, or a scale for each block of an axis.
pub(super) fn from_operands(
    graph: &Graph,
    operands: &[Value],
    attributes: &Attributes<'_>,
) -> Option<Dequantized> {
    let node = |index: usize| match operands.get(index) {
        Some(Value::Node(node)) => Some(*node),
        _ => None,
    };
    let (values, scale) = (node(0)?, node(1)?);
    let tensor = graph.tensor(values);
    if !matches!(tensor.dtype, DType::I8 | DType::U8 | DType::I32) {
        return None;
    }
    let axis = match graph.tensor(scale).shape.as_slice() {
        sizes if sizes.iter().all(|d| d.is(1)) => None,
        [_] if attributes.int("block_size", 0).ok()? == 0 => {
            Some(normalize_axis(attributes.int("axis", 1).ok()?, tensor.rank()).ok()?)
        }
        _ => return None,
    };
    Some(Dequantized { values, scale, zero: node(2), axis })
}

/// Returns the quantization of operand 0 if the operator only moves or selects the operand's values, so that it can
/// move the integers instead. The largest integer belongs to the largest value only if the scale is positive.
pub(super) fn moved_operand<'t>(
    graph: &Graph,
    operator: &str,
    attributes: &Attributes<'_>,
    operands: &[Value],
    wanted: &[bool],
    table: &'t Table,
) -> Option<&'t Dequantized> {
    let Some(Value::Node(node)) = operands.first() else { return None };
    let quantized = table.get(node).filter(|d| d.axis.is_none())?;
    let moves = match operator {
        "DepthToSpace" | "Expand" | "Flatten" | "Gather" | "Identity" | "Reshape" | "Slice"
        | "SpaceToDepth" | "Split" | "Squeeze" | "Tile" | "Transpose" | "Unsqueeze" => true,
        "MaxPool" => wanted.len() == 1 && is_positive(graph, quantized.scale),
        // Cropping may read outside the tensor, where the value is a real number.
        "Resize" => {
            let is = |name: &str, default: &'static str, value: &str| {
                attributes.text(name, default).is_ok_and(|text| text == value)
            };
            let crops = is("coordinate_transformation_mode", "half_pixel", "tf_crop_and_resize");
            is("mode", "nearest", "nearest") && !crops
        }
        _ => false,
    };
    moves.then_some(quantized)
}

/// Returns the quantizations of the operands of a matmul or convolution if integers can compute it: both have 8 bits,
/// the first has one scale, the second one scale or one for each index of `axis`. The second must be constant, because
/// a zero point of the first needs the sums of its columns.
fn integer_operands(call: &Call<'_>, [a, b]: [NodeId; 2], axis: usize) -> Option<[Dequantized; 2]> {
    let [a, b] = [call.dequantized.get(&a)?, call.dequantized.get(&b)?];
    let is_8_bit = |d: &Dequantized| matches!(call.dtype(d.values), DType::I8 | DType::U8);
    let constant = call.constant(b.values).is_some() && call.constant(b.scale).is_some();
    let fits = a.axis.is_none() && b.axis.is_none_or(|at| at == axis) && call.constant(a.scale).is_some();
    (is_8_bit(a) && is_8_bit(b) && constant && fits).then(|| [a.clone(), b.clone()])
}

/// Lowers a node by integers if its operator and its operands allow it. Returns `None` otherwise.
pub(super) fn lower(operator: &str, call: &mut Call<'_>) -> Lowered<Option<NodeId>> {
    match operator {
        "Conv" => conv(call),
        "MatMul" => matmul(call),
        "Gemm" => gemm(call),
        _ => Ok(None),
    }
}

/// Computes a convolution by integers if its input and its filters are dequantized. Returns `None` otherwise.
fn conv(call: &mut Call<'_>) -> Lowered<Option<NodeId>> {
    let (x, w) = (call.node(0)?, call.node(1)?);
    let Some([a, b]) = integer_operands(call, [x, w], 0) else { return Ok(None) };
    let zeros = [nonzero(call, a.zero)?, nonzero(call, b.zero)?];
    let mut sum = integer_conv(call, [a.values, b.values], zeros)?;
    let rank = call.rank(sum);
    let scale = sum_scale(call, &a, &b, 1.0);
    let mut bias = call.optional(2)?;
    if let Some(values) = bias.and_then(|c| integer_bias(call, c, &scale)) {
        let values = per_channel(call, values, rank)?;
        (sum, bias) = (call.b.binary(BinaryFn::Add, sum, values)?, None);
    }
    let bias = bias.map(|c| per_channel(call, c, rank)).transpose()?;
    let scale = call.b.constant(&scale)?;
    let scale = per_channel(call, scale, rank)?;
    let to = call.dtype(x);
    scaled_sum(call, sum, scale, bias, to).map(Some)
}

/// Computes a matmul by integers if both operands are dequantized. Returns `None` otherwise.
fn matmul(call: &mut Call<'_>) -> Lowered<Option<NodeId>> {
    let (x, w) = (call.node(0)?, call.node(1)?);
    let (Some(columns), true) = (call.rank(w).checked_sub(1), call.rank(w) > 1 && call.rank(x) > 1) else {
        return Ok(None);
    };
    let Some([a, b]) = integer_operands(call, [x, w], columns) else { return Ok(None) };
    let zeros = [nonzero(call, a.zero)?, nonzero(call, b.zero)?];
    let sum = integer_matmul(call, [a.values, b.values], zeros)?;
    let scale = sum_scale(call, &a, &b, 1.0);
    let scale = call.b.constant(&scale)?;
    let to = call.dtype(x);
    scaled_sum(call, sum, scale, None, to).map(Some)
}

/// Computes Gemm by integers if both matrices are dequantized. Returns `None` otherwise.
fn gemm(call: &mut Call<'_>) -> Lowered<Option<NodeId>> {
    let (x, w) = (call.node(0)?, call.node(1)?);
    let [trans_a, trans_b] = [call.attributes.flag("transA", false)?, call.attributes.flag("transB", false)?];
    if call.rank(x) != 2 || call.rank(w) != 2 {
        return Ok(None);
    }
    let Some([a, b]) = integer_operands(call, [x, w], usize::from(!trans_b)) else { return Ok(None) };
    let (alpha, beta) = (call.attributes.float("alpha", 1.0)?, call.attributes.float("beta", 1.0)?);
    let zeros = [nonzero(call, a.zero)?, nonzero(call, b.zero)?];
    let (weights, zero_b) = fold_zero_point(call, b.values, zeros[1])?;
    let transposed = |call: &mut Call<'_>, x: NodeId, transposed: bool| -> Lowered<NodeId> {
        Ok(if transposed { call.b.transpose(x, vec![1, 0])? } else { x })
    };
    let operands = [transposed(call, a.values, trans_a)?, transposed(call, weights, trans_b)?];
    let mut sum = integer_matmul(call, operands, [zeros[0], zero_b])?;
    let scale = sum_scale(call, &a, &b, alpha);
    let mut bias = call.optional(2)?;
    let vector = bias.is_some_and(|c| call.rank(c) <= 1) && beta == 1.0;
    if let Some(values) = bias.filter(|_| vector).and_then(|c| integer_bias(call, c, &scale)) {
        (sum, bias) = (call.b.binary(BinaryFn::Add, sum, values)?, None);
    }
    let bias = bias.map(|c| scaled(call, c, beta)).transpose()?;
    let scale = call.b.constant(&scale)?;
    let to = call.dtype(x);
    scaled_sum(call, sum, scale, bias, to).map(Some)
}

/// Returns the scale of the sums: the scales of both operands and `factor`, multiplied. It is one number, or one per
/// index of the second operand's axis.
fn sum_scale(call: &Call<'_>, a: &Dequantized, b: &Dequantized, factor: f32) -> Array {
    let floats = |scale: NodeId| call.constant(scale).map(|s| s.to_floats()).unwrap_or_default();
    let first = floats(a.scale).first().copied().unwrap_or(1.0);
    let scales: Vec<f32> = floats(b.scale).iter().map(|second| first * second * factor).collect();
    let shape: &[usize] = if b.axis.is_some() { &[scales.len()] } else { &[] };
    Array::f32(shape, scales)
}

/// Returns the integers of a dequantized 32-bit bias whose scale is the scale of the sums, so that they can be added to
/// the sums. Rounding of the file's scales does not count.
fn integer_bias(call: &Call<'_>, bias: NodeId, sums: &Array) -> Option<NodeId> {
    let known = call.dequantized.get(&bias)?;
    let scales = call.constant(known.scale)?.to_floats();
    let Data::Float(expected) = &sums.data else { return None };
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
    let equal = scales.len() == expected.len() && scales.iter().zip(expected).all(close);
    let plain = call.dtype(known.values) == DType::I32 && is_zero(call.b.graph, known.zero);
    (equal && plain).then_some(known.values)
}
