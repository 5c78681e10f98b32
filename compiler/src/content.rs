//! Bytes of constants, in memory or in a mapped file whose pages are released after use.
//!
//! A checkpoint may be larger than memory. Its files are mapped, and constants borrow ranges of the mappings. Code that
//! has read a range completely releases it: the operating system then drops the pages and reads them again if they are
//! needed later. So the memory of a process does not grow with the size of the checkpoint.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

/// Reference-counted bytes.
#[derive(Debug, Clone, Default)]
pub struct Content {
    bytes: Bytes,
    file: Option<Arc<Mmap>>,
}

/// Owner of a memory-mapped file: the file stays mapped while [`Bytes`] refer to it.
struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Content {
    /// Maps a file into memory. An empty file gives empty content without a mapping.
    ///
    /// # Errors
    /// If the file cannot be mapped.
    pub fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if metadata.len() == 0 {
            return Ok(Self::default());
        }
        // SAFETY: the mapping is private and only read. Another process that truncates the file while it is being
        // compiled ends this one with a signal; it cannot make a read leave the mapping.
        #[allow(unsafe_code)]
        let map = Arc::new(unsafe { Mmap::map(&file) }?);
        Ok(Self { bytes: Bytes::from_owner(Owner(Arc::clone(&map))), file: Some(map) })
    }

    /// Returns the content as plain bytes, which offer no way to release the pages of a mapped file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// True if the bytes are in a mapped file.
    pub fn is_mapped(&self) -> bool {
        self.file.is_some()
    }

    /// Returns a byte range of the content. Panics if the range is outside of the content, like slices do.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self { bytes: self.bytes.slice(range), file: self.file.clone() }
    }

    /// Lets the operating system drop the pages of a mapped file. The bytes stay readable: they are read from the file
    /// again.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Some((map, start)) = self.file_range() {
            // SAFETY: the mapping is of a file and never written, so a dropped page is read from the file again, with
            // the same bytes. A failure is harmless: the pages stay in memory.
            #[allow(unsafe_code)]
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, self.bytes.len())
            };
        }
    }

    /// Asks the operating system to read the bytes of a mapped file ahead.
    pub fn prefetch(&self) {
        #[cfg(unix)]
        if let Some((map, start)) = self.file_range() {
            // A failure is harmless: the pages are read when they are needed.
            let _ = map.advise_range(memmap2::Advice::WillNeed, start, self.bytes.len());
        }
    }

    /// Returns the mapped file and the offset of the content in it; `None` for content in memory.
    #[cfg(unix)]
    fn file_range(&self) -> Option<(&Mmap, usize)> {
        let map = self.file.as_deref()?;
        let start = (self.bytes.as_ptr() as usize).checked_sub(map.as_ptr() as usize)?;
        (start.checked_add(self.bytes.len())? <= map.len()).then_some((map, start))
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Content {}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, file: None }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn released_pages_are_read_again() {
        let path = std::env::temp_dir().join(format!("drift-content-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let content = Content::map(&path).unwrap();
        let part = content.slice(5000..90_000);
        part.prefetch();
        assert_eq!(&*part, &bytes[5000..90_000]);
        part.release();
        assert_eq!(&*content, bytes.as_slice());
        assert!(part.is_mapped() && !Content::from(bytes).is_mapped());
        std::fs::remove_file(&path).unwrap();
    }
}
