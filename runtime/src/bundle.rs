//! An open bundle: its bytes, mapped or in memory, and its manifest.

use crate::codec::{Extent, read_header, read_manifest, section, verify};
use crate::error::{Error, Result};
use crate::format::{Hash, METADATA_PREFIX, Manifest};
use std::path::Path;

/// A bundle with a verified manifest. The bytes of weights and shaders may not be verified yet.
pub struct Bundle {
    bytes: Bytes,
    manifest: Manifest,
    manifest_hash: Hash,
}

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
    Static(&'static [u8]),
}

impl Bundle {
    /// Opens a bundle file by mapping it into memory. The file must not change while the bundle is open.
    pub fn open(path: &Path) -> Result<Bundle> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.len() == 0 {
            return Err(Error::NotABundle);
        }
        // SAFETY: the mapping is private and read only. The caller promises that the file does not change.
        // Sections are verified against hashes when they are read, so an earlier change is an error.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
        Bundle::read(Bytes::Mapped(map))
    }

    /// Opens a bundle whose bytes are in memory.
    pub fn from_vec(bytes: Vec<u8>) -> Result<Bundle> {
        Bundle::read(Bytes::Owned(bytes))
    }

    /// Opens a bundle that is part of the program (`include_bytes!`).
    pub fn from_static(bytes: &'static [u8]) -> Result<Bundle> {
        Bundle::read(Bytes::Static(bytes))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the hash of the manifest, which identifies the bundle: the manifest contains the hashes of all other
    /// sections.
    pub fn hash(&self) -> Hash {
        self.manifest_hash
    }

    /// Returns the bytes of the whole bundle file.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Static(bytes) => bytes,
        }
    }

    /// Verifies the hash of every chunk and artifact.
    pub fn verify(&self) -> Result<()> {
        verify(self.bytes(), &self.manifest.extents())
    }

    /// Verifies the hashes of all chunks if `weights` is true, else the hashes of all artifacts.
    pub(crate) fn verify_weights(&self, weights: bool) -> Result<()> {
        let extents = self.manifest.extents();
        let (chunks, artifacts) =
            extents.split_at_checked(self.manifest.chunks.len()).unwrap_or((&extents, &[]));
        verify(self.bytes(), if weights { chunks } else { artifacts })
    }

    /// Returns the metadata of the source model, such as the labels of its classes, as (key, value) pairs sorted by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.manifest.provenance.notes.iter();
        notes.filter_map(|(key, value)| Some((key.strip_prefix(METADATA_PREFIX)?, value.as_str())))
    }

    /// Returns the verified bytes of an attachment, or `None` if the bundle has no attachment of this name.
    pub fn attachment(&self, name: &str) -> Result<Option<&[u8]>> {
        let Some(attachment) = self.manifest.attachments.iter().find(|attachment| attachment.name == name)
        else {
            return Ok(None);
        };
        let artifact =
            usize::try_from(attachment.artifact).ok().and_then(|index| self.manifest.artifacts.get(index));
        let Some(artifact) = artifact else { return Ok(None) };
        let (offset, size, hash) = (artifact.offset, artifact.size, artifact.hash);
        verify(self.bytes(), &[Extent { section: format!("attachment `{name}`"), offset, size, hash }])?;
        section(self.bytes(), offset, size).map(Some)
    }

    fn read(bytes: Bytes) -> Result<Bundle> {
        let mut bundle = Bundle { bytes, manifest: Manifest::default(), manifest_hash: Hash::default() };
        bundle.manifest = read_manifest(bundle.bytes())?;
        bundle.manifest_hash = read_header(bundle.bytes())?.manifest_hash;
        Ok(bundle)
    }
}
