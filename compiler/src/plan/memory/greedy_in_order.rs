//! Greedy in order (Algorithm 1 of TFLite GPU): in order of execution, a tensor takes the free object whose size is
//! closest to its own, growing it if it must; a new one when that would waste more than the tensor itself.

use super::Record;
use super::conflicts::Conflicts;
use super::objects::{Objects, by_first};

/// The shared object of each record.
pub(super) fn objects(records: &[Record], _conflicts: &Conflicts) -> Vec<usize> {
    let mut objects = Objects::default();
    let mut out = vec![0; records.len()];
    for i in by_first(records) {
        let record = &records[i];
        let waste = |o: usize| objects.size(o).abs_diff(record.size);
        let closest =
            (0..objects.len()).filter(|o| objects.is_free(*o, record)).min_by_key(|o| (waste(*o), *o));
        let found = closest.filter(|o| waste(*o) < record.size);
        out[i] = objects.assign(found, record);
    }
    out
}
