//! Functions of a bundle that makes pictures.
//!
//! ```text
//! encode        ids                          -> states: keys and values of the text for each cross-attention
//! encode_image  image, noise                 -> output: latent of an image
//! start         noise, image, mask, scales   -> states: latent, image, mask, noise, history
//! noise         noise                        -> state: noise of the next step
//! denoise       coefficients                 -> states: latent, history
//! latent                                     -> output: latent
//! decode                                     -> output: picture, u8
//! ```
//!
//! `denoise` computes both halves of classifier-free guidance as a batch of two, the guidance, and the step of the
//! scheduler. `denoise_unguided` computes only the half of the prompt.

use driftc::compile::EntryPoint;
use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::{BinaryFn, Concat, UnaryFn};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;
use driftc::pass::Precision;

use super::networks::{NoiseInputs, PROMPTS, Parts, Prompts};
use super::step::{COEFFICIENTS, HISTORY, Latents, coefficient, next_latent};
use super::vae::clamped;
use crate::blocks::scaled;
use crate::function_graph::{dims, graph, state};

/// Number of time ids of SDXL: original size, crop and target size, each as height and width.
pub(super) const TIME_IDS: usize = 6;

/// Returns the entry points of a diffusion model.
///
/// # Errors
/// If a weight is missing or has another shape, or a network has other inputs than expected.
pub(super) fn entry_points(parts: &Parts) -> Result<Vec<EntryPoint>> {
    let mut all = vec![entry("encode", encode(parts)?)];
    if !parts.takes_guidance {
        all.push(entry("denoise", denoise(parts, true)?));
    }
    all.push(entry("denoise_unguided", denoise(parts, false)?));
    let precision = parts.vae_needs_f32.then_some(Precision::F32);
    all.push(EntryPoint { precision, ..entry("decode", decode(parts)?) });
    if parts.encodes_images {
        all.push(EntryPoint { precision, ..entry("encode_image", encode_image(parts)?) });
    }
    for (name, graph) in [("start", start(parts)?), ("noise", noise(parts)?), ("latent", latent(parts)?)] {
        all.push(EntryPoint { precision: Some(Precision::F32), ..entry(name, graph) });
    }
    Ok(all)
}

fn entry(name: &str, graph: Graph) -> EntryPoint {
    EntryPoint { fixed_size: true, ..EntryPoint::new(name, graph) }
}

/// Text encoders, and all values of the UNet that depend on the text alone.
fn encode(parts: &Parts) -> Result<Graph> {
    graph("encode", |g| {
        let mut ids = Vec::new();
        for index in 0..parts.text_encoders {
            let name = if index == 0 { "ids".to_string() } else { format!("ids_{}", index + 1) };
            ids.push(g.input(&name, DType::I32, dims(&[PROMPTS, parts.tokens]))?);
        }
        let (mut embedding, mut pooled) = parts.networks.encode_text(g, &ids)?;
        let mut time_ids = None;
        if parts.takes_time_ids {
            let scales = g.input("prompt_scales", DType::F32, dims(&[PROMPTS]))?;
            embedding = scale_prompts(g, embedding, scales)?;
            if let Some(value) = pooled {
                pooled = Some(scale_prompts(g, value, scales)?);
                time_ids = Some(g.input("time_ids", DType::F32, dims(&[PROMPTS, TIME_IDS]))?);
            }
        }
        parts.networks.store_prompts(g, &Prompts { embedding, pooled, time_ids })
    })
}

/// Multiplies each prompt's part of a tensor `[prompts, ..]` by a number. The host sets it to 0 where the model wants zeros for
/// an empty negative prompt.
fn scale_prompts(g: &mut Builder<'_>, x: NodeId, scales: NodeId) -> Result<NodeId> {
    let mut shape = vec![Dim::known(1); g.tensor(x).rank()];
    shape[0] = PROMPTS.into();
    let scales = g.reshape(scales, shape)?;
    let scales = g.cast(scales, g.tensor(x).dtype)?;
    g.binary(BinaryFn::Mul, x, scales)
}

/// One step: UNet, guidance and scheduler.
fn denoise(parts: &Parts, guided: bool) -> Result<Graph> {
    graph("denoise", |g| {
        let shape = parts.latent();
        let coefficients = g.input("coefficients", DType::F32, dims(&[COEFFICIENTS]))?;
        let coefficient = |g: &mut Builder<'_>, index| coefficient(g, coefficients, index);
        let latent = state(g, "latent", &shape)?;
        let scale = coefficient(g, 0)?;
        let mut sample = g.binary(BinaryFn::Mul, latent, scale)?;
        if parts.inpaints {
            let mask = state(g, "mask", &[1, 1, shape[2], shape[3]])?;
            let masked = state(g, "masked_image", &shape)?;
            sample = g.add(Concat { axis: 1 }, &[sample, mask, masked])?;
        }
        let selected = if guided { (0, PROMPTS) } else { (1, 1) };
        if guided {
            sample = g.add(Concat { axis: 0 }, &[sample, sample])?;
        }
        let guidance = coefficient(g, 2)?;
        let timestep = coefficient(g, 1)?;
        let inputs = NoiseInputs { sample, timestep, guidance, prompts: selected };
        let mut noise = parts.networks.predict_noise(g, &inputs)?;
        if guided {
            let half = |g: &mut Builder<'_>, i: i64| g.slice(noise, 0, Dim::known(i), Dim::known(1));
            let (negative, positive) = (half(g, 0)?, half(g, 1)?);
            let difference = g.binary(BinaryFn::Sub, positive, negative)?;
            let difference = g.binary(BinaryFn::Mul, difference, guidance)?;
            noise = g.binary(BinaryFn::Add, negative, difference)?;
        }
        g.name = "step".into();
        let [_, channels, height, width] = shape;
        let latents = Latents {
            latent,
            model_output: noise,
            history: state(g, "history", &[HISTORY, channels, height, width])?,
            noise: state(g, "noise", &shape)?,
            image: state(g, "image", &shape)?,
            first_noise: state(g, "first_noise", &shape)?,
            mask: match parts.inpaints {
                true => None,
                false => Some(state(g, "mask", &[1, 1, height, width])?),
            },
        };
        g.name = "step".into();
        let (next, history) = next_latent(g, coefficients, &latents)?;
        // The mean magnitude is not finite if an element is not.
        let magnitude = g.unary(UnaryFn::Abs, next)?;
        let magnitude = g.reshape(magnitude, vec![Dim::from(channels * height * width)])?;
        let magnitude = g.reduce(ReduceKind::Mean, magnitude, vec![0], true)?;
        g.graph.add_output("magnitude", magnitude);
        g.graph.add_store("latent", next);
        g.graph.add_store("history", history);
        Ok(())
    })
}

/// Sets the states of a new picture.
fn start(parts: &Parts) -> Result<Graph> {
    graph("start", |g| {
        let shape = parts.latent();
        let [_, channels, height, width] = shape;
        let noise = g.input("noise", DType::F32, dims(&shape))?;
        let image = g.input("image", DType::F32, dims(&shape))?;
        let mask = g.input("mask", DType::F32, dims(&[1, 1, height, width]))?;
        let scales = g.input("scales", DType::F32, dims(&[2]))?;
        let (image_scale, noise_scale) = (coefficient(g, scales, 0)?, coefficient(g, scales, 1)?);
        let from_image = g.binary(BinaryFn::Mul, image, image_scale)?;
        let from_noise = g.binary(BinaryFn::Mul, noise, noise_scale)?;
        let latent = g.binary(BinaryFn::Add, from_image, from_noise)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let history = g.expand(zero, dims(&[HISTORY, channels, height, width]))?;
        let mut stores = vec![
            ("latent", latent),
            ("image", image),
            ("mask", mask),
            ("first_noise", noise),
            ("history", history),
        ];
        if parts.inpaints {
            stores.push(("masked_image", g.input("masked_image", DType::F32, dims(&shape))?));
        }
        for (name, value) in stores {
            g.graph.add_store(name, value);
        }
        Ok(())
    })
}

/// Sets the noise of the next step.
fn noise(parts: &Parts) -> Result<Graph> {
    graph("noise", |g| {
        let noise = g.input("noise", DType::F32, dims(&parts.latent()))?;
        g.graph.add_store("noise", noise);
        Ok(())
    })
}

/// Returns the latent to the host.
fn latent(parts: &Parts) -> Result<Graph> {
    graph("latent", |g| {
        let latent = state(g, "latent", &parts.latent())?;
        g.graph.add_output("latent", latent);
        Ok(())
    })
}

/// Latent to picture `[1, height, width, 3]`, u8.
fn decode(parts: &Parts) -> Result<Graph> {
    graph("decode", |g| {
        let latent = state(g, "latent", &parts.latent())?;
        // Keeps the type of the state.
        g.graph.add_store("latent", latent);
        let (scale, shift) = parts.latent_scale;
        let latent = g.unary(UnaryFn::Affine { scale: 1.0 / scale, shift }, latent)?;
        let image = parts.networks.decode(g, latent)?;
        g.name = "picture".into();
        let image = g.unary(UnaryFn::Affine { scale: 0.5, shift: 0.5 }, image)?;
        let image = clamped(g, image, 0.0, 1.0)?;
        let image = scaled(g, image, 255.0)?;
        let image = g.unary(UnaryFn::Round, image)?;
        let image = g.transpose(image, vec![0, 2, 3, 1])?;
        let image = g.cast(image, DType::U8)?;
        g.graph.add_output("picture", image);
        Ok(())
    })
}

/// Image `[1, height, width, 3]`, f32 in -1 to 1, to latent.
fn encode_image(parts: &Parts) -> Result<Graph> {
    graph("encode_image", |g| {
        let [height, width] = parts.sides;
        let image = g.input("image", DType::F32, dims(&[1, height, width, 3]))?;
        let image = g.transpose(image, vec![0, 3, 1, 2])?;
        let draw = |g: &mut Builder<'_>| g.input("noise", DType::F32, dims(&parts.latent()));
        let latent = parts.networks.encode_image(g, image, &draw)?;
        let (scale, shift) = parts.latent_scale;
        let latent = g.unary(UnaryFn::Affine { scale, shift: -shift * scale }, latent)?;
        g.graph.add_output("latent", latent);
        Ok(())
    })
}
