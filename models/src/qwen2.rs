//! `Qwen2ForCausalLM`: Qwen 2 and 2.5. Queries, keys and values have biases; later layers may have sliding windows.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::{self, config::Config};
use crate::folder::Folder;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let defaults = json!({
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
        "sliding_window": 4096, "max_window_layers": 28,
    });
    let config = Config::read(folder, &defaults)?.without_window_unless_used();
    let from = config.max_window_layers.unwrap_or(0);
    let mut decoder = config.decoder(folder, |layer| layer >= from)?;
    for layer in &mut decoder.layers {
        layer.attention.bias = true;
        layer.attention.output_bias = false;
    }
    decoder::build(folder, &decoder)
}

impl Config {
    /// Removes `sliding_window` unless `use_sliding_window` is set. Qwen's configurations state a window in both cases.
    pub(crate) fn without_window_unless_used(mut self) -> Self {
        self.sliding_window = self.sliding_window.filter(|_| self.use_sliding_window == Some(true));
        self
    }
}
