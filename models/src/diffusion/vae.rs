//! VAE of a diffusion model: diffusers' class `AutoencoderKL`.
//!
//! The decoder turns a latent `[1, channels, height, width]` into an image `[1, 3, pixels * height, pixels * width]` with
//! values in -1 to 1; the encoder does the reverse.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, UnaryFn};
use driftc::ir::tensor::DType;

use super::config::KlConfig;
use super::image::{resnet, upsample};
use crate::blocks::{
    ConvWindow, attention, conv, group_norm, linear, pixels_to_rows, rows_to_pixels, silu, size,
};
use crate::weights::Tensors;

const EPSILON: f32 = 1e-6;
/// Limits of the logarithm of the variance that the encoder computes.
const LOG_VARIANCE: (f32, f32) = (-30.0, 20.0);

/// Mean and standard deviation of the latents of an image, `[1, channels, height, width]`.
pub(crate) struct Distribution {
    mean: NodeId,
    deviation: NodeId,
}

impl Distribution {
    /// Adds the distribution with parameters `[1, 2 * channels, height, width]`: means, then logarithms of variances.
    ///
    /// # Errors
    /// If the parameters are no floats, or have fewer channels.
    pub(crate) fn new(g: &mut Builder<'_>, parameters: NodeId, channels: usize) -> Result<Self> {
        g.name = "latent".into();
        let channels = Dim::from(channels);
        let mean = g.slice(parameters, 1, Dim::known(0), channels.clone())?;
        let log_variance = g.slice(parameters, 1, channels.clone(), channels)?;
        let (low, high) = LOG_VARIANCE;
        let log_variance = clamped(g, log_variance, low, high)?;
        let half = g.unary(UnaryFn::Affine { scale: 0.5, shift: 0.0 }, log_variance)?;
        Ok(Self { mean, deviation: g.unary(UnaryFn::Exp, half)? })
    }

    /// Adds the latent that random numbers from a normal distribution stand for, f32.
    ///
    /// # Errors
    /// If the random numbers have another shape.
    pub(crate) fn draw(&self, g: &mut Builder<'_>, noise: NodeId) -> Result<NodeId> {
        let mean = g.cast(self.mean, DType::F32)?;
        let deviation = g.cast(self.deviation, DType::F32)?;
        let noise = g.binary(BinaryFn::Mul, deviation, noise)?;
        g.binary(BinaryFn::Add, mean, noise)
    }
}

impl KlConfig {
    /// Adds the decoder for a latent that is not scaled.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn decode(&self, g: &mut Builder<'_>, w: &dyn Tensors, latent: NodeId) -> Result<NodeId> {
        let mut x = latent;
        if self.use_post_quant_conv {
            x = conv(g, w, "post_quant_conv", x, self.latent_channels, ConvWindow::with_kernel(1))?;
        }
        let lowest = self.block_out_channels.last().copied().unwrap_or(0);
        x = conv(g, w, "decoder.conv_in", x, lowest, ConvWindow::with_kernel(3))?;
        x = self.middle(g, w, "decoder.mid_block", x)?;
        let levels = self.block_out_channels.len();
        for (level, channels) in self.block_out_channels.iter().rev().enumerate() {
            let name = format!("decoder.up_blocks.{level}");
            for block in 0..=self.layers_per_block {
                x = self.resnet(g, w, &format!("{name}.resnets.{block}"), x, *channels)?;
            }
            if level + 1 < levels {
                x = upsample(g, w, &format!("{name}.upsamplers.0"), x)?;
            }
        }
        self.finish(g, w, "decoder", x, 3)
    }

    /// Adds the encoder for an image `[1, 3, height, width]` with values in -1 to 1.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn encode(&self, g: &mut Builder<'_>, w: &dyn Tensors, image: NodeId) -> Result<Distribution> {
        let highest = self.block_out_channels.first().copied().unwrap_or(0);
        let mut x = conv(g, w, "encoder.conv_in", image, highest, ConvWindow::with_kernel(3))?;
        let levels = self.block_out_channels.len();
        for (level, channels) in self.block_out_channels.iter().enumerate() {
            let name = format!("encoder.down_blocks.{level}");
            for block in 0..self.layers_per_block {
                x = self.resnet(g, w, &format!("{name}.resnets.{block}"), x, *channels)?;
            }
            if level + 1 < levels {
                let window = ConvWindow { stride: 2, pads: [0, 1], ..ConvWindow::with_kernel(3) };
                x = conv(g, w, &format!("{name}.downsamplers.0.conv"), x, *channels, window)?;
            }
        }
        x = self.middle(g, w, "encoder.mid_block", x)?;
        x = self.finish(g, w, "encoder", x, 2 * self.latent_channels)?;
        if self.use_quant_conv {
            x = conv(g, w, "quant_conv", x, 2 * self.latent_channels, ConvWindow::with_kernel(1))?;
        }
        Distribution::new(g, x, self.latent_channels)
    }

    fn resnet(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        name: &str,
        x: NodeId,
        channels: usize,
    ) -> Result<NodeId> {
        resnet(g, w, name, x, channels, None, (self.norm_num_groups, EPSILON))
    }

    /// Adds the block at the lowest resolution.
    fn middle(&self, g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
        let channels = size(g, x, 1)?;
        let mut x = self.resnet(g, w, &format!("{name}.resnets.0"), x, channels)?;
        if self.mid_block_add_attention {
            x = self.attend(g, w, &format!("{name}.attentions.0"), x)?;
        }
        self.resnet(g, w, &format!("{name}.resnets.1"), x, channels)
    }

    /// Adds the last norm, activation and convolution of the encoder or the decoder.
    fn finish(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        part: &str,
        x: NodeId,
        outputs: usize,
    ) -> Result<NodeId> {
        let x = group_norm(g, w, &format!("{part}.conv_norm_out"), x, self.norm_num_groups, EPSILON)?;
        let x = silu(g, x)?;
        conv(g, w, &format!("{part}.conv_out"), x, outputs, ConvWindow::with_kernel(3))
    }

    /// Adds single-head attention over the pixels of an image, with a residual add.
    fn attend(&self, g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
        // Old files have other names.
        let [to_q, to_k, to_v, to_out] = match w.has(&format!("{name}.to_q.weight")) {
            true => ["to_q", "to_k", "to_v", "to_out.0"],
            false => ["query", "key", "value", "proj_attn"],
        };
        let channels = size(g, x, 1)?;
        let y = group_norm(g, w, &format!("{name}.group_norm"), x, self.norm_num_groups, EPSILON)?;
        let y = pixels_to_rows(g, y)?;
        let mut project = |part: &str| linear(g, w, &format!("{name}.{part}"), y, channels, channels);
        let qkv = [project(to_q)?, project(to_k)?, project(to_v)?];
        g.name = name.to_string();
        let y = attention(g, qkv, 1, false)?;
        let y = linear(g, w, &format!("{name}.{to_out}"), y, channels, channels)?;
        let y = rows_to_pixels(g, y, x)?;
        g.binary(BinaryFn::Add, y, x)
    }
}

/// Adds a clamp of `x` to the range from `low` to `high`.
///
/// # Errors
/// If `x` is no float tensor.
pub(crate) fn clamped(g: &mut Builder<'_>, x: NodeId, low: f32, high: f32) -> Result<NodeId> {
    let dtype = g.tensor(x).dtype;
    let (low, high) = (g.scalar(dtype, low)?, g.scalar(dtype, high)?);
    let x = g.binary(BinaryFn::Max, x, low)?;
    g.binary(BinaryFn::Min, x, high)
}
