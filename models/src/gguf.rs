//! Language models from GGUF files: the metadata as a configuration, the tensors under the names of a checkpoint, and the
//! [tokenizer] as the files that a folder has.
//!
//! Whoever converted the model changed some weights, and what they became is said or undone here: rows of Llama's
//! queries and keys have the two elements of a rotated pair beside each other (`rope_interleaved`), norms of Gemma hold
//! one more than their weight, and experts of a layer are one tensor.

pub mod tokenizer;

use driftc::error::{Error, Result};
use driftc::import::gguf::{Gguf, Value};
use driftc::ir::array::Array;
use driftc::ir::encoding::Stored;
use driftc::ir::op::Constant;
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::folder::Opened;
use crate::weights::Tensors;

/// A kind of model that files name under `general.architecture`.
struct Kind {
    name: &'static str,
    /// The architecture that builds it.
    architecture: &'static str,
    /// The same with experts.
    mixture: Option<&'static str>,
    /// Whether pairs that are rotated lie beside each other.
    interleaved: bool,
    /// What was added to the weights of norms.
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

/// Names of a checkpoint's tensors, and what files call them; `*` is the number of the layer.
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

/// Names of an expert's products, and of the tensors that hold those of all experts of a layer.
const EXPERTS: &[(&str, &str)] = &[
    ("gate_proj", "ffn_gate_exps"),
    ("up_proj", "ffn_up_exps"),
    ("down_proj", "ffn_down_exps"),
    ("w1", "ffn_gate_exps"),
    ("w3", "ffn_up_exps"),
    ("w2", "ffn_down_exps"),
];

/// The weights of a file under the names of a checkpoint.
#[derive(Debug)]
pub(crate) struct Converted {
    path: PathBuf,
    file: Gguf,
    norm_offset: f32,
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> Result<Opened> {
    let file = Gguf::open(path)?;
    let reader = Metadata { path, file: &file };
    let (config, kind) = reader.config()?;
    let hash = file.hash();
    let mut attachments = vec![("config.json".to_string(), config.to_string().into_bytes())];
    let mut notes = Vec::new();
    // A model whose texts cannot be cut into tokens computes with ids all the same.
    match tokenizer::files(&file.metadata) {
        Ok(None) => {}
        Ok(Some(files)) => {
            attachments.push(("tokenizer.json".into(), files.tokenizer.to_string().into_bytes()));
            attachments.push(("tokenizer_config.json".into(), files.config.to_string().into_bytes()));
        }
        Err(reason) => notes.push(format!("the file's tokenizer is left out: {reason}")),
    }
    let weights = Converted { path: path.to_path_buf(), norm_offset: kind.norm_offset, file };
    Ok(Opened { weights: Rc::new(weights), config, hash, attachments, notes })
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
            help: "convert the model again, or use the Hugging Face folder that it was made from".into(),
        }
    }

    /// A number, which lists of a number for each layer may say where it is the same for all.
    fn number(&self, key: &str) -> Result<Option<f64>> {
        let wrong = |reason: &str| Err(self.error(key, reason));
        let number = match self.file.metadata.get(key) {
            None => Ok(None),
            Some(Value::List(list)) => {
                let numbers: Option<Vec<f64>> = list.iter().map(Value::as_float).collect();
                match numbers.as_deref() {
                    Some([first, rest @ ..]) if rest.iter().all(|n| n == first) => Ok(Some(*first)),
                    _ => wrong("layers that differ in it are not supported"),
                }
            }
            Some(value) => match value.as_float() {
                Some(number) => Ok(Some(number)),
                None => wrong("it is no number"),
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

    fn needed(&self, key: &str) -> Result<u64> {
        self.integer(key)?.ok_or_else(|| self.error(key, "it is missing"))
    }

    fn kind(&self) -> Result<&'static Kind> {
        let key = "general.architecture";
        let name = self.file.metadata.get(key).and_then(Value::as_text);
        let name = name.ok_or_else(|| self.error(key, "it is missing"))?;
        KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
            self.error(key, format!("`{name}` is not supported; {} are", known.join(", ")))
        })
    }

    fn config(&self) -> Result<(Json, &'static Kind)> {
        let kind = self.kind()?;
        if self.integer("split.count")?.is_some_and(|n| n > 1) {
            return Err(
                self.error("split.count", "files that are parts of a model are not supported; merge them")
            );
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
        let heads = self.needed(&key("attention.head_count"))?;
        let hidden = self.needed(&key("embedding_length"))?;
        let layers = self.needed(&key("block_count"))?;
        let size = match self.integer(&key("attention.key_length"))? {
            Some(size) => size,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        if self.integer(&key("attention.value_length"))?.is_some_and(|n| n != size) {
            return Err(self
                .error(&key("attention.value_length"), "heads of values of another size are not supported"));
        }
        let longest = self.needed(&key("context_length"))?;
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
            "max_position_embeddings": longest,
            "rms_norm_eps": epsilon.ok_or_else(|| self.error(&key("attention.layer_norm_rms_epsilon"), "it is missing"))?,
            "tie_word_embeddings": self.file.get("output.weight").is_none(),
            "rope_interleaved": kind.interleaved,
            "attention_bias": self.file.get("blk.0.attn_q.bias").is_some(),
            "sliding_window": self.integer(&key("attention.sliding_window"))?.filter(|n| *n > 0),
            "rope_theta": self.number(&key("rope.freq_base"))?.unwrap_or(10000.0),
        });
        let Some(fields) = config.as_object_mut() else { return Ok((config, kind)) };
        if kind.name.starts_with("gemma") {
            for (field, name) in [
                ("attn_logit_softcapping", "attn_logit_softcapping"),
                ("final_logit_softcapping", "final_logit_softcapping"),
            ] {
                fields.extend(self.number(&key(name))?.map(|cap| (field.to_string(), json!(cap))));
            }
            // The largest models scale scores by their width; no entry says so.
            let wide = matches!((kind.name, layers), ("gemma2", 46) | ("gemma3", 62));
            let scalar = if wide { hidden.checked_div(heads).unwrap_or(1) } else { size };
            if kind.name != "gemma" {
                fields.insert("query_pre_attn_scalar".into(), json!(scalar));
            }
            let local = self.number(&key("rope.freq_base_swa"))?;
            fields.extend(local.map(|theta| ("rope_local_base_freq".to_string(), json!(theta))));
        }
        if let Some(experts) = experts {
            let used = self.needed(&key("expert_used_count"))?;
            fields.insert("num_experts_per_tok".into(), json!(used));
            fields.insert("num_local_experts".into(), json!(experts));
            fields.insert("num_experts".into(), json!(experts));
            fields.insert("norm_topk_prob".into(), json!(true));
            let inner = self.integer(&key("expert_feed_forward_length"))?;
            fields.extend(inner.map(|n| ("moe_intermediate_size".to_string(), json!(n))));
        }
        self.rope(&key, longest, fields)?;
        if let Some(rotated) = self.integer(&key("rope.dimension_count"))?.filter(|n| *n != size && size > 0)
        {
            fields.insert("partial_rotary_factor".into(), json!(rotated as f64 / size as f64));
        }
        Ok((config, kind))
    }

    /// The scaling of the rotary embedding, which entries say or tensors of factors.
    fn rope(&self, key: &dyn Fn(&str) -> String, longest: u64, fields: &mut Map<String, Json>) -> Result<()> {
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
                fields.insert("original_max_position_embeddings".into(), json!(longest));
                json!({"rope_type": "longrope", "short_factor": all, "long_factor": all, "attention_factor": 1.0})
            }
            (None, Some((short, long)), _) => {
                fields.insert("original_max_position_embeddings".into(), json!(trained.unwrap_or(longest)));
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
                return Err(self
                    .error(&kind_key, format!("`{other}` is not supported; linear, yarn and longrope are")));
            }
        };
        fields.insert("rope_scaling".into(), scaling);
        Ok(())
    }
}

impl Converted {
    /// The tensor of the file that a name means, and which of its experts.
    fn find(&self, name: &str) -> Option<(String, Option<usize>)> {
        let (stem, kind) = name.rsplit_once('.')?;
        let layer = stem.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        let general = layer.map_or_else(|| stem.to_string(), |n| stem.replacen(&format!(".{n}."), ".*.", 1));
        let numbered = |name: &str| format!("{}.{kind}", name.replacen('*', layer.unwrap_or_default(), 1));
        if let Some((block, expert)) = general.split_once(".experts.") {
            let (number, product) = expert.split_once('.')?;
            let (_, stacked) = EXPERTS.iter().find(|(own, _)| *own == product)?;
            block.starts_with("model.layers.*").then_some(())?;
            return Some((numbered(&format!("blk.*.{stacked}")), Some(number.parse().ok()?)));
        }
        // The norm behind the attention has this name where there is one, and that before the second half otherwise.
        if general == "model.layers.*.post_attention_layernorm" {
            let behind = numbered("blk.*.post_attention_norm");
            let there = self.file.get(&behind).is_some();
            return Some((if there { behind } else { numbered("blk.*.ffn_norm") }, None));
        }
        NAMES.iter().find(|(own, _)| *own == general).map(|(_, theirs)| (numbered(theirs), None))
    }

    fn error(&self, name: &str, reason: String) -> Error {
        Error::Model {
            path: self.path.clone(),
            place: format!("tensor `{name}`"),
            reason,
            help: "check that the file is complete, or convert the model again".into(),
        }
    }
}

impl Tensors for Converted {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let missing = |name: &str| self.error(name, "the file has no such tensor".into());
        let (theirs, expert) = self.find(name).ok_or_else(|| missing(name))?;
        let tensor = self.file.get(&theirs).ok_or_else(|| missing(&theirs))?;
        let tensor = match expert {
            Some(expert) => slice(tensor, expert)
                .ok_or_else(|| self.error(&theirs, format!("there is no expert {expert}")))?,
            None => tensor.clone(),
        };
        if tensor.shape != shape {
            let reason = format!("it has shape {:?}; the metadata needs {shape:?}", tensor.shape);
            return Err(self.error(&theirs, reason));
        }
        if !tensor.dtype.is_float() {
            return Err(self.error(&theirs, format!("it holds {}; floats are needed", tensor.dtype.name())));
        }
        if self.norm_offset != 0.0 && theirs.ends_with("norm.weight") {
            let array = tensor.to_array().map_err(|e| self.error(&theirs, e.0))?;
            let values = array.to_floats().into_iter().map(|v| v - self.norm_offset).collect();
            return Ok(Constant::from_array(&Array::f32(shape, values)));
        }
        Ok(tensor)
    }

    fn has(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(theirs, _)| self.file.get(&theirs).is_some())
    }
}

/// One of the matrices that a tensor of three axes holds, in the same bytes.
fn slice(tensor: &Constant, index: usize) -> Option<Constant> {
    let [count, rows, columns] = tensor.shape[..] else { return None };
    let bytes = tensor.bytes.len().checked_div(count)?;
    let start = index.checked_mul(bytes)?;
    let end = start.checked_add(bytes).filter(|end| index < count && *end <= tensor.bytes.len())?;
    let (shape, bytes) = (vec![rows, columns], tensor.bytes.slice(start..end));
    match &tensor.stored {
        Stored::Plain(dtype) => Constant::new(*dtype, shape, bytes).ok(),
        stored => Constant::encoded(shape, stored.clone(), bytes).ok(),
    }
}
