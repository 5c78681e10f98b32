//! Greedy by breadth: dispatches from the one with most live bytes down; at each, the tensors that have no object
//! yet from the largest down take the smallest free object that holds them, else the largest free one.

use std::cmp::Reverse;

use super::Record;
use super::bounds::breadths;
use super::conflicts::Conflicts;
use super::objects::Objects;

/// The shared object of each record.
pub(super) fn objects(records: &[Record], _conflicts: &Conflicts) -> Vec<usize> {
    let breadths = breadths(records);
    let mut dispatches: Vec<usize> = (0..breadths.len()).collect();
    dispatches.sort_by_key(|d| (Reverse(breadths[*d]), *d));
    let mut objects = Objects::default();
    let mut out: Vec<Option<usize>> = vec![None; records.len()];
    let mut largest: Vec<usize> = (0..records.len()).collect();
    largest.sort_by_key(|i| (Reverse(records[*i].size), *i));
    for dispatch in dispatches {
        for &i in &largest {
            let record = &records[i];
            if out[i].is_none() && record.first <= dispatch && dispatch <= record.last {
                let found = objects.best(record);
                out[i] = Some(objects.assign(found, record));
            }
        }
    }
    out.into_iter().map(Option::unwrap_or_default).collect()
}
