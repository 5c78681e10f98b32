//! Summary of a Hugging Face folder or a GGUF file without building its graph: sizes of the language model, tensors,
//! quantization, tokenizer and chat template.
//!
//! A summary also exists for architectures and tensor types that the compiler does not support. The weights are not
//! read.

use std::collections::BTreeMap;
use std::path::Path;

use driftc::error::{Error, Result};
use driftc::import::gguf::{Gguf, Value as Entry};
use driftc::import::listing::{ListedTensor, StoredType};
use driftc::import::{onnx, safetensors};
use serde_json::Value;

use crate::ARCHITECTURES;
use crate::diffusion;
use crate::folder::read_json;
use crate::gguf::is_supported_architecture;

/// Maximum number of characters of a metadata value in a summary.
const MAX_VALUE: usize = 120;

/// Contents of a model folder or GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Sizes of the language model.
    pub language: LanguageFacts,
    /// Scalar metadata entries of a GGUF file.
    pub metadata: Vec<(String, String)>,
    /// Tensors by element type, largest first.
    pub weights: Vec<StoredType>,
    /// Number of parameters. For quantized weights, the number of weights that their packed values stand for.
    pub parameters: u64,
    /// Tensor types that the compiler cannot read.
    pub unsupported_types: Vec<String>,
}

/// Facts about a language model from its configuration. `None`: the configuration does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LanguageFacts {
    /// Name of the architecture.
    pub architecture: Option<String>,
    /// True if the compiler supports the architecture.
    pub supported: bool,
    /// Maximum number of tokens of a text.
    pub context_length: Option<u64>,
    /// Number of layers.
    pub layers: Option<u64>,
    /// Hidden size.
    pub hidden_size: Option<u64>,
    /// Number of query heads.
    pub heads: Option<u64>,
    /// Number of key and value heads.
    pub kv_heads: Option<u64>,
    /// Number of tokens of the vocabulary.
    pub vocabulary: Option<u64>,
    /// Number of experts of a layer.
    pub experts: Option<u64>,
    /// Quantization of the weights as text, such as `gptq, 4 bits, groups of 128`.
    pub quantization: Option<String>,
    /// Tokenizer as text: the name of its file, or its kind in a GGUF file.
    pub tokenizer: Option<String>,
    /// True if there is a chat template.
    pub chat_template: bool,
}

/// Summarizes a Hugging Face folder or a GGUF file.
///
/// # Errors
/// If the configuration or the header of a weight file is missing or malformed.
pub fn summarize(path: &Path) -> Result<Summary> {
    if path.is_file() { gguf(path) } else { folder(path) }
}

fn folder(path: &Path) -> Result<Summary> {
    if let Some(index) = read_json(&path.join(diffusion::INDEX))? {
        return diffusion_folder(path, &index);
    }
    let config = read_json(&path.join("config.json"))?.ok_or_else(|| Error::Model {
        path: path.to_path_buf(),
        place: "folder".into(),
        reason: "there is no config.json".into(),
        help: "give a bundle, an .onnx or .gguf file, or a Hugging Face folder with config.json and model.safetensors"
            .into(),
    })?;
    let tensors = safetensors::list(path)?;
    let quantization = match config.get("quantization_config").filter(|q| !q.is_null()) {
        Some(quantization) => Some(quantization.clone()),
        None => read_json(&path.join("quantize_config.json"))?,
    };
    let bits = quantization.as_ref().and_then(|q| setting(q, &["bits", "num_bits"]));
    let mut summary = summarize_tensors(&tensors, bits);
    let mut language = facts_of_config(&config, path);
    language.quantization = quantization.as_ref().map(quantization_text);
    summary.language = language;
    Ok(summary)
}

/// Summarizes a diffusers folder: the tensors of all parts.
fn diffusion_folder(path: &Path, index: &Value) -> Result<Summary> {
    let mut summary = match diffusion::is_onnx(path) {
        true => summarize_onnx_parts(path)?,
        false => {
            let mut tensors = Vec::new();
            for part in diffusion::PARTS {
                if index.get(part).is_some() && path.join(part).is_dir() {
                    tensors.extend(safetensors::list(&path.join(part))?);
                }
            }
            summarize_tensors(&tensors, None)
        }
    };
    let class = index.get("_class_name").and_then(Value::as_str);
    summary.language.architecture = class.map(str::to_owned);
    summary.language.supported = true;
    let files = ["tokenizer/tokenizer.json", "tokenizer/vocab.json"];
    let tokenizer = files.into_iter().find(|name| path.join(name).is_file());
    summary.language.tokenizer = tokenizer.map(str::to_owned);
    Ok(summary)
}

/// Summarizes the weights of the ONNX files of a diffusers folder.
fn summarize_onnx_parts(path: &Path) -> Result<Summary> {
    let mut types: BTreeMap<String, StoredType> = BTreeMap::new();
    for part in diffusion::diffusion_folders(path) {
        let file = path.join(part).join(diffusion::MODEL_FILE);
        if file.is_file() {
            for stored in onnx::summary(&file)?.weights {
                let total =
                    types.entry(stored.element.clone()).or_insert_with(|| StoredType::new(&stored.element));
                total.tensors += stored.tensors;
                total.elements = total.elements.saturating_add(stored.elements);
                total.bytes = total.bytes.saturating_add(stored.bytes);
            }
        }
    }
    let weights = StoredType::sorted(types);
    let parameters = weights.iter().map(|stored| stored.elements).sum();
    Ok(Summary { weights, parameters, ..Summary::default() })
}

/// Reads the facts of a `config.json`, and looks for a tokenizer and a chat template in its folder.
pub fn facts_of_config(config: &Value, folder: &Path) -> LanguageFacts {
    let names = config.get("architectures").and_then(Value::as_array);
    let name = names.and_then(|names| names.iter().find_map(Value::as_str));
    let number = |keys: &[&str]| {
        let find = |config: &Value| keys.iter().find_map(|key| config.get(*key)?.as_u64());
        find(config).or_else(|| find(config.get("text_config")?))
    };
    let tokenizer =
        ["tokenizer.json", "tokenizer.model"].into_iter().find(|name| folder.join(name).is_file());
    let template = || {
        let config = read_json(&folder.join("tokenizer_config.json")).ok()??;
        config.get("chat_template").filter(|template| !template.is_null()).map(|_| ())
    };
    LanguageFacts {
        architecture: name.map(str::to_owned),
        supported: name.is_some_and(|name| ARCHITECTURES.iter().any(|a| a.name == name)),
        context_length: number(&[
            "max_position_embeddings",
            "n_positions",
            "max_sequence_length",
            "max_target_positions",
        ]),
        layers: number(&["num_hidden_layers", "n_layer", "num_layers", "decoder_layers"]),
        hidden_size: number(&["hidden_size", "n_embd", "d_model"]),
        heads: number(&["num_attention_heads", "n_head", "decoder_attention_heads"]),
        kv_heads: number(&["num_key_value_heads"]),
        vocabulary: number(&["vocab_size"]),
        experts: number(&["num_local_experts", "num_experts"]),
        quantization: None,
        tokenizer: tokenizer.map(str::to_owned),
        chat_template: folder.join("chat_template.jinja").is_file() || template().is_some(),
    }
}

/// Looks for a number among the settings of a quantization, also inside `config_groups` of compressed-tensors.
fn setting(config: &Value, keys: &[&str]) -> Option<u64> {
    let find = |config: &Value| keys.iter().find_map(|key| config.get(*key)?.as_u64());
    let groups = config.get("config_groups").and_then(Value::as_object);
    let grouped = || groups?.values().find_map(|group| find(group.get("weights")?));
    find(config).or_else(grouped)
}

fn quantization_text(config: &Value) -> String {
    let mut parts = vec![config.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed").to_owned()];
    parts.extend(setting(config, &["bits", "num_bits"]).map(|bits| format!("{bits} bits")));
    parts.extend(setting(config, &["group_size"]).map(|size| format!("groups of {size}")));
    parts.join(", ")
}

fn gguf(path: &Path) -> Result<Summary> {
    let listing = Gguf::list(path)?;
    let metadata = &listing.metadata;
    let text = |key: &str| metadata.get(key).and_then(Entry::as_text);
    let architecture = text("general.architecture");
    let number = |name: &str| match metadata.get(&format!("{}.{name}", architecture?))? {
        // Some models have one value for each layer.
        Entry::List(list) => list.iter().filter_map(Entry::as_unsigned).max(),
        value => value.as_unsigned(),
    };
    let mut summary = summarize_tensors(&listing.tensors, None);
    let embedding = listing.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    let tokens = metadata.get("tokenizer.ggml.tokens").and_then(Entry::as_list).map(|list| list.len() as u64);
    let quantized: Vec<String> = summary
        .weights
        .iter()
        .filter(|stored| !matches!(stored.element.as_str(), "F32" | "F16" | "BF16" | "F64"))
        .map(|stored| format!("{} in {} tensors", stored.element, stored.tensors))
        .collect();
    summary.language = LanguageFacts {
        architecture: architecture.map(str::to_owned),
        supported: architecture.is_some_and(is_supported_architecture),
        context_length: number("context_length"),
        layers: number("block_count"),
        hidden_size: number("embedding_length"),
        heads: number("attention.head_count"),
        kv_heads: number("attention.head_count_kv"),
        vocabulary: embedding.and_then(|tensor| tensor.shape.first().map(|n| *n as u64)).or(tokens),
        experts: number("expert_count").filter(|n| *n > 0),
        quantization: (!quantized.is_empty()).then(|| quantized.join(", ")),
        tokenizer: text("tokenizer.ggml.model").map(|kind| match tokens {
            Some(n) => format!("{kind}, {n} tokens"),
            None => kind.to_owned(),
        }),
        chat_template: text("tokenizer.chat_template").is_some(),
    };
    // The chat template and the lists of a tokenizer are long, and the facts above name them.
    let shown = metadata.iter().filter(|(key, _)| !key.starts_with("tokenizer."));
    summary.metadata = shown.filter_map(|(key, value)| Some((key.clone(), entry_text(value)?))).collect();
    Ok(summary)
}

/// Scalar metadata value as one line of text. Returns `None` for a list.
fn entry_text(value: &Entry) -> Option<String> {
    Some(match value {
        Entry::Bool(value) => value.to_string(),
        Entry::Int(value) => value.to_string(),
        Entry::Unsigned(value) => value.to_string(),
        Entry::Float(value) => value.to_string(),
        Entry::Text(text) => {
            let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match line.char_indices().nth(MAX_VALUE) {
                Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
                None => line,
            }
        }
        Entry::List(_) => return None,
    })
}

/// Summarizes listed tensors. `bits` is the width of the packed values of a quantized checkpoint.
fn summarize_tensors(tensors: &[ListedTensor], bits: Option<u64>) -> Summary {
    let mut unsupported: Vec<String> =
        tensors.iter().filter(|tensor| !tensor.supported).map(|tensor| tensor.element.clone()).collect();
    unsupported.sort();
    unsupported.dedup();
    Summary {
        weights: StoredType::group(tensors),
        parameters: tensors.iter().map(|tensor| parameters(tensor, bits)).sum(),
        unsupported_types: unsupported,
        ..Summary::default()
    }
}

/// Number of weights that a tensor stands for. In a quantized checkpoint, a tensor of packed values stands for several
/// weights per word, and the scales and zero points for none.
fn parameters(tensor: &ListedTensor, bits: Option<u64>) -> u64 {
    let Some(bits) = bits.filter(|bits| *bits > 0) else { return tensor.elements() };
    match tensor.name.rsplit('.').next().unwrap_or_default() {
        "qweight" | "weight_packed" if tensor.element == "I32" => tensor.elements().saturating_mul(32) / bits,
        "qzeros" | "scales" | "g_idx" | "weight_scale" | "weight_zero_point" | "weight_shape"
        | "weight_g_idx" => 0,
        _ => tensor.elements(),
    }
}
