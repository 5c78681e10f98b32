//! Sizes of a Whisper network, and what its encoder and decoder share.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::element::UnaryFn;
use driftc::ir::graph::NodeId;
use serde::Deserialize;
use serde_json::json;

use crate::blocks::{linear, linear_without_bias};
use crate::decoder::config::activation;
use crate::folder::Folder;
use crate::weights::Tensors;

/// Epsilon of every LayerNorm.
pub(super) const EPSILON: f32 = 1e-5;
/// Maximum number of layers of the encoder and of the decoder.
const MAX_LAYERS: usize = 1000;
/// Maximum of every other size of the configuration.
const MAX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    pub(super) vocab_size: usize,
    pub(super) num_mel_bins: usize,
    pub(super) d_model: usize,
    pub(super) encoder_layers: usize,
    pub(super) encoder_attention_heads: usize,
    pub(super) encoder_ffn_dim: usize,
    pub(super) decoder_layers: usize,
    pub(super) decoder_attention_heads: usize,
    pub(super) decoder_ffn_dim: usize,
    pub(super) max_source_positions: usize,
    pub(super) max_target_positions: usize,
    pub(super) activation_function: String,
}

/// Sizes of one stack of layers, the encoder or the decoder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) activation: UnaryFn,
}

/// Checked configuration.
pub(super) struct Whisper {
    pub(super) config: Config,
    pub(super) encoder: Stack,
    pub(super) decoder: Stack,
    /// Prefix of the names of all tensors but `proj_out.weight`.
    pub(super) prefix: &'static str,
}

impl Whisper {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// If the file is malformed, or does not match the checkpoint.
    pub(super) fn read(folder: &Folder) -> Result<Self> {
        let config: Config = folder.config(&json!({
            "vocab_size": 51865, "num_mel_bins": 80, "d_model": 384,
            "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
            "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536,
            "max_source_positions": 1500, "max_target_positions": 448,
            "activation_function": "gelu",
        }))?;
        let fail = |reason: String| folder.error("config.json", reason);
        let activation = activation(folder, &config.activation_function)?;
        let stack = |layers, heads, inner| Stack { hidden: config.d_model, layers, heads, inner, activation };
        let encoder = stack(config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim);
        let decoder = stack(config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim);
        for (part, stack) in [("encoder", encoder), ("decoder", decoder)] {
            if stack.heads == 0 || !stack.hidden.is_multiple_of(stack.heads) {
                let (hidden, heads) = (stack.hidden, stack.heads);
                return Err(fail(format!(
                    "`d_model` {hidden} is not a multiple of `{part}_attention_heads` {heads}"
                )));
            }
            if stack.layers > MAX_LAYERS {
                return Err(fail(format!("`{part}_layers` is {}, above {MAX_LAYERS}", stack.layers)));
            }
        }
        let sizes = [
            ("vocab_size", config.vocab_size),
            ("num_mel_bins", config.num_mel_bins),
            ("d_model", config.d_model),
            ("encoder_ffn_dim", config.encoder_ffn_dim),
            ("decoder_ffn_dim", config.decoder_ffn_dim),
            ("max_source_positions", config.max_source_positions),
            ("max_target_positions", config.max_target_positions),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=MAX_SIZE).contains(size)) {
            return Err(fail(format!("`{name}` is {size}; supported: 1 to {MAX_SIZE}")));
        }
        let has = |name: &str| folder.weights.has(name);
        let prefix = if has("encoder.conv1.weight") { "" } else { "model." };
        for (part, stack) in [("encoder", encoder), ("decoder", decoder)] {
            let extra = format!("{prefix}{part}.layers.{}.fc1.weight", stack.layers);
            if has(&extra) {
                let layers = stack.layers;
                return Err(fail(format!(
                    "`{part}_layers` is {layers}, but the checkpoint has more layers: `{extra}`"
                )));
            }
        }
        Ok(Self { config, encoder, decoder, prefix })
    }

    /// Number of frames of the features of a window. The encoder halves it.
    pub(super) fn frames(&self) -> usize {
        2 * self.config.max_source_positions
    }

    /// Name of the cross-attention of a layer of the decoder.
    pub(super) fn cross_attention(&self, layer: usize) -> String {
        format!("{}decoder.layers.{layer}.encoder_attn", self.prefix)
    }
}

/// Names of the states with keys and values of a cross-attention.
pub(super) fn cross_states(attention: &str) -> [String; 2] {
    ["keys", "values"].map(|part| format!("{attention}.{part}"))
}

/// Adds the linear layers of the queries, keys and values of an attention. The layer of the keys has no bias.
pub(super) fn project(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    (part, x): (Projection, NodeId),
    hidden: usize,
) -> Result<NodeId> {
    match part {
        Projection::Query => linear(g, w, &format!("{name}.q_proj"), x, hidden, hidden),
        Projection::Key => linear_without_bias(g, w, &format!("{name}.k_proj"), x, hidden, hidden),
        Projection::Value => linear(g, w, &format!("{name}.v_proj"), x, hidden, hidden),
    }
}

/// Linear layers before an attention.
#[derive(Debug, Clone, Copy)]
pub(super) enum Projection {
    Query,
    Key,
    Value,
}
