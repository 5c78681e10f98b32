//! `LlamaForCausalLM`: Llama 2 and 3, and other models with Llama's structure.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::{self, config::Config};
use crate::folder::Folder;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({"rms_norm_eps": 1e-6, "max_position_embeddings": 2048});
    let config = Config::read(folder, &defaults)?;
    let decoder = config.decoder(folder, |_| false)?;
    decoder::build(folder, &decoder)
}
