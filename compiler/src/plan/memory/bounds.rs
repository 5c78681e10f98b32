//! What no placement can beat.

use super::Record;

/// The largest sum of sizes live at one dispatch: the least that any arena needs.
pub fn offsets(records: &[Record]) -> u64 {
    let mut change = vec![0i128; length(records) + 1];
    for r in records {
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
pub fn objects(records: &[Record]) -> u64 {
    positional_maxima(records).iter().sum()
}

/// For each k, the largest size that is k-th among those live at one dispatch. Of any set of shared objects the
/// k-th largest is no smaller.
pub fn positional_maxima(records: &[Record]) -> Vec<u64> {
    let mut maxima: Vec<u64> = Vec::new();
    for mut sizes in live_sizes(records) {
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
pub fn breadths(records: &[Record]) -> Vec<u64> {
    live_sizes(records).iter().map(|sizes| sizes.iter().sum()).collect()
}

/// The sizes live at each dispatch.
fn live_sizes(records: &[Record]) -> Vec<Vec<u64>> {
    let mut live = vec![Vec::new(); length(records)];
    for r in records {
        for sizes in &mut live[r.first..=r.last] {
            sizes.push(r.size);
        }
    }
    live
}

/// Dispatches that any record knows of.
fn length(records: &[Record]) -> usize {
    records.iter().map(|r| r.last + 1).max().unwrap_or(0)
}
