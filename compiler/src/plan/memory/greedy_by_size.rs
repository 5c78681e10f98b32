//! Greedy by size, for offsets: tensors are placed from the largest down, each into the smallest gap that fits
//! between the tensors placed already whose live ranges meet its own, or after the last of them.

use super::Record;
use super::conflicts::Conflicts;
use super::fit::{Gap, descending, place};

/// The offset of each record.
pub(super) fn offsets(records: &[Record], conflicts: &Conflicts) -> Vec<u64> {
    place(records, conflicts, &descending(records, |i| u128::from(records[i].size)), Gap::Tightest)
}
