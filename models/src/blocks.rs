//! Parts that architectures share.

use driftc::error::Result;
use driftc::import::safetensors::Weights;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Gather, LayerNorm, MatMul};
use driftc::ir::tensor::DType;

/// A weight as an f32 constant, whatever the checkpoint holds.
///
/// # Errors
/// When the checkpoint has no such tensor of that shape.
pub fn weight(g: &mut Builder<'_>, weights: &Weights, name: &str, shape: &[usize]) -> Result<NodeId> {
    let constant = weights.shaped(name, shape)?;
    let id = g.add(constant, &[])?;
    g.cast(id, DType::F32)
}

/// `x [.., inputs] * weight [outputs, inputs]^T + bias [outputs]`, with tensors `name.weight` and `name.bias`.
///
/// # Errors
/// When the checkpoint does not fit.
pub fn linear(
    g: &mut Builder<'_>,
    weights: &Weights,
    name: &str,
    x: NodeId,
    inputs: usize,
    outputs: usize,
) -> Result<NodeId> {
    g.name = name.to_string();
    let w = weight(g, weights, &format!("{name}.weight"), &[outputs, inputs])?;
    let y = g.add(MatMul { trans_a: false, trans_b: true }, &[x, w])?;
    let b = weight(g, weights, &format!("{name}.bias"), &[outputs])?;
    g.binary(BinaryFn::Add, y, b)
}

/// Layer normalisation over the last axis with tensors `name.weight` and `name.bias`.
///
/// # Errors
/// When the checkpoint does not fit.
pub fn layer_norm(
    g: &mut Builder<'_>,
    weights: &Weights,
    name: &str,
    x: NodeId,
    size: usize,
    epsilon: f32,
) -> Result<NodeId> {
    g.name = name.to_string();
    let scale = weight(g, weights, &format!("{name}.weight"), &[size])?;
    let bias = weight(g, weights, &format!("{name}.bias"), &[size])?;
    let axis = g.tensor(x).rank().saturating_sub(1);
    g.add(LayerNorm { axis, epsilon, rms: false }, &[x, scale, bias])
}

/// Rows of `name.weight [rows, size]` picked by integer indices.
///
/// # Errors
/// When the checkpoint does not fit.
pub fn embedding(
    g: &mut Builder<'_>,
    weights: &Weights,
    name: &str,
    indices: NodeId,
    rows: usize,
    size: usize,
) -> Result<NodeId> {
    g.name = name.to_string();
    let table = weight(g, weights, &format!("{name}.weight"), &[rows, size])?;
    g.add(Gather { axis: 0 }, &[table, indices])
}

/// `[batch, seq, heads * size] -> [batch, heads, seq, size]`.
///
/// # Errors
/// When the sizes do not fit.
pub fn split_heads(g: &mut Builder<'_>, x: NodeId, heads: usize, size: usize) -> Result<NodeId> {
    let shape = g.tensor(x).shape.clone();
    let mut split: Vec<Dim> = shape[..2].to_vec();
    split.extend([Dim::from(heads), Dim::from(size)]);
    let y = g.reshape(x, split)?;
    g.transpose(y, vec![0, 2, 1, 3])
}

/// `[batch, heads, seq, size] -> [batch, seq, heads * size]`.
///
/// # Errors
/// When the sizes do not fit.
pub fn merge_heads(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    let y = g.transpose(x, vec![0, 2, 1, 3])?;
    let shape = g.tensor(y).shape.clone();
    g.reshape(y, vec![shape[0].clone(), shape[1].clone(), shape[2].mul(&shape[3])])
}

/// A 0/1 mask `[batch, seq]` of any type as additive scores `[batch, 1, 1, seq]`: 0 where it is 1, a large negative
/// number where it is 0.
///
/// # Errors
/// When the mask is not a matrix.
pub fn additive_mask(g: &mut Builder<'_>, mask: NodeId) -> Result<NodeId> {
    let mask = g.cast(mask, DType::F32)?;
    let shape = g.tensor(mask).shape.clone();
    let mask = g.reshape(mask, vec![shape[0].clone(), Dim::known(1), Dim::known(1), shape[1].clone()])?;
    // Within the range of f16, so that lowering the precision keeps it.
    g.unary(UnaryFn::Affine { scale: 60000.0, shift: -60000.0 }, mask)
}
