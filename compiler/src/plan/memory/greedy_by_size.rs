//! Greedy by size, for offsets: tensors are placed from the largest down, each into the smallest gap that fits
//! between the tensors placed already whose live ranges meet its own, or after the last of them.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::fit::{Gap, descending, place};

/// The offset of each range.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    place(ranges, conflicts, &descending(ranges, |i| u128::from(ranges[i].size)), Gap::Tightest)
}
