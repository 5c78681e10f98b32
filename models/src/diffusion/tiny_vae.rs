//! Small VAE: diffusers' class `AutoencoderTiny`.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, UnaryFn};
use driftc::ir::ops::resize::{Filter, NearestRound};

use super::config::TinyConfig;
use crate::blocks::{ConvWindow, conv, conv_without_bias, resize, size};
use crate::weights::Tensors;

/// The decoder limits latents smoothly to the range from -3 to 3.
const MAGNITUDE: f32 = 3.0;

impl TinyConfig {
    /// Adds the decoder for a latent `[1, channels, height, width]` that is not scaled. Returns an image with values in -1 to 1.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn decode(&self, g: &mut Builder<'_>, w: &dyn Tensors, latent: NodeId) -> Result<NodeId> {
        let x = g.unary(UnaryFn::Affine { scale: 1.0 / MAGNITUDE, shift: 0.0 }, latent)?;
        let x = g.unary(UnaryFn::Tanh, x)?;
        let x = g.unary(UnaryFn::Affine { scale: MAGNITUDE, shift: 0.0 }, x)?;
        let mut layers = Layers { prefix: "decoder", next: 0 };
        let highest = self.decoder_block_out_channels.first().copied().unwrap_or(0);
        let mut x = conv(g, w, &layers.name(), x, highest, ConvWindow::with_kernel(3))?;
        x = g.unary(UnaryFn::Relu, x)?;
        layers.next += 1;
        let levels = self.decoder_block_out_channels.len();
        for (level, channels) in self.decoder_block_out_channels.iter().enumerate() {
            for _ in 0..self.num_decoder_blocks.get(level).copied().unwrap_or(0) {
                x = block(g, w, &layers.name(), x, *channels)?;
            }
            if level + 1 < levels {
                let sides = [2 * size(g, x, 2)?, 2 * size(g, x, 3)?];
                x = resize(g, x, sides, Filter::Nearest(NearestRound::Floor))?;
                layers.next += 1;
                x = conv_without_bias(g, w, &layers.name(), x, *channels, ConvWindow::with_kernel(3))?;
            } else {
                x = conv(g, w, &layers.name(), x, 3, ConvWindow::with_kernel(3))?;
            }
        }
        g.unary(UnaryFn::Affine { scale: 2.0, shift: -1.0 }, x)
    }

    /// Adds the encoder for an image `[1, 3, height, width]` with values in -1 to 1. Returns the latent, not scaled.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn encode(&self, g: &mut Builder<'_>, w: &dyn Tensors, image: NodeId) -> Result<NodeId> {
        let mut x = g.unary(UnaryFn::Affine { scale: 0.5, shift: 0.5 }, image)?;
        let mut layers = Layers { prefix: "encoder", next: 0 };
        for (level, channels) in self.encoder_block_out_channels.iter().enumerate() {
            let window = ConvWindow::with_kernel(3);
            x = match level {
                0 => conv(g, w, &layers.name(), x, *channels, window)?,
                _ => {
                    let window = ConvWindow { stride: 2, ..window };
                    conv_without_bias(g, w, &layers.name(), x, *channels, window)?
                }
            };
            for _ in 0..self.num_encoder_blocks.get(level).copied().unwrap_or(0) {
                x = block(g, w, &layers.name(), x, *channels)?;
            }
        }
        conv(g, w, &layers.name(), x, self.latent_channels, ConvWindow::with_kernel(3))
    }
}

/// Names of the layers in their order: `decoder.layers.0`, `decoder.layers.1` and so on.
struct Layers {
    prefix: &'static str,
    next: usize,
}

impl Layers {
    /// Returns the name of the next layer.
    fn name(&mut self) -> String {
        self.next += 1;
        format!("{}.layers.{}", self.prefix, self.next - 1)
    }
}

/// Adds a residual block of three convolutions.
fn block(g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId, channels: usize) -> Result<NodeId> {
    let window = ConvWindow::with_kernel(3);
    let mut y = x;
    for (index, last) in [(0, false), (2, false), (4, true)] {
        y = conv(g, w, &format!("{name}.conv.{index}"), y, channels, window)?;
        if !last {
            y = g.unary(UnaryFn::Relu, y)?;
        }
    }
    let x = match size(g, x, 1)? == channels {
        true => x,
        false => conv_without_bias(g, w, &format!("{name}.skip"), x, channels, ConvWindow::with_kernel(1))?,
    };
    let y = g.binary(BinaryFn::Add, y, x)?;
    g.unary(UnaryFn::Relu, y)
}
