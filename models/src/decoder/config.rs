//! Configurations (`config.json`) of decoder-only models: the fields that architectures share, in the old and the new format.
//!
//! The old format of `config.json` has `rope_theta` and `rope_scaling`. The new format has `rope_parameters`, flat or for each
//! layer type. Multimodal models have the text model's fields under `text_config`. Missing fields take the architecture's
//! defaults. A field that changes the computation and that this code does not read is refused.

mod rope_parameters;

use driftc::error::Result;
use driftc::ir::element::UnaryFn;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::context::{Decoder, FeedForward, GatedFeedForward, Layer, Norm, SelfAttention};
use super::rope::Rope;
use crate::folder::{Folder, typed};

/// Maximum value of a size in `config.json`, such as `hidden_size`. The product of three such values fits in 64 bits.
const MAX_SIZE: usize = 1 << 20;

/// Fields of `config.json` that would change the computation in an unsupported way, each with the values that leave it unchanged.
/// Null and 1 always leave it unchanged.
const NEUTRAL: &[(&str, &[Value])] = &[
    ("alibi", &[Value::Bool(false)]),
    ("attn_output_gate", &[Value::Bool(false)]),
    ("clip_qkv", &[]),
    ("embedding_multiplier", &[]),
    ("attention_multiplier", &[]),
    ("residual_multiplier", &[]),
    ("logits_scaling", &[]),
    ("is_encoder_decoder", &[Value::Bool(false)]),
    ("add_cross_attention", &[Value::Bool(false)]),
    ("no_rope_layers", &[]),
    ("use_bidirectional_attention", &[Value::Bool(false)]),
    ("use_parallel_residual", &[Value::Bool(false)]),
    ("use_qk_norm", &[Value::Bool(false)]),
];

/// Fields of `config.json` that decoder-only architectures share.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Config {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    #[serde(default)]
    pub(crate) num_key_value_heads: Option<usize>,
    #[serde(default)]
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
    pub(crate) rms_norm_eps: f32,
    #[serde(default)]
    pub(crate) hidden_act: Option<String>,
    #[serde(default)]
    pub(crate) hidden_activation: Option<String>,
    #[serde(default)]
    tie_word_embeddings: Option<bool>,
    #[serde(default)]
    pub(crate) attention_bias: Option<bool>,
    #[serde(default)]
    pub(crate) mlp_bias: Option<bool>,
    #[serde(default)]
    pub(crate) sliding_window: Option<i64>,
    #[serde(default)]
    pub(crate) use_sliding_window: Option<bool>,
    #[serde(default)]
    pub(crate) max_window_layers: Option<usize>,
    #[serde(default)]
    layer_types: Option<Vec<String>>,
    #[serde(default, alias = "_sliding_window_pattern")]
    pub(crate) sliding_window_pattern: Option<usize>,
    #[serde(default)]
    pub(crate) query_pre_attn_scalar: Option<f32>,
    #[serde(default)]
    attn_logit_softcapping: Option<f32>,
    #[serde(default)]
    final_logit_softcapping: Option<f32>,
    #[serde(default)]
    rope_theta: Option<f64>,
    #[serde(default)]
    pub(crate) rope_local_base_freq: Option<f64>,
    #[serde(default)]
    rope_scaling: Option<Map<String, Value>>,
    #[serde(default)]
    rope_parameters: Option<Map<String, Value>>,
    #[serde(default)]
    partial_rotary_factor: Option<f64>,
    #[serde(default)]
    rope_interleaved: Option<bool>,
    #[serde(default)]
    original_max_position_embeddings: Option<i64>,
}

impl Config {
    /// Reads and checks `config.json` of a folder, with the architecture's defaults for missing fields.
    pub(crate) fn read(folder: &Folder, defaults: &Value) -> Result<Self> {
        let fields = folder.fields(defaults)?;
        for (name, neutral) in NEUTRAL {
            if let Some(value) = fields.get(*name)
                && !value.is_null()
                && !neutral.contains(value)
                && value.as_f64() != Some(1.0)
            {
                return Err(
                    folder.error("config.json", format!("`{name}` is {value}, which is not supported"))
                );
            }
        }
        let config: Self = typed(&fields).map_err(|reason| folder.error("config.json", reason))?;
        config.check().map_err(|reason| folder.error("config.json", reason))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let positive = |name: &str, size: usize| match size {
            1..=MAX_SIZE => Ok(()),
            _ => Err(format!("`{name}` is {size}; 1 to {MAX_SIZE} are supported")),
        };
        positive("hidden_size", self.hidden_size)?;
        positive("intermediate_size", self.intermediate_size)?;
        positive("num_attention_heads", self.num_attention_heads)?;
        positive("num_key_value_heads", self.kv_heads())?;
        if self.max_position_embeddings == 0 {
            return Err("`max_position_embeddings` is 0; the minimum is 1".into());
        }
        if !(1..=1 << 28).contains(&self.vocab_size) {
            return Err(format!("`vocab_size` is {}", self.vocab_size));
        }
        if !(1..=1000).contains(&self.num_hidden_layers) {
            return Err(format!(
                "`num_hidden_layers` is {}; 1 to 1000 are supported",
                self.num_hidden_layers
            ));
        }
        if !self.num_attention_heads.is_multiple_of(self.kv_heads()) {
            let (heads, kv_heads) = (self.num_attention_heads, self.kv_heads());
            return Err(format!(
                "`num_attention_heads` {heads} is not a multiple of `num_key_value_heads` {kv_heads}"
            ));
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let (heads, hidden) = (self.num_attention_heads, self.hidden_size);
            return Err(format!(
                "`hidden_size` {hidden} is not a multiple of {heads} heads, and `head_dim` is missing"
            ));
        }
        positive("head_dim", self.head_size())?;
        if !self.rms_norm_eps.is_finite() || self.rms_norm_eps < 0.0 {
            return Err(format!("`rms_norm_eps` is {}", self.rms_norm_eps));
        }
        Ok(())
    }

    /// Number of key and value heads.
    pub(crate) fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Number of elements of an attention head.
    pub(crate) fn head_size(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// True if the two elements that RoPE rotates as a pair are adjacent.
    pub(crate) fn interleaved(&self) -> bool {
        self.rope_interleaved.unwrap_or(false)
    }

    /// Number of positions that the model supports.
    pub(crate) fn max_positions(&self) -> i64 {
        i64::try_from(self.max_position_embeddings).unwrap_or(i64::MAX)
    }

    /// Returns a [`Decoder`] with Llama's structure and the sizes in `config.json`. The field `layer_types` selects the layers
    /// with a sliding window; without this field, the function `windowed` selects them.
    pub(crate) fn decoder(&self, folder: &Folder, windowed: impl Fn(usize) -> bool) -> Result<Decoder> {
        let rope = self.rope(folder, "full_attention")?;
        let max_positions = rope.scaled_positions(self.max_positions());
        let activation = activation(folder, self.hidden_act.as_deref().unwrap_or("silu"))?;
        let head_size = self.head_size();
        let bias = self.attention_bias.unwrap_or(false);
        let attention = SelfAttention {
            heads: self.num_attention_heads,
            kv_heads: self.kv_heads(),
            head_size,
            scale: libm::powf(self.query_pre_attn_scalar.unwrap_or(head_size as f32), -0.5),
            window: None,
            softcap: positive(folder, "attn_logit_softcapping", self.attn_logit_softcapping)?,
            rope: 0,
            fused_qkv: false,
            bias,
            output_bias: bias,
            head_norms: false,
        };
        if !attention.scale.is_finite() {
            return Err(folder.error("config.json", "`query_pre_attn_scalar` is not positive"));
        }
        let inner = self.intermediate_size;
        let bias = self.mlp_bias.unwrap_or(false);
        let feed_forward =
            FeedForward::Gated(GatedFeedForward { inner, activation, bias, fused_gate_up: false });
        let layer = Layer { attention, feed_forward, post_norms: false };
        let mut layers = vec![layer; self.num_hidden_layers];
        for (i, layer) in layers.iter_mut().enumerate() {
            layer.attention.window = self.window(folder, i, windowed(i))?;
        }
        Ok(Decoder {
            vocab: self.vocab_size,
            hidden: self.hidden_size,
            max_positions,
            norm: Norm { epsilon: self.rms_norm_eps, offset: 0.0 },
            embedding_scale: None,
            ropes: vec![rope],
            layers,
            tied_embeddings: self.tie_word_embeddings.unwrap_or(false),
            softcap: positive(folder, "final_logit_softcapping", self.final_logit_softcapping)?,
        })
    }

    /// Returns the sliding window of a layer in positions, or `None` if the layer attends to all earlier positions.
    fn window(&self, folder: &Folder, layer: usize, default: bool) -> Result<Option<i64>> {
        let refuse = |reason: String| Err(folder.error("config.json", reason));
        let windowed = match &self.layer_types {
            None => default,
            Some(types) => match types.get(layer).map(String::as_str) {
                Some("full_attention") => false,
                Some("sliding_attention") => true,
                Some(other) => {
                    return refuse(format!("layer {layer} has the type `{other}`, which is not supported"));
                }
                None => {
                    return refuse(format!(
                        "`layer_types` has {} entries for {} layers",
                        types.len(),
                        self.num_hidden_layers
                    ));
                }
            },
        };
        match self.sliding_window.filter(|_| windowed) {
            Some(size) if size < 1 => refuse(format!("`sliding_window` is {size}")),
            window => Ok(window),
        }
    }

    /// Returns the rotary embedding (RoPE) of a layer type, such as `full_attention`.
    pub(crate) fn rope(&self, folder: &Folder, layer_type: &str) -> Result<Rope> {
        let nested = self.rope_parameters.as_ref().and_then(|p| p.get(layer_type)).and_then(Value::as_object);
        let given = nested.or(self.rope_parameters.as_ref()).or(self.rope_scaling.as_ref());
        let empty = Map::new();
        self.parse_rope(given.unwrap_or(&empty)).map_err(|reason| folder.error("config.json", reason))
    }

    /// True if `rope_parameters` has RoPE parameters for this layer type.
    pub(crate) fn has_rope(&self, layer_type: &str) -> bool {
        self.rope_parameters.as_ref().is_some_and(|p| p.contains_key(layer_type))
    }
}

/// Returns the activation function with this name in `config.json`.
pub(crate) fn activation(folder: &Folder, name: &str) -> Result<UnaryFn> {
    Ok(match name {
        "silu" | "swish" => UnaryFn::Swish { alpha: 1.0 },
        "gelu" => UnaryFn::Gelu,
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => UnaryFn::GeluTanh,
        "quick_gelu" => UnaryFn::Swish { alpha: 1.702 },
        "relu" => UnaryFn::Relu,
        other => {
            return Err(folder.error("config.json", format!("activation `{other}` is not supported")));
        }
    })
}

fn positive(folder: &Folder, name: &str, value: Option<f32>) -> Result<Option<f32>> {
    match value {
        Some(cap) if !(cap.is_finite() && cap > 0.0) => {
            Err(folder.error("config.json", format!("`{name}` is {cap}")))
        }
        other => Ok(other),
    }
}
