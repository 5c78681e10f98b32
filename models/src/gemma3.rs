//! `Gemma3ForCausalLM`, and the text model of `Gemma3ForConditionalGeneration`: Gemma 2 with normalized query and key
//! heads, and sliding windows with their own rotary embedding on five of six layers.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::rope::{Rope, Scaling};
use crate::decoder::{self, config::Config};
use crate::folder::Folder;
use crate::gemma;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let mut defaults = gemma::defaults();
    if let Some(fields) = defaults.as_object_mut() {
        for (name, value) in [
            ("vocab_size", json!(262_208)),
            ("hidden_size", json!(2304)),
            ("intermediate_size", json!(9216)),
            ("num_hidden_layers", json!(26)),
            ("num_attention_heads", json!(8)),
            ("num_key_value_heads", json!(4)),
            ("max_position_embeddings", json!(131_072)),
            ("query_pre_attn_scalar", json!(256)),
            ("sliding_window", json!(4096)),
            ("rope_theta", json!(1e6)),
        ] {
            fields.insert(name.into(), value);
        }
    }
    let config = Config::read(folder, &defaults)?;
    let period = config.sliding_window_pattern.filter(|n| *n > 0).unwrap_or(6);
    let act = config.hidden_activation.as_deref();
    let mut decoder = gemma::decoder(folder, &config, act, |layer| (layer + 1) % period != 0)?;
    let local = match config.has_rope("sliding_attention") {
        true => config.rope(folder, "sliding_attention")?,
        false => Rope {
            size: config.head_size(),
            theta: config.rope_local_base_freq.unwrap_or(10000.0),
            scaling: Scaling::None,
            interleaved: config.interleaved(),
        },
    };
    decoder.ropes.push(local);
    for layer in &mut decoder.layers {
        layer.post_norms = true;
        layer.attention.head_norms = true;
        layer.attention.rope = usize::from(layer.attention.window.is_some());
    }
    decoder::build(folder, &decoder)
}
