//! Model architectures, one file each: they turn a configuration and a checkpoint into a graph.
//!
//! `config.json + *.safetensors -> load -> driftc::compile::Model`; architectures of [`builtin`] need no files.

mod bert;
pub mod blocks;
pub mod builtin;
mod decoder;
pub mod folder;
mod gemma;
mod gemma2;
mod gemma3;
pub mod gguf;
mod gpt2;
mod llama;
mod mistral;
mod mixtral;
pub mod mobilenet;
mod phi3;
mod quantised;
mod qwen2;
mod qwen3;
mod qwen3_moe;
pub mod random;
pub mod stable_diffusion;
pub mod weights;

pub use folder::{Dims, is_model, load};

use driftc::error::Result;
use folder::Folder;

/// An architecture.
#[derive(Debug)]
pub struct Architecture {
    /// Name in `config.json`'s `architectures`.
    pub name: &'static str,
    /// Builds the graph of a folder.
    pub build: fn(&mut Folder) -> Result<()>,
}

/// Every architecture.
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
];
