//! Memory strategy "equality": in order of execution, a tensor reuses a free shared object of exactly its size, or gets
//! a new one.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::objects::{Objects, by_first};

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    let mut objects = Objects::default();
    let mut out = vec![0; ranges.len()];
    for i in by_first(ranges) {
        let range = &ranges[i];
        let fits = |o: &usize| objects.size(*o) == range.size && objects.is_free(*o, range);
        let found = (0..objects.len()).find(fits);
        out[i] = objects.assign(found, range);
    }
    out
}
