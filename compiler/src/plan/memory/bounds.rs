//! Lower bounds of any placement.

use super::LiveRange;

/// Minimum bytes of any arena: the largest sum of live sizes at any dispatch.
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

/// Minimum bytes of shared objects: the sum of the positional maxima.
pub fn objects(ranges: &[LiveRange]) -> u64 {
    positional_maxima(ranges).iter().sum()
}

/// Positional maxima: entry k is the largest size that is the k-th largest of the live sizes at any dispatch. In any
/// set of shared objects, the k-th largest object is at least this large.
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

/// Sum of the live sizes at each dispatch.
pub fn breadths(ranges: &[LiveRange]) -> Vec<u64> {
    live_sizes(ranges).iter().map(|sizes| sizes.iter().sum()).collect()
}

/// Live sizes at each dispatch.
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
