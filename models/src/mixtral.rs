//! `MixtralForCausalLM`: Mistral with a mixture of experts in every layer.

use driftc::error::Result;
use serde::Deserialize;
use serde_json::json;

use crate::decoder;
use crate::decoder::config::{Config, activation};
use crate::decoder::context::{Experts, FeedForward};
use crate::folder::Folder;

#[derive(Debug, Deserialize)]
struct Mixture {
    num_local_experts: usize,
    num_experts_per_tok: usize,
}

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8,
        "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2,
    });
    let config = Config::read(folder, &defaults)?;
    let mixture: Mixture = folder.config(&defaults)?;
    let experts = Experts {
        count: mixture.num_local_experts,
        used: mixture.num_experts_per_tok,
        normalize_weights: true,
        inner: config.intermediate_size,
        activation: activation(folder, config.hidden_act.as_deref().unwrap_or("silu"))?,
        block: "block_sparse_moe",
        names: ["w1", "w3", "w2"],
    };
    experts.check().map_err(|reason| folder.error("config.json", reason))?;
    let mut decoder = config.decoder(folder, |_| true)?;
    for layer in &mut decoder.layers {
        layer.feed_forward = FeedForward::Experts(experts.clone());
    }
    decoder::build(folder, &decoder)
}
