//! Memory strategy "greedy by breadth": visits dispatches in descending order of live bytes. At each dispatch, it
//! assigns tensors without a shared object, the largest first, to the smallest free object that holds them, else to the
//! largest free one.

use std::cmp::Reverse;

use super::LiveRange;
use super::bounds::breadths;
use super::conflicts::Conflicts;
use super::objects::Objects;

/// Returns the index of each live range's shared object.
pub(super) fn objects(ranges: &[LiveRange], _conflicts: &Conflicts) -> Vec<usize> {
    let breadths = breadths(ranges);
    let mut dispatches: Vec<usize> = (0..breadths.len()).collect();
    dispatches.sort_by_key(|d| (Reverse(breadths[*d]), *d));
    let mut objects = Objects::default();
    let mut out: Vec<Option<usize>> = vec![None; ranges.len()];
    let mut largest: Vec<usize> = (0..ranges.len()).collect();
    largest.sort_by_key(|i| (Reverse(ranges[*i].size), *i));
    for dispatch in dispatches {
        for &i in &largest {
            let range = &ranges[i];
            if out[i].is_none() && range.first <= dispatch && dispatch <= range.last {
                let found = objects.best_fit(range);
                out[i] = Some(objects.assign(found, range));
            }
        }
    }
    out.into_iter().map(Option::unwrap_or_default).collect()
}
