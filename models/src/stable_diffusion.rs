//! The three networks of Stable Diffusion 1.4 at their published size: text encoder, UNet and VAE decoder.
//!
//! Weights have the names of the published Hugging Face folders `text_encoder`, `unet` and `vae`.

pub mod text_encoder;
pub mod unet;
pub mod vae;

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::BinaryFn;
use driftc::ir::ops::resize::{Filter, NearestRound};

use crate::blocks::{ConvWindow, conv, group_norm, linear, resize, silu, size};
use crate::weights::Tensors;

/// Number of groups in every GroupNorm of Stable Diffusion.
const GROUPS: usize = 32;
/// Number of tokens of the text that conditions the UNet.
const TOKENS: usize = 77;
/// Hidden size of the text encoder.
const TEXT_HIDDEN: usize = 768;
/// Height and width of the latent image.
const LATENT: usize = 64;
/// Channels of the latent image.
const LATENT_CHANNELS: usize = 4;

/// Adds a residual block of two normalized convolutions. The time embedding, if given, is added between the convolutions.
fn resnet(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    outputs: usize,
    time: Option<NodeId>,
    epsilon: f32,
) -> Result<NodeId> {
    let inputs = size(g, x, 1)?;
    let y = group_norm(g, w, &format!("{name}.norm1"), x, GROUPS, epsilon)?;
    let y = silu(g, y)?;
    let mut y = conv(g, w, &format!("{name}.conv1"), y, outputs, ConvWindow::with_kernel(3))?;
    if let Some(time) = time {
        let width = size(g, time, 1)?;
        let t = silu(g, time)?;
        let t = linear(g, w, &format!("{name}.time_emb_proj"), t, width, outputs)?;
        let one = Dim::known(1);
        let t = g.reshape(t, vec![one.clone(), outputs.into(), one.clone(), one])?;
        y = g.binary(BinaryFn::Add, y, t)?;
    }
    let y = group_norm(g, w, &format!("{name}.norm2"), y, GROUPS, epsilon)?;
    let y = silu(g, y)?;
    let y = conv(g, w, &format!("{name}.conv2"), y, outputs, ConvWindow::with_kernel(3))?;
    let x = match inputs == outputs {
        true => x,
        false => conv(g, w, &format!("{name}.conv_shortcut"), x, outputs, ConvWindow::with_kernel(1))?,
    };
    g.binary(BinaryFn::Add, x, y)
}

/// Doubles the height and width of an image by a nearest-neighbor resize and a convolution.
fn upsample(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
    g.name = name.to_string();
    let (channels, height, width) = (size(g, x, 1)?, size(g, x, 2)?, size(g, x, 3)?);
    let y = resize(g, x, [2 * height, 2 * width], Filter::Nearest(NearestRound::Floor))?;
    conv(g, w, &format!("{name}.conv"), y, channels, ConvWindow::with_kernel(3))
}
