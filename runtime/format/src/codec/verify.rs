//! Verifies the hashes of file sections on several threads.
//!
//! BLAKE3 hashes a tree. A section larger than [`SUBTREE_BYTES`] is split along that tree. Each part is a
//! subtree, whose chaining value does not depend on other parts. The chaining values are merged into the
//! section's hash.

use super::Extent;
use super::section;
use crate::Hash;
use crate::error::{Error, Result};
use crate::threads::run_jobs;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use std::sync::{Mutex, PoisonError};

/// Size of a subtree: a power of two times BLAKE3's leaf size of 1024 bytes.
const SUBTREE_BYTES: usize = 1 << 20;

/// Maximum number of threads. It is lower than typical core counts because the driver works at the same time.
const N_THREADS: usize = 8;

/// A BLAKE3 subtree of a section of the file.
struct Subtree<'a> {
    range: &'a [u8],
    start: usize,
    /// The section's hash if the section has only this subtree, else the subtree's BLAKE3 chaining value.
    value: Mutex<ChainingValue>,
}

/// Compares the bytes of each extent (a chunk, an artifact or the manifest) with its expected hash, on several threads.
/// Reports the first mismatch in list order.
///
/// # Errors
/// [`Error::Corrupt`] with the section and its offset.
pub fn verify(file: &[u8], extents: &[Extent]) -> Result<()> {
    let mut subtrees = Vec::new();
    for extent in extents {
        let range = section(file, extent.offset, extent.size)?;
        let starts = (0..range.len().max(1)).step_by(SUBTREE_BYTES);
        subtrees.extend(starts.map(|start| Subtree { range, start, value: Mutex::default() }));
    }
    let job = |index: usize| {
        if let Some(subtree) = subtrees.get(index) {
            *subtree.value.lock().unwrap_or_else(PoisonError::into_inner) =
                subtree_value(subtree.range, subtree.start);
        }
    };
    run_jobs(N_THREADS, subtrees.len(), &job, &mut || ());
    let mut values = subtrees
        .into_iter()
        .map(|subtree| subtree.value.into_inner().unwrap_or_else(PoisonError::into_inner));
    for extent in extents {
        if merge(&mut values, extent.size, true) != Some(extent.hash.0) {
            return Err(Error::corrupt(&extent.section, extent.offset, "the bytes do not match their hash"));
        }
    }
    Ok(())
}

/// Returns the chaining value of the subtree that begins at `start`, or the section's hash if the section has only one
/// subtree.
fn subtree_value(range: &[u8], start: usize) -> ChainingValue {
    if range.len() <= SUBTREE_BYTES {
        return Hash::digest(range).0;
    }
    let subtree = range.get(start..range.len().min(start + SUBTREE_BYTES)).unwrap_or_default();
    blake3::Hasher::new().set_input_offset(start as u64).update(subtree).finalize_non_root()
}

/// Merges the BLAKE3 chaining values of the subtrees of a range of `length` bytes, which it takes from the front of
/// `values`. If `whole` is true, the range is a whole section, and the result is its hash. Otherwise the result is the
/// chaining value of the range.
fn merge(values: &mut dyn Iterator<Item = ChainingValue>, length: u64, whole: bool) -> Option<ChainingValue> {
    if length <= SUBTREE_BYTES as u64 {
        return values.next();
    }
    let left = left_subtree_len(length);
    let (left, right) = (merge(values, left, false)?, merge(values, length - left, false)?);
    Some(match whole {
        true => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
        false => merge_subtrees_non_root(&left, &right, Mode::Hash),
    })
}

#[cfg(test)]
mod tests {
    use super::{Extent, SUBTREE_BYTES, verify};
    use crate::Hash;

    #[test]
    fn sections_of_all_lengths_verify() {
        let bytes: Vec<u8> = (0..6 * SUBTREE_BYTES + 1).map(|i| (i * i / 7) as u8).collect();
        let lengths = [
            0,
            1,
            SUBTREE_BYTES - 1,
            SUBTREE_BYTES,
            SUBTREE_BYTES + 1,
            2 * SUBTREE_BYTES,
            3 * SUBTREE_BYTES + 17,
            5 * SUBTREE_BYTES,
            6 * SUBTREE_BYTES + 1,
        ];
        let extent = |length: usize| Extent {
            section: format!("range of {length}"),
            offset: (bytes.len() - length) as u64,
            size: length as u64,
            hash: Hash::digest(&bytes[bytes.len() - length..]),
        };
        let extents = lengths.map(extent);
        verify(&bytes, &extents).unwrap();
        for (index, extent) in extents.iter().enumerate().skip(1) {
            let start = bytes.len() - lengths[index];
            for place in [start, start + lengths[index] / 2, bytes.len() - 1] {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1;
                let error = verify(&damaged, std::slice::from_ref(extent)).unwrap_err().to_string();
                assert!(error.contains(&extent.section), "{place}: {error}");
            }
        }
        let mut second = extents.clone();
        for damaged in [4, 7] {
            second[damaged].hash.0[0] ^= 1;
        }
        assert!(verify(&bytes, &second).unwrap_err().to_string().contains(&extents[4].section));
        let outside = Extent { offset: 1, size: bytes.len() as u64, ..extents[0].clone() };
        assert!(verify(&bytes, &[outside]).is_err());
    }
}
