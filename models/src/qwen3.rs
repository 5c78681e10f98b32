//! `Qwen3ForCausalLM`: Llama's structure with RMSNorm on each query and key head before RoPE.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::{self, config::Config};
use crate::folder::Folder;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "head_dim": 128,
        "sliding_window": 4096, "max_window_layers": 28,
    });
    let config = Config::read(folder, &defaults)?.without_window_unless_used();
    let from = config.max_window_layers.unwrap_or(0);
    let mut decoder = config.decoder(folder, |layer| layer >= from)?;
    for layer in &mut decoder.layers {
        layer.attention.head_norms = true;
    }
    decoder::build(folder, &decoder)
}
