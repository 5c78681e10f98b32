//! Steps of random graphs that add a pattern: several nodes by which exporters express one function, and which passes recognize.

use driftc::Result;
use driftc::ir::array::Array;
use driftc::ir::dim::{Dim, product};
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{GroupNorm, LayerNorm, MatMul};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;

use super::Growth;
use super::steps::{channels, conv, smooth};

/// Adds a random pattern to `x`. Returns `None` if the pattern does not apply to `x`.
pub(super) fn step(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    match g.rng.below(9) {
        0 => silu(g, x).map(Some),
        1 => gelu(g, x).map(Some),
        2 => hard_swish(g, x).map(Some),
        3 => softmax(g, x),
        4 => norm(g, x),
        5 => attention(g, x),
        6 => residual(g, x),
        7 => group_norm(g, x),
        _ => gate(g, x).map(Some),
    }
}

fn scaled(g: &mut Growth<'_>, f: BinaryFn, x: NodeId, value: f32) -> Result<NodeId> {
    let c = g.builder.scalar(DType::F32, value)?;
    g.builder.binary(f, x, c)
}

/// Adds SiLU as exporters express it: `x * sigmoid(x)`.
fn silu(g: &mut Growth<'_>, x: NodeId) -> Result<NodeId> {
    let s = g.builder.unary(UnaryFn::Sigmoid, x)?;
    g.builder.binary(BinaryFn::Mul, x, s)
}

/// Adds GELU as exporters express it: `0.5 * x * (1 + erf(x / sqrt(2)))` with the factors in either order, or the form with tanh.
fn gelu(g: &mut Growth<'_>, x: NodeId) -> Result<NodeId> {
    let inner = if g.rng.once_in(3) {
        let cube = scaled(g, BinaryFn::Pow, x, 3.0)?;
        let cube = scaled(g, BinaryFn::Mul, cube, 0.044715)?;
        let sum = g.builder.binary(BinaryFn::Add, x, cube)?;
        let sum = scaled(g, BinaryFn::Mul, sum, (2.0 / std::f32::consts::PI).sqrt())?;
        g.builder.unary(UnaryFn::Tanh, sum)?
    } else {
        let part = scaled(g, BinaryFn::Div, x, std::f32::consts::SQRT_2)?;
        g.builder.unary(UnaryFn::Erf, part)?
    };
    let one = scaled(g, BinaryFn::Add, inner, 1.0)?;
    if g.rng.once_in(2) {
        let product = g.builder.binary(BinaryFn::Mul, x, one)?;
        return scaled(g, BinaryFn::Mul, product, 0.5);
    }
    let half = scaled(g, BinaryFn::Mul, x, 0.5)?;
    g.builder.binary(BinaryFn::Mul, half, one)
}

/// Adds hard swish as exporters express it: `x * clip(x + 3, 0, 6) / 6`.
fn hard_swish(g: &mut Growth<'_>, x: NodeId) -> Result<NodeId> {
    let sum = scaled(g, BinaryFn::Add, x, 3.0)?;
    let clip = g.builder.unary(UnaryFn::Clip { low: 0.0, high: 6.0 }, sum)?;
    let product = g.builder.binary(BinaryFn::Mul, x, clip)?;
    scaled(g, BinaryFn::Div, product, 6.0)
}

/// Adds softmax as exporters express it: `e / sum(e)` with `e = exp(x - max(x))`.
fn softmax(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let Some(last) = g.shape(x).len().checked_sub(1) else { return Ok(None) };
    let max = g.builder.reduce(ReduceKind::Max, x, vec![last], true)?;
    let e = g.builder.binary(BinaryFn::Sub, x, max)?;
    let e = g.builder.unary(UnaryFn::Exp, e)?;
    let sum = g.builder.reduce(ReduceKind::Sum, e, vec![last], true)?;
    g.builder.binary(BinaryFn::Div, e, sum).map(Some)
}

/// Adds LayerNorm, or LayerNorm within windows.
fn norm(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    if g.rng.once_in(3) { windows(g, x) } else { layer_norm(g, x) }
}

/// Adds a norm of `x [.., H, D]` whose axis H is cut into windows as in vision transformers: a split, a transpose, and
/// reshapes that join axes. Then the windows are joined again and added to `x`.
fn windows(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    let ([batch @ .., height, last], Some(width)) = (shape.as_slice(), g.width(x)) else { return Ok(None) };
    if batch.len() > 2 || !height.is_multiple_of(2) {
        return Ok(None);
    }
    let (n, size) = (product(batch), height.floor_div(2));
    let split = vec![n.clone(), 2usize.into(), size.clone(), last.clone()];
    let cut = vec![n.clone(), size.clone(), 2usize.into(), last.clone()];
    let (scale, bias) = (g.constant(&[width], 1.5)?, g.constant(&[width], 0.5)?);
    let norm = LayerNorm { axis: shape.len() - 1, epsilon: 0.01, rms: false };
    let y = g.builder.add(norm, &[x, scale, bias])?;
    let y = g.builder.reshape(y, split)?;
    let y = g.builder.transpose(y, vec![0, 2, 1, 3])?;
    let joined = g.builder.reshape(y, vec![n.mul(&size), last.scale(2)])?;
    if g.rng.once_in(2) {
        let (scale, bias) = (g.constant(&[2 * width], 1.5)?, g.constant(&[2 * width], 0.5)?);
        let norm = LayerNorm { axis: 1, epsilon: 0.01, rms: false };
        return g.builder.add(norm, &[joined, scale, bias]).map(Some);
    }
    let y = g.builder.softmax(joined, 1)?;
    let y = g.builder.reshape(y, cut)?;
    let y = g.builder.transpose(y, vec![0, 2, 1, 3])?;
    let y = g.builder.reshape(y, shape)?;
    g.builder.binary(BinaryFn::Add, x, y).map(Some)
}

/// Adds LayerNorm as exporters express it: `(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias`.
fn layer_norm(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let Some(last) = g.shape(x).len().checked_sub(1) else { return Ok(None) };
    let Some(width) = g.width(x) else { return Ok(None) };
    let mean = g.builder.reduce(ReduceKind::Mean, x, vec![last], true)?;
    let centered = g.builder.binary(BinaryFn::Sub, x, mean)?;
    let square = if g.rng.once_in(2) {
        scaled(g, BinaryFn::Pow, centered, 2.0)?
    } else {
        g.builder.binary(BinaryFn::Mul, centered, centered)?
    };
    let variance = g.builder.reduce(ReduceKind::Mean, square, vec![last], true)?;
    let variance = scaled(g, BinaryFn::Add, variance, 0.01)?;
    let deviation = g.builder.unary(UnaryFn::Sqrt, variance)?;
    let normal = g.builder.binary(BinaryFn::Div, centered, deviation)?;
    let (scale, bias) = (g.constant(&[width], 1.5)?, g.constant(&[width], 0.5)?);
    let y = g.builder.binary(BinaryFn::Mul, normal, scale)?;
    g.builder.binary(BinaryFn::Add, y, bias).map(Some)
}

/// Adds two heads of self-attention over `x [B, S, D]` as exporters express it: matmuls, a softmax and transposes.
fn attention(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    let (Some(width), 3) = (g.width(x), shape.len()) else { return Ok(None) };
    if !width.is_multiple_of(2) {
        return Ok(None);
    }
    let head = width / 2;
    let split = vec![shape[0].clone(), shape[1].clone(), Dim::known(2), Dim::from(head)];
    let mut heads = Vec::new();
    for _ in 0..3 {
        let w = g.constant(&[width, width], 1.5 / (width as f32).sqrt())?;
        let y = g.builder.matmul(x, w)?;
        let y = g.builder.reshape(y, split.clone())?;
        heads.push(g.builder.transpose(y, vec![0, 2, 1, 3])?);
    }
    let (q, k, v) = (heads[0], heads[1], heads[2]);
    let scores = if g.rng.once_in(2) {
        let k = g.builder.transpose(k, vec![0, 1, 3, 2])?;
        g.builder.matmul(q, k)?
    } else {
        g.builder.add(MatMul { trans_a: false, trans_b: true }, &[q, k])?
    };
    let scores = scaled(g, BinaryFn::Mul, scores, 1.0 / (head as f32).sqrt())?;
    let weights = g.builder.softmax(scores, 3)?;
    let y = g.builder.matmul(weights, v)?;
    let y = g.builder.transpose(y, vec![0, 2, 1, 3])?;
    g.builder.reshape(y, shape).map(Some)
}

/// Adds a group norm as exporters express it: an instance norm between reshapes, then a scale and a shift per channel.
fn group_norm(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let shape = g.shape(x);
    let Some(channels) = channels(g, x) else { return Ok(None) };
    let groups = if channels.is_multiple_of(2) { 2 } else { channels };
    let rest = product(&shape[2..]).scale((channels / groups) as i64);
    let grouped = g.builder.reshape(x, vec![shape[0].clone(), groups.into(), rest])?;
    let one = g.builder.constant(&Array::f32(&[groups], vec![1.0; groups]))?;
    let zero = g.builder.constant(&Array::f32(&[groups], vec![0.0; groups]))?;
    let norm = g.builder.add(GroupNorm { groups, epsilon: 0.01 }, &[grouped, one, zero])?;
    let norm = g.builder.reshape(norm, shape)?;
    let (scale, bias) = (g.constant(&[channels, 1, 1], 1.5)?, g.constant(&[1, channels, 1, 1], 0.5)?);
    let y = g.builder.binary(BinaryFn::Mul, norm, scale)?;
    g.builder.binary(BinaryFn::Add, y, bias).map(Some)
}

/// Adds `f(conv(x)) + g(conv(x))`: a convolution with two users, whose results are added.
fn residual(g: &mut Growth<'_>, x: NodeId) -> Result<Option<NodeId>> {
    let Some(y) = conv(g, x)? else { return Ok(None) };
    let (f, h) = (smooth(&mut g.rng), smooth(&mut g.rng));
    let a = g.builder.unary(f, y)?;
    let b = g.builder.unary(h, y)?;
    g.builder.binary(BinaryFn::Add, a, b).map(Some)
}

/// Adds `x * sigmoid(mean(x))`: a gate that is computed by a reduction, as in squeeze-and-excitation blocks.
fn gate(g: &mut Growth<'_>, x: NodeId) -> Result<NodeId> {
    let axes: Vec<usize> = (2..g.shape(x).len()).collect();
    let mean = g.builder.reduce(ReduceKind::Mean, x, axes, true)?;
    let gate = g.builder.unary(UnaryFn::Sigmoid, mean)?;
    g.builder.binary(BinaryFn::Mul, x, gate)
}
