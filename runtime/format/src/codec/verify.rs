//! The hashes of a file's ranges, compared in pieces on several threads.
//!
//! BLAKE3 hashes a tree. A range longer than a piece is cut along that tree, each piece is a subtree whose value does not
//! depend on the others, and the values are merged to the hash of the range.

use super::Extent;
use super::section;
use crate::Hash;
use crate::error::{Error, Result};
use crate::threads::beside;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use std::sync::{Mutex, PoisonError};

/// Bytes of a piece: a power of two times the 1024 bytes of a leaf, so that pieces are subtrees.
const PIECE: usize = 1 << 20;

/// Threads at most: fewer than there are cores, since meanwhile a driver is busy that is slow where it has to wait for one.
const N_THREADS: usize = 8;

/// A part of a range, and what is computed of it.
struct Piece<'a> {
    range: &'a [u8],
    start: usize,
    /// The hash of a range of one piece, else the value of a subtree.
    value: Mutex<ChainingValue>,
}

/// Compares the hash of each extent, on several threads; reports the first in the list's order that differs.
///
/// # Errors
/// [`Error::Corrupt`], which names the section and where it lies.
pub fn verify(file: &[u8], extents: &[Extent]) -> Result<()> {
    let mut pieces = Vec::new();
    for extent in extents {
        let range = section(file, extent.offset, extent.size)?;
        let starts = (0..range.len().max(1)).step_by(PIECE);
        pieces.extend(starts.map(|start| Piece { range, start, value: Mutex::default() }));
    }
    let job = |index: usize| {
        if let Some(piece) = pieces.get(index) {
            *piece.value.lock().unwrap_or_else(PoisonError::into_inner) = value(piece.range, piece.start);
        }
    };
    beside(N_THREADS, pieces.len(), &job, &mut || ());
    let mut values =
        pieces.into_iter().map(|piece| piece.value.into_inner().unwrap_or_else(PoisonError::into_inner));
    for extent in extents {
        if merged(&mut values, extent.size, true) != Some(extent.hash.0) {
            return Err(Error::corrupt(&extent.section, extent.offset, "its hash does not match"));
        }
    }
    Ok(())
}

/// The value of the piece of a range that begins at `start`.
fn value(range: &[u8], start: usize) -> ChainingValue {
    if range.len() <= PIECE {
        return Hash::of(range).0;
    }
    let piece = range.get(start..range.len().min(start + PIECE)).unwrap_or_default();
    blake3::Hasher::new().set_input_offset(start as u64).update(piece).finalize_non_root()
}

/// The value of a range of `length` bytes, or of a subtree of it, from the values of its pieces, which are taken from the front
/// of `values`.
fn merged(
    values: &mut dyn Iterator<Item = ChainingValue>,
    length: u64,
    whole: bool,
) -> Option<ChainingValue> {
    if length <= PIECE as u64 {
        return values.next();
    }
    let left = left_subtree_len(length);
    let (left, right) = (merged(values, left, false)?, merged(values, length - left, false)?);
    Some(match whole {
        true => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
        false => merge_subtrees_non_root(&left, &right, Mode::Hash),
    })
}

#[cfg(test)]
mod tests {
    use super::{Extent, PIECE, verify};
    use crate::Hash;

    #[test]
    fn ranges_of_all_lengths_have_their_hashes() {
        let bytes: Vec<u8> = (0..6 * PIECE + 1).map(|i| (i * i / 7) as u8).collect();
        let lengths =
            [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 17, 5 * PIECE, 6 * PIECE + 1];
        let extent = |length: usize| Extent {
            section: format!("range of {length}"),
            offset: (bytes.len() - length) as u64,
            size: length as u64,
            hash: Hash::of(&bytes[bytes.len() - length..]),
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
