//! Layers and other graph parts that several model architectures share.

use driftc::error::{Error, Result};
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Attention, Conv, Gather, GroupNorm, LayerNorm, MatMul, Resize};
use driftc::ir::ops::resize::{Coordinates, Filter};
use driftc::ir::tensor::DType;

use crate::weights::Tensors;

/// Adds the weight with this name and shape, cast to the type in which the architecture computes.
///
/// # Errors
/// If the checkpoint has no tensor with this name and shape.
pub fn weight(g: &mut Builder<'_>, weights: &dyn Tensors, name: &str, shape: &[usize]) -> Result<NodeId> {
    let constant = weights.tensor(name, shape)?;
    let id = g.add(constant, &[])?;
    g.cast(id, weights.element())
}

/// Adds a linear layer `x [.., inputs] * weight [outputs, inputs]^T + bias [outputs]`, with the tensors `name.weight` and
/// `name.bias`.
///
/// # Errors
/// If the checkpoint lacks a tensor or it has another shape.
pub fn linear(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    inputs: usize,
    outputs: usize,
) -> Result<NodeId> {
    let y = linear_without_bias(g, weights, name, x, inputs, outputs)?;
    let b = weight(g, weights, &format!("{name}.bias"), &[outputs])?;
    g.binary(BinaryFn::Add, y, b)
}

/// Adds a linear layer without bias, `x [.., inputs] * weight [outputs, inputs]^T`, with the tensor `name.weight`.
///
/// # Errors
/// If the checkpoint lacks the tensor or it has another shape.
pub fn linear_without_bias(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    inputs: usize,
    outputs: usize,
) -> Result<NodeId> {
    g.name = name.to_string();
    let w = weight(g, weights, &format!("{name}.weight"), &[outputs, inputs])?;
    g.add(MatMul { trans_a: false, trans_b: true }, &[x, w])
}

/// Settings of a 2-D convolution whose kernel size, stride, dilation and padding are equal on both axes.
#[derive(Debug, Clone, Copy)]
pub struct ConvWindow {
    /// Number of filter taps along each axis.
    pub kernel: usize,
    /// Distance in pixels between the windows of neighboring results.
    pub stride: usize,
    /// Distance in pixels between neighboring taps of the filter.
    pub dilation: usize,
    /// Number of groups: the channels of a depthwise convolution, or 1 for a full convolution.
    pub group: usize,
    /// Padding of each axis: number of zeros before the image, then number of zeros after it.
    pub pads: [usize; 2],
}

impl ConvWindow {
    /// Convolution of stride 1, padded so that an odd kernel keeps the image's size.
    pub fn with_kernel(kernel: usize) -> Self {
        Self { kernel, stride: 1, dilation: 1, group: 1, pads: [kernel / 2; 2] }
    }

    /// Convolution with TensorFlow's `SAME` padding: `ceil(size / stride)` results per axis. If the number of padding zeros is
    /// odd, the end gets one more.
    pub fn same(size: usize, kernel: usize, stride: usize, dilation: usize) -> Self {
        let reach = (size.div_ceil(stride) - 1) * stride + dilation * (kernel - 1) + 1;
        let zeros = reach.saturating_sub(size);
        Self { kernel, stride, dilation, group: 1, pads: [zeros / 2, zeros - zeros / 2] }
    }

    /// Returns these settings changed to a depthwise convolution: each of the `channels` channels is its own group.
    pub fn depthwise(self, channels: usize) -> Self {
        Self { group: channels, ..self }
    }
}

/// Returns the size of an axis of the tensor `x`.
///
/// # Errors
/// If the size is symbolic or the axis does not exist.
pub fn size(g: &Builder<'_>, x: NodeId, axis: usize) -> Result<usize> {
    let known = g.tensor(x).shape.get(axis).and_then(|d| usize::try_from(d.as_known()?).ok());
    known.ok_or_else(|| {
        Error::internal(
            "architecture",
            format!("the tensor {} has no axis {axis} of known size", g.tensor(x)),
        )
    })
}

/// Adds a 2-D convolution of `x [N, C, H, W]` with the tensors `name.weight` and `name.bias`.
///
/// # Errors
/// If the checkpoint lacks a tensor or it has another shape.
pub fn conv(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    window: ConvWindow,
) -> Result<NodeId> {
    windowed(g, weights, name, x, outputs, (window, true))
}

/// Adds a 2-D convolution without bias of `x [N, C, H, W]` with the tensor `name.weight`.
///
/// # Errors
/// If the checkpoint lacks the tensor or it has another shape.
pub fn conv_without_bias(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    window: ConvWindow,
) -> Result<NodeId> {
    windowed(g, weights, name, x, outputs, (window, false))
}

fn windowed(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    (window, has_bias): (ConvWindow, bool),
) -> Result<NodeId> {
    g.name = name.to_string();
    let ConvWindow { kernel, stride, dilation, group, pads } = window;
    let inputs = size(g, x, 1)? / group;
    let w = weight(g, weights, &format!("{name}.weight"), &[outputs, inputs, kernel, kernel])?;
    let op = Conv {
        strides: vec![stride; 2],
        dilations: vec![dilation; 2],
        pads_begin: vec![pads[0]; 2],
        pads_end: vec![pads[1]; 2],
        group,
        zero_point: 0,
    };
    let mut operands = vec![x, w];
    if has_bias {
        operands.push(weight(g, weights, &format!("{name}.bias"), &[outputs])?);
    }
    g.add(op, &operands)
}

/// Adds a GroupNorm of `x` with the tensors `name.weight` and `name.bias`.
///
/// # Errors
/// If the checkpoint lacks a tensor or it has another shape.
pub fn group_norm(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    x: NodeId,
    groups: usize,
    epsilon: f32,
) -> Result<NodeId> {
    g.name = name.to_string();
    let channels = size(g, x, 1)?;
    let scale = weight(g, weights, &format!("{name}.weight"), &[channels])?;
    let bias = weight(g, weights, &format!("{name}.bias"), &[channels])?;
    g.add(GroupNorm { groups, epsilon }, &[x, scale, bias])
}

/// Adds the product of a tensor and a number, `x * factor`.
///
/// # Errors
/// If `x` is not a float tensor.
pub fn scaled(g: &mut Builder<'_>, x: NodeId, factor: f32) -> Result<NodeId> {
    g.unary(UnaryFn::Affine { scale: factor, shift: 0.0 }, x)
}

/// Adds the activation SiLU, `x * sigmoid(x)`.
///
/// # Errors
/// If `x` is not a float tensor.
pub fn silu(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    g.unary(UnaryFn::Swish { alpha: 1.0 }, x)
}

/// Adds multi-head attention of the queries `q [batch, seq, heads * size]` over keys `k` and values `v` with the same order of
/// axes. The result has the shape of `q`.
///
/// # Errors
/// If the shapes do not match.
pub fn attention(g: &mut Builder<'_>, [q, k, v]: [NodeId; 3], heads: usize, causal: bool) -> Result<NodeId> {
    let head = size(g, q, 2)? / heads;
    let q = split_heads(g, q, heads, head)?;
    let k = split_heads(g, k, heads, head)?;
    let v = split_heads(g, v, heads, head)?;
    let y = g.add(Attention { causal, ..Attention::plain(1.0 / (head as f32).sqrt()) }, &[q, k, v])?;
    merge_heads(g, y)
}

/// Turns an image into rows of pixels: `[batch, channels, height, width]` to `[batch, height * width, channels]`.
///
/// # Errors
/// If the shapes do not match.
pub fn pixels_to_rows(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    let y = g.transpose(x, vec![0, 2, 3, 1])?;
    let shape = g.tensor(y).shape.clone();
    g.reshape(y, vec![shape[0].clone(), shape[1].mul(&shape[2]), shape[3].clone()])
}

/// Turns rows of pixels into an image: `[batch, height * width, channels]` to `[batch, channels, height, width]`, with the height
/// and width of the image `like`.
///
/// # Errors
/// If the shapes do not match.
pub fn rows_to_pixels(g: &mut Builder<'_>, x: NodeId, like: NodeId) -> Result<NodeId> {
    let shape = g.tensor(like).shape.clone();
    let split = vec![shape[0].clone(), shape[2].clone(), shape[3].clone(), g.tensor(x).shape[2].clone()];
    let y = g.reshape(x, split)?;
    g.transpose(y, vec![0, 3, 1, 2])
}

/// Adds a resize of the image `x` to another height and width. A linear filter aligns the corner pixels (`align_corners`).
///
/// # Errors
/// If `x` is not an image of known size.
pub fn resize(g: &mut Builder<'_>, x: NodeId, to: [usize; 2], filter: Filter) -> Result<NodeId> {
    let shape = g.tensor(x).shape.clone();
    let from = [size(g, x, 2)?, size(g, x, 3)?];
    let coordinates = match filter {
        Filter::Nearest(_) => Coordinates::Asymmetric,
        _ => Coordinates::AlignCorners,
    };
    let scale = |i: usize| to[i] as f32 / from[i] as f32;
    let op = Resize {
        filter,
        coordinates,
        scales: vec![1.0, 1.0, scale(0), scale(1)],
        sizes: vec![shape[0].clone(), shape[1].clone(), Dim::from(to[0]), Dim::from(to[1])],
        roi: Vec::new(),
        extrapolation: 0.0,
        antialias: false,
        exclude_outside: false,
    };
    g.add(op, &[x])
}

/// Adds a LayerNorm over the last axis of `x` with the tensors `name.weight` and `name.bias`.
///
/// # Errors
/// If the checkpoint lacks a tensor or it has another shape.
pub fn layer_norm(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
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

/// Adds an embedding lookup: the rows of the tensor `name.weight [rows, size]` at integer indices.
///
/// # Errors
/// If the checkpoint lacks the tensor or it has another shape.
pub fn embedding(
    g: &mut Builder<'_>,
    weights: &dyn Tensors,
    name: &str,
    indices: NodeId,
    rows: usize,
    size: usize,
) -> Result<NodeId> {
    g.name = name.to_string();
    let table = weight(g, weights, &format!("{name}.weight"), &[rows, size])?;
    g.add(Gather { axis: 0 }, &[table, indices])
}

/// Splits the last axis into attention heads: `[batch, seq, heads * size]` to `[batch, heads, seq, size]`.
///
/// # Errors
/// If the shapes do not match.
pub fn split_heads(g: &mut Builder<'_>, x: NodeId, heads: usize, size: usize) -> Result<NodeId> {
    let shape = g.tensor(x).shape.clone();
    let mut split: Vec<Dim> = shape[..2].to_vec();
    split.extend([Dim::from(heads), Dim::from(size)]);
    let y = g.reshape(x, split)?;
    g.transpose(y, vec![0, 2, 1, 3])
}

/// Merges attention heads into the last axis: `[batch, heads, seq, size]` to `[batch, seq, heads * size]`.
///
/// # Errors
/// If the shapes do not match.
pub fn merge_heads(g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
    let y = g.transpose(x, vec![0, 2, 1, 3])?;
    let shape = g.tensor(y).shape.clone();
    g.reshape(y, vec![shape[0].clone(), shape[1].clone(), shape[2].mul(&shape[3])])
}

/// Turns a mask `[batch, seq]` of any type into an additive attention mask `[batch, 1, 1, seq]`: 1 becomes 0, and 0 becomes a
/// large negative number.
///
/// # Errors
/// If the mask does not have two axes.
pub fn additive_mask(g: &mut Builder<'_>, mask: NodeId) -> Result<NodeId> {
    let mask = g.cast(mask, DType::F32)?;
    let shape = g.tensor(mask).shape.clone();
    let mask = g.reshape(mask, vec![shape[0].clone(), Dim::known(1), Dim::known(1), shape[1].clone()])?;
    // The range of f16 holds this number, so lowering the precision keeps it.
    g.unary(UnaryFn::Affine { scale: 60000.0, shift: -60000.0 }, mask)
}
