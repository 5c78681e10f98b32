//! Configuration of the text encoders: transformers' classes `CLIPTextModel` and `CLIPTextModelWithProjection`.

use std::path::Path;

use driftc::error::Result;
use serde::Deserialize;

use super::{check_divides, check_settings, check_sizes, epsilon, fault, object};
use crate::folder::typed;

/// Text encoder of CLIP: transformers' classes `CLIPTextModel` and `CLIPTextModelWithProjection`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct TextConfig {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    #[serde(default = "positions")]
    pub(crate) max_position_embeddings: usize,
    #[serde(default = "quick_gelu")]
    pub(crate) hidden_act: String,
    #[serde(default = "epsilon")]
    pub(crate) layer_norm_eps: f32,
    pub(crate) projection_dim: Option<usize>,
    /// Id of the end token. In old files it is 2, which is wrong; the end token then is the one with the largest id.
    #[serde(default = "old_end")]
    pub(crate) eos_token_id: i64,
}

fn positions() -> usize {
    77
}

fn old_end() -> i64 {
    2
}

fn quick_gelu() -> String {
    "quick_gelu".into()
}

impl TextConfig {
    /// Reads `config.json` of a text encoder.
    ///
    /// # Errors
    /// If a field is missing, malformed or has a value that is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fields = object(path)?;
        check_settings(path, &fields, &[("hidden_act", &["quick_gelu", "gelu"])])?;
        let text: Self = typed(&fields).map_err(|reason| fault(path, "configuration", reason))?;
        check_sizes(
            path,
            &[
                ("vocab_size", text.vocab_size),
                ("hidden_size", text.hidden_size),
                ("intermediate_size", text.intermediate_size),
                ("num_hidden_layers", text.num_hidden_layers),
                ("max_position_embeddings", text.max_position_embeddings),
            ],
        )?;
        check_divides(path, "num_attention_heads", text.num_attention_heads, text.hidden_size)?;
        Ok(text)
    }
}
