//! The files that a model is read from: the model file, and external data in the model's folder.
//!
//! A model names the files of its external data, so the names are untrusted. A location must be a regular file inside
//! the folder, and a tensor must be a range inside that file. Files are mapped, not read, so a huge sparse file costs
//! nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::refused::Refused;
use super::schema::StringStringEntryProto;
use crate::content::Content;
use crate::error::{Error, Result};

/// The files that a model is read from.
#[derive(Debug)]
pub(super) struct Source {
    /// Path of the model file as given, for error messages.
    pub(super) path: PathBuf,
    /// Folder that must contain external data; `None` if external data is refused.
    folder: Option<PathBuf>,
    mapped: RefCell<BTreeMap<String, Content>>,
}

impl Source {
    /// Returns a source for a model or tensor that has no external data.
    pub(super) fn none() -> Self {
        Self::new(PathBuf::new(), None)
    }

    pub(super) fn new(path: PathBuf, folder: Option<PathBuf>) -> Self {
        Self { path, folder, mapped: RefCell::default() }
    }

    /// Maps the model file.
    pub(super) fn open(path: &Path) -> Result<(Self, Bytes)> {
        let io = |reason: String| Error::Io { path: path.to_path_buf(), reason };
        let metadata = std::fs::metadata(path).map_err(|e| io(e.to_string()))?;
        if !metadata.is_file() {
            return Err(io("the path is not a regular file".to_string()));
        }
        let bytes = Content::map(path).map_err(|e| io(e.to_string()))?.bytes().clone();
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        Ok((Self::new(path.to_path_buf(), Some(folder.to_path_buf())), bytes))
    }

    /// Returns the bytes of a tensor that is stored in an external file. Fails if the file does not have `expected`
    /// bytes for the tensor.
    pub(super) fn external(
        &self,
        entries: &[StringStringEntryProto],
        expected: usize,
    ) -> Result<Content, Refused> {
        let entry = |key: &str| entries.iter().rev().find(|e| e.key() == key).map(|e| e.value());
        let location =
            entry("location").ok_or_else(|| Refused::new("the tensor's external data has no location"))?;
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
                Refused::new(format!(
                    "the {key} of the tensor's external data is `{text}`, which is not a number"
                ))
            }),
        };
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?
            && usize::try_from(length) != Ok(expected)
        {
            return Err(Refused::new(format!(
                "the tensor's external data has {length} bytes; {expected} are needed"
            )));
        }
        let file = self.file(location)?;
        let range = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(expected)?;
            (end <= file.len()).then_some(start..end)
        });
        match range {
            Some(range) => Ok(file.slice(range)),
            None => Err(Refused::new(format!(
                "the tensor's external data ({expected} bytes at offset {offset}) ends after the end of \
                 `{location}`, which has {} bytes",
                file.len()
            ))),
        }
    }

    /// Returns the files that external data was read from.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let folder = self.folder.clone().unwrap_or_default();
        self.mapped.borrow().keys().map(|location| folder.join(location)).collect()
    }

    fn file(&self, location: &str) -> Result<Content, Refused> {
        if let Some(bytes) = self.mapped.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let refused = |reason: &str| Refused::new(format!("external data `{location}` is refused: {reason}"));
        let Some(folder) = &self.folder else {
            return Err(refused("the model was loaded from memory, so no folder can hold the file"));
        };
        let plain = Path::new(location).components().all(|c| matches!(c, Component::Normal(_)));
        if location.is_empty() || location.contains(['\\', '\0']) || !plain {
            return Err(refused("the location is not a plain relative path"));
        }
        let read = |e: std::io::Error| refused(&format!("the file cannot be read: {e}"));
        let folder = folder.canonicalize().map_err(read)?;
        let path = folder.join(location).canonicalize().map_err(read)?;
        if !path.starts_with(&folder) {
            return Err(refused("the file is outside the model's folder"));
        }
        // Opening a device or pipe can block or have side effects.
        if !std::fs::metadata(&path).map_err(read)?.is_file() {
            return Err(refused("the location is not a regular file"));
        }
        let bytes = Content::map(&path).map_err(read)?;
        self.mapped.borrow_mut().insert(location.to_string(), bytes.clone());
        Ok(bytes)
    }
}
