//! `drift.toml`: the models, artifacts and targets of a build.
//!
//! The keys of a model and an artifact are the options of `driftc compile`; a test compares the two lists. Paths are
//! relative to the file that names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::build::budget::Budget;
use crate::build::sizes::{Size, Values};
use crate::failure::{Failure, Result};

/// Default name of the file.
pub(crate) const MANIFEST: &str = "drift.toml";
/// Default folder of the bundles.
const OUTPUT_FOLDER: &str = "bundles";

/// A manifest with everything that it includes.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// Path of the manifest.
    pub(crate) path: PathBuf,
    /// The manifest and the files that it includes.
    pub(crate) files: Vec<PathBuf>,
    /// Folder of the bundles.
    pub(crate) output: PathBuf,
    /// Groups of targets by name.
    pub(crate) targets: BTreeMap<String, Targets>,
    pub(crate) models: Vec<Model>,
}

/// Targets, and the folder to which paths of profiles are relative.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    pub(crate) names: Vec<String>,
    pub(crate) folder: PathBuf,
}

/// A `[[model]]` table, and the file that has it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) table: ModelTable,
    pub(crate) file: PathBuf,
}

/// One file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    /// Further files, whose models and groups of targets are added.
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    output: Option<Output>,
    /// Groups of targets.
    #[serde(default)]
    targets: BTreeMap<String, Vec<String>>,
    #[serde(default, rename = "model")]
    models: Vec<ModelTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Output {
    folder: PathBuf,
}

/// Model with its artifacts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ModelTable {
    /// Name in file names. The default is the model's file name without its extension; for several files, their names
    /// with `+` between them.
    pub(crate) name: Option<String>,
    /// An .onnx file, a .gguf file or a Hugging Face folder. With `*` or `?`, every match is a model. A list of .onnx
    /// files is one model, with a function for each file.
    pub(crate) path: OneOrMore,
    /// Outputs that stay on the device, as inputs of a function: `FUNCTION.OUTPUT=FUNCTION.INPUT`.
    #[serde(default)]
    pub(crate) links: Vec<String>,
    /// Sizes of symbolic dimensions: `batch = 1`, `width = "320..1280"`.
    #[serde(default)]
    pub(crate) dims: BTreeMap<String, Size>,
    /// Values of inputs that become constants: numbers, or the path of a .npy file.
    #[serde(default)]
    pub(crate) consts: BTreeMap<String, Values>,
    /// Sample inputs: paths of .npy files.
    #[serde(default)]
    pub(crate) likes: BTreeMap<String, OneOrMore>,
    /// Declared sizes of inputs: `image = [1, 3, "H", "W"]`.
    #[serde(default)]
    pub(crate) shapes: BTreeMap<String, Vec<Size>>,
    #[serde(default, rename = "artifact")]
    pub(crate) artifacts: Vec<Artifact>,
}

/// Bundle or bundles that are made of a model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Artifact {
    /// Name in file names.
    pub(crate) name: String,
    /// Names of groups, profiles or devices, or paths of profiles.
    pub(crate) targets: OneOrMore,
    /// True to write one bundle for each target instead of one bundle for all.
    #[serde(default)]
    pub(crate) split: bool,
    #[serde(default)]
    pub(crate) budget: Budget,
    // These replace the model's inputs of the same names.
    #[serde(default)]
    pub(crate) dims: BTreeMap<String, Size>,
    #[serde(default)]
    pub(crate) consts: BTreeMap<String, Values>,
    #[serde(default)]
    pub(crate) likes: BTreeMap<String, OneOrMore>,
    #[serde(default)]
    pub(crate) shapes: BTreeMap<String, Vec<Size>>,
    pub(crate) precision: Option<String>,
    pub(crate) weights: Option<String>,
    pub(crate) calibrate: Option<PathBuf>,
    pub(crate) activations: Option<String>,
    pub(crate) kv_cache: Option<String>,
    #[serde(default)]
    pub(crate) batch_invariant: bool,
    pub(crate) tuning: Option<PathBuf>,
    #[serde(default)]
    pub(crate) specialize: Option<OneOrMore>,
    pub(crate) self_test: Option<u16>,
    #[serde(default)]
    pub(crate) optimize: bool,
}

/// One string or a list of strings.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(several) => several,
        }
    }
}

impl Manifest {
    /// Reads a manifest and the files that it includes.
    ///
    /// # Errors
    /// If a file is missing or malformed, includes itself, or defines a group of targets again.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let mut manifest = Self {
            path: path.to_owned(),
            files: Vec::new(),
            output: folder_of(path).join(OUTPUT_FOLDER),
            targets: BTreeMap::new(),
            models: Vec::new(),
        };
        let first = read(path)?;
        if let Some(output) = &first.output {
            manifest.output = folder_of(path).join(&output.folder);
        }
        manifest.add(first, path, &mut vec![identity(path)?])?;
        if manifest.models.is_empty() {
            return Err(Failure::input(format!("{} has no models", path.display()))
                .help("add a [[model]] table; `driftc build --init MODEL` writes an example"));
        }
        Ok(manifest)
    }

    /// Adds the contents of a file, and of the files that it includes. `open` has the files that are being read.
    fn add(&mut self, file: File, path: &Path, open: &mut Vec<PathBuf>) -> Result<()> {
        let folder = folder_of(path);
        self.files.push(path.to_owned());
        for include in &file.include {
            for included in matches(&folder, include, path)? {
                let id = identity(&included)?;
                if open.contains(&id) {
                    let reason = format!("{} includes itself through {}", included.display(), path.display());
                    return Err(Failure::input(reason).help("remove one of the two `include` entries"));
                }
                let inner = read(&included)?;
                if inner.output.is_some() {
                    return Err(Failure::input(format!(
                        "{}: an included file has [output]",
                        included.display()
                    ))
                    .help(format!("set the folder in {}", self.path.display())));
                }
                open.push(id);
                self.add(inner, &included, open)?;
                open.pop();
            }
        }
        for (name, names) in file.targets {
            let targets = Targets { names, folder: folder.clone() };
            if self.targets.insert(name.clone(), targets).is_some() {
                let reason = format!("{}: the group of targets `{name}` is defined again", path.display());
                return Err(Failure::input(reason).help("rename one of the two groups"));
            }
        }
        self.models.extend(file.models.into_iter().map(|table| Model { table, file: path.to_owned() }));
        Ok(())
    }
}

fn read(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let failure = Failure::file(path, &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => failure.help("`driftc build --init MODEL` writes a manifest"),
            _ => failure,
        }
    })?;
    toml::from_str(&text).map_err(|error| {
        Failure::input(format!("{} is not a manifest", path.display()))
            .because(error.to_string().trim_end().to_owned())
            .help("docs/PIPELINES.md describes the keys")
    })
}

/// Returns the folder of a file.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// Path that is the same for every name of a file.
fn identity(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Failure::file(path, &error))
}

/// Returns the files and folders that a path means, sorted: the path itself, or all matches of its `*` and `?`. `place`
/// is the file that has the path.
///
/// # Errors
/// If the pattern is malformed or nothing matches it.
pub(crate) fn matches(folder: &Path, path: &str, place: &Path) -> Result<Vec<PathBuf>> {
    if !path.contains(['*', '?', '[']) || folder.join(path).exists() {
        return Ok(vec![folder.join(path)]);
    }
    let wrong = |reason: String| Failure::input(format!("{}: path `{path}`: {reason}", place.display()));
    // A folder name may have characters of patterns.
    let pattern = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(path);
    let found = glob::glob(&pattern.to_string_lossy()).map_err(|error| wrong(error.to_string()))?;
    let mut paths = Vec::new();
    for path in found {
        paths.push(path.map_err(|error| wrong(error.to_string()))?);
    }
    if paths.is_empty() {
        return Err(wrong("no file matches".to_owned())
            .help("check the pattern; paths are relative to the file that names them"));
    }
    paths.sort();
    Ok(paths)
}
