//! Configurations of decoder-only models: the fields that architectures share, in both dialects.
//!
//! The older dialect has `rope_theta` and `rope_scaling`, the newer one `rope_parameters`, flat or by type of layer.
//! Models of several modalities have the text model's fields under `text_config`. Fields that a file leaves out have
//! the architecture's defaults. A field that changes what is computed, and that nothing here reads, is refused.

use driftc::error::Result;
use driftc::ir::element::UnaryFn;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::attention::SelfAttention;
use super::feed::{Feed, Gated};
use super::rope::{Rope, Scaling};
use super::{Decoder, Layer, Norm};
use crate::folder::{Folder, typed};

/// The largest size that a field may say; products of three stay numbers.
const MOST: usize = 1 << 20;
/// The least and the largest factor of a rotary embedding.
const LEAST_FACTOR: f64 = 1e-3;
const MOST_FACTOR: f64 = 1e6;

/// Fields that change what is computed, with the values under which they do not.
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

/// Fields that architectures share. A size that is missing is refused where it is needed.
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
    /// The configuration of a folder, with the architecture's defaults for what it leaves out.
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
            1..=MOST => Ok(()),
            _ => Err(format!("`{name}` is {size}; 1 to {MOST} are supported")),
        };
        positive("hidden_size", self.hidden_size)?;
        positive("intermediate_size", self.intermediate_size)?;
        positive("num_attention_heads", self.num_attention_heads)?;
        positive("num_key_value_heads", self.kv_heads())?;
        if self.max_position_embeddings == 0 {
            return Err("`max_position_embeddings` is 0; at least 1 is needed".into());
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
                "`hidden_size` {hidden} does not divide into {heads} heads, and there is no `head_dim`"
            ));
        }
        positive("head_dim", self.head_size())?;
        if !self.rms_norm_eps.is_finite() || self.rms_norm_eps < 0.0 {
            return Err(format!("`rms_norm_eps` is {}", self.rms_norm_eps));
        }
        Ok(())
    }

    /// Key and value heads.
    pub(crate) fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Elements of a head.
    pub(crate) fn head_size(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Whether pairs that are rotated lie beside each other.
    pub(crate) fn interleaved(&self) -> bool {
        self.rope_interleaved.unwrap_or(false)
    }

    /// Positions that the model knows.
    pub(crate) fn longest(&self) -> i64 {
        i64::try_from(self.max_position_embeddings).unwrap_or(i64::MAX)
    }

    /// The model as Llama has it, with the windows that `layer_types` or else `windowed` says.
    pub(crate) fn decoder(&self, folder: &Folder, windowed: impl Fn(usize) -> bool) -> Result<Decoder> {
        let rope = self.rope(folder, "full_attention")?;
        let longest = rope.reach(self.longest());
        let activation = activation(folder, self.hidden_act.as_deref().unwrap_or("silu"))?;
        let head_size = self.head_size();
        let bias = self.attention_bias.unwrap_or(false);
        let attention = SelfAttention {
            heads: self.num_attention_heads,
            kv_heads: self.kv_heads(),
            head_size,
            scale: self.query_pre_attn_scalar.unwrap_or(head_size as f32).powf(-0.5),
            window: None,
            softcap: positive(folder, "attn_logit_softcapping", self.attn_logit_softcapping)?,
            rope: 0,
            fused: false,
            bias,
            output_bias: bias,
            head_norms: false,
        };
        if !attention.scale.is_finite() {
            return Err(folder.error("config.json", "`query_pre_attn_scalar` is not positive"));
        }
        let inner = self.intermediate_size;
        let bias = self.mlp_bias.unwrap_or(false);
        let feed = Feed::Gated(Gated { inner, activation, bias, fused: false });
        let layer = Layer { attention, feed, post_norms: false };
        let mut layers = vec![layer; self.num_hidden_layers];
        for (i, layer) in layers.iter_mut().enumerate() {
            layer.attention.window = self.window(folder, i, windowed(i))?;
        }
        Ok(Decoder {
            vocab: self.vocab_size,
            hidden: self.hidden_size,
            longest,
            norm: Norm { epsilon: self.rms_norm_eps, offset: 0.0 },
            embedding_scale: None,
            ropes: vec![rope],
            layers,
            tied: self.tie_word_embeddings.unwrap_or(false),
            softcap: positive(folder, "final_logit_softcapping", self.final_logit_softcapping)?,
        })
    }

    /// The window of a layer.
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

    /// The rotary embedding of a type of layer.
    pub(crate) fn rope(&self, folder: &Folder, layer_type: &str) -> Result<Rope> {
        let nested = self.rope_parameters.as_ref().and_then(|p| p.get(layer_type)).and_then(Value::as_object);
        let given = nested.or(self.rope_parameters.as_ref()).or(self.rope_scaling.as_ref());
        let empty = Map::new();
        self.rope_of(given.unwrap_or(&empty)).map_err(|reason| folder.error("config.json", reason))
    }

    /// The parameters of a type of layer, where the newer dialect tells them apart.
    pub(crate) fn has_rope(&self, layer_type: &str) -> bool {
        self.rope_parameters.as_ref().is_some_and(|p| p.contains_key(layer_type))
    }

    fn rope_of(&self, given: &Map<String, Value>) -> Result<Rope, String> {
        let optional = |name: &str| match given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!("`{name}` of the rotary embedding is {value}")),
            },
        };
        let given_number = |name: &str| match optional(name)? {
            Some(number) if (LEAST_FACTOR..=MOST_FACTOR).contains(&number) => Ok(Some(number)),
            Some(number) => Err(format!(
                "`{name}` of the rotary embedding is {number}; {LEAST_FACTOR} to {MOST_FACTOR} are supported"
            )),
            None => Ok(None),
        };
        let number = |name: &str| {
            given_number(name)?.ok_or_else(|| format!("`{name}` of the rotary embedding is missing"))
        };
        let positions = |name: &str, value: Option<f64>| match value {
            Some(n) if !(1.0..=1e12).contains(&n) => {
                Err(format!("`{name}` is {n}; 1 to 1000000000000 are supported"))
            }
            value => Ok(value.map(|n| n as i64)),
        };
        let theta = optional("rope_theta")?.or(self.rope_theta).unwrap_or(10000.0);
        let part = optional("partial_rotary_factor")?.or(self.partial_rotary_factor).unwrap_or(1.0);
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("`partial_rotary_factor` is {part}; more than 0 and at most 1 is needed"));
        }
        let size = (self.head_size() as f64 * part) as usize;
        if size < 2 || !size.is_multiple_of(2) || size > self.head_size() {
            return Err(format!(
                "{size} of {} elements of a head cannot be rotated in pairs",
                self.head_size()
            ));
        }
        if !theta.is_finite() || theta <= 1.0 {
            return Err(format!("`rope_theta` is {theta}"));
        }
        let longest = self.longest();
        let length = "original_max_position_embeddings";
        let own = positions(length, optional(length)?)?;
        let outer = positions(length, self.original_max_position_embeddings.map(|n| n as f64))?;
        let trained = own.or(outer).filter(|n| *n > 1);
        let attention = given_number("attention_factor")?;
        let kind = given.get("rope_type").or_else(|| given.get("type")).filter(|v| !v.is_null());
        let scaling = match kind.map_or(Some("default"), Value::as_str) {
            Some("default") => Scaling::None,
            Some("linear") => Scaling::Linear { factor: number("factor")? },
            Some("dynamic") => {
                if size == 2 {
                    return Err("rope_type `dynamic` needs heads of more than two elements".into());
                }
                Scaling::Dynamic { factor: number("factor")?, trained: longest.max(1) }
            }
            Some("longrope" | "su") => self.long(given, size, trained, attention, given_number("factor")?)?,
            Some("yarn") if given.contains_key("long_factor") => {
                self.long(given, size, trained, attention, given_number("factor")?)?
            }
            Some("yarn") => {
                let factor = number("factor")?;
                let turns = |name: &str, usual: f64| match optional(name)? {
                    None | Some(0.0) => Ok(usual),
                    Some(_) => number(name),
                };
                let grown = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
                let derived = match (optional("mscale")?, optional("mscale_all_dim")?) {
                    (Some(a), Some(b)) if a != 0.0 && b != 0.0 => grown(a) / grown(b),
                    _ => grown(1.0),
                };
                Scaling::Yarn {
                    factor,
                    trained: own.filter(|n| *n > 1).unwrap_or(longest),
                    fast: turns("beta_fast", 32.0)?,
                    slow: turns("beta_slow", 1.0)?,
                    truncate: given.get("truncate").and_then(Value::as_bool).unwrap_or(true),
                    attention: attention.unwrap_or(derived),
                }
            }
            Some("llama3") => Scaling::Llama3 {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                trained: own.ok_or_else(|| format!("`{length}` of the rotary embedding is missing"))?,
            },
            other => {
                let name = other.map_or_else(|| kind.map(Value::to_string), |name| Some(name.to_owned()));
                let name = name.unwrap_or_default();
                return Err(format!(
                    "rope_type `{name}` is not supported; default, linear, dynamic, yarn, longrope and llama3 are"
                ));
            }
        };
        if let Scaling::Llama3 { low, high, .. } = scaling
            && low >= high
        {
            return Err(format!("`low_freq_factor` {low} is not below `high_freq_factor` {high}"));
        }
        Ok(Rope { size, theta, scaling, interleaved: self.interleaved() })
    }

    fn long(
        &self,
        given: &Map<String, Value>,
        size: usize,
        trained: Option<i64>,
        attention: Option<f64>,
        factor: Option<f64>,
    ) -> Result<Scaling, String> {
        let list = |name: &str| {
            let list: Option<Vec<f64>> =
                given.get(name).and_then(Value::as_array).and_then(|l| l.iter().map(Value::as_f64).collect());
            let list =
                list.ok_or_else(|| format!("`{name}` of the rotary embedding is no list of numbers"))?;
            if list.len() != size / 2 || !list.iter().all(|f| (LEAST_FACTOR..=MOST_FACTOR).contains(f)) {
                return Err(format!(
                    "`{name}` has {} numbers; {} positive ones are needed",
                    list.len(),
                    size / 2
                ));
            }
            Ok(list)
        };
        let longest = self.longest();
        let factor = match trained {
            Some(trained) => longest as f64 / trained as f64,
            None => factor.unwrap_or(1.0),
        };
        let trained = trained.unwrap_or(longest);
        let grown = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (trained as f64).ln()).sqrt() };
        let (short, long) = (list("short_factor")?, list("long_factor")?);
        Ok(Scaling::Long { short, long, trained, attention: attention.unwrap_or(grown) })
    }
}

impl Rope {
    /// Positions that a model of so many reaches with this scaling.
    fn reach(&self, longest: i64) -> i64 {
        let stretched = |base: i64, factor: f64| (base as f64 * factor).min(1e9) as i64;
        match &self.scaling {
            Scaling::Linear { factor } => longest.max(stretched(longest, *factor)),
            Scaling::Yarn { factor, trained, .. } => longest.max(stretched(*trained, *factor)),
            // It grows with the text.
            Scaling::Dynamic { .. } => i64::MAX,
            Scaling::None | Scaling::Long { .. } | Scaling::Llama3 { .. } => longest,
        }
    }
}

/// The function that a configuration names.
pub(crate) fn activation(folder: &Folder, name: &str) -> Result<UnaryFn> {
    Ok(match name {
        "silu" | "swish" => UnaryFn::Swish { alpha: 1.0 },
        "gelu" => UnaryFn::Gelu,
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => UnaryFn::GeluTanh,
        "quick_gelu" => UnaryFn::Swish { alpha: 1.702 },
        "relu" => UnaryFn::Relu,
        other => {
            return Err(folder.error("config.json", format!("the activation `{other}` is not supported")));
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
