//! Greedy by duration: tensors are placed from the longest-lived down, so that those which live through the whole
//! network lie at the bottom and the others come and go above them.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each range.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let duration = |i: usize| (ranges[i].last - ranges[i].first) as u128;
    place_best(ranges, conflicts, &descending(ranges, duration))
}
