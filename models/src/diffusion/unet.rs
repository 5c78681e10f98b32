//! UNet of a diffusion model: diffusers' class `UNet2DConditionModel`.
//!
//! The input is a latent `[batch, channels, height, width]`, a time step `[1]` (f32) and the keys and values of the text; the
//! output has the shape of the latent.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{BinaryFn, Concat, UnaryFn};

use super::config::{AddedTime, Level, UNetConfig};
use super::image::{resize_to, resnet};
use super::transformer::{CrossAttention, transformer};
use crate::blocks::{ConvWindow, conv, group_norm, linear, linear_without_bias, silu, size};
use crate::weights::Tensors;

/// Inputs of a UNet.
pub(crate) struct UNetInputs<'a> {
    /// Latent `[batch, channels, height, width]`.
    pub(crate) sample: NodeId,
    /// Time step `[1]`, f32.
    pub(crate) timestep: NodeId,
    /// Guidance `[1]`, f32, for models that take the guidance as an input.
    pub(crate) guidance: Option<NodeId>,
    /// Embedding `[batch, time]` of the pooled text and the time ids, which is added to the time embedding.
    pub(crate) added: Option<NodeId>,
    /// Source of the keys and values of the text.
    pub(crate) text: &'a dyn CrossAttention,
}

impl UNetConfig {
    /// Names and channels of the transformers of the UNet in the order in which they are computed, with their numbers of blocks.
    pub(crate) fn transformers(&self) -> Vec<(String, usize, usize)> {
        let mut all = Vec::new();
        for (i, level) in self.levels.iter().enumerate() {
            let name = |block| format!("down_blocks.{i}.attentions.{block}");
            all.extend((0..level.blocks).map(|block| (name(block), level.channels, level.transformers[0])));
        }
        if let (Some(blocks), Some(last)) = (self.middle, self.levels.last()) {
            all.push(("mid_block.attentions.0".into(), last.channels, blocks));
        }
        for (i, level) in self.levels.iter().rev().enumerate() {
            let name = |block| format!("up_blocks.{i}.attentions.{block}");
            all.extend((0..=level.blocks).map(|block| (name(block), level.channels, level.transformers[1])));
        }
        all.retain(|(_, _, blocks)| *blocks > 0);
        all
    }

    /// Adds the UNet. Returns the output `[batch, channels, height, width]`.
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn build(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        inputs: &UNetInputs<'_>,
    ) -> Result<NodeId> {
        let time = self.embed_time(g, w, inputs)?;
        let block = Block { unet: self, weights: w, time, text: inputs.text };
        let mut x = conv(g, w, "conv_in", inputs.sample, self.waves(), ConvWindow::with_kernel(3))?;
        let mut skips = vec![x];
        for (i, level) in self.levels.iter().enumerate() {
            let name = format!("down_blocks.{i}");
            for index in 0..level.blocks {
                x = block.add(g, &name, index, x, level, level.transformers[0])?;
                skips.push(x);
            }
            if i + 1 < self.levels.len() {
                let window = ConvWindow { stride: 2, ..ConvWindow::with_kernel(3) };
                x = conv(g, w, &format!("{name}.downsamplers.0.conv"), x, level.channels, window)?;
                skips.push(x);
            }
        }
        if let (Some(blocks), Some(last)) = (self.middle, self.levels.last()) {
            x = block.add(g, "mid_block", 0, x, last, blocks)?;
            x = block.add(g, "mid_block", 1, x, last, 0)?;
        }
        for (i, level) in self.levels.iter().rev().enumerate() {
            let name = format!("up_blocks.{i}");
            for index in 0..=level.blocks {
                if let Some(skip) = skips.pop() {
                    x = g.add(Concat { axis: 1 }, &[x, skip])?;
                }
                x = block.add(g, &name, index, x, level, level.transformers[1])?;
            }
            // Only the last level has used all skipped tensors. Their sides are odd if a side of the latent is no multiple of
            // the whole scale.
            if let Some(skip) = skips.last() {
                let sides = [size(g, *skip, 2)?, size(g, *skip, 3)?];
                x = resize_to(g, w, &format!("{name}.upsamplers.0"), x, sides)?;
            }
        }
        x = group_norm(g, w, "conv_norm_out", x, self.groups, self.epsilon)?;
        x = silu(g, x)?;
        conv(g, w, "conv_out", x, self.outputs, ConvWindow::with_kernel(3))
    }

    /// Adds the embedding `[1, time]` of the time step: cosines and sines of decreasing frequencies, then two linear layers.
    fn embed_time(&self, g: &mut Builder<'_>, w: &dyn Tensors, inputs: &UNetInputs<'_>) -> Result<NodeId> {
        g.name = "time_proj".into();
        let step = g.reshape(inputs.timestep, vec![Dim::known(1), Dim::known(1)])?;
        let mut y = waves(g, w, step, self.waves())?;
        if let (Some(width), Some(guidance)) = (self.guidance, inputs.guidance) {
            let condition = embed_guidance(g, guidance, width)?;
            let condition = g.cast(condition, w.element())?;
            let condition =
                linear_without_bias(g, w, "time_embedding.cond_proj", condition, width, self.waves())?;
            y = g.binary(BinaryFn::Add, y, condition)?;
        }
        let y = two_layers(g, w, "time_embedding", y, [self.waves(), self.time()])?;
        match inputs.added {
            Some(added) => g.binary(BinaryFn::Add, y, added),
            None => Ok(y),
        }
    }

    /// Adds the embedding `[batch, time]` of the pooled text `[batch, text]` and the time ids `[batch, ids]` (f32).
    ///
    /// # Errors
    /// If a weight is missing or has another shape.
    pub(crate) fn embed_added(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        added: AddedTime,
        pooled: NodeId,
        time_ids: NodeId,
    ) -> Result<NodeId> {
        g.name = "add_time_proj".into();
        let (batch, ids) = (size(g, time_ids, 0)?, size(g, time_ids, 1)?);
        let ids_of_all = g.reshape(time_ids, vec![Dim::from(batch * ids), Dim::known(1)])?;
        let waves = waves(g, w, ids_of_all, added.waves)?;
        let waves = g.reshape(waves, vec![batch.into(), Dim::from(ids * added.waves)])?;
        let pooled = g.cast(pooled, w.element())?;
        let all = g.add(Concat { axis: 1 }, &[pooled, waves])?;
        two_layers(g, w, "add_embedding", all, [added.width, self.time()])
    }
}

/// Adds two linear layers with a SiLU between them. `sizes` are the numbers of inputs and outputs.
fn two_layers(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    [inputs, outputs]: [usize; 2],
) -> Result<NodeId> {
    let y = linear(g, w, &format!("{name}.linear_1"), x, inputs, outputs)?;
    let y = silu(g, y)?;
    linear(g, w, &format!("{name}.linear_2"), y, outputs, outputs)
}

/// Adds the embedding `[1, width]` of the guidance: sines, then cosines of 1000 times the guidance minus 1.
///
/// # Errors
/// If the guidance is no f32.
pub(super) fn embed_guidance(g: &mut Builder<'_>, guidance: NodeId, width: usize) -> Result<NodeId> {
    g.name = "guidance_proj".into();
    let guidance = g.reshape(guidance, vec![Dim::known(1), Dim::known(1)])?;
    let scaled = g.unary(UnaryFn::Affine { scale: 1000.0, shift: -1000.0 }, guidance)?;
    let half = width / 2;
    let angles = angles(g, scaled, half, half.saturating_sub(1).max(1))?;
    let waves = [g.unary(UnaryFn::Sin, angles)?, g.unary(UnaryFn::Cos, angles)?];
    let mut waves = g.add(Concat { axis: 1 }, &waves)?;
    if width % 2 == 1 {
        let zero = g.constant(&Array::f32(&[1, 1], vec![0.0]))?;
        waves = g.add(Concat { axis: 1 }, &[waves, zero])?;
    }
    Ok(waves)
}

/// Adds cosines, then sines `[n, count]` of numbers `[n, 1]`. The numbers are f32, because the time step goes up to 1000.
fn waves(g: &mut Builder<'_>, w: &dyn Tensors, numbers: NodeId, count: usize) -> Result<NodeId> {
    let half = count / 2;
    let angles = angles(g, numbers, half, half)?;
    let cosines = g.unary(UnaryFn::Cos, angles)?;
    let sines = g.unary(UnaryFn::Sin, angles)?;
    let waves = g.add(Concat { axis: 1 }, &[cosines, sines])?;
    g.cast(waves, w.element())
}

/// Adds the angles `[n, count]`: numbers `[n, 1]` times frequencies that fall from 1 to 1/10000 in `steps` steps.
fn angles(g: &mut Builder<'_>, numbers: NodeId, count: usize, steps: usize) -> Result<NodeId> {
    let frequency = |i: usize| libm::expf(-libm::logf(10_000.0) * i as f32 / steps as f32);
    let frequencies = g.constant(&Array::f32(&[count], (0..count).map(frequency).collect()))?;
    g.binary(BinaryFn::Mul, numbers, frequencies)
}

/// Context of a UNet, for all its blocks.
struct Block<'a> {
    unet: &'a UNetConfig,
    weights: &'a dyn Tensors,
    time: NodeId,
    text: &'a dyn CrossAttention,
}

impl Block<'_> {
    /// Adds a residual block, and a transformer with `transformers` blocks after it.
    fn add(
        &self,
        g: &mut Builder<'_>,
        name: &str,
        index: usize,
        x: NodeId,
        level: &Level,
        transformers: usize,
    ) -> Result<NodeId> {
        let (unet, w) = (self.unet, self.weights);
        let residual = format!("{name}.resnets.{index}");
        let x = resnet(g, w, &residual, x, level.channels, Some(self.time), (unet.groups, unet.epsilon))?;
        match transformers {
            0 => Ok(x),
            blocks => transformer(
                g,
                w,
                unet,
                &format!("{name}.attentions.{index}"),
                x,
                (level.heads, blocks),
                self.text,
            ),
        }
    }
}
