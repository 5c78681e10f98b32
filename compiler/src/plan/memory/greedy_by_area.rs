//! Greedy by area: tensors are placed from the largest product of size and duration down, because a tensor that is
//! large and long-lived leaves the fewest places for itself.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each range.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let area = |i: usize| u128::from(ranges[i].size) * (ranges[i].last - ranges[i].first + 1) as u128;
    place_best(ranges, conflicts, &descending(ranges, area))
}
