//! Greedy by conflict: tensors are placed from the one whose company is largest down. The company of a tensor is the
//! largest sum of sizes live at one of its dispatches, so the crowded dispatches, which decide the peak, are packed
//! first and everything else fits around them.

use super::LiveRange;
use super::bounds::breadths;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each range.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let breadths = breadths(ranges);
    let company = |i: usize| {
        let at = &breadths[ranges[i].first..=ranges[i].last];
        u128::from(at.iter().copied().max().unwrap_or(0))
    };
    place_best(ranges, conflicts, &descending(ranges, company))
}
