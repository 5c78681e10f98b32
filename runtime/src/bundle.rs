//! An open bundle: its bytes, mapped or in memory, and its manifest.

use crate::codec::{Extent, read_header, read_manifest, section, verify};
use crate::error::{Error, Result};
use crate::format::{Hash, Manifest};
use std::path::Path;

/// A bundle whose manifest has been read and checked; the bytes of weights and shaders may not have been yet.
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
    /// Maps a file. It must not change while the bundle is open.
    pub fn open(path: &Path) -> Result<Bundle> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.len() == 0 {
            return Err(Error::NotABundle);
        }
        // SAFETY: the mapping is private and read only. That nobody changes the file meanwhile is asked of the
        // caller; what is read is checked against hashes, so a change before that is an error.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
        Bundle::read(Bytes::Mapped(map))
    }

    pub fn from_vec(bytes: Vec<u8>) -> Result<Bundle> {
        Bundle::read(Bytes::Owned(bytes))
    }

    /// For bundles that are part of the program (`include_bytes!`).
    pub fn from_static(bytes: &'static [u8]) -> Result<Bundle> {
        Bundle::read(Bytes::Static(bytes))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The hash that identifies the bundle, since it covers all other hashes.
    pub fn hash(&self) -> Hash {
        self.manifest_hash
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Static(bytes) => bytes,
        }
    }

    /// Compares every byte with its hash.
    pub fn verify(&self) -> Result<()> {
        verify(self.bytes(), &self.manifest.extents())
    }

    /// Compares the weights with their hashes, or else what is acted on while loading, which is everything else.
    pub(crate) fn verify_weights(&self, weights: bool) -> Result<()> {
        let extents = self.manifest.extents();
        let parts = extents.split_at_checked(self.manifest.chunks.len()).unwrap_or((&extents, &[]));
        verify(self.bytes(), if weights { parts.0 } else { parts.1 })
    }

    /// The bytes of a file that travels with the model, compared with their hash.
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
