//! Model architectures, one file each. An architecture turns a configuration and a checkpoint into a graph.
//!
//! [`load`] turns a folder with `config.json` and `*.safetensors`, or a GGUF file, into a `driftc::compile::Model`. The
//! architectures of [`builtin`] need no files.

#![warn(clippy::disallowed_methods)]

mod bert;
pub mod blocks;
pub mod builtin;
mod decoder;
mod diffusion;
pub mod folder;
mod function_graph;
mod gemma;
mod gemma2;
mod gemma3;
pub mod gguf;
mod gpt2;
pub mod labels;
mod llama;
mod mistral;
mod mixtral;
pub mod mobilenet;
mod opened;
mod phi3;
mod quantized;
mod qwen2;
mod qwen3;
mod qwen3_moe;
pub mod random;
pub mod summary;
pub mod weights;
mod whisper;

pub use diffusion::{diffusion_folders, is_onnx as is_onnx_diffusion_folder};
pub use folder::{Dims, is_model};

use std::path::Path;

use driftc::assumed_bounds;
use driftc::compile::Model;
use driftc::error::{Error, Result};
use driftc::language::GENERATION_SIZES;
use driftc::suggest::did_you_mean;
use folder::Folder;
use opened::{Checkpoint, OpenedModel};
use serde_json::Value;

/// Supported architecture of Hugging Face checkpoints.
#[derive(Debug)]
pub struct Architecture {
    /// Name of the architecture in the field `architectures` of `config.json`.
    pub name: &'static str,
    /// Function that builds the graph of a model folder.
    pub build: fn(&mut Folder) -> Result<()>,
}

/// All supported architectures.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "BertModel", build: bert::build },
    Architecture { name: "GPT2LMHeadModel", build: gpt2::build },
    Architecture { name: "Gemma2ForCausalLM", build: gemma2::build },
    Architecture { name: "Gemma3ForCausalLM", build: gemma3::build },
    Architecture { name: "Gemma3ForConditionalGeneration", build: gemma3::build },
    Architecture { name: "GemmaForCausalLM", build: gemma::build },
    Architecture { name: "LlamaForCausalLM", build: llama::build },
    Architecture { name: "MistralForCausalLM", build: mistral::build },
    Architecture { name: "MixtralForCausalLM", build: mixtral::build },
    Architecture { name: "Phi3ForCausalLM", build: phi3::build },
    Architecture { name: "Qwen2ForCausalLM", build: qwen2::build },
    Architecture { name: "Qwen3ForCausalLM", build: qwen3::build },
    Architecture { name: "Qwen3MoeForCausalLM", build: qwen3_moe::build },
    Architecture { name: "WhisperForConditionalGeneration", build: whisper::build },
];

/// Names of the files beside an ONNX model that change its bundle, if they exist: tokenizer, configuration, labels.
pub fn side_files() -> impl Iterator<Item = &'static str> {
    folder::ATTACHED.iter().chain(labels::FILES).copied()
}

/// Reads a Hugging Face folder or a GGUF file and builds its graph. Also returns notes for the user about
/// assumptions, such as a default context length.
///
/// # Errors
/// If a file is missing or malformed, the architecture is not supported, or the checkpoint does not match it.
pub fn load(path: &Path, dims: &Dims) -> Result<(Model, Vec<String>)> {
    let (mut model, notes, checkpoint) = build(path, dims)?;
    model.hash = checkpoint.hash()?;
    Ok((model, notes))
}

/// Builds the graph of a model like [`load`], but leaves the model's hash zero. So the weights are not read, and the time
/// does not depend on their size.
///
/// # Errors
/// As for [`load`].
pub fn load_unhashed(path: &Path, dims: &Dims) -> Result<(Model, Vec<String>)> {
    let (model, notes, _) = build(path, dims)?;
    Ok((model, notes))
}

fn build(path: &Path, dims: &Dims) -> Result<(Model, Vec<String>, Checkpoint)> {
    if path.join(diffusion::INDEX).is_file() {
        return diffusion::build(path, dims);
    }
    let OpenedModel { weights, config, checkpoint, attachments, metadata, mut notes } = folder::open(path)?;
    notes.extend(metadata.notes);
    let architecture = find_architecture(path, &config)?;
    let mut folder = Folder::new(path, weights, config, dims, notes);
    (architecture.build)(&mut folder)?;
    if let Some(unknown) = dims.keys().find(|name| !folder.sizes.contains(*name)) {
        return Err(unknown_size(unknown, &folder));
    }
    let name = path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let Folder { graph, entry_points, mut notes, assumed, .. } = folder;
    notes.extend(assumed_bounds::note(&assumed));
    let metadata = metadata.entries;
    Ok((Model { graph, entry_points, name, attachments, metadata, ..Model::default() }, notes, checkpoint))
}

/// Returns the error for a size that a model does not have.
fn unknown_size(name: &str, folder: &Folder) -> Error {
    let similar = did_you_mean(name, folder.sizes.iter().map(String::as_str));
    let list = folder.sizes.iter().map(|size| format!("`{size}`")).collect::<Vec<_>>().join(", ");
    let mut help = format!("{similar}the model's sizes are {list}");
    if GENERATION_SIZES.contains(&name) {
        help.push_str(&format!(
            "; `{name}` is a size of the functions that generate text, which --dim batch and --dim seq leave out"
        ));
    }
    Error::request(format!("the model has no size `{name}`"), help)
}

/// Returns the supported architecture that a configuration names.
fn find_architecture(path: &Path, config: &Value) -> Result<&'static Architecture> {
    let names: Vec<&str> = config
        .get("architectures")
        .and_then(Value::as_array)
        .map(|a| a.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    ARCHITECTURES.iter().find(|a| names.contains(&a.name)).ok_or_else(|| {
        let supported: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        let reason = match (names.as_slice(), config.get("architectures")) {
            ([], None) => "it names no architecture".to_string(),
            ([], Some(other)) => format!("`architectures` is {other}, which is not a list of names"),
            (names, _) => format!("`{}` is not supported", names.join("`, `")),
        };
        Error::Model {
            path: if path.is_file() { path.to_path_buf() } else { path.join("config.json") },
            place: "architectures".into(),
            reason,
            help: format!("supported architectures: {}; export other models to ONNX", supported.join(", ")),
        }
    })
}
