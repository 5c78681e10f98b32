//! Transformers of the UNet: self-attention over the pixels, cross-attention over the text, and a feed-forward block.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, UnaryFn};

use super::config::UNetConfig;
use crate::blocks::{
    ConvWindow, attention, conv, group_norm, layer_norm, linear, linear_without_bias, pixels_to_rows,
    rows_to_pixels, size,
};
use crate::weights::Tensors;

const EPSILON: f32 = 1e-5;
/// Epsilon of the norm before the transformer blocks.
const IMAGE_EPSILON: f32 = 1e-6;

/// Source of the keys and values of the text in cross-attention.
pub(crate) trait CrossAttention {
    /// Returns keys and values `[batch, tokens, channels]` for the attention block with this name.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    fn keys_values(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        name: &str,
        channels: usize,
    ) -> Result<[NodeId; 2]>;
}

/// Text embedding `[batch, tokens, size]`, from which keys and values are computed.
pub(crate) struct TextEmbedding(pub(crate) NodeId);

impl CrossAttention for TextEmbedding {
    fn keys_values(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        name: &str,
        channels: usize,
    ) -> Result<[NodeId; 2]> {
        let width = size(g, self.0, 2)?;
        let keys = linear_without_bias(g, w, &format!("{name}.to_k"), self.0, width, channels)?;
        let values = linear_without_bias(g, w, &format!("{name}.to_v"), self.0, width, channels)?;
        Ok([keys, values])
    }
}

/// Name of the cross-attention of a transformer block.
pub(crate) fn cross_attention_name(transformer: &str, block: usize) -> String {
    format!("{transformer}.transformer_blocks.{block}.attn2")
}

/// Adds a transformer over the pixels of an image, conditioned on the text, with a residual add. `(heads, blocks)` are the
/// numbers of attention heads and of transformer blocks.
pub(super) fn transformer(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    unet: &UNetConfig,
    name: &str,
    x: NodeId,
    (heads, blocks): (usize, usize),
    text: &dyn CrossAttention,
) -> Result<NodeId> {
    let channels = size(g, x, 1)?;
    let y = group_norm(g, w, &format!("{name}.norm"), x, unet.groups, IMAGE_EPSILON)?;
    let pixel = ConvWindow::with_kernel(1);
    let mut y = match unet.linear_projection {
        true => {
            let rows = pixels_to_rows(g, y)?;
            linear(g, w, &format!("{name}.proj_in"), rows, channels, channels)?
        }
        false => {
            let image = conv(g, w, &format!("{name}.proj_in"), y, channels, pixel)?;
            pixels_to_rows(g, image)?
        }
    };
    for block in 0..blocks {
        let at = |part: &str| format!("{name}.transformer_blocks.{block}.{part}");
        let z = layer_norm(g, w, &at("norm1"), y, channels, EPSILON)?;
        let z = attend(g, w, &at("attn1"), z, &TextEmbedding(z), heads)?;
        y = g.binary(BinaryFn::Add, z, y)?;
        let z = layer_norm(g, w, &at("norm2"), y, channels, EPSILON)?;
        let z = attend(g, w, &at("attn2"), z, text, heads)?;
        y = g.binary(BinaryFn::Add, z, y)?;
        let z = layer_norm(g, w, &at("norm3"), y, channels, EPSILON)?;
        let z = feed_forward(g, w, &at("ff.net"), z)?;
        y = g.binary(BinaryFn::Add, z, y)?;
    }
    let y = match unet.linear_projection {
        true => {
            let y = linear(g, w, &format!("{name}.proj_out"), y, channels, channels)?;
            rows_to_pixels(g, y, x)?
        }
        false => {
            let y = rows_to_pixels(g, y, x)?;
            conv(g, w, &format!("{name}.proj_out"), y, channels, pixel)?
        }
    };
    g.binary(BinaryFn::Add, y, x)
}

/// Adds multi-head attention of the rows of `x`.
fn attend(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    source: &dyn CrossAttention,
    heads: usize,
) -> Result<NodeId> {
    let channels = size(g, x, 2)?;
    let q = linear_without_bias(g, w, &format!("{name}.to_q"), x, channels, channels)?;
    let [k, v] = source.keys_values(g, w, name, channels)?;
    g.name = name.to_string();
    let y = attention(g, [q, k, v], heads, false)?;
    linear(g, w, &format!("{name}.to_out.0"), y, channels, channels)
}

/// Adds a feed-forward block: two linear layers with a GEGLU gate between them.
fn feed_forward(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
    let channels = size(g, x, 2)?;
    let inner = 4 * channels;
    let y = linear(g, w, &format!("{name}.0.proj"), x, channels, 2 * inner)?;
    let value = g.slice(y, 2, Dim::known(0), Dim::from(inner))?;
    let gate = g.slice(y, 2, Dim::from(inner), Dim::from(inner))?;
    let gate = g.unary(UnaryFn::Gelu, gate)?;
    let y = g.binary(BinaryFn::Mul, value, gate)?;
    linear(g, w, &format!("{name}.2"), y, inner, channels)
}
