//! Keys of actions: hashes of everything that a bundle depends on.
//!
//! `inputs = hash(model files, arguments, profiles)`, the same on every machine, and `key = hash(inputs, driftc)`, where
//! `driftc` is the hash of the program.

use std::path::{Path, PathBuf};

use driftc::import::onnx;
use driftc::target::TargetProfile;

use crate::build::actions::Action;
use crate::build::arguments::Value;
use crate::build::state::State;
use crate::failure::{Failure, Result};
use crate::model_args::ModelArgs;
use crate::target_args::is_path;

/// First part of every hash. It changes with the meaning of the following parts.
const VERSION: &str = "driftc build 1";

/// Hashes of an action, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Hash of what the user gives: model, arguments, profiles.
    pub(crate) inputs: String,
    /// Hash of the inputs and the compiler. Equal keys mean equal bundles.
    pub(crate) key: String,
}

/// Hash of parts, in which no part can be taken for another.
struct Parts(blake3::Hasher);

impl Parts {
    fn new() -> Self {
        let mut parts = Self(blake3::Hasher::new());
        parts.add(VERSION);
        parts
    }

    fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

/// Returns the hash of this program.
///
/// # Errors
/// If the program's file cannot be read.
pub(crate) fn compiler_hash(state: &State) -> Result<String> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::input(format!("the path of driftc is unknown: {error}")))?;
    state.stamps.hash(&program)
}

/// Returns the keys of an action. `compiler` is the hash of this program.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn keys(action: &Action, compiler: &str, state: &State) -> Result<Keys> {
    let mut parts = Parts::new();
    for file in model_files(&action.args.model, state)? {
        parts.add(file.name);
        parts.add(state.stamps.hash(&file.path)?);
    }
    parts.add("arguments");
    for argument in &action.arguments {
        parts.add(argument.option);
        match &argument.value {
            Value::None => parts.add("none"),
            Value::Text(text) => parts.add(format!("text {text}")),
            Value::File(prefix, path) => parts.add(format!("file {prefix}{}", state.stamps.hash(path)?)),
        }
    }
    parts.add("targets");
    for target in &action.targets {
        parts.add(&target.name);
        parts.add(target.hash()?);
    }
    let inputs = parts.hex();
    let mut parts = Parts::new();
    parts.add(&inputs);
    parts.add(compiler);
    Ok(Keys { key: parts.hex(), inputs })
}

/// Returns the files that an action reads: its model's files, files of arguments, and files of target profiles.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn input_files(action: &Action, state: &State) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        model_files(&action.args.model, state)?.into_iter().map(|file| file.path).collect();
    for argument in &action.arguments {
        if let Value::File(_, path) = &argument.value {
            files.push(path.clone());
        }
    }
    for target in action.args.targets.iter().filter(|target| is_path(target)) {
        files.extend(TargetProfile::files(target)?);
    }
    Ok(files)
}

/// File of a model, with the name by which the importer finds it.
struct ModelFile {
    name: String,
    path: PathBuf,
}

/// Returns the files that the importer may read, sorted by name: a .gguf file; all files of a Hugging Face folder; an .onnx
/// file with its external data, and the files beside it that change its bundle.
fn model_files(model: &ModelArgs, state: &State) -> Result<Vec<ModelFile>> {
    let path = &model.path;
    if path.is_dir() {
        return files_of_folder(path);
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut files = vec![ModelFile { name, path: path.clone() }];
    if !drift_models::is_model(path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let hash = state.stamps.hash(path)?;
        let external = state.external(&hash, || Ok(onnx::summary(path)?.external))?;
        let side = drift_models::side_files().filter(|name| folder.join(name).is_file());
        let names = external.into_iter().chain(side.map(str::to_owned));
        files.extend(names.map(|name| ModelFile { path: folder.join(&name), name }));
    }
    Ok(files)
}

/// Returns the files of a folder, without hidden files and without the files of inner folders.
fn files_of_folder(folder: &Path) -> Result<Vec<ModelFile>> {
    let failed = |error: std::io::Error| Failure::file(folder, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if path.is_file() && !name.starts_with('.') {
            files.push(ModelFile { name, path });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}
