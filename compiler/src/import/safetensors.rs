//! Weights of a Hugging Face folder: `model.safetensors`, or the shards listed in `model.safetensors.index.json`. Files of
//! diffusers and f16 variants have other names.
//!
//! Files are mapped, and tensors borrow from the mapping. The hash is computed on request and keeps only a window of a file in memory. Shards must
//! be in the folder. The reference library checks the header (size limit, overlaps, gaps, shapes against byte counts).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

use crate::content::Content;
use crate::error::{Error, Result};
use crate::import::listing::ListedTensor;
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

/// Names of a checkpoint's file, and of the index of its shards. The first pair with a file in a folder is read.
const CHECKPOINTS: [[&str; 2]; 4] = [
    ["model.safetensors", "model.safetensors.index.json"],
    ["diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json"],
    ["model.fp16.safetensors", "model.safetensors.index.fp16.json"],
    ["diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.safetensors.index.fp16.json"],
];
/// Number of bytes of a mapped file that are hashed before their pages are released.
const WINDOW: usize = 1 << 24;

/// Reason of the error for a Git LFS pointer file.
pub const LFS_POINTER_REASON: &str = "the content is a Git LFS pointer, not the file itself";
/// Help of the error for a Git LFS pointer file.
pub const LFS_POINTER_HELP: &str = "fetch the file: run `git lfs pull` in the folder, or download it";

/// Returns true if the content of a file is a Git LFS pointer.
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs")
}

/// The tensors of a checkpoint by name.
#[derive(Debug, Clone)]
pub struct Weights {
    folder: PathBuf,
    tensors: BTreeMap<String, Constant>,
    /// Mapped files of the checkpoint, in order.
    files: Vec<Content>,
}

impl Weights {
    /// Opens the checkpoint of a folder.
    ///
    /// # Errors
    /// Fails if there is no checkpoint, a shard is outside the folder, or a file is malformed.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut weights = Self { folder: folder.to_path_buf(), tensors: BTreeMap::new(), files: Vec::new() };
        for (path, bytes) in checkpoint_files(folder)? {
            weights.read(&path, &bytes)?;
            weights.files.push(bytes);
        }
        Ok(weights)
    }

    /// Returns the BLAKE3 hash of the checkpoint's files in order. Reads all files.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        self.files.iter().for_each(|file| hash(&mut hasher, file));
        *hasher.finalize().as_bytes()
    }

    /// Returns a tensor by name.
    ///
    /// # Errors
    /// Fails if there is no such tensor.
    pub fn get(&self, name: &str) -> Result<&Constant> {
        self.tensors
            .get(name)
            .ok_or_else(|| self.error(name, "the checkpoint has no tensor of this name".into()))
    }

    /// Returns a float tensor by name, with the given shape.
    ///
    /// # Errors
    /// Fails if there is no such tensor, or if it has another shape or no float type.
    pub fn shaped(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let tensor = self.get(name)?;
        if tensor.shape != shape {
            let reason = format!("the tensor's shape is {:?}; config.json requires {shape:?}", tensor.shape);
            return Err(self.error(name, reason));
        }
        if !tensor.dtype.is_float() {
            return Err(self.error(
                name,
                format!("the tensor's type is {}; a float type is needed", tensor.dtype.name()),
            ));
        }
        Ok(tensor.clone())
    }

    /// Returns true if there is a tensor with the name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    fn error(&self, name: &str, reason: String) -> Error {
        Error::Model {
            path: self.folder.clone(),
            place: format!("tensor `{name}`"),
            reason,
            help: "check that config.json and the checkpoint belong to the same model".into(),
        }
    }

    fn read(&mut self, path: &Path, bytes: &Content) -> Result<()> {
        let malformed = |reason: String| malformed_header(path, reason);
        let parsed = SafeTensors::deserialize(bytes).map_err(|e| malformed(e.to_string()))?;
        for (name, view) in parsed.iter() {
            let dtype = dtype(view.dtype()).ok_or_else(|| {
                malformed(format!("tensor `{name}` has the unsupported type {:?}", view.dtype()))
            })?;
            let data = content_range(bytes, view.data())
                .ok_or_else(|| malformed(format!("tensor `{name}` is outside the file")))?;
            let constant = Constant::new(dtype, view.shape().to_vec(), data)
                .map_err(|e| malformed(format!("tensor `{name}`: {e}")))?;
            if self.tensors.insert(name.to_string(), constant).is_some() {
                return Err(malformed(format!("tensor `{name}` is in more than one shard")));
            }
        }
        Ok(())
    }
}

/// Lists the tensors of a folder's checkpoint without reading their data. Unsupported element types are no error.
///
/// # Errors
/// Fails if there is no checkpoint, a shard is outside the folder, or a header is malformed.
pub fn list(folder: &Path) -> Result<Vec<ListedTensor>> {
    let mut listed = Vec::new();
    for (path, bytes) in checkpoint_files(folder)? {
        let (_, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|e| malformed_header(&path, e.to_string()))?;
        // The list is sorted below.
        listed.extend(metadata.tensors().into_iter().map(|(name, info)| {
            let (start, end) = info.data_offsets;
            ListedTensor {
                name,
                element: format!("{:?}", info.dtype),
                shape: info.shape.clone(),
                bytes: Some(end.saturating_sub(start) as u64),
                supported: dtype(info.dtype).is_some(),
            }
        }));
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Maps the checkpoint's files of a folder, in order.
fn checkpoint_files(folder: &Path) -> Result<Vec<(PathBuf, Content)>> {
    let exists = |names: &&[&str; 2]| names.iter().any(|name| folder.join(name).exists());
    let names = CHECKPOINTS.iter().find(exists).unwrap_or(&CHECKPOINTS[0]);
    let [one, index] = names.map(|name| folder.join(name));
    let files = if index.exists() { shards(folder, &index)? } else { vec![one.clone()] };
    let mut mapped = Vec::with_capacity(files.len());
    for path in files {
        if std::fs::metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(missing(&path, if path == one { None } else { Some(&index) }));
        }
        let bytes = map(&path)?;
        mapped.push((path, bytes));
    }
    Ok(mapped)
}

fn malformed_header(path: &Path, reason: String) -> Error {
    Error::Model {
        path: path.to_path_buf(),
        place: "header".into(),
        reason,
        help: "download or export the checkpoint again".into(),
    }
}

/// Returns the error for a missing checkpoint file. `index` is the index file that lists the missing one, if any.
fn missing(path: &Path, index: Option<&Path>) -> Error {
    let (place, help) = match index {
        Some(index) => (
            format!("a shard listed in {}", index.display()),
            "download the missing files of the checkpoint into the folder",
        ),
        None => (
            "the checkpoint".to_string(),
            "download it into the folder, or save the model as safetensors \
             (`save_pretrained(safe_serialization=True)`)",
        ),
    };
    Error::Model { path: path.to_path_buf(), place, reason: "the file is missing".into(), help: help.into() }
}

/// Returns the range of a file's content that `data`, a slice of the file's bytes, covers; `None` if `data` is
/// elsewhere.
fn content_range(file: &Content, data: &[u8]) -> Option<Content> {
    let start = (data.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
    let end = start.checked_add(data.len())?;
    (end <= file.len()).then(|| file.slice(start..end))
}

/// Hashes a file window by window. The next window is prefetched meanwhile.
pub(super) fn hash(hasher: &mut blake3::Hasher, file: &Content) {
    let window =
        |start: usize| file.slice(start.min(file.len())..start.saturating_add(WINDOW).min(file.len()));
    window(0).prefetch();
    for start in (0..file.len()).step_by(WINDOW) {
        window(start + WINDOW).prefetch();
        let bytes = window(start);
        hasher.update_rayon(&bytes);
        bytes.release();
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

/// Returns the distinct shard files of an index, sorted.
fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let malformed = |reason: String| Error::Model {
        path: index.to_path_buf(),
        place: "weight_map".into(),
        reason,
        help: "the index must map tensor names to files in its folder".into(),
    };
    let text = std::fs::read_to_string(index)
        .map_err(|e| Error::Io { path: index.to_path_buf(), reason: e.to_string() })?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    let map = json
        .get("weight_map")
        .and_then(|m| m.as_object())
        .ok_or_else(|| malformed("`weight_map` is missing or not an object".into()))?;
    let mut names = std::collections::BTreeSet::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| {
            malformed(format!("the value of `{tensor}` in `weight_map` is not a file name"))
        })?;
        let plain = Path::new(file).file_name().is_some_and(|n| n == file) && !file.contains('\\');
        if !plain {
            return Err(malformed(format!("`{file}` is not the name of a file in the folder")));
        }
        names.insert(file.to_string());
    }
    Ok(names.into_iter().map(|n| folder.join(n)).collect())
}

/// Maps a regular file that is not empty.
pub(super) fn map(path: &Path) -> Result<Content> {
    let fail = |reason: String| Error::Io { path: path.to_path_buf(), reason };
    let meta = std::fs::symlink_metadata(path).map_err(|e| fail(e.to_string()))?;
    // Hugging Face caches link snapshots to blobs, which are regular files. Devices and folders are refused.
    let target = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
    if !(meta.is_file() || meta.is_symlink()) || !target.is_file() {
        return Err(fail("the path is not a regular file".into()));
    }
    if target.len() == 0 {
        return Err(fail("it is empty".into()));
    }
    let content = Content::map(path).map_err(|e| fail(e.to_string()))?;
    if is_lfs_pointer(&content) {
        return Err(Error::Model {
            path: path.to_path_buf(),
            place: "the file".into(),
            reason: LFS_POINTER_REASON.into(),
            help: LFS_POINTER_HELP.into(),
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use safetensors::tensor::TensorView;
    use safetensors::{Dtype, serialize_to_file};

    use super::{Weights, list};

    /// Writes a file with one f32 tensor of two elements.
    fn write(folder: &Path, file: &str, tensor: &str) {
        let bytes: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![2], &bytes).unwrap();
        serialize_to_file([(tensor, view)], None, &folder.join(file)).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        Weights::open(folder).unwrap();
        list(folder).unwrap().into_iter().map(|tensor| tensor.name).collect()
    }

    #[test]
    fn the_first_known_name_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(Weights::open(folder).unwrap_err().to_string().contains("model.safetensors"));
        write(folder, "shard-1.fp16.safetensors", "a");
        write(folder, "shard-2.fp16.safetensors", "b");
        let index = r#"{"weight_map":{"a":"shard-1.fp16.safetensors","b":"shard-2.fp16.safetensors"}}"#;
        std::fs::write(folder.join("diffusion_pytorch_model.safetensors.index.fp16.json"), index).unwrap();
        assert_eq!(names(folder), ["a", "b"]);
        write(folder, "model.fp16.safetensors", "half");
        assert_eq!(names(folder), ["half"]);
        write(folder, "diffusion_pytorch_model.safetensors", "diffusion");
        assert_eq!(names(folder), ["diffusion"]);
        write(folder, "model.safetensors", "whole");
        assert_eq!(names(folder), ["whole"]);
    }
}
