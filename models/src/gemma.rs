//! `GemmaForCausalLM`: the first Gemma. Norms multiply by one more than their weight, tokens by the root of their size.

use driftc::error::Result;
use serde_json::{Value, json};

use crate::decoder::config::{Config, activation};
use crate::decoder::feed::Feed;
use crate::decoder::{self, Decoder};
use crate::folder::Folder;

/// What all Gemma configurations leave out.
pub(crate) fn defaults() -> Value {
    json!({
        "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "head_dim": 256,
        "tie_word_embeddings": true,
    })
}

/// Builds the graph.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let mut config = Config::read(folder, &defaults())?;
    // The first checkpoints say `gelu` and were trained with its approximation.
    let named = config.hidden_activation.take().or(config.hidden_act.take()).filter(|name| name != "gelu");
    let decoder = decoder(folder, &config, named.as_deref(), |_| false)?;
    decoder::build(folder, &decoder)
}

/// What all Gemmas share.
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
        if let Feed::Gated(gated) = &mut layer.feed {
            gated.activation = act;
        }
    }
    Ok(decoder)
}
