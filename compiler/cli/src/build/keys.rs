//! Keys of actions: hashes of everything that a bundle depends on.
//!
//! `inputs = hash(model files, arguments, profiles)`, the same on every machine, and `key = hash(inputs, driftc)`, where
//! `driftc` is the hash of the program.

use std::path::{Path, PathBuf};

use driftc::import::onnx;
use driftc::target::TargetProfile;

use crate::build::actions::Action;
use crate::build::arguments::Value;
use crate::build::stamps::{Look, Looks, changed, check_same};
use crate::build::state::State;
use crate::failure::{Failure, Result};
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
    Ok(state.stamps.hash(&program)?.0)
}

/// Files that an action reads.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// Names of the external data of each .onnx file.
    external: Vec<Vec<String>>,
    /// Files of the model, by the names by which the importer finds them.
    model: Vec<(String, HashedFile)>,
    /// Files of arguments, in the order of the arguments.
    arguments: Vec<HashedFile>,
    /// Files of target profiles, which were read before. Keys have the hashes of the profiles instead.
    profiles: Vec<(PathBuf, Look)>,
}

/// File with its hash, and the look that it had when it was hashed.
#[derive(Debug, Clone)]
struct HashedFile {
    path: PathBuf,
    hash: String,
    look: Look,
}

impl Inputs {
    /// Lists and hashes the files of an action.
    ///
    /// # Errors
    /// If a file cannot be read, or changes while it is read.
    pub(crate) fn of(action: &Action, state: &State) -> Result<Self> {
        let hashed = |path: &Path| -> Result<HashedFile> {
            let (hash, look) = state.stamps.hash(path)?;
            Ok(HashedFile { path: path.to_owned(), hash, look })
        };
        let mut model = Vec::new();
        let mut external = Vec::new();
        for path in action.args.paths() {
            let mut first = None;
            let mut names = Vec::new();
            if !drift_models::is_model(path) {
                let file = hashed(path)?;
                names = state.external(&file.hash, || Ok(onnx::summary(path)?.external))?;
                first = Some(file);
            }
            for (name, path) in model_files(path, &names)? {
                let known = first.take_if(|first| first.path == path);
                model.push((name, known.map_or_else(|| hashed(&path), Ok)?));
            }
            external.push(names);
        }
        let mut arguments = Vec::new();
        for argument in &action.arguments {
            if let Value::File(_, path) = &argument.value {
                arguments.push(hashed(path)?);
            }
        }
        let mut profiles = Vec::new();
        for target in action.args.targets.iter().filter(|target| is_path(target)) {
            for path in TargetProfile::files(target)? {
                let look = Look::of(&path)?;
                profiles.push((path, look));
            }
        }
        Ok(Self { external, model, arguments, profiles })
    }

    /// Paths of all files: of the model, of arguments and of profiles.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let model = self.model.iter().map(|(_, file)| file);
        model.chain(&self.arguments).map(|file| &file.path).chain(self.profiles.iter().map(|(path, _)| path))
    }

    /// Looks of all files.
    pub(crate) fn looks(&self) -> Looks {
        let hashed = self.model.iter().map(|(_, file)| file).chain(&self.arguments);
        let hashed = hashed.map(|file| (file.path.clone(), file.look.clone()));
        hashed.chain(self.profiles.iter().cloned()).collect()
    }

    /// Checks that no file has changed since, and that the model has the same files.
    ///
    /// # Errors
    /// If a file is missing or has changed, or another file belongs to the model now.
    pub(crate) fn check_unchanged(&self, action: &Action) -> Result<()> {
        let mut files = Vec::new();
        for (path, external) in action.args.paths().zip(&self.external) {
            files.extend(model_files(path, external)?);
        }
        if !files.iter().map(|(_, path)| path).eq(self.model.iter().map(|(_, file)| &file.path)) {
            return Err(changed(&action.args.model.path));
        }
        let now = self.paths().map(|path| Ok((path.clone(), Look::of(path)?)));
        check_same(&self.looks(), &now.collect::<Result<_>>()?)
    }
}

/// Returns the keys of an action with these inputs. `compiler` is the hash of this program.
///
/// # Errors
/// If a profile cannot be hashed.
pub(crate) fn keys(action: &Action, inputs: &Inputs, compiler: &str) -> Result<Keys> {
    let mut parts = Parts::new();
    for (name, file) in &inputs.model {
        parts.add(name);
        parts.add(&file.hash);
    }
    parts.add("arguments");
    let mut files = inputs.arguments.iter();
    for argument in &action.arguments {
        parts.add(argument.option);
        match &argument.value {
            Value::None => parts.add("none"),
            Value::Text(text) => parts.add(format!("text {text}")),
            Value::File(prefix, _) => {
                parts.add(format!("file {prefix}{}", files.next().map_or("", |file| &file.hash)));
            }
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

/// Returns the files that the importer may read, with the names by which it finds them: a .gguf file; all files of a Hugging
/// Face folder, sorted; the files of a diffusers folder and of the folders of its parts; an .onnx file with its external data,
/// and the files beside it that change its bundle.
fn model_files(path: &Path, external: &[String]) -> Result<Vec<(String, PathBuf)>> {
    if path.is_dir() {
        let parts = drift_models::diffusion_folders(path);
        let mut files = Vec::new();
        for part in if parts.is_empty() { vec![""] } else { parts } {
            let found = files_of_folder(&path.join(part))?.into_iter();
            files.extend(found.map(|(name, path)| (Path::new(part).join(name).display().to_string(), path)));
        }
        return Ok(files);
    }
    let mut files = vec![(name_of(path), path.to_owned())];
    if !drift_models::is_model(path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let side = drift_models::side_files().filter(|name| folder.join(name).is_file());
        let names = external.iter().cloned().chain(side.map(str::to_owned));
        files.extend(names.map(|name| (name.clone(), folder.join(name))));
    }
    Ok(files)
}

/// Returns the files of a folder, without hidden files and without the files of inner folders.
fn files_of_folder(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |error: std::io::Error| Failure::file(folder, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = name_of(&path);
        if path.is_file() && !name.starts_with('.') {
            files.push((name, path));
        }
    }
    files.sort();
    Ok(files)
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
