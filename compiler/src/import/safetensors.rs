//! Weights of a Hugging Face folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
//!
//! Files are mapped and tensors borrow from the mapping; hashing keeps only a window of it in memory. Shards must lie in the folder itself; the header is checked
//! by the reference library (size limit, overlaps, gaps, shapes against byte counts).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

use crate::content::Content;
use crate::error::{Error, Result};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

/// Bytes that are hashed before their pages are released.
const WINDOW: usize = 1 << 24;

/// What is said of a file whose content Git LFS has elsewhere, and what to do about it.
pub const POINTER: &str = "it is a pointer that Git LFS has left in the place of the file";
/// The same.
pub const FETCH: &str = "fetch the file itself: `git lfs pull` in the folder, or download it";

/// Whether a file's content is such a pointer.
pub fn is_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs")
}

/// The tensors of a checkpoint by name.
#[derive(Debug, Clone)]
pub struct Weights {
    folder: PathBuf,
    tensors: BTreeMap<String, Constant>,
    hash: [u8; 32],
}

impl Weights {
    /// Opens the checkpoint of a folder.
    ///
    /// # Errors
    /// No checkpoint, a shard outside the folder, or a malformed file.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut weights = Self { folder: folder.to_path_buf(), tensors: BTreeMap::new(), hash: [0; 32] };
        let mut hasher = blake3::Hasher::new();
        let index = folder.join("model.safetensors.index.json");
        let one = folder.join("model.safetensors");
        let files = if index.exists() { shards(folder, &index)? } else { vec![one.clone()] };
        for path in files {
            if std::fs::metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
                return Err(missing(&path, if path == one { None } else { Some(&index) }));
            }
            let bytes = map(&path)?;
            weights.read(&path, &bytes)?;
            hash(&mut hasher, &bytes);
        }
        weights.hash = *hasher.finalize().as_bytes();
        Ok(weights)
    }

    /// Hash of the checkpoint's files in order.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// The tensor of a name.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str) -> Result<&Constant> {
        self.tensors.get(name).ok_or_else(|| self.error(name, "the checkpoint has no such tensor".into()))
    }

    /// The tensor of a name, checked to have a shape.
    ///
    /// # Errors
    /// When there is none, or it has another shape.
    pub fn shaped(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let tensor = self.get(name)?;
        if tensor.shape != shape {
            let reason = format!("it has shape {:?}; the configuration needs {shape:?}", tensor.shape);
            return Err(self.error(name, reason));
        }
        if !tensor.dtype.is_float() {
            return Err(self.error(name, format!("it holds {}; a float type is needed", tensor.dtype.name())));
        }
        Ok(tensor.clone())
    }

    /// Whether there is a tensor of a name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    fn error(&self, name: &str, reason: String) -> Error {
        Error::Model {
            path: self.folder.clone(),
            place: format!("tensor `{name}`"),
            reason,
            help: "check that config.json and the checkpoint belong together".into(),
        }
    }

    fn read(&mut self, path: &Path, bytes: &Content) -> Result<()> {
        let malformed = |reason: String| Error::Model {
            path: path.to_path_buf(),
            place: "header".into(),
            reason,
            help: "download or export the checkpoint again".into(),
        };
        let parsed = SafeTensors::deserialize(bytes).map_err(|e| malformed(e.to_string()))?;
        for (name, view) in parsed.iter() {
            let dtype = dtype(view.dtype()).ok_or_else(|| {
                malformed(format!("tensor `{name}` has the unsupported type {:?}", view.dtype()))
            })?;
            let data = part(bytes, view.data())
                .ok_or_else(|| malformed(format!("tensor `{name}` lies outside the file")))?;
            let constant = Constant::new(dtype, view.shape().to_vec(), data)
                .map_err(|e| malformed(format!("tensor `{name}`: {e}")))?;
            if self.tensors.insert(name.to_string(), constant).is_some() {
                return Err(malformed(format!("tensor `{name}` is in more than one file")));
            }
        }
        Ok(())
    }
}

/// The error of a file that is not there, and that an index may name.
fn missing(path: &Path, index: Option<&Path>) -> Error {
    let (place, help) = match index {
        Some(index) => (
            format!("a shard that {} names", index.display()),
            "download the checkpoint's missing files into the folder",
        ),
        None => (
            "the checkpoint".to_string(),
            "download it into the folder, or save the model as safetensors (`save_pretrained(safe_serialization=True)`)",
        ),
    };
    Error::Model { path: path.to_path_buf(), place, reason: "the file is missing".into(), help: help.into() }
}

/// The part of a file that a slice of its bytes is.
fn part(file: &Content, data: &[u8]) -> Option<Content> {
    let start = (data.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
    let end = start.checked_add(data.len())?;
    (end <= file.len()).then(|| file.slice(start..end))
}

/// Hashes a file; the next part of it is read from the disk meanwhile.
pub(super) fn hash(hasher: &mut blake3::Hasher, file: &Content) {
    let at = |start: usize| file.slice(start.min(file.len())..start.saturating_add(WINDOW).min(file.len()));
    at(0).prefetch();
    for start in (0..file.len()).step_by(WINDOW) {
        at(start + WINDOW).prefetch();
        let part = at(start);
        hasher.update_rayon(&part);
        part.release();
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

/// The distinct shard files that an index names, in order.
fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let malformed = |reason: String| Error::Model {
        path: index.to_path_buf(),
        place: "weight_map".into(),
        reason,
        help: "the index must map tensor names to files beside it".into(),
    };
    let text = std::fs::read_to_string(index)
        .map_err(|e| Error::Io { path: index.to_path_buf(), reason: e.to_string() })?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    let map = json
        .get("weight_map")
        .and_then(|m| m.as_object())
        .ok_or_else(|| malformed("it is missing, or no object".into()))?;
    let mut names = std::collections::BTreeSet::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| malformed(format!("`{tensor}` maps to no file name")))?;
        let plain = Path::new(file).file_name().is_some_and(|n| n == file) && !file.contains('\\');
        if !plain {
            return Err(malformed(format!("`{file}` is not a plain file name in the folder")));
        }
        names.insert(file.to_string());
    }
    Ok(names.into_iter().map(|n| folder.join(n)).collect())
}

/// Maps a regular file of at least one byte.
pub(super) fn map(path: &Path) -> Result<Content> {
    let fail = |reason: String| Error::Io { path: path.to_path_buf(), reason };
    let meta = std::fs::symlink_metadata(path).map_err(|e| fail(e.to_string()))?;
    // Hub caches link snapshots to blobs; such links end in a regular file, devices and folders do not.
    let target = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
    if !(meta.is_file() || meta.is_symlink()) || !target.is_file() {
        return Err(fail("it is not a regular file".into()));
    }
    if target.len() == 0 {
        return Err(fail("it is empty".into()));
    }
    let content = Content::map(path).map_err(|e| fail(e.to_string()))?;
    if is_pointer(&content) {
        return Err(Error::Model {
            path: path.to_path_buf(),
            place: "the file".into(),
            reason: POINTER.into(),
            help: FETCH.into(),
        });
    }
    Ok(content)
}
