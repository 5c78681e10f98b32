//! `Gemma2ForCausalLM`: Gemma with norms after attention and feed-forward, soft caps, and a sliding window on every other layer.

use driftc::error::Result;
use serde_json::json;

use crate::decoder::{self, config::Config};
use crate::folder::Folder;
use crate::gemma;

/// Builds the graphs of the model in a folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let mut defaults = gemma::defaults();
    if let Some(fields) = defaults.as_object_mut() {
        fields.insert("query_pre_attn_scalar".into(), json!(256));
        fields.insert("sliding_window".into(), json!(4096));
        fields.insert("attn_logit_softcapping".into(), json!(50.0));
        fields.insert("final_logit_softcapping".into(), json!(30.0));
    }
    let config = Config::read(folder, &defaults)?;
    let act = config.hidden_activation.as_deref();
    let mut decoder = gemma::decoder(folder, &config, act, |layer| layer % 2 == 0)?;
    for layer in &mut decoder.layers {
        layer.post_norms = true;
    }
    decoder::build(folder, &decoder)
}
