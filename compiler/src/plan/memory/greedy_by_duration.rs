//! Memory strategy "greedy by duration": places tensors in descending order of duration. Tensors that live through the
//! whole network then lie at the bottom of the arena.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::gaps::{descending, place_best};

/// Returns the byte offset of each live range in the arena.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let duration = |i: usize| (ranges[i].last - ranges[i].first) as u128;
    place_best(ranges, conflicts, &descending(ranges, duration))
}
