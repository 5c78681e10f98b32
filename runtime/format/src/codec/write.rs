//! Writes bundles: chunks are streamed to a temporary file next to the target, which is renamed on success.
//!
//! No chunk is held in memory as a whole, and readers never see an incomplete bundle. The same calls in the same order
//! produce the same bytes.

use super::{ARTIFACT_ALIGNMENT, CHUNK_ALIGNMENT, HEADER_SIZE, Header, VERSION_MAJOR, VERSION_MINOR, encode};
use crate::error::{Error, Result};
use crate::{Artifact, ArtifactKind, Attachment, Chunk, Hash, Manifest, Provenance, Variant, validate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Writes one bundle: chunks and artifacts in any order, then [`BundleWriter::finish`].
pub struct BundleWriter {
    out: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
    position: u64,
    /// Indices of the written chunks by hash, and of the written artifacts by hash and kind. Equal data is stored once.
    known_chunks: BTreeMap<Hash, u32>,
    known_artifacts: BTreeMap<(Hash, ArtifactKind), u32>,
    manifest: Manifest,
}

/// Sizes of the sections of a written bundle, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub file_size: u64,
    pub chunk_bytes: u64,
    pub artifact_bytes: u64,
    pub manifest_bytes: u64,
    pub padding_bytes: u64,
}

/// Writer that counts and hashes the bytes of a chunk while it writes them to the file.
struct Hashing<'a> {
    out: &'a mut BufWriter<File>,
    hasher: blake3::Hasher,
    size: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl BundleWriter {
    /// Starts a bundle that will appear at `path`.
    pub fn create(path: &Path) -> Result<BundleWriter> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let fail = |source| Error::Io { path: temporary.clone(), source };
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary).map_err(fail)?);
        let written = out.write_all(&[0; HEADER_SIZE]);
        let writer = BundleWriter {
            out,
            path: path.to_owned(),
            temporary: temporary.clone(),
            position: HEADER_SIZE as u64,
            known_chunks: BTreeMap::new(),
            known_artifacts: BTreeMap::new(),
            manifest: Manifest::default(),
        };
        written.map_err(fail)?;
        Ok(writer)
    }

    /// Adds a chunk of weights, whose bytes the closure `fill` writes. Returns the index of the chunk.
    pub fn chunk(&mut self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u32> {
        let before = self.position;
        let result = self.try_chunk(fill);
        if result.is_err() {
            self.position = before;
            self.out.seek(SeekFrom::Start(before)).map_err(|source| self.fail(source))?;
        }
        result.map_err(|source| self.fail(source))
    }

    /// Adds a file shipped with the model, such as a tokenizer, as an attachment.
    pub fn attach(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let artifact = self.artifact(ArtifactKind::Data, bytes)?;
        self.manifest.attachments.push(Attachment { name: name.to_owned(), artifact });
        Ok(())
    }

    /// Adds a shader given as SPIR-V words, and returns the artifact's index.
    pub fn spirv(&mut self, words: &[u32]) -> Result<u32> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.artifact(ArtifactKind::Spirv, &bytes)
    }

    /// Adds the bytes of a shader or attachment, and returns the artifact's index.
    pub fn artifact(&mut self, kind: ArtifactKind, bytes: &[u8]) -> Result<u32> {
        let hash = Hash::digest(bytes);
        let key = (hash, kind);
        if let Some(index) = self.known_artifacts.get(&key) {
            return Ok(*index);
        }
        let result = self.pad(ARTIFACT_ALIGNMENT).and_then(|()| self.out.write_all(bytes));
        result.map_err(|source| self.fail(source))?;
        let index = count(self.manifest.artifacts.len())?;
        let (offset, size) = (self.position, bytes.len() as u64);
        self.manifest.artifacts.push(Artifact { hash, offset, size, kind });
        self.position += size;
        self.known_artifacts.insert(key, index);
        Ok(index)
    }

    /// Returns the chunks that were written so far.
    pub fn chunks(&self) -> &[Chunk] {
        &self.manifest.chunks
    }

    /// Validates the manifest, writes it and the header, and renames the file to its final path.
    pub fn finish(mut self, provenance: Provenance, variants: Vec<Variant>) -> Result<Summary> {
        self.manifest.provenance = provenance;
        self.manifest.variants = variants;
        validate(&self.manifest)?;
        let bytes = encode(&self.manifest)?;
        let result = self.try_finish(&bytes);
        let manifest_offset = result.map_err(|source| self.fail(source))?;
        let chunk_bytes = self.manifest.chunks.iter().map(|chunk| chunk.size).sum();
        let artifact_bytes = self.manifest.artifacts.iter().map(|artifact| artifact.size).sum();
        let file_size = manifest_offset + bytes.len() as u64;
        let manifest_bytes = bytes.len() as u64;
        let padding_bytes = file_size - HEADER_SIZE as u64 - chunk_bytes - artifact_bytes - manifest_bytes;
        Ok(Summary { file_size, chunk_bytes, artifact_bytes, manifest_bytes, padding_bytes })
    }

    fn try_chunk(&mut self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u32> {
        let before = self.position;
        self.pad(CHUNK_ALIGNMENT)?;
        let mut sink = Hashing { out: &mut self.out, hasher: blake3::Hasher::new(), size: 0 };
        fill(&mut sink)?;
        let (hash, size) = (Hash(*sink.hasher.finalize().as_bytes()), sink.size);
        if size == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty weight chunk"));
        }
        if let Some(index) = self.known_chunks.get(&hash) {
            self.position = before;
            self.out.seek(SeekFrom::Start(before))?;
            return Ok(*index);
        }
        let index = u32::try_from(self.manifest.chunks.len()).map_err(io::Error::other)?;
        self.manifest.chunks.push(Chunk { hash, offset: self.position, size });
        self.position += size;
        self.known_chunks.insert(hash, index);
        Ok(index)
    }

    fn try_finish(&mut self, manifest: &[u8]) -> io::Result<u64> {
        self.pad(ARTIFACT_ALIGNMENT)?;
        let header = Header {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            file_size: self.position + manifest.len() as u64,
            manifest_offset: self.position,
            manifest_size: manifest.len() as u64,
            manifest_hash: Hash::digest(manifest),
        };
        self.out.write_all(manifest)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header.to_bytes())?;
        self.out.flush()?;
        // A deduplicated chunk may have left bytes after the end.
        self.out.get_ref().set_len(header.file_size)?;
        self.out.get_ref().sync_all()?;
        std::fs::rename(&self.temporary, &self.path)?;
        Ok(header.manifest_offset)
    }

    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        let gap = self.position.next_multiple_of(alignment) - self.position;
        self.position += gap;
        io::copy(&mut io::Read::take(io::repeat(0), gap), &mut self.out).map(|_| ())
    }

    fn fail(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

impl Drop for BundleWriter {
    /// Removes the temporary file, if [`BundleWriter::finish`] has not renamed it.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn count(length: usize) -> Result<u32> {
    u32::try_from(length)
        .map_err(|_| Error::invalid("manifest", "the number of artifacts does not fit 32 bits"))
}
