//! Samples of a model's inputs, from a folder of files.
//!
//! A sample is an `.npy` file for a model with one input, a subfolder with an `.npy` file for each input, or a subfolder
//! `test_data_set_N` with serialized tensors `input_K.pb`, as the ONNX project stores them.

use std::path::{Path, PathBuf};

use driftc::import::onnx::quantize_static::Sample;
use driftc::import::onnx::{Declaration, tensor};
use driftc::ir::array::Array;

use crate::arrays::to_host;
use crate::failure::{Failure, Result};
use crate::npy;
use crate::output::file_name;

/// Forms of samples, for error messages.
const FORMS: &str = "put one .npy file for each sample into the folder, or one subfolder for each sample with an .npy file \
                     for each input of the model, or subfolders test_data_set_N with input_K.pb";

/// Files of one sample.
#[derive(Debug, Clone)]
pub(crate) struct SampleFiles {
    /// File or folder that error messages name.
    pub(crate) path: PathBuf,
    /// File of each input, by the position of the input.
    files: Vec<(usize, PathBuf)>,
}

/// Lists the samples of a folder, sorted by name.
///
/// # Errors
/// If the folder cannot be read, has no sample, or a sample lacks a file of an input.
pub(crate) fn list_samples(folder: &Path, inputs: &[Declaration]) -> Result<Vec<SampleFiles>> {
    let entries = sorted_entries(folder)?;
    let mut samples = Vec::new();
    if has_serialized_input(folder) {
        samples.push(serialized_sample(folder, inputs)?);
    }
    for path in entries {
        if path.is_dir() {
            if has_serialized_input(&path) {
                samples.push(serialized_sample(&path, inputs)?);
            } else if sorted_entries(&path)?.iter().any(|file| is_npy(file)) {
                samples.push(named_sample(&path, inputs)?);
            }
        } else if is_npy(&path) {
            if inputs.len() != 1 {
                let reason =
                    format!("{} is one array, but the model has {} inputs", path.display(), inputs.len());
                return Err(Failure::input(reason).help(named_files(inputs)));
            }
            samples.push(SampleFiles { path: path.clone(), files: vec![(0, path)] });
        }
    }
    if samples.is_empty() {
        return Err(Failure::input(format!("{} has no calibration samples", folder.display())).help(FORMS));
    }
    Ok(samples)
}

fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failure = |e: std::io::Error| Failure::file(folder, &e).help(FORMS);
    let entries = std::fs::read_dir(folder).map_err(failure)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(failure)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

fn has_serialized_input(folder: &Path) -> bool {
    folder.join("input_0.pb").is_file()
}

/// Returns the files `input_K.pb` of a sample, one for each input of the model.
fn serialized_sample(folder: &Path, inputs: &[Declaration]) -> Result<SampleFiles> {
    let file = |i: usize| (i, folder.join(format!("input_{i}.pb")));
    let files: Vec<(usize, PathBuf)> = (0..inputs.len()).map(file).collect();
    match files.iter().find(|(_, path)| !path.is_file()) {
        None => Ok(SampleFiles { path: folder.to_owned(), files }),
        Some((i, path)) => {
            let name = inputs.get(*i).map_or("", |input| input.name.as_str());
            Err(Failure::input(format!("{}: the file does not exist", path.display()))
                .help(format!("write the tensor of input `{name}` to it")))
        }
    }
}

/// Returns the files `INPUT_NAME.npy` of a sample.
fn named_sample(folder: &Path, inputs: &[Declaration]) -> Result<SampleFiles> {
    let mut files = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        // A name with a slash would name a file of another folder.
        let path = folder.join(format!("{}.npy", file_name(&input.name)));
        if !path.is_file() {
            return Err(Failure::input(format!("{}: the file does not exist", path.display()))
                .help(named_files(inputs)));
        }
        files.push((i, path));
    }
    Ok(SampleFiles { path: folder.to_owned(), files })
}

/// Lists the files that a subfolder of a sample needs.
fn named_files(inputs: &[Declaration]) -> String {
    let names: Vec<String> = inputs.iter().map(|input| format!("{}.npy", file_name(&input.name))).collect();
    format!("make a subfolder for each sample with the files {}", names.join(", "))
}

/// Reads the arrays of a sample.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn read_sample(sample: &SampleFiles, inputs: &[Declaration]) -> Result<Sample> {
    let mut arrays = Sample::new();
    for (i, path) in &sample.files {
        let Some(input) = inputs.get(*i) else { continue };
        let array = match is_npy(path) {
            true => to_host(&npy::read(path)?)?,
            false => read_tensor(path)?,
        };
        arrays.insert(input.name.clone(), with_batch_axis(array, input));
    }
    Ok(arrays)
}

fn read_tensor(path: &Path) -> Result<Array> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, &e))?;
    tensor(bytes.into()).map_err(|e| {
        Failure::input(format!("{} is not a usable tensor: {e}", path.display()))
            .help("write a serialized TensorProto, as onnx.numpy_helper.from_array makes it")
    })
}

/// Adds a batch axis of size 1 to an array that lacks it.
fn with_batch_axis(mut array: Array, input: &Declaration) -> Array {
    let Some([first, rest @ ..]) = input.shape.as_deref() else { return array };
    let single = first.as_known().is_none_or(|size| size == 1);
    if single && !rest.is_empty() && array.shape.len() == rest.len() {
        array.shape.insert(0, 1);
    }
    array
}
