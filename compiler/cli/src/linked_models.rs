//! Several ONNX models in one bundle: each is a function, and links keep values on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use driftc::compile::{EntryPoint, Model};
use driftc::link::{LinkPattern, link};

use crate::failure::{Failure, Result};
use crate::model::{Loaded, declarations};
use crate::model_args::ModelOptions;

/// Loads ONNX models as functions of one model, and links their outputs and inputs.
///
/// # Errors
/// If a file is no ONNX model, an option names nothing in any model, or a link is not possible.
pub(crate) fn load_linked(
    options: &ModelOptions,
    paths: &[&PathBuf],
    links: &[LinkPattern],
) -> Result<Loaded> {
    let parts = split_options(options, paths)?;
    let mut all = Loaded::default();
    let mut hashes = Vec::new();
    let mut names = Vec::new();
    for (path, options) in paths.iter().zip(&parts) {
        let name = function_name(path);
        if names.contains(&name) {
            return Err(Failure::usage(format!("two models have the name `{name}`"))
                .help("functions have the names of the files; rename a file"));
        }
        let loaded = options.load_unsplit(path)?;
        all.notes.extend(loaded.notes.into_iter().map(|note| format!("{name}: {note}")));
        all.constants.extend(loaded.constants);
        all.assumed.extend(loaded.assumed);
        all.external.extend(loaded.external);
        all.external.extend((!names.is_empty()).then(|| (*path).clone()));
        all.add_flags(loaded.flags);
        hashes.extend(loaded.model.hash);
        let metadata = loaded.model.metadata.into_iter();
        all.model.metadata.extend(metadata.map(|(key, value)| (format!("{name}.{key}"), value)));
        all.model.entry_points.push(EntryPoint::new(name.clone(), loaded.model.graph));
        names.push(name);
    }
    let mut resolved = Vec::new();
    for pattern in links {
        resolved.extend(pattern.resolve(&all.model.entry_points)?);
        all.add_flags(vec![format!("--link {pattern}")]);
    }
    link(&mut all.model.entry_points, &resolved)?;
    let attachments = paths.first().map(|path| drift_models::folder::attachments(folder(path)));
    all.model = Model {
        name: names.join("+"),
        hash: *blake3::hash(&hashes).as_bytes(),
        attachments: attachments.transpose()?.unwrap_or_default(),
        ..all.model
    };
    Ok(all)
}

/// Name of a file without its extension.
fn function_name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the options of each model: sizes, constants and samples that name something in it.
fn split_options(options: &ModelOptions, paths: &[&PathBuf]) -> Result<Vec<ModelOptions>> {
    let mut unused: BTreeMap<String, String> = BTreeMap::new();
    let dims = options.dims.iter().map(|dim| (format!("size {}", dim.name), format!("--dim {}", dim.name)));
    let consts = options.consts.iter().map(|c| (format!("input {}", c.name), format!("--const {}", c.name)));
    let shapes =
        options.shapes.iter().map(|s| (format!("input {}", s.input), format!("--shape {}", s.input)));
    unused.extend(dims.chain(consts).chain(shapes));
    let mut parts = Vec::new();
    for path in paths {
        if path.is_dir() || drift_models::is_model(path) {
            return Err(Failure::usage(format!(
                "{} is no ONNX file, so it cannot be a function beside other models",
                path.display()
            ))
            .help("compile the folder or the GGUF file alone"));
        }
        let (inputs, sizes) = names(path)?;
        let mut part = options.clone();
        part.dims.retain(|dim| sizes.contains(&dim.name));
        part.consts.retain(|given| inputs.contains(&given.name));
        part.shapes.retain(|given| inputs.contains(&given.input));
        unused.retain(|key, _| match key.split_once(' ') {
            Some(("size", name)) => !sizes.contains(name),
            Some((_, name)) => !inputs.contains(name),
            None => true,
        });
        parts.push(part);
    }
    if let Some(option) = unused.values().next() {
        return Err(Failure::usage(format!("{option} names nothing in any of the models"))
            .help("list inputs and sizes with `driftc inspect`"));
    }
    if !options.likes.is_empty() {
        return Err(
            Failure::usage("--like is not possible with several models").help("give sizes with --dim NAME=N")
        );
    }
    Ok(parts)
}

/// Names of the inputs of a model, and of their symbolic sizes.
fn names(path: &Path) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let (mut inputs, mut sizes) = (BTreeSet::new(), BTreeSet::new());
    for input in declarations(path)? {
        inputs.insert(input.name);
        input.shape.iter().flatten().for_each(|size| size.symbols(&mut sizes));
    }
    Ok((inputs, sizes))
}
