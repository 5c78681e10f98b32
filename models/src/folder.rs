//! Model folders in Hugging Face's form: reading the configuration, the checkpoint and the tokenizer files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use driftc::assumed_bounds::AssumedBounds;
use driftc::compile::EntryPoint;
use driftc::error::{Error, Result, Within};
use driftc::import::gguf::Gguf;
use driftc::import::safetensors::{LFS_POINTER_HELP, LFS_POINTER_REASON, Weights, is_lfs_pointer};
use driftc::ir::dim::Dim;
use driftc::ir::graph::Graph;
use driftc::metadata::Metadata;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use crate::gguf;
use crate::labels::add_labels;
use crate::opened::{Checkpoint, OpenedModel};
use crate::quantized::QuantizedWeights;
use crate::weights::Tensors;

/// Inclusive bounds (lowest, highest) of symbolic sizes by name, as `--dim` gives them. Equal bounds fix a size.
pub type Dims = BTreeMap<String, (i64, i64)>;

/// Files of a Hugging Face folder that the compiler attaches to the bundle, if they exist.
pub(crate) const ATTACHED: &[&str] = &[
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
];

/// Model folder (or GGUF file) while its graph is built.
pub struct Folder {
    /// Path of the folder, or of a GGUF file.
    pub path: PathBuf,
    /// The checkpoint.
    pub weights: Rc<dyn Tensors>,
    /// The graph being built.
    pub graph: Graph,
    /// Functions of a language model. If there are any, they are compiled instead of `graph`.
    pub entry_points: Vec<EntryPoint>,
    /// Bounds of symbolic sizes that the user gave with `--dim`.
    pub dims: Dims,
    /// Notes for the user about assumptions, except about assumed bounds.
    pub notes: Vec<String>,
    /// Assumed bounds of symbolic sizes.
    pub assumed: Vec<AssumedBounds>,
    /// Names of the sizes that the architecture has.
    pub sizes: BTreeSet<String>,
    config: Value,
}

impl Folder {
    /// Creates the `Folder` of an opened model, with an empty graph.
    pub(crate) fn new(
        path: &Path,
        weights: Rc<dyn Tensors>,
        config: Value,
        dims: &Dims,
        notes: Vec<String>,
    ) -> Self {
        Self {
            path: path.to_path_buf(),
            weights,
            graph: Graph::default(),
            entry_points: Vec::new(),
            dims: dims.clone(),
            notes,
            assumed: Vec::new(),
            sizes: BTreeSet::new(),
            config,
        }
    }

    /// Reads `config.json` as the architecture's struct. `defaults` is an object with values for missing fields.
    ///
    /// # Errors
    /// If a field is missing or malformed.
    pub fn config<T: DeserializeOwned>(&self, defaults: &Value) -> Result<T> {
        let fields = self.fields(defaults)?;
        typed(&fields).map_err(|reason| self.error("config.json", reason))
    }

    /// Returns the fields of `config.json`, with defaults for missing fields. In multimodal configurations, these are the text
    /// model's fields under `text_config`.
    ///
    /// # Errors
    /// If `config.json` or its `text_config` is not a JSON object.
    pub fn fields(&self, defaults: &Value) -> Result<Map<String, Value>> {
        let not_fields = || self.error("config.json", "the configuration is not a JSON object");
        let outer = self.config.as_object().ok_or_else(not_fields)?;
        let mut fields = defaults.as_object().cloned().unwrap_or_default();
        match outer.get("text_config") {
            None | Some(Value::Null) => fields.extend(outer.clone()),
            Some(inner) => {
                let tied = outer.get("tie_word_embeddings").cloned();
                fields.extend(tied.map(|tied| ("tie_word_embeddings".to_string(), tied)));
                fields.extend(inner.as_object().ok_or_else(not_fields)?.clone());
            }
        }
        Ok(fields)
    }

    /// Reads a file of the folder as JSON. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or is not JSON.
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>> {
        read_json(&self.path.join(name))
    }

    /// Creates an error about a file of the folder.
    pub fn error(&self, file: &str, reason: impl Into<String>) -> Error {
        Error::Model {
            path: if self.path.is_file() { self.path.clone() } else { self.path.join(file) },
            place: "configuration".into(),
            reason: reason.into(),
            help: "compare the folder with the model's page, or download or export it again".into(),
        }
    }

    /// Returns the size `name` that counts positions (tokens), with the user's bounds or else `1..=default_max`. The model
    /// supports at most `max_positions`.
    ///
    /// # Errors
    /// If the upper bound exceeds `max_positions`.
    pub fn positions(&mut self, name: &str, max_positions: i64, default_max: i64) -> Result<Dim> {
        let positions = self.dim(name, (1, max_positions.min(default_max)))?;
        let high = positions.range(&self.graph.bounds).1;
        if high > max_positions {
            return Err(Error::request(
                format!(
                    "the size `{name}` may reach {high}, but the model supports {max_positions} positions"
                ),
                format!("give --dim {name}=N or {name}=1..N with N of at most {max_positions}"),
            ));
        }
        Ok(positions)
    }

    /// Returns the size `name` with the user's bounds, or else the default bounds. The size is a symbol unless its bounds are
    /// equal.
    ///
    /// # Errors
    /// If the lower bound is below 1 or above the upper bound.
    pub fn dim(&mut self, name: &str, default: (i64, i64)) -> Result<Dim> {
        self.sizes.insert(name.to_string());
        let (low, high) = match self.dims.get(name) {
            Some(bounds) => *bounds,
            None => {
                if default.0 != default.1 {
                    let within = Within { symbol: name.to_string(), low: default.0, high: default.1 };
                    self.assumed.push(AssumedBounds { within, role: None });
                }
                default
            }
        };
        if low < 1 || high < low {
            return Err(Error::request(
                format!("the bounds {low}..{high} of `{name}` are not valid"),
                "give bounds of at least 1, the lower one first",
            ));
        }
        if low == high {
            return Ok(Dim::known(low));
        }
        self.graph.bounds.insert(name.to_string(), (low, high));
        Ok(Dim::symbol(name))
    }
}

/// Deserializes the fields of a JSON object into a struct. The error message names the field that has a wrong type.
pub(crate) fn typed<T: DeserializeOwned>(fields: &Map<String, Value>) -> std::result::Result<T, String> {
    let read = |fields: &Map<String, Value>| {
        serde_json::from_value(Value::Object(fields.clone())).map_err(|e: serde_json::Error| e.to_string())
    };
    read(fields).map_err(|reason| {
        // Removing the field at fault changes or removes the error.
        let differs = |(name, _): &(&String, &Value)| {
            let mut others = fields.clone();
            others.remove(*name);
            read(&others).map_or_else(|other| other != reason, |_: T| true)
        };
        let wanted = reason.split_once("expected ").map(|(_, wanted)| match wanted {
            "usize" | "u32" | "u64" => "an integer of at least 0",
            "i64" => "an integer",
            "f32" | "f64" => "a number",
            "a map" => "an object",
            "a sequence" => "a list",
            "a string" => "a string",
            "a boolean" => "true or false",
            _ => "another type",
        });
        match (wanted, fields.iter().find(differs)) {
            (Some(wanted), Some((name, value))) => format!("`{name}` is {value}, but must be {wanted}"),
            _ => reason,
        }
    })
}

/// Returns true if a path is a folder or a GGUF file, which [`crate::load`] reads.
pub fn is_model(path: &Path) -> bool {
    path.is_dir() || Gguf::is_gguf(path)
}

/// Opens a Hugging Face folder or a GGUF file: reads the configuration and maps the weights.
///
/// # Errors
/// If a file is missing or malformed.
pub(crate) fn open(path: &Path) -> Result<OpenedModel> {
    if path.is_file() {
        return gguf::open(path);
    }
    let config = read_json(&path.join("config.json"))?.ok_or_else(|| Error::Model {
        path: path.to_path_buf(),
        place: "folder".into(),
        reason: "there is no config.json".into(),
        help: "give an .onnx or .gguf file, or a Hugging Face folder with config.json and model.safetensors"
            .into(),
    })?;
    let weights = Weights::open(path)?;
    let checkpoint = Checkpoint::Safetensors(weights.clone());
    // Older checkpoints have their quantization settings in a separate file.
    let quantized = match config.get("quantization_config").filter(|q| !q.is_null()) {
        Some(quantized) => Some(quantized.clone()),
        None => read_json(&path.join("quantize_config.json"))?,
    };
    let weights: Rc<dyn Tensors> = match quantized {
        Some(quantized) => Rc::new(QuantizedWeights::open(path.to_path_buf(), weights, &quantized)?),
        None => Rc::new(weights),
    };
    let attachments = attachments(path)?;
    check_attachments(path, &attachments)?;
    let mut metadata = Metadata::default();
    add_labels(path, &mut metadata);
    Ok(OpenedModel { weights, config, checkpoint, attachments, metadata, notes: Vec::new() })
}

/// Reads the files of a Hugging Face folder that the compiler attaches to the bundle. Returns names and contents.
///
/// # Errors
/// If a file cannot be read.
pub fn attachments(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut attachments = Vec::new();
    for name in ATTACHED {
        let file = folder.join(name);
        if file.is_file() {
            let bytes = std::fs::read(&file).map_err(|e| Error::Io { path: file, reason: e.to_string() })?;
            // A bundle has no empty files. An empty template counts as no template.
            if !bytes.is_empty() || name.ends_with(".json") {
                attachments.push(((*name).to_string(), bytes));
            }
        }
    }
    Ok(attachments)
}

/// Checks that the attached JSON files of a folder are valid JSON.
///
/// # Errors
/// If a file is not JSON.
pub fn check_attachments(folder: &Path, attachments: &[(String, Vec<u8>)]) -> Result<()> {
    attachments.iter().filter(|(name, _)| name.ends_with(".json")).try_for_each(|(name, bytes)| {
        let read = serde_json::from_slice::<IgnoredAny>(bytes);
        read.map(|_| ()).map_err(|e| malformed(&folder.join(name), bytes, &e))
    })
}

/// Creates the error for a file that is not JSON.
fn malformed(path: &Path, bytes: &[u8], error: &serde_json::Error) -> Error {
    let (reason, help) = match is_lfs_pointer(bytes) {
        true => (LFS_POINTER_REASON.to_string(), LFS_POINTER_HELP),
        false => (format!("the file is not JSON: {error}"), "download the file again, or fix it"),
    };
    Error::Model {
        path: path.to_path_buf(),
        place: format!("line {}", error.line()),
        reason,
        help: help.into(),
    }
}

/// Returns the maximum number of tokens of a text: the field `max_position_embeddings`, `n_positions` or
/// `max_target_positions` of an attached `config.json`, if there is such a field.
pub fn max_positions(attachments: &[(String, Vec<u8>)]) -> Option<i64> {
    let (_, bytes) = attachments.iter().find(|(name, _)| name == "config.json")?;
    let config: Value = serde_json::from_slice(bytes).ok()?;
    let from_fields = |config: &Value| {
        let names = ["max_position_embeddings", "n_positions", "max_target_positions"];
        let sizes = names.map(|name| config.get(name)?.as_i64());
        sizes.into_iter().flatten().find(|n| *n > 0)
    };
    from_fields(&config).or_else(|| from_fields(config.get("text_config")?))
}

pub(crate) fn read_json(path: &Path) -> Result<Option<serde_json::Value>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::Io { path: path.to_path_buf(), reason: e.to_string() }),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| malformed(path, &bytes, &e))
}
