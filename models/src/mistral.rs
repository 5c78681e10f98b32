//! `MistralForCausalLM`: Llama with a sliding window on every layer, if the configuration has one.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::{self, config::Config};
use crate::folder::Folder;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-6, "num_key_value_heads": 8, "sliding_window": 4096,
        "max_position_embeddings": 131_072,
    });
    let config = Config::read(folder, &defaults)?;
    let decoder = config.decoder(folder, |_| true)?;
    decoder::build(folder, &decoder)
}
