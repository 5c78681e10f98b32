//! Greedy by conflict: tensors are placed from the one whose company is largest down. The company of a tensor is the
//! largest sum of sizes live at one of its dispatches, so the crowded dispatches, which decide the peak, are packed
//! first and everything else fits around them.

use super::Record;
use super::bounds::breadths;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each record.
pub(super) fn offsets(records: &[Record], conflicts: &Conflicts) -> Vec<u64> {
    let breadths = breadths(records);
    let company = |i: usize| {
        let at = &breadths[records[i].first..=records[i].last];
        u128::from(at.iter().copied().max().unwrap_or(0))
    };
    place_best(records, conflicts, &descending(records, company))
}
