//! Language models from GGUF files. The metadata is presented as a `config.json`, the tensors under their Hugging Face names, and
//! the [tokenizer] as the files of a Hugging Face folder.
//!
//! The GGUF converter changes some weights, and this code describes or undoes the changes: Llama's query and key rows
//! have the two elements that RoPE rotates as a pair adjacent (`rope_interleaved`), Gemma's norms store `1 + weight`, and one
//! tensor holds all experts of a layer.

pub mod tokenizer;

use driftc::error::{Error, Result};
use driftc::import::gguf::{Gguf, Value};
use driftc::ir::array::Array;
use driftc::ir::encoding::Encoding;
use driftc::ir::op::Constant;
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::opened::{Checkpoint, OpenedModel};
use crate::weights::Tensors;

/// Supported value of `general.architecture` in GGUF metadata, with the Hugging Face architecture of the same model.
struct Kind {
    name: &'static str,
    /// Hugging Face architecture of models without experts.
    architecture: &'static str,
    /// Hugging Face architecture of models with experts, if supported.
    mixture: Option<&'static str>,
    /// True if the two elements that RoPE rotates as a pair are adjacent.
    interleaved: bool,
    /// Number that the GGUF converter added to every weight of a norm: 1 for Gemma, else 0.
    norm_offset: f32,
}

impl Kind {
    const fn plain(name: &'static str, architecture: &'static str) -> Self {
        Self { name, architecture, mixture: None, interleaved: false, norm_offset: 0.0 }
    }
}

const KINDS: &[Kind] = &[
    Kind {
        interleaved: true,
        mixture: Some("MixtralForCausalLM"),
        ..Kind::plain("llama", "MistralForCausalLM")
    },
    Kind::plain("qwen2", "Qwen2ForCausalLM"),
    Kind::plain("qwen3", "Qwen3ForCausalLM"),
    Kind { mixture: Some("Qwen3MoeForCausalLM"), ..Kind::plain("qwen3moe", "Qwen3MoeForCausalLM") },
    Kind { norm_offset: 1.0, ..Kind::plain("gemma", "GemmaForCausalLM") },
    Kind { norm_offset: 1.0, ..Kind::plain("gemma2", "Gemma2ForCausalLM") },
    Kind { norm_offset: 1.0, ..Kind::plain("gemma3", "Gemma3ForCausalLM") },
    Kind::plain("phi3", "Phi3ForCausalLM"),
];

/// Returns true if the compiler supports a value of `general.architecture`.
pub(crate) fn is_supported_architecture(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name)
}

/// Names of the same tensor in a Hugging Face checkpoint and in a GGUF file, without `.weight` or `.bias`. `*` stands for the
/// index of the layer.
const NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.layers.*.input_layernorm", "blk.*.attn_norm"),
    ("model.layers.*.self_attn.q_proj", "blk.*.attn_q"),
    ("model.layers.*.self_attn.k_proj", "blk.*.attn_k"),
    ("model.layers.*.self_attn.v_proj", "blk.*.attn_v"),
    ("model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv"),
    ("model.layers.*.self_attn.o_proj", "blk.*.attn_output"),
    ("model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"),
    ("model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"),
    ("model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm"),
    ("model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"),
    ("model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"),
    ("model.layers.*.mlp.up_proj", "blk.*.ffn_up"),
    ("model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"),
    ("model.layers.*.mlp.down_proj", "blk.*.ffn_down"),
    ("model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"),
    ("model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp"),
];

/// Hugging Face name of each matrix of an expert, and name of the GGUF tensor that holds this matrix of all experts of a layer.
const EXPERTS: &[(&str, &str)] = &[
    ("gate_proj", "ffn_gate_exps"),
    ("up_proj", "ffn_up_exps"),
    ("down_proj", "ffn_down_exps"),
    ("w1", "ffn_gate_exps"),
    ("w3", "ffn_up_exps"),
    ("w2", "ffn_down_exps"),
];

/// Weights of a GGUF file under their Hugging Face names.
#[derive(Debug)]
pub(crate) struct GgufWeights {
    path: PathBuf,
    file: Gguf,
    norm_offset: f32,
}

/// Opens a GGUF file: reads its metadata as a configuration and tokenizer, and maps its weights.
pub(crate) fn open(path: &Path) -> Result<OpenedModel> {
    let file = Gguf::open(path)?;
    let reader = Metadata { path, file: &file };
    let (config, kind) = reader.config()?;
    let checkpoint = Checkpoint::Gguf(file.clone());
    let mut attachments = vec![("config.json".to_string(), config.to_string().into_bytes())];
    let mut notes = Vec::new();
    // Without a usable tokenizer the model still works with token ids.
    match tokenizer::tokenizer_files(&file.metadata) {
        Ok(None) => {}
        Ok(Some(files)) => {
            attachments.push(("tokenizer.json".into(), files.tokenizer.to_string().into_bytes()));
            attachments.push(("tokenizer_config.json".into(), files.config.to_string().into_bytes()));
        }
        Err(reason) => notes.push(format!(
            "the bundle has no tokenizer, because the tokenizer of the GGUF file is not supported: {reason}"
        )),
    }
    let general = file.metadata.iter().filter(|(key, _)| key.starts_with("general."));
    let metadata = general.filter_map(|(key, value)| Some((key.as_str(), value.as_text()?))).collect();
    let weights = GgufWeights { path: path.to_path_buf(), norm_offset: kind.norm_offset, file };
    Ok(OpenedModel { weights: Rc::new(weights), config, checkpoint, attachments, metadata, notes })
}

struct Metadata<'a> {
    path: &'a Path,
    file: &'a Gguf,
}

impl Metadata<'_> {
    fn error(&self, place: &str, reason: impl Into<String>) -> Error {
        Error::Model {
            path: self.path.to_path_buf(),
            place: format!("`{place}`"),
            reason: reason.into(),
            help: "convert the model again, or use its Hugging Face folder".into(),
        }
    }

    /// Returns the value of a numeric metadata entry. The entry may also be a list with one equal value for each layer.
    fn number(&self, key: &str) -> Result<Option<f64>> {
        let wrong = |reason: &str| Err(self.error(key, reason));
        let number = match self.file.metadata.get(key) {
            None => Ok(None),
            Some(Value::List(list)) => {
                let numbers: Option<Vec<f64>> = list.iter().map(Value::as_float).collect();
                match numbers.as_deref() {
                    Some([first, rest @ ..]) if rest.iter().all(|n| n == first) => Ok(Some(*first)),
                    _ => wrong("different values for different layers are not supported"),
                }
            }
            Some(value) => match value.as_float() {
                Some(number) => Ok(Some(number)),
                None => wrong("it is not a number"),
            },
        };
        match number? {
            Some(number) if !number.is_finite() => wrong(&format!("it is {number}")),
            number => Ok(number),
        }
    }

    fn integer(&self, key: &str) -> Result<Option<u64>> {
        match self.number(key)? {
            Some(n) if n >= 0.0 && n.fract() == 0.0 && n < 1e15 => Ok(Some(n as u64)),
            Some(n) => Err(self.error(key, format!("it is {n}"))),
            None => Ok(None),
        }
    }

    fn required(&self, key: &str) -> Result<u64> {
        self.integer(key)?.ok_or_else(|| self.error(key, "it is missing"))
    }

    fn kind(&self) -> Result<&'static Kind> {
        let key = "general.architecture";
        let name = self.file.metadata.get(key).and_then(Value::as_text);
        let name = name.ok_or_else(|| self.error(key, "it is missing"))?;
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
            self.error(key, format!("architecture `{name}` is not supported; use {}", known.join(", ")))
        })
    }

    fn config(&self) -> Result<(Json, &'static Kind)> {
        let kind = self.kind()?;
        if self.integer("split.count")?.is_some_and(|n| n > 1) {
            return Err(self.error(
                "split.count",
                "GGUF files that are split into several are not supported; merge them with llama-gguf-split",
            ));
        }
        let key = |name: &str| format!("{}.{name}", kind.name);
        let experts = self.integer(&key("expert_count"))?.filter(|n| *n > 0);
        let architecture = match (experts, kind.mixture) {
            (None, _) => kind.architecture,
            (Some(_), Some(mixture)) => mixture,
            (Some(n), None) => {
                return Err(self.error(&key("expert_count"), format!("{n} experts are not supported")));
            }
        };
        let heads = self.required(&key("attention.head_count"))?;
        let hidden = self.required(&key("embedding_length"))?;
        let layers = self.required(&key("block_count"))?;
        let size = match self.integer(&key("attention.key_length"))? {
            Some(size) => size,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        if self.integer(&key("attention.value_length"))?.is_some_and(|n| n != size) {
            return Err(self.error(
                &key("attention.value_length"),
                "value heads and key heads of different sizes are not supported",
            ));
        }
        let max_positions = self.required(&key("context_length"))?;
        let embedding = self.file.get("token_embd.weight").and_then(|c| c.shape.first().copied());
        let embedding = embedding.ok_or_else(|| self.error("token_embd.weight", "the tensor is missing"))?;
        let epsilon = self.number(&key("attention.layer_norm_rms_epsilon"))?;
        let mut config = json!({
            "architectures": [architecture],
            "vocab_size": embedding,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self.integer(&key("attention.head_count_kv"))?.unwrap_or(heads),
            "head_dim": size,
            "intermediate_size": self.integer(&key("feed_forward_length"))?.unwrap_or(1),
            "max_position_embeddings": max_positions,
            "rms_norm_eps": epsilon.ok_or_else(|| self.error(&key("attention.layer_norm_rms_epsilon"), "it is missing"))?,
            "tie_word_embeddings": self.file.get("output.weight").is_none(),
            "rope_interleaved": kind.interleaved,
            "attention_bias": self.file.get("blk.0.attn_q.bias").is_some(),
            "sliding_window": self.integer(&key("attention.sliding_window"))?.filter(|n| *n > 0),
            "rope_theta": self.number(&key("rope.freq_base"))?.unwrap_or(10000.0),
        });
        let Some(fields) = config.as_object_mut() else { return Ok((config, kind)) };
        if kind.name.starts_with("gemma") {
            self.gemma_fields(kind, [hidden, heads, layers, size], fields)?;
        }
        if let Some(experts) = experts {
            let used = self.required(&key("expert_used_count"))?;
            fields.insert("num_experts_per_tok".into(), json!(used));
            fields.insert("num_local_experts".into(), json!(experts));
            fields.insert("num_experts".into(), json!(experts));
            fields.insert("norm_topk_prob".into(), json!(true));
            let inner = self.integer(&key("expert_feed_forward_length"))?;
            fields.extend(inner.map(|n| ("moe_intermediate_size".to_string(), json!(n))));
        }
        self.rope_scaling(&key, max_positions, fields)?;
        if let Some(rotated) = self.integer(&key("rope.dimension_count"))?.filter(|n| *n != size && size > 0)
        {
            fields.insert("partial_rotary_factor".into(), json!(rotated as f64 / size as f64));
        }
        Ok((config, kind))
    }

    /// Adds the configuration fields that only Gemma models have.
    fn gemma_fields(
        &self,
        kind: &Kind,
        [hidden, heads, layers, size]: [u64; 4],
        fields: &mut Map<String, Json>,
    ) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", kind.name);
        for (field, name) in [
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ] {
            fields.extend(self.number(&key(name))?.map(|cap| (field.to_string(), json!(cap))));
        }
        // The largest models scale scores by hidden size over heads, but the metadata does not say so.
        let is_largest = matches!((kind.name, layers), ("gemma2", 46) | ("gemma3", 62));
        let scalar = if is_largest { hidden.checked_div(heads).unwrap_or(1) } else { size };
        if kind.name != "gemma" {
            fields.insert("query_pre_attn_scalar".into(), json!(scalar));
        }
        let local = self.number(&key("rope.freq_base_swa"))?;
        fields.extend(local.map(|theta| ("rope_local_base_freq".to_string(), json!(theta))));
        Ok(())
    }

    /// Adds the scaling of the rotary embedding to the configuration. It comes from metadata entries or from tensors of factors.
    fn rope_scaling(
        &self,
        key: &dyn Fn(&str) -> String,
        max_positions: u64,
        fields: &mut Map<String, Json>,
    ) -> Result<()> {
        let trained = self.integer(&key("rope.scaling.original_context_length"))?;
        let factors = |name: &str| -> Result<Option<Vec<f32>>> {
            let Some(tensor) = self.file.get(name) else { return Ok(None) };
            tensor.to_array().map(|array| Some(array.to_floats())).map_err(|e| self.error(name, e.0))
        };
        let factor = self.number(&key("rope.scaling.factor"))?;
        let attention = self.number(&key("rope.scaling.attn_factor"))?;
        let kind_key = key("rope.scaling.type");
        let kind = self.file.metadata.get(&kind_key).map(|v| v.as_text().unwrap_or("?"));
        let all = factors("rope_freqs.weight")?;
        let (short, long) = (factors("rope_factors_short.weight")?, factors("rope_factors_long.weight")?);
        let scaling = match (all, short.zip(long), kind) {
            (Some(all), _, _) => {
                fields.insert("original_max_position_embeddings".into(), json!(max_positions));
                json!({"rope_type": "longrope", "short_factor": all, "long_factor": all, "attention_factor": 1.0})
            }
            (None, Some((short, long)), _) => {
                let trained = trained.unwrap_or(max_positions);
                fields.insert("original_max_position_embeddings".into(), json!(trained));
                json!({"rope_type": "longrope", "short_factor": short, "long_factor": long, "attention_factor": attention})
            }
            (None, None, None | Some("none")) => return Ok(()),
            (None, None, Some("linear")) => json!({"rope_type": "linear", "factor": factor}),
            (None, None, Some("yarn")) => json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained,
                "attention_factor": attention,
                "beta_fast": self.number(&key("rope.scaling.yarn_beta_fast"))?,
                "beta_slow": self.number(&key("rope.scaling.yarn_beta_slow"))?,
            }),
            (None, None, Some(other)) => {
                return Err(self.error(
                    &kind_key,
                    format!("RoPE scaling `{other}` is not supported; supported: linear, yarn and longrope"),
                ));
            }
        };
        fields.insert("rope_scaling".into(), scaling);
        Ok(())
    }
}

impl GgufWeights {
    /// Returns the GGUF tensor name for a Hugging Face name, and the index of the expert if the tensor holds all experts.
    fn locate(&self, name: &str) -> Option<(String, Option<usize>)> {
        let (stem, kind) = name.rsplit_once('.')?;
        let layer = stem.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        let general = layer.map_or_else(|| stem.to_string(), |n| stem.replacen(&format!(".{n}."), ".*.", 1));
        let numbered = |name: &str| format!("{}.{kind}", name.replacen('*', layer.unwrap_or_default(), 1));
        if let Some((block, expert)) = general.split_once(".experts.") {
            let (number, matrix) = expert.split_once('.')?;
            let (_, stacked) = EXPERTS.iter().find(|(hugging_face, _)| *hugging_face == matrix)?;
            block.starts_with("model.layers.*").then_some(())?;
            return Some((numbered(&format!("blk.*.{stacked}")), Some(number.parse().ok()?)));
        }
        // In models with a norm after the attention this is its name. In others it is the norm before the feed-forward.
        if general == "model.layers.*.post_attention_layernorm" {
            let post_attention = numbered("blk.*.post_attention_norm");
            let exists = self.file.get(&post_attention).is_some();
            return Some((if exists { post_attention } else { numbered("blk.*.ffn_norm") }, None));
        }
        let entry = NAMES.iter().find(|(hugging_face, _)| *hugging_face == general);
        entry.map(|(_, gguf)| (numbered(gguf), None))
    }

    fn error(&self, name: &str, reason: String) -> Error {
        Error::Model {
            path: self.path.clone(),
            place: format!("tensor `{name}`"),
            reason,
            help: "check that the download is complete, or convert the model again".into(),
        }
    }
}

impl Tensors for GgufWeights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let missing = |name: &str| self.error(name, "the GGUF file does not contain the tensor".into());
        let (gguf_name, expert) = self.locate(name).ok_or_else(|| missing(name))?;
        let tensor = self.file.get(&gguf_name).ok_or_else(|| missing(&gguf_name))?;
        let tensor = match expert {
            Some(expert) => slice(tensor, expert)
                .ok_or_else(|| self.error(&gguf_name, format!("the tensor has no expert {expert}")))?,
            None => tensor.clone(),
        };
        if tensor.shape != shape {
            let reason = format!("the tensor has shape {:?}, but the metadata needs {shape:?}", tensor.shape);
            return Err(self.error(&gguf_name, reason));
        }
        if !tensor.dtype.is_float() {
            let reason = format!("the tensor holds {}, but must hold floats", tensor.dtype.name());
            return Err(self.error(&gguf_name, reason));
        }
        if self.norm_offset != 0.0 && gguf_name.ends_with("norm.weight") {
            let array = tensor.to_array().map_err(|e| self.error(&gguf_name, e.0))?;
            let values = array.to_floats().into_iter().map(|v| v - self.norm_offset).collect();
            return Ok(Constant::from_array(&Array::f32(shape, values)));
        }
        Ok(tensor)
    }

    fn has(&self, name: &str) -> bool {
        self.locate(name).is_some_and(|(gguf_name, _)| self.file.get(&gguf_name).is_some())
    }
}

/// Returns the matrix `[rows, columns]` at `index` of a tensor `[count, rows, columns]`, without copying bytes.
fn slice(tensor: &Constant, index: usize) -> Option<Constant> {
    let [count, rows, columns] = tensor.shape[..] else { return None };
    let bytes = tensor.bytes.len().checked_div(count)?;
    let start = index.checked_mul(bytes)?;
    let end = start.checked_add(bytes).filter(|end| index < count && *end <= tensor.bytes.len())?;
    let (shape, bytes) = (vec![rows, columns], tensor.bytes.slice(start..end));
    match &tensor.encoding {
        Encoding::Plain(dtype) => Constant::new(*dtype, shape, bytes).ok(),
        encoding => Constant::encoded(shape, encoding.clone(), bytes).ok(),
    }
}
