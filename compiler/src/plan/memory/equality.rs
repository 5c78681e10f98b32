//! Equality: in order of execution, a tensor takes a free object of exactly its size, or a new one.

use super::Record;
use super::conflicts::Conflicts;
use super::objects::{Objects, by_first};

/// The shared object of each record.
pub(super) fn objects(records: &[Record], _conflicts: &Conflicts) -> Vec<usize> {
    let mut objects = Objects::default();
    let mut out = vec![0; records.len()];
    for i in by_first(records) {
        let record = &records[i];
        let fits = |o: &usize| objects.size(*o) == record.size && objects.is_free(*o, record);
        let found = (0..objects.len()).find(fits);
        out[i] = objects.assign(found, record);
    }
    out
}
