//! `GemmaForCausalLM`: the first Gemma. Norms multiply by `1 + weight`, and embeddings are scaled by `sqrt(hidden)`.

use driftc::error::Result;
use serde_json::{Value, json};

use crate::decoder;
use crate::decoder::config::{Config, activation};
use crate::decoder::context::{Decoder, FeedForward};
use crate::folder::Folder;

/// Default values of `config.json` fields that Gemma configurations may omit.
pub(crate) fn defaults() -> Value {
    json!({
        "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "head_dim": 256,
        "tie_word_embeddings": true,
    })
}

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let mut config = Config::read(folder, &defaults())?;
    // The first checkpoints say `gelu`, but were trained with its tanh approximation.
    let named = config.hidden_activation.take().or(config.hidden_act.take()).filter(|name| name != "gelu");
    let decoder = decoder(folder, &config, named.as_deref(), |_| false)?;
    decoder::build(folder, &decoder)
}

/// Returns the decoder structure that all Gemma versions share.
pub(crate) fn decoder(
    folder: &Folder,
    config: &Config,
    act: Option<&str>,
    windowed: impl Fn(usize) -> bool,
) -> Result<Decoder> {
    let mut decoder = config.decoder(folder, windowed)?;
    decoder.norm.offset = 1.0;
    decoder.embedding_scale = Some((config.hidden_size as f32).sqrt());
    let act = activation(folder, act.unwrap_or("gelu_pytorch_tanh"))?;
    for layer in &mut decoder.layers {
        if let FeedForward::Gated(gated) = &mut layer.feed_forward {
            gated.activation = act;
        }
    }
    Ok(decoder)
}
