//! Normalization operators.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, Outputs, Value, check_inference, op};
use super::pool::lp_norm;
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::dim::{Dim, product};
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::{GroupNorm, LayerNorm, Pool};
use crate::ir::ops::pool::PoolKind;
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::normalize_axis;

pub(super) const OPS: &[OpEntry] = &[
    op("BatchNormalization", 1, batch_norm),
    op("LayerNormalization", 17, layer_norm),
    op("RMSNormalization", 23, rms_norm),
    // Not an ONNX operator, but exporters put it into the default domain.
    op("SimplifiedLayerNormalization", 1, rms_norm),
    op("InstanceNormalization", 1, instance_norm),
    op("GroupNormalization", 18, group_norm),
    op("LRN", 1, local_response),
    op("MeanVarianceNormalization", 9, mean_variance),
    op("LpNormalization", 1, lp_normalization),
];

/// Reshapes a vector with one number per channel so that it broadcasts to `[N, C, spatial..]`.
fn per_channel(call: &mut Call<'_>, x: NodeId, rank: usize) -> Lowered<NodeId> {
    let mut shape = vec![Dim::known(1); rank.max(2)];
    shape[1] = call.tensor(x).elements();
    Ok(call.b.reshape(x, shape)?)
}

/// Lowers BatchNormalization to `x * scale + shift` per channel. With constant statistics, scale and shift are
/// constant.
fn batch_norm(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["momentum"]);
    check_inference(call)?;
    if call.opset < 9 && !call.attributes.flag("spatial", true)? {
        return Err(Refused::new("attribute `spatial` is 0 (statistics per pixel), which is not supported"));
    }
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    if call.attributes.flag("training_mode", false)? {
        return Err(Refused::new("training mode is not supported"));
    }
    let x = call.node(0)?;
    let (rank, dtype) = (call.rank(x), call.dtype(x));
    if !dtype.is_float() {
        return Err(Refused::new(format!("operand 0 has type {}; a float type is needed", dtype.name())));
    }
    let statistics: Vec<Option<Array>> = (1..5).map(|i| call.array(i)).collect();
    let (scale, shift) = if let [Some(scale), Some(bias), Some(mean), Some(variance)] = statistics.as_slice()
    {
        let (scale, shift) = folded(scale, bias, mean, variance, epsilon)?;
        let mut shape = vec![1; rank.max(2)];
        shape[1] = scale.len();
        let scale = call.b.constant(&Array::float(dtype, &shape, scale))?;
        (scale, call.b.constant(&Array::float(dtype, &shape, shift))?)
    } else {
        let mut operands = Vec::new();
        for i in 1..5 {
            let value = call.node(i)?;
            operands.push(call.b.cast(value, dtype)?);
        }
        let variance = call.b.unary(UnaryFn::Affine { scale: 1.0, shift: epsilon }, operands[3])?;
        let inverse = call.b.unary(UnaryFn::Rsqrt, variance)?;
        let scale = call.b.binary(BinaryFn::Mul, operands[0], inverse)?;
        let mean = call.b.binary(BinaryFn::Mul, operands[2], scale)?;
        let shift = call.b.binary(BinaryFn::Sub, operands[1], mean)?;
        (per_channel(call, scale, rank)?, per_channel(call, shift, rank)?)
    };
    let scaled = call.b.binary(BinaryFn::Mul, x, scale)?;
    Ok(call.b.binary(BinaryFn::Add, scaled, shift)?.into())
}

fn folded(
    scale: &Array,
    bias: &Array,
    mean: &Array,
    variance: &Array,
    epsilon: f32,
) -> Lowered<(Vec<f32>, Vec<f32>)> {
    let lists = [scale.to_floats(), bias.to_floats(), mean.to_floats(), variance.to_floats()];
    let [scale, bias, mean, variance] = lists.as_slice() else {
        return Err(Refused::new("scale, bias, mean or variance is missing"));
    };
    let n = scale.len();
    if bias.len() != n || mean.len() != n || variance.len() != n {
        return Err(Refused::new("scale, bias, mean and variance have different lengths"));
    }
    let channel = |i: usize| {
        let factor = f64::from(scale[i]) / (f64::from(variance[i]) + f64::from(epsilon)).sqrt();
        (factor as f32, (f64::from(bias[i]) - f64::from(mean[i]) * factor) as f32)
    };
    Ok((0..n).map(channel).unzip())
}

/// Lowers LayerNormalization. The statistics are always f32, at least as precise as `stash_type` requires.
fn layer_norm(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["stash_type"]);
    let x = call.node(0)?;
    let axis = call.axis(-1, call.rank(x))?;
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    let mut operands = vec![x, call.node(1)?];
    operands.extend(call.optional(2)?);
    let mut outputs = Outputs::from(call.add(LayerNorm { axis, epsilon, rms: false }, &operands)?);
    if call.wants(1) || call.wants(2) {
        let (mean, centered) = centered(call, x, (axis..call.rank(x)).collect())?;
        let inverse = inverse_deviation(call, centered, (axis..call.rank(x)).collect(), epsilon)?;
        outputs.0.extend([Value::Node(mean), Value::Node(inverse)]);
    }
    Ok(outputs)
}

fn centered(call: &mut Call<'_>, x: NodeId, axes: Vec<usize>) -> Lowered<(NodeId, NodeId)> {
    let mean = call.b.reduce(ReduceKind::Mean, x, axes, true)?;
    Ok((mean, call.b.binary(BinaryFn::Sub, x, mean)?))
}

/// Computes `1 / sqrt(mean(x^2) + epsilon)` along axes, which the result keeps with size 1.
fn inverse_deviation(call: &mut Call<'_>, x: NodeId, axes: Vec<usize>, epsilon: f32) -> Lowered<NodeId> {
    let square = call.b.binary(BinaryFn::Mul, x, x)?;
    let variance = call.b.reduce(ReduceKind::Mean, square, axes, true)?;
    let variance = call.b.unary(UnaryFn::Affine { scale: 1.0, shift: epsilon }, variance)?;
    Ok(call.b.unary(UnaryFn::Rsqrt, variance)?)
}

fn rms_norm(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["stash_type"]);
    let x = call.node(0)?;
    let axis = call.axis(-1, call.rank(x))?;
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    let scale = call.node(1)?;
    let mut outputs = Outputs::from(call.add(LayerNorm { axis, epsilon, rms: true }, &[x, scale])?);
    if call.wants(1) {
        let axes = (axis..call.rank(x)).collect();
        outputs.0.push(Value::Node(inverse_deviation(call, x, axes, epsilon)?));
    }
    Ok(outputs)
}

fn channels(call: &Call<'_>, x: NodeId) -> Lowered<usize> {
    let shape = call.shape(x);
    let channels = shape
        .get(1)
        .ok_or_else(|| Refused::new("operand 0 has no channel axis; rank 2 or more is needed"))?;
    call.known_dim(channels, "the number of channels")
}

fn instance_norm(call: &mut Call<'_>) -> Lowered {
    let (x, scale, bias) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    let groups = channels(call, x)?;
    Ok(call.add(GroupNorm { groups, epsilon }, &[x, scale, bias])?.into())
}

fn group_norm(call: &mut Call<'_>) -> Lowered {
    call.attributes.ignore(&["stash_type"]);
    let (x, mut scale, mut bias) = (call.node(0)?, call.node(1)?, call.node(2)?);
    let epsilon = call.attributes.float("epsilon", 1e-5)?;
    let groups = call.attributes.int("num_groups", 0)?;
    let channels = channels(call, x)?;
    let groups = usize::try_from(groups).ok().filter(|g| *g > 0 && channels % *g == 0).ok_or_else(|| {
        Refused::attribute("num_groups", groups, &format!("divisors of the number of channels, {channels}"))
    })?;
    if call.opset < 21 {
        // Scale and bias are per group before opset 21.
        scale = repeated(call, scale, groups, channels / groups)?;
        bias = repeated(call, bias, groups, channels / groups)?;
    }
    Ok(call.add(GroupNorm { groups, epsilon }, &[x, scale, bias])?.into())
}

/// Repeats each of the `n` elements of a vector `times` times.
fn repeated(call: &mut Call<'_>, x: NodeId, n: usize, times: usize) -> Lowered<NodeId> {
    let x = call.b.reshape(x, vec![Dim::from(n), Dim::known(1)])?;
    let x = call.b.expand(x, vec![Dim::from(n), Dim::from(times)])?;
    Ok(call.b.reshape(x, vec![Dim::from(n * times)])?)
}

/// Lowers LRN: `x / (bias + alpha * mean(x^2 over neighboring channels)) ^ beta`. Missing channels count as zero.
fn local_response(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let alpha = call.attributes.float("alpha", 1e-4)?;
    let beta = call.attributes.float("beta", 0.75)?;
    let bias = call.attributes.float("bias", 1.0)?;
    let size = call.attributes.int("size", 0)?;
    let size = usize::try_from(size)
        .ok()
        .filter(|s| *s > 0)
        .ok_or_else(|| Refused::attribute("size", size, "1 or more"))?;
    let (shape, dtype) = (call.shape(x), call.dtype(x));
    let [n, c, spatial @ ..] = shape.as_slice() else {
        return Err(Refused::new(format!(
            "operand 0 has rank {}; at least 2 is needed for a channel axis",
            shape.len()
        )));
    };
    let square = call.b.binary(BinaryFn::Mul, x, x)?;
    let flat = vec![n.clone(), Dim::known(1), c.clone(), product(spatial)];
    let square = call.b.reshape(square, flat)?;
    let pool = Pool {
        kind: PoolKind::Average { count_include_pad: true },
        kernel: vec![size, 1],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads_begin: vec![(size - 1) / 2, 0],
        pads_end: vec![size / 2, 0],
        ceil: false,
    };
    let mean = call.add(pool, &[square])?;
    let mean = call.b.reshape(mean, shape)?;
    let base = call.b.unary(UnaryFn::Affine { scale: alpha, shift: bias }, mean)?;
    let exponent = call.b.scalar(dtype, -beta)?;
    let factor = call.b.binary(BinaryFn::Pow, base, exponent)?;
    Ok(call.b.binary(BinaryFn::Mul, x, factor)?.into())
}

fn mean_variance(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let list = call.attributes.ints_opt("axes")?.unwrap_or(&[0, 2, 3]);
    let axes = super::lowering::axes(list, call.rank(x))?;
    let (_, centered) = centered(call, x, axes.clone())?;
    let square = call.b.binary(BinaryFn::Mul, centered, centered)?;
    let variance = call.b.reduce(ReduceKind::Mean, square, axes, true)?;
    let deviation = call.b.unary(UnaryFn::Sqrt, variance)?;
    let deviation = call.b.unary(UnaryFn::Affine { scale: 1.0, shift: 1e-9 }, deviation)?;
    Ok(call.b.binary(BinaryFn::Div, centered, deviation)?.into())
}

/// Lowers LpNormalization. The result is zero where the norm is zero.
fn lp_normalization(call: &mut Call<'_>) -> Lowered {
    let x = call.node(0)?;
    let axis = normalize_axis(call.attributes.int("axis", -1)?, call.rank(x))?;
    let p = call.attributes.int("p", 2)?;
    let norm = lp_norm(call, x, p, vec![axis])?;
    let zero = call.b.scalar(call.dtype(x), 0.0)?;
    let is_zero = call.b.binary(BinaryFn::Equal, norm, zero)?;
    let quotient = typed_binary(call, BinaryFn::Div, x, norm)?;
    Ok(call.b.select(is_zero, zero, quotient)?.into())
}
