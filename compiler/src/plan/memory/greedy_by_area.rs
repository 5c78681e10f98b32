//! Greedy by area: tensors are placed from the largest product of size and duration down, because a tensor that is
//! large and long-lived leaves the fewest places for itself.

use super::Record;
use super::conflicts::Conflicts;
use super::fit::{descending, place_best};

/// The offset of each record.
pub(super) fn offsets(records: &[Record], conflicts: &Conflicts) -> Vec<u64> {
    let area = |i: usize| u128::from(records[i].size) * (records[i].last - records[i].first + 1) as u128;
    place_best(records, conflicts, &descending(records, area))
}
