//! Kinds of files that are given as a model or a bundle, and advice for files that the command does not take.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::builder::Str;
use drift_runtime::Bundle;
use drift_runtime::codec::MAGIC;
use driftc::import::gguf::Gguf;

use crate::failure::{Failure, Result};

/// Bytes of a file from which its kind is recognized.
const HEAD_BYTES: usize = 512;

/// File that a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Model,
    Bundle,
    ModelOrBundle,
}

/// Kind of a file by its first bytes and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Bundle,
    Onnx,
    Gguf,
    DamagedGguf,
    Folder,
    Safetensors,
    PyTorch,
    TensorFlow,
    TensorFlowLite,
    Keras,
    NumPy,
    Archive,
    LfsPointer,
    WebPage,
    Json,
    Text,
    Empty,
    Unknown,
}

impl Expected {
    /// Returns the kind of file that a positional argument takes, by the argument's value name in the help text.
    pub(crate) fn from_names(names: &[Str]) -> Option<Self> {
        match names {
            [name] => match name.as_str() {
                "MODEL" | "MODEL.onnx" => Some(Self::Model),
                "OUT.drift" | "A.drift" | "B.drift" => Some(Self::Bundle),
                "OUT.drift | MODEL" => Some(Self::ModelOrBundle),
                _ => None,
            },
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Model => "a model",
            Self::Bundle => "a bundle",
            Self::ModelOrBundle => "a model or a bundle",
        }
    }
}

/// Checks that a file has a kind that a command takes. Files that do not exist, and files of an unknown kind, pass: the
/// command reports what is wrong with them.
///
/// # Errors
/// If the file is recognized and has another kind. The help names a command or a step that helps.
pub(crate) fn check_kind(path: &Path, expected: Expected, command: &str) -> Result<()> {
    let Ok(kind) = kind(path) else { return Ok(()) };
    let accepted = matches!(
        (kind, expected),
        (FileKind::Bundle, Expected::Bundle | Expected::ModelOrBundle)
            | (FileKind::Onnx | FileKind::Gguf | FileKind::Folder, Expected::Model | Expected::ModelOrBundle)
            | (FileKind::Unknown, _)
    );
    let shown = path.display();
    if accepted {
        let models = if kind == FileKind::Folder { models_without_configuration(path) } else { Vec::new() };
        return match models.as_slice() {
            [] => Ok(()),
            models => Err(Failure::input(format!("{shown} is a folder without config.json"))
                .help(format!("give a model in the folder: {}", models.join(", ")))),
        };
    }
    let reason = format!("{shown} is {}, but `driftc {command}` takes {}", name(kind), expected.text());
    Err(Failure::input(reason).help(advice(kind, path, command)))
}

/// Paths of the ONNX and GGUF files in a folder that is no Hugging Face folder, sorted.
fn models_without_configuration(folder: &Path) -> Vec<String> {
    if folder.join("config.json").exists() {
        return Vec::new();
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_model = |file: &PathBuf| file.extension().is_some_and(|e| e == "onnx" || e == "gguf");
    let mut models: Vec<String> = files.filter(is_model).map(|file| quoted(&file)).collect();
    models.sort();
    models
}

fn kind(path: &Path) -> std::io::Result<FileKind> {
    if path.is_dir() {
        return Ok(FileKind::Folder);
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    if head.starts_with(&MAGIC) {
        return Ok(FileKind::Bundle);
    }
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if extension == "drift" {
        // A damaged bundle.
        return Ok(FileKind::Unknown);
    }
    if Gguf::is_gguf(path) {
        return Ok(FileKind::Gguf);
    }
    Ok(by_content(&head).or_else(|| by_extension(&extension, path)).unwrap_or(FileKind::Unknown))
}

/// Kind of a file with a signature or of a text file.
fn by_content(head: &[u8]) -> Option<FileKind> {
    let contains = |text: &[u8]| head.windows(text.len()).any(|bytes| bytes == text);
    if head.is_empty() {
        return Some(FileKind::Empty);
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some(FileKind::NumPy);
    }
    if head.starts_with(b"\x89HDF\r\n") {
        return Some(FileKind::Keras);
    }
    if head.get(4..8) == Some(b"TFL3".as_slice()) {
        return Some(FileKind::TensorFlowLite);
    }
    if head.get(6..9) == Some(b"\0\0{".as_slice()) {
        return Some(FileKind::Safetensors);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Some(if contains(b"data.pkl") { FileKind::PyTorch } else { FileKind::Archive });
    }
    let printable = head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..));
    if !printable {
        return None;
    }
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start().to_lowercase();
    Some(match text.as_str() {
        text if text.starts_with("version https://git-lfs") => FileKind::LfsPointer,
        text if text.starts_with("<!doctype html") || text.starts_with("<html") => FileKind::WebPage,
        text if text.starts_with('{') || text.starts_with('[') => FileKind::Json,
        _ => FileKind::Text,
    })
}

fn by_extension(extension: &str, path: &Path) -> Option<FileKind> {
    match extension {
        "onnx" => Some(FileKind::Onnx),
        "gguf" => Some(FileKind::DamagedGguf),
        "safetensors" => Some(FileKind::Safetensors),
        "pt" | "pth" | "ckpt" | "pkl" | "bin" => Some(FileKind::PyTorch),
        "tflite" => Some(FileKind::TensorFlowLite),
        "h5" | "keras" => Some(FileKind::Keras),
        // Early ONNX files have this ending, too.
        "pb" if driftc::import::onnx::inputs(path).is_ok_and(|inputs| !inputs.is_empty()) => {
            Some(FileKind::Onnx)
        }
        "pb" => Some(FileKind::TensorFlow),
        _ => None,
    }
}

fn name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Bundle => "a bundle",
        FileKind::Onnx => "an ONNX model",
        FileKind::Gguf => "a GGUF model",
        FileKind::DamagedGguf => "a damaged GGUF file (its first bytes are wrong)",
        FileKind::Folder => "a folder",
        FileKind::Safetensors => "a file of weights (safetensors)",
        FileKind::PyTorch => "a PyTorch checkpoint",
        FileKind::TensorFlow => "a TensorFlow graph",
        FileKind::TensorFlowLite => "a TensorFlow Lite model",
        FileKind::Keras => "a Keras model (HDF5)",
        FileKind::NumPy => "a NumPy array",
        FileKind::Archive => "a ZIP archive",
        FileKind::LfsPointer => "a Git LFS pointer without the file's content",
        FileKind::WebPage => "a web page (HTML)",
        FileKind::Json => "a JSON file",
        FileKind::Text => "a text file",
        FileKind::Empty => "an empty file",
        FileKind::Unknown => "a file of unknown kind",
    }
}

fn advice(kind: FileKind, path: &Path, command: &str) -> String {
    let file = quoted(path);
    let to_onnx = |option: &str| {
        let onnx = quoted(&path.with_extension("onnx"));
        format!("convert it to ONNX: `python -m tf2onnx.convert {option} {file} --output {onnx}`")
    };
    match kind {
        FileKind::Bundle => {
            let run = match generates_text(path) {
                true => format!("`driftc generate {file} --prompt TEXT` generates text"),
                false => format!("`driftc run {file}` runs it"),
            };
            format!("a bundle is compiled already: `driftc inspect {file}` shows its contents, {run}")
        }
        FileKind::Onnx | FileKind::Gguf | FileKind::Folder => {
            let bundle = quoted(&path.with_extension("drift"));
            format!(
                "compile it first: `driftc compile {file} -t here -o {bundle}`, then `driftc {command} {bundle}`"
            )
        }
        FileKind::Safetensors => with_folder(path, "config.json beside these weights describes the model"),
        FileKind::Json => with_folder(path, "driftc reads .onnx files, .gguf files and Hugging Face folders"),
        FileKind::PyTorch => "export the model to ONNX in Python: torch.onnx.export(model, example_inputs, \
                              \"model.onnx\", dynamo=True)"
            .to_owned(),
        FileKind::TensorFlow => to_onnx("--graphdef"),
        FileKind::TensorFlowLite => to_onnx("--tflite"),
        FileKind::Keras => to_onnx("--keras"),
        FileKind::NumPy => format!("give an array as an input: --input NAME={file}"),
        FileKind::Archive => "unpack the archive, and give a model in it".to_owned(),
        FileKind::LfsPointer => "download the content with `git lfs pull`".to_owned(),
        FileKind::DamagedGguf | FileKind::WebPage | FileKind::Empty => "download the file again".to_owned(),
        FileKind::Text | FileKind::Unknown => {
            "give an .onnx file, a .gguf file or a Hugging Face folder".to_owned()
        }
    }
}

/// Advises to give the folder of a file that belongs to a Hugging Face folder.
fn with_folder(path: &Path, otherwise: &str) -> String {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.join("config.json").is_file() {
        true => format!("give the folder of the model: {}", quoted(folder)),
        false => format!("{otherwise}; give a folder with config.json, the weights and tokenizer.json"),
    }
}

/// True if a bundle has the functions of a language model.
fn generates_text(path: &Path) -> bool {
    Bundle::open(path).is_ok_and(|bundle| {
        let mut functions = bundle.manifest().variants.iter().flat_map(|variant| &variant.functions);
        functions.any(|function| function.name == "decode")
    })
}

/// Path as an argument in a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "._-/\\:+=,@~".contains(c);
    if text.chars().all(plain) { text } else { format!("'{text}'") }
}

#[cfg(test)]
mod tests {
    use super::{FileKind, by_content, kind};

    #[test]
    fn files_are_recognized() {
        for (head, kind) in [
            (&b""[..], Some(FileKind::Empty)),
            (b"\x93NUMPY\x01\x00", Some(FileKind::NumPy)),
            (b"\x1c\0\0\0TFL3\x14\0", Some(FileKind::TensorFlowLite)),
            (b"PK\x03\x04\0\0archive/data.pkl", Some(FileKind::PyTorch)),
            (b"PK\x03\x04\0\0x_0.npy", Some(FileKind::Archive)),
            (b"\x40\0\0\0\0\0\0\0{\"a\"", Some(FileKind::Safetensors)),
            (b"version https://git-lfs.github.com/spec/v1\n", Some(FileKind::LfsPointer)),
            (b"<!DOCTYPE html><html>", Some(FileKind::WebPage)),
            (b"{\"architectures\": []}", Some(FileKind::Json)),
            (b"name = 1\n", Some(FileKind::Text)),
            (b"\x08\x08\x12\x07pytorch", None),
        ] {
            assert_eq!(by_content(head), kind, "{head:?}");
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("damaged.drift");
        std::fs::write(&path, "rubbish").unwrap();
        assert_eq!(kind(&path).unwrap(), FileKind::Unknown);
        assert_eq!(kind(place.path()).unwrap(), FileKind::Folder);
    }
}
