//! Naive: every tensor has its own object. What sharing is compared with.

use super::Record;
use super::conflicts::Conflicts;

/// The shared object of each record.
pub(super) fn objects(records: &[Record], _conflicts: &Conflicts) -> Vec<usize> {
    (0..records.len()).collect()
}
