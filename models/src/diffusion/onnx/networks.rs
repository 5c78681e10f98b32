//! Imported networks as parts of the functions of a bundle.

use std::collections::BTreeMap;

use driftc::error::{Error, Result};
use driftc::ir::builder::Builder;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::NodeId;
use driftc::ir::op::Concat;
use driftc::ir::tensor::DType;

use super::part::Part;
use super::prompt_values::prompt_values;
use crate::diffusion::networks::{Draw, Networks, NoiseInputs, PROMPTS, Prompts};
use crate::diffusion::unet::embed_guidance;
use crate::diffusion::vae::Distribution;
use crate::function_graph::{dims, state, store_rows};

/// Symbol for the number of prompts that the UNet computes.
pub(super) const BATCH: &str = "batch";
/// Inputs of the UNet that depend on the prompts alone.
const PROMPT_INPUTS: [&str; 3] = ["encoder_hidden_states", "text_embeds", "time_ids"];
/// Output of the VAE encoder with the parameters of the distribution of latents.
const PARAMETERS: &str = "latent_parameters";

/// Imported networks.
pub(super) struct OnnxNetworks {
    /// Text encoders for [`PROMPTS`] prompts.
    pub(super) text: Vec<Part>,
    pub(super) unet: UNet,
    pub(super) vae_encoder: Option<Part>,
    pub(super) vae_decoder: Part,
    pub(super) latent_channels: usize,
}

/// Imported UNet.
pub(super) struct UNet {
    /// UNet for one prompt.
    one: Part,
    /// UNet for [`PROMPTS`] prompts, with the node ids of `one`.
    all: Part,
    /// Values that depend on the prompts alone, and that other values read.
    prompt_values: Vec<NodeId>,
    /// Number of elements of the guidance embedding, if the guidance is an input.
    pub(super) guidance: Option<usize>,
}

impl UNet {
    /// Creates the UNet from a part with the symbol [`BATCH`]. `latent` has the channels, height and width of the latent.
    ///
    /// # Errors
    /// If the output has another name or other sizes.
    pub(super) fn new(part: &Part, guidance: Option<usize>, latent: &[usize]) -> Result<Self> {
        let with_prompts = |prompts: i64| {
            let mut part = part.clone();
            part.graph.substitute(&Bindings::from([(BATCH.to_owned(), prompts)]));
            part.graph.bounds.clear();
            part
        };
        let (one, all) = (with_prompts(1), with_prompts(PROMPTS as i64));
        all.check_output("out_sample", &[&[PROMPTS], latent].concat())?;
        let inputs: Vec<NodeId> = PROMPT_INPUTS.iter().filter_map(|name| all.input(name)).collect();
        let prompt_values = prompt_values(&all.graph, &inputs);
        Ok(Self { one, all, prompt_values, guidance })
    }

    /// Adds the value in a state that `encode` fills, for some of the prompts.
    fn stored(
        &self,
        g: &mut Builder<'_>,
        index: usize,
        value: NodeId,
        first: usize,
        part: &Part,
    ) -> Result<NodeId> {
        let shape = |part: &Part| part.graph.tensor(value).shape.clone();
        let (all, wanted) = (shape(&self.all), shape(part));
        let sizes: Vec<usize> = all.iter().filter_map(|d| usize::try_from(d.as_known()?).ok()).collect();
        let mut stored = state(g, &state_name(index), &sizes)?;
        for (axis, (all, wanted)) in all.iter().zip(wanted).enumerate() {
            if *all != wanted {
                stored = g.slice(stored, axis, wanted.scale(first as i64), wanted)?;
            }
        }
        Ok(stored)
    }
}

/// Name of the state with a value that depends on the prompts alone.
fn state_name(index: usize) -> String {
    format!("prompt.{index}")
}

impl Networks for OnnxNetworks {
    fn encode_text(&self, g: &mut Builder<'_>, ids: &[NodeId]) -> Result<(NodeId, Option<NodeId>)> {
        let takes_pooled = self.unet.all.input("text_embeds").is_some();
        let mut embeddings = Vec::new();
        let mut pooled = None;
        for (part, ids) in self.text.iter().zip(ids) {
            let declared = part.input("input_ids").map_or(DType::I64, |input| part.graph.tensor(input).dtype);
            g.name = "ids".into();
            let ids = g.cast(*ids, declared)?;
            let embedding = part.embedding(takes_pooled);
            let outputs = [embedding.as_str(), "text_embeds"];
            let count = if takes_pooled && part.has_output("text_embeds") { 2 } else { 1 };
            let values = part.call(g, &[("input_ids", ids)], &outputs[..count])?;
            embeddings.extend(values.first());
            pooled = values.get(1).copied().or(pooled);
        }
        g.name = "embedding".into();
        let embedding = match embeddings.as_slice() {
            [one] => *one,
            several => g.add(Concat { axis: 2 }, several)?,
        };
        Ok((embedding, pooled))
    }

    fn store_prompts(&self, g: &mut Builder<'_>, prompts: &Prompts) -> Result<()> {
        let unet = &self.unet;
        let values = [Some(prompts.embedding), prompts.pooled, prompts.time_ids];
        let known = PROMPT_INPUTS.iter().zip(values);
        let known = known.filter_map(|(name, value)| Some((unet.all.input(name)?, value?))).collect();
        let values = g.inline(&unet.all.graph, &known, &unet.prompt_values)?;
        for (index, value) in values.into_iter().enumerate() {
            store_rows(g, &state_name(index), value)?;
        }
        Ok(())
    }

    fn predict_noise(&self, g: &mut Builder<'_>, inputs: &NoiseInputs) -> Result<NodeId> {
        let unet = &self.unet;
        let (first, count) = inputs.prompts;
        let part = if count == PROMPTS { &unet.all } else { &unet.one };
        let mut known = BTreeMap::new();
        for (index, value) in unet.prompt_values.iter().enumerate() {
            known.insert(*value, unet.stored(g, index, *value, first, part)?);
        }
        // An export with integer time steps only casts them to floats. So the time step keeps its fraction.
        g.name = "timestep".into();
        if let Some(input) = part.input("timestep") {
            let shape = part.graph.tensor(input).shape.clone();
            let step = match shape.as_slice() {
                [] => g.reshape(inputs.timestep, shape)?,
                _ => g.expand(inputs.timestep, shape)?,
            };
            known.insert(input, step);
        }
        if let (Some(input), Some(size)) = (part.input("timestep_cond"), unet.guidance) {
            let embedding = embed_guidance(g, inputs.guidance, size)?;
            known.insert(input, g.expand(embedding, dims(&[count, size]))?);
        }
        known.extend(part.input("sample").map(|input| (input, inputs.sample)));
        first_value(&g.inline(&part.graph, &known, &[part.output("out_sample")?])?)
    }

    fn decode(&self, g: &mut Builder<'_>, latent: NodeId) -> Result<NodeId> {
        first_value(&self.vae_decoder.call(g, &[("latent_sample", latent)], &["sample"])?)
    }

    fn encode_image(&self, g: &mut Builder<'_>, image: NodeId, draw: &Draw<'_>) -> Result<NodeId> {
        let Some(part) = &self.vae_encoder else {
            return Err(Error::request("the folder has no VAE encoder", "export the folder again"));
        };
        if part.has_output(PARAMETERS) {
            let noise = draw(g)?;
            let parameters = first_value(&part.call(g, &[("sample", image)], &[PARAMETERS])?)?;
            return Distribution::new(g, parameters, self.latent_channels)?.draw(g, noise);
        }
        // Older exports draw the latent in the graph. The random numbers are an input then.
        let sample = part.input("sample");
        let mut known: BTreeMap<NodeId, NodeId> = sample.map(|input| (input, image)).into_iter().collect();
        for input in part.graph.inputs().iter().filter(|input| Some(**input) != sample) {
            known.insert(*input, draw(g)?);
        }
        first_value(&g.inline(&part.graph, &known, &[part.output("latent_sample")?])?)
    }
}

/// Returns the only value of a list.
fn first_value(values: &[NodeId]) -> Result<NodeId> {
    let missing = || Error::request("a network has no output", "export the folder again");
    values.first().copied().ok_or_else(missing)
}
