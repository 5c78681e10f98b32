//! Memory strategy "greedy in order" (Algorithm 1 of TFLite GPU): in order of execution, a tensor reuses the free
//! shared object whose size is closest to the tensor's. The object grows if necessary. The tensor gets a new object
//! only if no object is free.

use super::LiveRange;
use super::conflicts::Conflicts;
use super::objects::{Objects, by_first};

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    let mut objects = Objects::default();
    let mut out = vec![0; ranges.len()];
    for i in by_first(ranges) {
        let range = &ranges[i];
        let free = (0..objects.len()).filter(|o| objects.is_free(*o, range));
        let found = free.min_by_key(|o| (objects.size(*o).abs_diff(range.size), *o));
        out[i] = objects.assign(found, range);
    }
    out
}
