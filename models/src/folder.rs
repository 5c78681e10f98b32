//! Reading a Hugging Face folder: configuration, checkpoint and tokenizer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use driftc::compile::Model;
use driftc::error::{Error, Result};
use driftc::import::gguf::Gguf;
use driftc::import::safetensors::{FETCH, POINTER, Weights, is_pointer};
use driftc::ir::dim::Dim;
use driftc::ir::graph::Graph;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use crate::ARCHITECTURES;
use crate::gguf;
use crate::quantised::Quantised;
use crate::weights::Tensors;

/// Bounds of symbolic sizes by name, inclusive; equal bounds make a size known.
pub type Dims = BTreeMap<String, (i64, i64)>;

/// Files that travel with a bundle when the folder has them.
const ATTACHED: &[&str] = &[
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
];

/// A folder being turned into a graph.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// The checkpoint.
    pub weights: Rc<dyn Tensors>,
    /// The graph being built.
    pub graph: Graph,
    /// Entry points that are compiled instead of it, by name.
    pub functions: Vec<(String, Graph)>,
    /// Names of those that targets do without where they save little time.
    pub spare: Vec<String>,
    /// Bounds that the user gave.
    pub dims: Dims,
    /// What was assumed, for the user to read.
    pub notes: Vec<String>,
    config: Value,
}

impl Folder {
    /// The configuration as an architecture's own struct, with defaults (an object) for fields that it leaves out.
    ///
    /// # Errors
    /// A missing or malformed field.
    pub fn config<T: DeserializeOwned>(&self, defaults: &Value) -> Result<T> {
        let fields = self.fields(defaults)?;
        typed(&fields).map_err(|reason| self.error("config.json", reason))
    }

    /// The fields of the configuration, and defaults for those that it leaves out. Where it has a text model's under
    /// `text_config`, it is those.
    ///
    /// # Errors
    /// When the configuration is no object.
    pub fn fields(&self, defaults: &Value) -> Result<Map<String, Value>> {
        let not_fields = || self.error("config.json", "it holds no fields");
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

    /// A file of the folder as JSON, when there is one.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>> {
        read_json(&self.path.join(name))
    }

    /// An error about a file of the folder.
    pub fn error(&self, file: &str, reason: impl Into<String>) -> Error {
        Error::Model {
            path: if self.path.is_file() { self.path.clone() } else { self.path.join(file) },
            place: "configuration".into(),
            reason: reason.into(),
            help: "check the folder against the model's page, or export it again".into(),
        }
    }

    /// The number of positions named `name`, of `longest` that the model knows; up to `usual` unless the user says more.
    ///
    /// # Errors
    /// Bounds that the model does not reach.
    pub fn positions(&mut self, name: &str, longest: i64, usual: i64) -> Result<Dim> {
        let positions = self.dim(name, (1, longest.min(usual)))?;
        let most = positions.range(&self.graph.bounds).1;
        if most > longest {
            return Err(Error::request(
                format!("`{name}` may reach {most}, past the {longest} positions of the model"),
                format!("give --dim {name}=N or {name}=1..N with N of at most {longest}"),
            ));
        }
        Ok(positions)
    }

    /// The size named `name`: what the user gave, else the default bounds, as a symbol unless they are equal.
    pub fn dim(&mut self, name: &str, default: (i64, i64)) -> Result<Dim> {
        let (low, high) = match self.dims.get(name) {
            Some(bounds) => *bounds,
            None => {
                if default.0 != default.1 {
                    self.notes.push(format!(
                        "`{name}` may be {}..={}; --dim {name}=LOW..HIGH changes that",
                        default.0, default.1
                    ));
                }
                default
            }
        };
        if low < 1 || high < low {
            return Err(Error::request(
                format!("`{name}` cannot lie within {low}..{high}"),
                "give bounds of at least 1, the lower first",
            ));
        }
        if low == high {
            return Ok(Dim::known(low));
        }
        self.graph.bounds.insert(name.to_string(), (low, high));
        Ok(Dim::symbol(name))
    }
}

/// Fields as a struct; the reason names the field that has another type.
pub(crate) fn typed<T: DeserializeOwned>(fields: &Map<String, Value>) -> std::result::Result<T, String> {
    let read = |fields: &Map<String, Value>| {
        serde_json::from_value(Value::Object(fields.clone())).map_err(|e: serde_json::Error| e.to_string())
    };
    read(fields).map_err(|reason| {
        // Without the field at fault the struct has another fault, or none.
        let differs = |(name, _): &(&String, &Value)| {
            let mut others = fields.clone();
            others.remove(*name);
            read(&others).map_or_else(|other| other != reason, |_: T| true)
        };
        let wanted = reason.split_once("expected ").map(|(_, wanted)| match wanted {
            "usize" | "u32" | "u64" => "a whole number of at least 0 is",
            "i64" => "a whole number is",
            "f32" | "f64" => "a number is",
            "a map" => "an object is",
            "a sequence" => "a list is",
            "a string" => "a text is",
            "a boolean" => "true or false is",
            _ => "something else is",
        });
        match (wanted, fields.iter().find(differs)) {
            (Some(wanted), Some((name, value))) => format!("`{name}` is {value}, where {wanted} needed"),
            _ => reason,
        }
    })
}

/// Whether a path is a folder, or a file of a kind that [`load`] reads.
pub fn is_model(path: &Path) -> bool {
    path.is_dir() || Gguf::is_one(path)
}

/// A folder or file before its graph is built.
pub(crate) struct Opened {
    pub(crate) weights: Rc<dyn Tensors>,
    pub(crate) config: Value,
    /// Of the weights.
    pub(crate) hash: [u8; 32],
    /// Files that travel with a bundle.
    pub(crate) attachments: Vec<(String, Vec<u8>)>,
    /// For the user to read.
    pub(crate) notes: Vec<String>,
}

fn open(path: &Path) -> Result<Opened> {
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
    let hash = weights.hash();
    // Older checkpoints say how they are quantised in a file of its own.
    let quantised = match config.get("quantization_config").filter(|q| !q.is_null()) {
        Some(quantised) => Some(quantised.clone()),
        None => read_json(&path.join("quantize_config.json"))?,
    };
    let weights: Rc<dyn Tensors> = match quantised {
        Some(quantised) => Rc::new(Quantised::open(path.to_path_buf(), weights, &quantised)?),
        None => Rc::new(weights),
    };
    let attachments = attachments(path)?;
    check_attachments(path, &attachments)?;
    Ok(Opened { weights, config, hash, attachments, notes: Vec::new() })
}

/// Files of a folder that travel with the bundle of its model.
///
/// # Errors
/// A file that cannot be read.
pub fn attachments(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut attachments = Vec::new();
    for name in ATTACHED {
        let file = folder.join(name);
        if file.is_file() {
            let bytes = std::fs::read(&file).map_err(|e| Error::Io { path: file, reason: e.to_string() })?;
            // A bundle has no files without content; a template without content is none.
            if !bytes.is_empty() || name.ends_with(".json") {
                attachments.push(((*name).to_string(), bytes));
            }
        }
    }
    Ok(attachments)
}

/// Checks that the files of a folder that travel with its bundle are whole.
///
/// # Errors
/// A file that should be JSON and is not.
pub fn check_attachments(folder: &Path, attachments: &[(String, Vec<u8>)]) -> Result<()> {
    attachments.iter().filter(|(name, _)| name.ends_with(".json")).try_for_each(|(name, bytes)| {
        let read = serde_json::from_slice::<IgnoredAny>(bytes);
        read.map(|_| ()).map_err(|e| malformed(&folder.join(name), bytes, &e))
    })
}

/// The error of a file that is not JSON.
fn malformed(path: &Path, bytes: &[u8], error: &serde_json::Error) -> Error {
    let (reason, help) = match is_pointer(bytes) {
        true => (POINTER.to_string(), FETCH),
        false => (format!("it is no JSON: {error}"), "download the file again, or mend it"),
    };
    Error::Model {
        path: path.to_path_buf(),
        place: format!("line {}", error.line()),
        reason,
        help: help.into(),
    }
}

/// The most tokens of a text, where a folder's `config.json` says it.
pub fn longest(attachments: &[(String, Vec<u8>)]) -> Option<i64> {
    let (_, bytes) = attachments.iter().find(|(name, _)| name == "config.json")?;
    let config: Value = serde_json::from_slice(bytes).ok()?;
    let of = |config: &Value| {
        let sizes = ["max_position_embeddings", "n_positions"].map(|name| config.get(name)?.as_i64());
        sizes.into_iter().flatten().find(|n| *n > 0)
    };
    of(&config).or_else(|| of(config.get("text_config")?))
}

/// Reads a Hugging Face folder or a GGUF file and builds its graph; also returns notes on what was assumed.
///
/// # Errors
/// A missing or malformed file, an architecture that is not supported, or a checkpoint that does not fit it.
pub fn load(path: &Path, dims: &Dims) -> Result<(Model, Vec<String>)> {
    let Opened { weights, config, hash, attachments, notes } = open(path)?;
    let config_path = if path.is_file() { path.to_path_buf() } else { path.join("config.json") };
    let named: Vec<&str> = config
        .get("architectures")
        .and_then(|a| a.as_array())
        .map(|a| a.iter().filter_map(|n| n.as_str()).collect())
        .unwrap_or_default();
    let architecture = ARCHITECTURES.iter().find(|a| named.contains(&a.name)).ok_or_else(|| {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        let reason = match (named.as_slice(), config.get("architectures")) {
            ([], None) => "it names no architecture".to_string(),
            ([], Some(other)) => format!("{other} is no list of an architecture's name"),
            (names, _) => format!("`{}` is not supported", names.join("`, `")),
        };
        Error::Model {
            path: config_path.clone(),
            place: "architectures".into(),
            reason,
            help: format!("supported: {}; other models can be exported to ONNX", known.join(", ")),
        }
    })?;
    let mut folder = Folder {
        path: path.to_path_buf(),
        weights,
        graph: Graph::default(),
        functions: Vec::new(),
        spare: Vec::new(),
        dims: dims.clone(),
        notes,
        config,
    };
    (architecture.build)(&mut folder)?;
    if let Some(unknown) = dims.keys().find(|d| !folder.graph.bounds.contains_key(*d) && !is_fixed(dims, d)) {
        return Err(Error::request(
            format!("the model has no size named `{unknown}`"),
            "leave out that --dim; the sizes of this model are `batch` and `seq`, or `context`, `chunk` and `long` of functions that generate text",
        ));
    }
    let name = path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
    let Folder { graph, functions, spare, notes, .. } = folder;
    Ok((Model { graph, functions, spare, name, hash, attachments, ..Model::default() }, notes))
}

fn is_fixed(dims: &Dims, name: &str) -> bool {
    dims.get(name).is_some_and(|(low, high)| low == high)
}

fn read_json(path: &Path) -> Result<Option<serde_json::Value>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::Io { path: path.to_path_buf(), reason: e.to_string() }),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| malformed(path, &bytes, &e))
}
