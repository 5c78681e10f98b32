//! Greedy by duration: tensors are placed from the longest-lived down, so that those which live through the whole
//! network lie at the bottom and the others come and go above them.

use super::Record;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each record.
pub(super) fn offsets(records: &[Record], conflicts: &Conflicts) -> Vec<u64> {
    let duration = |i: usize| (records[i].last - records[i].first) as u128;
    place_best(records, conflicts, &descending(records, duration))
}
