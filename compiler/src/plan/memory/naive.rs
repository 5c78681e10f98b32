//! Memory strategy "naive": every tensor has its own shared object. It is the baseline for reuse.

use super::LiveRange;
use super::conflicts::Conflicts;

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    (0..ranges.len()).collect()
}
