//! The UNet of Stable Diffusion: 860 million parameters, 64 x 64 x 4 latents, 77 x 768 conditioning, batch 1.
//!
//! The inputs are `sample [1, 4, 64, 64]`, `timestep [1]` (f32) and `encoder_hidden_states [1, 77, 768]`; the output is
//! `out_sample`.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, Concat, UnaryFn};
use driftc::ir::tensor::DType;

use super::{GROUPS, LATENT, LATENT_CHANNELS, TEXT_HIDDEN, TOKENS, resnet, upsample};
use crate::blocks::{
    ConvWindow, attention, conv, group_norm, layer_norm, linear, linear_without_bias, pixels_to_rows,
    rows_to_pixels, silu, size,
};
use crate::weights::Tensors;

/// Channels at the UNet's four resolutions, highest resolution first.
const CHANNELS: [usize; 4] = [320, 640, 1280, 1280];
/// Number of blocks at each resolution in the UNet's down path. The up path has one more block at each resolution.
const BLOCKS: usize = 2;
const HEADS: usize = 8;
/// Number of elements that encode the diffusion time step: half of them cosines, half of them sines.
const WAVES: usize = 320;
/// Number of elements of the UNet's time embedding.
const TIME: usize = 1280;
const EPSILON: f32 = 1e-5;

/// Builds the graph of Stable Diffusion's UNet.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn build(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let element = w.element();
    let latent = Dim::from(LATENT);
    let sample =
        g.input("sample", element, vec![Dim::known(1), LATENT_CHANNELS.into(), latent.clone(), latent])?;
    let step = g.input("timestep", DType::F32, vec![Dim::known(1)])?;
    let text =
        g.input("encoder_hidden_states", element, vec![Dim::known(1), TOKENS.into(), TEXT_HIDDEN.into()])?;
    let time = embed_time(g, w, step)?;

    let mut x = conv(g, w, "conv_in", sample, CHANNELS[0], ConvWindow::with_kernel(3))?;
    let mut skips = vec![x];
    for (level, channels) in CHANNELS.into_iter().enumerate() {
        let name = format!("down_blocks.{level}");
        let last = level + 1 == CHANNELS.len();
        for block in 0..BLOCKS {
            x = resnet(g, w, &format!("{name}.resnets.{block}"), x, channels, Some(time), EPSILON)?;
            if !last {
                x = transformer(g, w, &format!("{name}.attentions.{block}"), x, text)?;
            }
            skips.push(x);
        }
        if !last {
            let window = ConvWindow { stride: 2, ..ConvWindow::with_kernel(3) };
            x = conv(g, w, &format!("{name}.downsamplers.0.conv"), x, channels, window)?;
            skips.push(x);
        }
    }
    let channels = size(g, x, 1)?;
    x = resnet(g, w, "mid_block.resnets.0", x, channels, Some(time), EPSILON)?;
    x = transformer(g, w, "mid_block.attentions.0", x, text)?;
    x = resnet(g, w, "mid_block.resnets.1", x, channels, Some(time), EPSILON)?;
    for (level, channels) in CHANNELS.into_iter().rev().enumerate() {
        let name = format!("up_blocks.{level}");
        for block in 0..=BLOCKS {
            if let Some(skip) = skips.pop() {
                x = g.add(Concat { axis: 1 }, &[x, skip])?;
            }
            x = resnet(g, w, &format!("{name}.resnets.{block}"), x, channels, Some(time), EPSILON)?;
            if level > 0 {
                x = transformer(g, w, &format!("{name}.attentions.{block}"), x, text)?;
            }
        }
        if level + 1 < CHANNELS.len() {
            x = upsample(g, w, &format!("{name}.upsamplers.0"), x)?;
        }
    }
    x = group_norm(g, w, "conv_norm_out", x, GROUPS, EPSILON)?;
    x = silu(g, x)?;
    x = conv(g, w, "conv_out", x, LATENT_CHANNELS, ConvWindow::with_kernel(3))?;
    g.graph.add_output("out_sample", x);
    Ok(())
}

/// Adds the embedding `[1, 1280]` of the time step: cosines and sines of decreasing frequencies, then two linear layers. The
/// cosines and sines are f32, because the time step goes up to 1000.
fn embed_time(g: &mut Builder<'_>, w: &dyn Tensors, step: NodeId) -> Result<NodeId> {
    g.name = "time_proj".into();
    let half = WAVES / 2;
    let frequency = |i: usize| libm::expf(-libm::logf(10_000.0) * i as f32 / half as f32);
    let frequencies = g.constant(&Array::f32(&[half], (0..half).map(frequency).collect()))?;
    let step = g.reshape(step, vec![Dim::known(1), Dim::known(1)])?;
    let angles = g.binary(BinaryFn::Mul, step, frequencies)?;
    let cosines = g.unary(UnaryFn::Cos, angles)?;
    let sines = g.unary(UnaryFn::Sin, angles)?;
    let waves = g.add(Concat { axis: 1 }, &[cosines, sines])?;
    let waves = g.cast(waves, w.element())?;
    let y = linear(g, w, "time_embedding.linear_1", waves, WAVES, TIME)?;
    let y = silu(g, y)?;
    linear(g, w, "time_embedding.linear_2", y, TIME, TIME)
}

/// Adds a transformer block over the pixels of an image, conditioned on the text embedding, with a residual add.
fn transformer(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId, text: NodeId) -> Result<NodeId> {
    let channels = size(g, x, 1)?;
    let y = group_norm(g, w, &format!("{name}.norm"), x, GROUPS, 1e-6)?;
    let image = conv(g, w, &format!("{name}.proj_in"), y, channels, ConvWindow::with_kernel(1))?;
    let mut y = pixels_to_rows(g, image)?;
    let at = |part: &str| format!("{name}.transformer_blocks.0.{part}");
    for (part, norm, source) in [("attn1", "norm1", None), ("attn2", "norm2", Some(text))] {
        let z = layer_norm(g, w, &at(norm), y, channels, EPSILON)?;
        let z = attend(g, w, &at(part), z, source.unwrap_or(z))?;
        y = g.binary(BinaryFn::Add, z, y)?;
    }
    let z = layer_norm(g, w, &at("norm3"), y, channels, EPSILON)?;
    let z = feed_forward(g, w, &at("ff.net"), z)?;
    y = g.binary(BinaryFn::Add, z, y)?;
    let y = rows_to_pixels(g, y, x)?;
    let y = conv(g, w, &format!("{name}.proj_out"), y, channels, ConvWindow::with_kernel(1))?;
    g.binary(BinaryFn::Add, y, x)
}

/// Adds multi-head attention of the rows of `x` over the rows of `source`.
fn attend(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId, source: NodeId) -> Result<NodeId> {
    let (channels, width) = (size(g, x, 2)?, size(g, source, 2)?);
    let q = linear_without_bias(g, w, &format!("{name}.to_q"), x, channels, channels)?;
    let k = linear_without_bias(g, w, &format!("{name}.to_k"), source, width, channels)?;
    let v = linear_without_bias(g, w, &format!("{name}.to_v"), source, width, channels)?;
    g.name = name.to_string();
    let y = attention(g, [q, k, v], HEADS, false)?;
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
