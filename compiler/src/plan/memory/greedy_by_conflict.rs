//! Memory strategy "greedy by conflict": places tensors in descending order of the largest sum of live sizes at any of
//! their dispatches. The dispatches with the most live bytes, which decide the peak, are thus placed first.

use super::LiveRange;
use super::bounds::breadths;
use super::conflicts::Conflicts;
use super::gaps::{descending, place_best};

/// Returns the byte offset of each live range in the arena.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let breadths = breadths(ranges);
    let company = |i: usize| {
        let at = &breadths[ranges[i].first..=ranges[i].last];
        u128::from(at.iter().copied().max().unwrap_or(0))
    };
    place_best(ranges, conflicts, &descending(ranges, company))
}
