//! What no placement can beat.

use super::LiveRange;

/// The largest sum of sizes live at one dispatch: the least that any arena needs.
pub fn offsets(ranges: &[LiveRange]) -> u64 {
    let mut change = vec![0i128; length(ranges) + 1];
    for r in ranges {
        change[r.first] += i128::from(r.size);
        change[r.last + 1] -= i128::from(r.size);
    }
    let mut live = 0i128;
    let mut most = 0i128;
    for c in change {
        live += c;
        most = most.max(live);
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// The sum of the positional maxima: the least that shared objects need.
pub fn objects(ranges: &[LiveRange]) -> u64 {
    positional_maxima(ranges).iter().sum()
}

/// For each k, the largest size that is k-th among those live at one dispatch. Of any set of shared objects the
/// k-th largest is no smaller.
pub fn positional_maxima(ranges: &[LiveRange]) -> Vec<u64> {
    let mut maxima: Vec<u64> = Vec::new();
    for mut sizes in live_sizes(ranges) {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        for (k, size) in sizes.into_iter().enumerate() {
            match maxima.get_mut(k) {
                Some(most) => *most = size.max(*most),
                None => maxima.push(size),
            }
        }
    }
    maxima
}

/// The sum of sizes live at each dispatch.
pub fn breadths(ranges: &[LiveRange]) -> Vec<u64> {
    live_sizes(ranges).iter().map(|sizes| sizes.iter().sum()).collect()
}

/// The sizes live at each dispatch.
fn live_sizes(ranges: &[LiveRange]) -> Vec<Vec<u64>> {
    let mut live = vec![Vec::new(); length(ranges)];
    for r in ranges {
        for sizes in &mut live[r.first..=r.last] {
            sizes.push(r.size);
        }
    }
    live
}

/// Dispatches that any range knows of.
fn length(ranges: &[LiveRange]) -> usize {
    ranges.iter().map(|r| r.last + 1).max().unwrap_or(0)
}
