//! Reads and checks the header, the manifest and the file layout.

use super::{
    CHUNK_ALIGNMENT, HASHED_HEADER, HEADER_SIZE, Header, MAGIC, MANIFEST_LIMIT, SIGNATURES_SINCE,
    SPECIALIZATIONS_SINCE, VERSION_MAJOR, VERSION_MINOR, decode, signature,
};
use crate::error::{Error, Result};
use crate::order;
use crate::{Hash, Manifest, validate};

/// A chunk, an artifact or the manifest: its range of the bundle file and its expected hash.
#[derive(Clone, Debug, PartialEq)]
pub struct Extent {
    pub section: String,
    pub offset: u64,
    pub size: u64,
    pub hash: Hash,
}

/// Reads the header, and checks its hash, its version and the sizes that it states for the file.
pub fn read_header(file: &[u8]) -> Result<Header> {
    read_header_as(file, VERSION_MINOR)
}

fn read_header_as(file: &[u8], known_minor: u16) -> Result<Header> {
    if file.get(..MAGIC.len()) != Some(MAGIC.as_slice()) {
        return Err(Error::NotABundle);
    }
    let Some((header, _)) = file.split_at_checked(HEADER_SIZE) else {
        return Err(Error::corrupt("header", file.len() as u64, "the file ends inside it"));
    };
    let mut fields = Fields { rest: header.get(MAGIC.len()..).unwrap_or_default() };
    let (major, minor) = (u16::from_le_bytes(fields.take()), u16::from_le_bytes(fields.take()));
    if header.get(HASHED_HEADER..)
        != Some(Hash::digest(header.get(..HASHED_HEADER).unwrap_or_default()).0.as_slice())
    {
        return Err(Error::corrupt("header", 0, "the bytes do not match their hash"));
    }
    if major != VERSION_MAJOR {
        return Err(Error::Version {
            found: format!("{major}.{minor}"),
            supported: format!("{VERSION_MAJOR}.x"),
        });
    }
    let header_size = u32::from_le_bytes(fields.take());
    let header = Header {
        major,
        minor,
        file_size: u64::from_le_bytes(fields.take()),
        manifest_offset: u64::from_le_bytes(fields.take()),
        manifest_size: u64::from_le_bytes(fields.take()),
        manifest_hash: Hash(fields.take()),
    };
    let reserved: [u8; 24] = fields.take();
    if usize::try_from(header_size) != Ok(HEADER_SIZE) || reserved != [0; 24] {
        return Err(Error::corrupt(
            "header",
            12,
            "the header has another size or other reserved bytes than this version",
        ));
    }
    check_end(file, &header, known_minor)?;
    if header.manifest_offset.checked_add(header.manifest_size) != Some(header.file_size)
        || header.manifest_offset < HEADER_SIZE as u64
        || header.manifest_size > MANIFEST_LIMIT as u64
    {
        return Err(Error::corrupt("header", 24, "the manifest does not lie at the end of the file"));
    }
    Ok(header)
}

/// Checks the bytes from `file_size` on: the file ends there, or a signature follows.
fn check_end(file: &[u8], header: &Header, known_minor: u16) -> Result<()> {
    let length = file.len() as u64;
    if header.file_size == length {
        return Ok(());
    }
    if known_minor >= SIGNATURES_SINCE && signature::is_signed(file, header.file_size) {
        return Ok(());
    }
    if header.file_size < length && header.minor > known_minor {
        return Err(newer(header, known_minor));
    }
    let reason = format!("the file has {length} bytes, but the header says {}", header.file_size);
    Err(Error::corrupt("header", 16, reason))
}

/// Reads, checks and decodes the manifest, and checks that it accounts for every byte of the file. The bytes of
/// chunks and artifacts are not checked; see [`verify`](super::verify()).
///
/// # Errors
/// [`Error::Version`] if the bundle needs a later version of the format; otherwise [`Error::NotABundle`],
/// [`Error::Corrupt`] or [`Error::Invalid`].
pub fn read_manifest(file: &[u8]) -> Result<Manifest> {
    read_manifest_as(file, VERSION_MINOR)
}

/// Like [`read_manifest`], for a reader that knows the minor version `known_minor` of the format. Tests use it to
/// read bundles as older and newer runtimes do.
#[doc(hidden)]
pub fn read_manifest_as(file: &[u8], known_minor: u16) -> Result<Manifest> {
    let header = read_header_as(file, known_minor)?;
    let bytes = section(file, header.manifest_offset, header.manifest_size)?;
    if Hash::digest(bytes) != header.manifest_hash {
        return Err(Error::corrupt("manifest", header.manifest_offset, "the bytes do not match their hash"));
    }
    let checked = decode(bytes, header.manifest_offset, known_minor).and_then(|manifest| {
        if known_minor < SPECIALIZATIONS_SINCE && has_specializations(&manifest) {
            return Err(Error::invalid("functions", "two functions have one name"));
        }
        validate(&manifest)?;
        check_layout(file, &header, &manifest)?;
        Ok(manifest)
    });
    match checked {
        // The manifest is undamaged, so it uses an addition of its version.
        Err(Error::Corrupt { .. } | Error::Invalid { .. }) if header.minor > known_minor => {
            Err(newer(&header, known_minor))
        }
        checked => checked,
    }
}

/// Error for a bundle that uses additions of a later minor version than the reader knows.
fn newer(header: &Header, known_minor: u16) -> Error {
    Error::Version {
        found: format!("{}.{}", header.major, header.minor),
        supported: format!("{VERSION_MAJOR}.{known_minor}"),
    }
}

/// True if a variant has several functions with the same name.
fn has_specializations(manifest: &Manifest) -> bool {
    manifest
        .variants
        .iter()
        .any(|variant| (0..variant.functions.len()).any(|function| variant.is_specialization(function)))
}

/// Returns `size` bytes of the file from `offset` on.
pub fn section(file: &[u8], offset: u64, size: u64) -> Result<&[u8]> {
    let start = usize::try_from(offset).ok();
    let end = offset.checked_add(size).and_then(|end| usize::try_from(end).ok());
    start.zip(end).and_then(|(start, end)| file.get(start..end)).ok_or_else(|| {
        Error::corrupt(
            "section",
            offset,
            format!("{size} bytes at this offset extend past the end of the file"),
        )
    })
}

impl Manifest {
    /// Returns the ranges and hashes of all chunks, then of all artifacts, each in list order.
    pub fn extents(&self) -> Vec<Extent> {
        let chunks = self.chunks.iter().enumerate().map(|(index, chunk)| Extent {
            section: format!("chunk {index}"),
            offset: chunk.offset,
            size: chunk.size,
            hash: chunk.hash,
        });
        let artifacts = self.artifacts.iter().enumerate().map(|(index, artifact)| Extent {
            section: format!("artifact {index}"),
            offset: artifact.offset,
            size: artifact.size,
            hash: artifact.hash,
        });
        chunks.chain(artifacts).collect()
    }
}

/// Checks that sections follow each other without overlap from header to manifest, and that gaps are short and
/// zero.
fn check_layout(file: &[u8], header: &Header, manifest: &Manifest) -> Result<()> {
    let extents = manifest.extents();
    let sorted = order::sorted_indices(extents.iter().map(|extent| (extent.offset, extent.size)));
    let last = Extent {
        section: "manifest".to_owned(),
        offset: header.manifest_offset,
        size: header.manifest_size,
        hash: header.manifest_hash,
    };
    let mut end = HEADER_SIZE as u64;
    for extent in sorted.iter().filter_map(|index| extents.get(*index)).chain([&last]) {
        let gap = extent.offset.checked_sub(end);
        let Some(gap) = gap.filter(|gap| *gap < CHUNK_ALIGNMENT) else {
            let reason =
                format!("the section does not follow the previous section, which ends at byte {end}");
            return Err(Error::corrupt(&extent.section, extent.offset, reason));
        };
        if section(file, end, gap)?.iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt(
                "padding",
                end,
                format!("padding bytes before {} are not zero", extent.section),
            ));
        }
        end = extent.offset.saturating_add(extent.size);
    }
    Ok(())
}

/// Reader of the header's fields, which have fixed sizes, in order. The length of the header was checked.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.rest = rest;
                *field
            }
            None => [0; N],
        }
    }
}
