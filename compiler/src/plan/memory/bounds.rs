//! Lower bounds of the memory that any placement of tensors needs.

use super::LiveRange;

/// Minimum bytes of an arena that holds all tensors: the largest sum of live sizes at any dispatch.
pub fn offsets(ranges: &[LiveRange]) -> u64 {
    let mut change = vec![0i128; length(ranges) + 1];
    for r in ranges {
        change[r.first] += i128::from(r.size);
        change[r.last + 1] -= i128::from(r.size);
    }
    let mut live = 0i128;
    let mut max = 0i128;
    for c in change {
        live += c;
        max = max.max(live);
    }
    u64::try_from(max).unwrap_or(u64::MAX)
}

/// Minimum bytes of all shared objects together: the sum of the positional maxima. Shared objects are buffers that tensors use
/// one after another.
pub fn objects(ranges: &[LiveRange]) -> u64 {
    positional_maxima(ranges).iter().sum()
}

/// Positional maxima: entry k is the maximum over all dispatches of the k-th largest live size. In any set of shared
/// objects, the k-th largest object is at least this large.
pub fn positional_maxima(ranges: &[LiveRange]) -> Vec<u64> {
    let mut maxima: Vec<u64> = Vec::new();
    for mut sizes in live_sizes(ranges) {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        for (k, size) in sizes.into_iter().enumerate() {
            match maxima.get_mut(k) {
                Some(max) => *max = size.max(*max),
                None => maxima.push(size),
            }
        }
    }
    maxima
}

/// Sum of the live tensors' bytes at each dispatch.
pub fn breadths(ranges: &[LiveRange]) -> Vec<u64> {
    live_sizes(ranges).iter().map(|sizes| sizes.iter().sum()).collect()
}

/// For each dispatch, the size in bytes of each live tensor.
fn live_sizes(ranges: &[LiveRange]) -> Vec<Vec<u64>> {
    let mut live = vec![Vec::new(); length(ranges)];
    for r in ranges {
        for sizes in &mut live[r.first..=r.last] {
            sizes.push(r.size);
        }
    }
    live
}

/// Number of dispatches that the live ranges span.
fn length(ranges: &[LiveRange]) -> usize {
    ranges.iter().map(|r| r.last + 1).max().unwrap_or(0)
}
