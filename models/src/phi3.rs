//! `Phi3ForCausalLM`: Phi 3, 3.5 and 4-mini. One weight matrix projects to queries, keys and values, another one holds gate
//! and up.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::context::FeedForward;
use crate::decoder::{self, config::Config};
use crate::folder::Folder;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
    });
    let config = Config::read(folder, &defaults)?;
    let mut decoder = config.decoder(folder, |_| true)?;
    for layer in &mut decoder.layers {
        layer.attention.fused_qkv = true;
        if let FeedForward::Gated(gated) = &mut layer.feed_forward {
            gated.fused_gate_up = true;
        }
    }
    decoder::build(folder, &decoder)
}
