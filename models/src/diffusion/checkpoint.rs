//! Networks of a diffusion model from a folder of diffusers: configurations and safetensors.

use std::path::Path;
use std::rc::Rc;

use driftc::error::Result;
use driftc::import::safetensors::Weights;
use driftc::ir::builder::Builder;
use driftc::ir::graph::NodeId;
use driftc::ir::op::Concat;
use driftc::ir::tensor::DType;
use serde_json::{Map, Value};

use super::config::{TextConfig, UNetConfig, VaeConfig, config_path, fault};
use super::networks::{Draw, Networks, NoiseInputs, PROMPTS, Parts, Prompts};
use super::transformer::{CrossAttention, TextEmbedding, cross_attention_name};
use super::unet::UNetInputs;
use super::{MAX_TOKENS, PictureSize, has_part};
use crate::folder::Dims;
use crate::function_graph::{state, store_rows};
use crate::opened::Checkpoint;
use crate::weights::Tensors;

/// Name of the state with the embedding of the pooled text and the time ids.
const ADDED: &str = "added";

/// Configurations and weights of the networks.
struct CheckpointNetworks {
    unet: UNetConfig,
    unet_weights: Rc<dyn Tensors>,
    /// Text encoders with their weights, in the order of their embeddings.
    text: Vec<(TextConfig, Rc<dyn Tensors>)>,
    vae: VaeConfig,
    vae_weights: Rc<dyn Tensors>,
    /// Number of tokens of a prompt.
    tokens: usize,
}

/// Opens the networks of a folder. Also returns notes for the user.
///
/// # Errors
/// If a part is missing, malformed or not supported, or the sizes are not valid.
pub(super) fn open(
    path: &Path,
    index: &Map<String, Value>,
    dims: &Dims,
) -> Result<(Parts, Vec<String>, Checkpoint)> {
    let unet = UNetConfig::read(&config_path(path, "unet"))?;
    let vae = VaeConfig::read(&config_path(path, "vae"))?;
    let mut files = Vec::new();
    let mut weights = |part: &str| -> Result<Rc<dyn Tensors>> {
        let weights = Weights::open(&path.join(part))?;
        files.push(weights.clone());
        Ok(Rc::new(weights))
    };
    let (unet_weights, vae_weights) = (weights("unet")?, weights("vae")?);
    let mut text = Vec::new();
    for part in ["text_encoder", "text_encoder_2"].into_iter().filter(|part| has_part(index, part)) {
        text.push((TextConfig::read(&config_path(path, part))?, weights(part)?));
    }
    let tokens =
        text.iter().map(|(config, _)| config.max_position_embeddings).min().unwrap_or(0).min(MAX_TOKENS);
    let pixels = vae.pixels();
    let size = PictureSize { latent: unet.sample, pixels, multiple: pixels, is_fixed: false };
    let (sides, notes) = size.select(dims)?;
    check_sizes(path, &unet, &vae, &text)?;
    let latent_channels = vae.latent_channels();
    let parts = Parts {
        text_encoders: text.len(),
        tokens,
        sides,
        pixels,
        latent_channels,
        latent_scale: vae.latent_scale(),
        inpaints: unet.inputs == 2 * latent_channels + 1,
        takes_guidance: unet.guidance.is_some(),
        takes_time_ids: unet.added.is_some(),
        vae_needs_f32: unet.added.is_some() && vae.needs_f32(),
        encodes_images: true,
        networks: Box::new(CheckpointNetworks { unet, unet_weights, text, vae, vae_weights, tokens }),
    };
    Ok((parts, notes, Checkpoint::Folders(files)))
}

/// Checks that the sizes of the parts belong together.
fn check_sizes(
    path: &Path,
    unet: &UNetConfig,
    vae: &VaeConfig,
    text: &[(TextConfig, Rc<dyn Tensors>)],
) -> Result<()> {
    let file = config_path(path, "unet");
    let size: usize = text.iter().map(|(config, _)| config.hidden_size).sum();
    if size != unet.text {
        let reason =
            format!("it is {}, but the text encoders compute {size} numbers for each token", unet.text);
        return Err(fault(&file, "`cross_attention_dim`", reason));
    }
    let latent = vae.latent_channels();
    if unet.outputs != latent || ![latent, 2 * latent + 1].contains(&unet.inputs) {
        let reason = format!(
            "the UNet has {} input and {} output channels, but latents of the VAE have {latent}",
            unet.inputs, unet.outputs
        );
        return Err(fault(&file, "`in_channels`", reason));
    }
    Ok(())
}

/// Names of the states that hold keys and values of a cross-attention.
fn text_states(attention: &str) -> [String; 2] {
    ["keys", "values"].map(|part| format!("{attention}.{part}"))
}

/// Keys and values of the text in the states that the function `encode` fills.
struct TextStates {
    /// First prompt, and number of prompts.
    prompts: (usize, usize),
    tokens: usize,
}

impl CrossAttention for TextStates {
    fn keys_values(
        &self,
        g: &mut Builder<'_>,
        _: &dyn Tensors,
        name: &str,
        channels: usize,
    ) -> Result<[NodeId; 2]> {
        let [keys, values] = text_states(name);
        let mut read = |name: &str| {
            let all = state(g, name, &[PROMPTS, self.tokens, channels])?;
            prompts(g, all, self.prompts)
        };
        Ok([read(&keys)?, read(&values)?])
    }
}

/// Adds a slice of the prompts of a tensor `[prompts, ..]`.
fn prompts(g: &mut Builder<'_>, x: NodeId, (first, count): (usize, usize)) -> Result<NodeId> {
    match count {
        PROMPTS => Ok(x),
        _ => g.slice(x, 0, first.into(), count.into()),
    }
}

impl Networks for CheckpointNetworks {
    fn encode_text(&self, g: &mut Builder<'_>, ids: &[NodeId]) -> Result<(NodeId, Option<NodeId>)> {
        let mut embeddings = Vec::new();
        let mut pooled = None;
        for ((config, weights), ids) in self.text.iter().zip(ids) {
            let text = config.build(g, &**weights, *ids)?;
            embeddings.push(if self.unet.added.is_some() { text.penultimate } else { text.last });
            if self.unet.added.is_some() && weights.has("text_projection.weight") {
                pooled = Some(config.pooled(g, &**weights, *ids, text.last)?);
            }
        }
        let embedding = match embeddings.as_slice() {
            [one] => *one,
            several => g.add(Concat { axis: 2 }, several)?,
        };
        Ok((embedding, pooled))
    }

    fn store_prompts(&self, g: &mut Builder<'_>, prompts: &Prompts) -> Result<()> {
        for (transformer, channels, blocks) in self.unet.transformers() {
            for block in 0..blocks {
                let name = cross_attention_name(&transformer, block);
                let source = TextEmbedding(prompts.embedding);
                let both = source.keys_values(g, &*self.unet_weights, &name, channels)?;
                for (name, value) in text_states(&name).iter().zip(both) {
                    store_rows(g, name, value)?;
                }
            }
        }
        if let (Some(added), Some(pooled), Some(ids)) = (self.unet.added, prompts.pooled, prompts.time_ids) {
            let added = self.unet.embed_added(g, &*self.unet_weights, added, pooled, ids)?;
            store_rows(g, ADDED, added)?;
        }
        Ok(())
    }

    fn predict_noise(&self, g: &mut Builder<'_>, inputs: &NoiseInputs) -> Result<NodeId> {
        let sample = g.cast(inputs.sample, self.unet_weights.element())?;
        let added = match self.unet.added {
            Some(_) => {
                let all = state(g, ADDED, &[PROMPTS, self.unet.time()])?;
                Some(prompts(g, all, inputs.prompts)?)
            }
            None => None,
        };
        let text = TextStates { prompts: inputs.prompts, tokens: self.tokens };
        let (timestep, guidance) = (inputs.timestep, Some(inputs.guidance));
        let inputs = UNetInputs { sample, timestep, guidance, added, text: &text };
        let noise = self.unet.build(g, &*self.unet_weights, &inputs)?;
        g.cast(noise, DType::F32)
    }

    fn decode(&self, g: &mut Builder<'_>, latent: NodeId) -> Result<NodeId> {
        let w = &*self.vae_weights;
        let latent = g.cast(latent, w.element())?;
        let image = match &self.vae {
            VaeConfig::Kl(config) => config.decode(g, w, latent)?,
            VaeConfig::Tiny(config) => config.decode(g, w, latent)?,
        };
        g.cast(image, DType::F32)
    }

    fn encode_image(&self, g: &mut Builder<'_>, image: NodeId, draw: &Draw<'_>) -> Result<NodeId> {
        let w = &*self.vae_weights;
        let image = g.cast(image, w.element())?;
        match &self.vae {
            VaeConfig::Kl(config) => {
                let noise = draw(g)?;
                config.encode(g, w, image)?.draw(g, noise)
            }
            VaeConfig::Tiny(config) => {
                let latent = config.encode(g, w, image)?;
                g.cast(latent, DType::F32)
            }
        }
    }
}
