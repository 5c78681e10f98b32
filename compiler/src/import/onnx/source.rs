//! The files a model is read from: mapped, hashed, and confined to the model's own folder.
//!
//! A model names the files of its external data itself, so the names are hostile until proven otherwise: a
//! location must resolve to a regular file inside the folder, and a tensor to a range inside that file. Files are
//! mapped, never read, so a huge sparse file costs nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::lowering::{Lowered, Refused};
use super::schema::StringStringEntryProto;
use crate::content::Content;
use crate::error::{Error, Result};

/// Where a model's bytes come from.
#[derive(Debug)]
pub(super) struct Source {
    /// The model file, as given; what errors name.
    pub(super) path: PathBuf,
    /// The folder that external data must lie in.
    folder: Option<PathBuf>,
    mapped: RefCell<BTreeMap<String, Content>>,
}

impl Source {
    /// A model without external data.
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
            return Err(io("not a regular file".to_string()));
        }
        let bytes = Content::map(path).map_err(|e| io(e.to_string()))?.bytes().clone();
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        Ok((Self::new(path.to_path_buf(), Some(folder.to_path_buf())), bytes))
    }

    /// The bytes of a tensor of `expected` bytes that is stored in another file.
    pub(super) fn external(&self, entries: &[StringStringEntryProto], expected: usize) -> Lowered<Content> {
        let entry = |key: &str| entries.iter().rev().find(|e| e.key() == key).map(|e| e.value());
        let location = entry("location").ok_or_else(|| Refused::new("its external data has no location"))?;
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| Refused::new(format!("the {key} `{text}` of its external data is no number"))),
        };
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?
            && usize::try_from(length) != Ok(expected)
        {
            return Err(Refused::new(format!(
                "its external data has {length} bytes where {expected} are needed"
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
                "its external data ({expected} bytes from {offset}) ends beyond the {} bytes of `{location}`",
                file.len()
            ))),
        }
    }

    /// The files that external data was found in.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let folder = self.folder.clone().unwrap_or_default();
        self.mapped.borrow().keys().map(|location| folder.join(location)).collect()
    }

    fn file(&self, location: &str) -> Lowered<Content> {
        if let Some(bytes) = self.mapped.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let refused =
            |reason: &str| Refused::new(format!("the location `{location}` of its external data {reason}"));
        let Some(folder) = &self.folder else {
            return Err(refused("cannot be resolved: the model was not opened from a file"));
        };
        let plain = Path::new(location).components().all(|c| matches!(c, Component::Normal(_)));
        if location.is_empty() || location.contains(['\\', '\0']) || !plain {
            return Err(refused("is not a plain relative path"));
        }
        let read = |e: std::io::Error| refused(&format!("cannot be read: {e}"));
        let folder = folder.canonicalize().map_err(read)?;
        let path = folder.join(location).canonicalize().map_err(read)?;
        if !path.starts_with(&folder) {
            return Err(refused("leads out of the model's folder"));
        }
        // Opening anything but a regular file can block or have effects.
        if !std::fs::metadata(&path).map_err(read)?.is_file() {
            return Err(refused("is not a regular file"));
        }
        let bytes = Content::map(&path).map_err(read)?;
        self.mapped.borrow_mut().insert(location.to_string(), bytes.clone());
        Ok(bytes)
    }
}
