//! `Qwen3MoeForCausalLM`: Qwen 3 with a mixture of experts in most layers.

use driftc::error::Result;
use serde::Deserialize;
use serde_json::json;

use crate::decoder;
use crate::decoder::config::{Config, activation};
use crate::decoder::context::{Experts, FeedForward};
use crate::folder::Folder;

#[derive(Debug, Deserialize)]
struct Mixture {
    num_experts: usize,
    num_experts_per_tok: usize,
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
    decoder_sparse_step: usize,
    #[serde(default)]
    mlp_only_layers: Option<Vec<usize>>,
}

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "sliding_window": 4096,
        "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "norm_topk_prob": false, "decoder_sparse_step": 1,
    });
    let config = Config::read(folder, &defaults)?.without_window_unless_used();
    let mixture: Mixture = folder.config(&defaults)?;
    let experts = Experts {
        count: mixture.num_experts,
        used: mixture.num_experts_per_tok,
        normalize_weights: mixture.norm_topk_prob,
        inner: mixture.moe_intermediate_size,
        activation: activation(folder, config.hidden_act.as_deref().unwrap_or("silu"))?,
        block: "mlp",
        names: ["gate_proj", "up_proj", "down_proj"],
    };
    experts.check().map_err(|reason| folder.error("config.json", reason))?;
    let mut decoder = config.decoder(folder, |_| true)?;
    let dense = mixture.mlp_only_layers.unwrap_or_default();
    let step = mixture.decoder_sparse_step;
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        layer.attention.head_norms = true;
        if !dense.contains(&i) && step > 0 && (i + 1).is_multiple_of(step) {
            layer.feed_forward = FeedForward::Experts(experts.clone());
        }
    }
    decoder::build(folder, &decoder)
}
