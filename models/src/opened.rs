//! A model folder or GGUF file that was opened, before its graph is built.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use driftc::error::{Error, Result};
use driftc::import::gguf::Gguf;
use driftc::import::safetensors::Weights;
use driftc::metadata::Metadata;
use serde_json::Value;

use crate::weights::Tensors;

/// Weights, configuration and attached files of an opened model.
pub(crate) struct OpenedModel {
    pub(crate) weights: Rc<dyn Tensors>,
    pub(crate) config: Value,
    pub(crate) checkpoint: Checkpoint,
    /// Names and contents of files that the compiler attaches to the bundle.
    pub(crate) attachments: Vec<(String, Vec<u8>)>,
    pub(crate) metadata: Metadata,
    /// Notes for the user, for example about a tokenizer that is not supported.
    pub(crate) notes: Vec<String>,
}

/// Weight files of an opened model.
pub(crate) enum Checkpoint {
    Safetensors(Weights),
    Gguf(Gguf),
    /// Checkpoints of the parts of a diffusers folder.
    Folders(Vec<Weights>),
    /// ONNX files, with the files of their external data.
    Files(Vec<PathBuf>),
}

impl Checkpoint {
    /// Hash of the weight files. Reads all of them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn hash(&self) -> Result<[u8; 32]> {
        Ok(match self {
            Self::Safetensors(weights) => weights.hash(),
            Self::Gguf(file) => file.hash(),
            Self::Folders(parts) => {
                let hashes: Vec<u8> = parts.iter().flat_map(Weights::hash).collect();
                *blake3::hash(&hashes).as_bytes()
            }
            Self::Files(paths) => {
                let mut hasher = blake3::Hasher::new();
                for path in paths {
                    let file = File::open(path).and_then(|file| hasher.update_reader(file).map(|_| ()));
                    file.map_err(|e| Error::Io { path: path.clone(), reason: e.to_string() })?;
                }
                *hasher.finalize().as_bytes()
            }
        })
    }
}
