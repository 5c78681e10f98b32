//! Bundles as bytes. Only this module knows the manifest encoding and the file layout.
//!
//! `FORMAT.md` specifies the result. A file is a header of 128 bytes, chunks at multiples of 256, artifacts at
//! multiples of 16, the manifest, and possibly a signature. Gaps are zero. Every byte is checked: header, chunks,
//! artifacts and manifest by hashes, gaps by being zero, and the end of the file by the length in the header.
//! Trusted keys check the signature; without them, the reader checks only its form.

mod decode;
mod read;
mod signature;
mod verify;
mod write;

pub use read::{Extent, read_header, read_manifest, read_manifest_as, section};
pub use signature::{KeyId, SIGNATURE_LIMIT, base64, signature, signed_bytes};
pub use verify::verify;
pub use write::{BundleWriter, Summary};

use crate::error::{Error, Result};
use crate::{Hash, Manifest};

/// The first bytes of a bundle. The non-ASCII byte and the line ending reveal files damaged by a text-mode
/// transfer.
pub const MAGIC: [u8; 8] = *b"\x89DRIFT\r\n";
/// Major version of the format, incremented if an older reader would misread the file.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version of the format, incremented if enum values, feature bits or a signature are added. An older reader
/// rejects only bundles that use the additions.
pub const VERSION_MINOR: u16 = 6;
/// Minor version that added specializations: several functions with the same name.
const SPECIALIZATIONS_SINCE: u16 = 2;
/// Minor version that added signatures.
const SIGNATURES_SINCE: u16 = 5;

pub(crate) const HEADER_SIZE: usize = 128;
/// Number of header bytes covered by the header's hash.
const HASHED_HEADER: usize = 96;
pub(crate) const CHUNK_ALIGNMENT: u64 = 256;
pub(crate) const ARTIFACT_ALIGNMENT: u64 = 16;
/// Maximum encoded size of a manifest. It bounds the memory that a hostile file can make the decoder allocate.
pub(crate) const MANIFEST_LIMIT: usize = 64 << 20;

/// The header: the first 128 bytes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub major: u16,
    pub minor: u16,
    /// Size of the file without its signature.
    pub file_size: u64,
    pub manifest_offset: u64,
    pub manifest_size: u64,
    pub manifest_hash: Hash,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let mut bytes = Vec::with_capacity(HEADER_SIZE);
        bytes.extend(MAGIC);
        bytes.extend(self.major.to_le_bytes());
        bytes.extend(self.minor.to_le_bytes());
        bytes.extend((HEADER_SIZE as u32).to_le_bytes());
        bytes.extend(self.file_size.to_le_bytes());
        bytes.extend(self.manifest_offset.to_le_bytes());
        bytes.extend(self.manifest_size.to_le_bytes());
        bytes.extend(self.manifest_hash.0);
        bytes.resize(HASHED_HEADER, 0);
        let hash = Hash::digest(&bytes);
        bytes.extend(hash.0);
        std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0))
    }
}

fn encode(manifest: &Manifest) -> Result<Vec<u8>> {
    let bytes = bincode::serde::encode_to_vec(manifest, bincode::config::standard())
        .map_err(|error| Error::invalid("manifest", format!("the manifest cannot be encoded: {error}")))?;
    match bytes.len() > MANIFEST_LIMIT {
        true => {
            Err(Error::invalid("manifest", format!("the manifest is larger than {MANIFEST_LIMIT} bytes")))
        }
        false => Ok(bytes),
    }
}

fn decode(bytes: &[u8], at: u64, known_minor: u16) -> Result<Manifest> {
    let mut reader = decode::Reader { rest: bytes, known_minor };
    let manifest = decode::manifest(&mut reader);
    let at = at + (bytes.len() - reader.rest.len()) as u64;
    match manifest {
        Ok(manifest) if reader.rest.is_empty() => Ok(manifest),
        Ok(_) => Err(Error::corrupt("manifest", at, "there are bytes after the end of the manifest")),
        Err(fault) => Err(Error::corrupt("manifest", at, fault.reason())),
    }
}
