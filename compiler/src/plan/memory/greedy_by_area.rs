//! Memory strategy "greedy by area": places tensors in descending order of size times duration, because large
//! long-lived tensors are the hardest to place.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::gaps::{descending, place_best};

/// Returns the byte offset of each live range in the arena.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let area = |i: usize| u128::from(ranges[i].size) * (ranges[i].last - ranges[i].first + 1) as u128;
    place_best(ranges, conflicts, &descending(ranges, area))
}
