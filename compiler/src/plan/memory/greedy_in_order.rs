//! Greedy in order (Algorithm 1 of TFLite GPU): in order of execution, a tensor takes the free object whose size is
//! closest to its own, growing it if it must; a new one only when none is free.

use super::Record;
use super::conflicts::Conflicts;
use super::objects::{Objects, by_first};

/// The shared object of each record.
pub(super) fn objects(records: &[Record], _conflicts: &Conflicts) -> Vec<usize> {
    let mut objects = Objects::default();
    let mut out = vec![0; records.len()];
    for i in by_first(records) {
        let record = &records[i];
        let free = (0..objects.len()).filter(|o| objects.is_free(*o, record));
        let found = free.min_by_key(|o| (objects.size(*o).abs_diff(record.size), *o));
        out[i] = objects.assign(found, record);
    }
    out
}
