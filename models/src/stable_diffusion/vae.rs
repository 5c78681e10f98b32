//! VAE decoder of Stable Diffusion, which turns a latent of 64 x 64 x 4 into an image of 512 x 512 x 3.
//!
//! The input is `latent_sample [1, 4, 64, 64]`, the output `sample [1, 3, 512, 512]`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::BinaryFn;

use super::{GROUPS, LATENT, LATENT_CHANNELS, resnet, upsample};
use crate::blocks::{
    ConvWindow, attention, conv, group_norm, linear, pixels_to_rows, rows_to_pixels, silu, size,
};
use crate::weights::Tensors;

/// Channels at the VAE decoder's four resolutions, lowest resolution first.
const CHANNELS: [usize; 4] = [512, 512, 256, 128];
/// Number of residual blocks at each resolution of the VAE decoder.
const BLOCKS: usize = 3;
const EPSILON: f32 = 1e-6;

/// Builds the graph of Stable Diffusion's VAE decoder.
///
/// # Errors
/// If a weight is missing or has another shape.
pub fn build(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()> {
    let latent = Dim::from(LATENT);
    let shape = vec![Dim::known(1), LATENT_CHANNELS.into(), latent.clone(), latent];
    let x = g.input("latent_sample", w.element(), shape)?;
    let x = conv(g, w, "post_quant_conv", x, LATENT_CHANNELS, ConvWindow::with_kernel(1))?;
    let mut x = conv(g, w, "decoder.conv_in", x, CHANNELS[0], ConvWindow::with_kernel(3))?;
    x = resnet(g, w, "decoder.mid_block.resnets.0", x, CHANNELS[0], None, EPSILON)?;
    x = attend(g, w, "decoder.mid_block.attentions.0", x)?;
    x = resnet(g, w, "decoder.mid_block.resnets.1", x, CHANNELS[0], None, EPSILON)?;
    for (level, channels) in CHANNELS.into_iter().enumerate() {
        let name = format!("decoder.up_blocks.{level}");
        for block in 0..BLOCKS {
            x = resnet(g, w, &format!("{name}.resnets.{block}"), x, channels, None, EPSILON)?;
        }
        if level + 1 < CHANNELS.len() {
            x = upsample(g, w, &format!("{name}.upsamplers.0"), x)?;
        }
    }
    x = group_norm(g, w, "decoder.conv_norm_out", x, GROUPS, EPSILON)?;
    x = silu(g, x)?;
    x = conv(g, w, "decoder.conv_out", x, 3, ConvWindow::with_kernel(3))?;
    g.graph.add_output("sample", x);
    Ok(())
}

/// Adds single-head attention over the pixels of an image, with a residual add.
fn attend(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
    let channels = size(g, x, 1)?;
    let y = group_norm(g, w, &format!("{name}.group_norm"), x, GROUPS, EPSILON)?;
    let y = pixels_to_rows(g, y)?;
    let mut project = |part: &str| linear(g, w, &format!("{name}.{part}"), y, channels, channels);
    let qkv = [project("to_q")?, project("to_k")?, project("to_v")?];
    g.name = name.to_string();
    let y = attention(g, qkv, 1, false)?;
    let y = linear(g, w, &format!("{name}.to_out.0"), y, channels, channels)?;
    let y = rows_to_pixels(g, y, x)?;
    g.binary(BinaryFn::Add, y, x)
}
