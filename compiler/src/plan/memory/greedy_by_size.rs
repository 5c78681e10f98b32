//! Memory strategy "greedy by size" that assigns offsets: places tensors in descending order of size, each into the smallest gap
//! between placed tensors that are live together with it, or after the last of them.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::gaps::{Gap, descending, place};

/// Returns the byte offset of each live range in the arena.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    place(ranges, conflicts, &descending(ranges, |i| u128::from(ranges[i].size)), Gap::Tightest)
}
