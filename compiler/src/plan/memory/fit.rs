//! Placing tensors one by one, each into a gap between those placed already: what greedy strategies share.

use std::cmp::Reverse;

use super::LiveRange;
use super::conflicts::Conflicts;

/// Which gap a tensor goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// The smallest that fits.
    Tightest,
    /// The first that fits.
    Lowest,
}

/// Places ranges in an order. Each goes into a gap between the ranges that are live with it and placed already, or
/// after the last of them.
pub(super) fn place(ranges: &[LiveRange], conflicts: &Conflicts, order: &[usize], gap: Gap) -> Vec<u64> {
    let mut offsets: Vec<Option<u64>> = vec![None; ranges.len()];
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &index in order {
        taken.clear();
        let placed = conflicts.with(index).iter().filter_map(|o| Some((offsets[*o]?, ranges[*o].size)));
        taken.extend(placed.map(|(start, size)| (start, start + size)));
        taken.sort_unstable();
        offsets[index] = Some(find(&taken, ranges[index].size, gap));
    }
    offsets.into_iter().map(Option::unwrap_or_default).collect()
}

/// Where `size` bytes go between ranges in ascending order.
fn find(taken: &[(u64, u64)], size: u64, gap: Gap) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut end = 0u64;
    for &(start, stop) in taken {
        let room = start.saturating_sub(end);
        if start > end && room >= size && best.is_none_or(|(least, _)| room < least) {
            best = Some((room, end));
            if gap == Gap::Lowest {
                break;
            }
        }
        end = end.max(stop);
    }
    best.map_or(end, |(_, at)| at)
}

/// The ranges from the largest key down; among equal keys the larger range, then the earlier one.
pub(super) fn descending(ranges: &[LiveRange], key: impl Fn(usize) -> u128) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_cached_key(|i| (Reverse(key(*i)), Reverse(ranges[*i].size), *i));
    order
}

/// The end of the last range.
pub(super) fn peak(ranges: &[LiveRange], offsets: &[u64]) -> u64 {
    offsets.iter().zip(ranges).map(|(o, r)| o + r.size).max().unwrap_or(0)
}

/// The better of the two gaps for an order.
pub(super) fn place_best(ranges: &[LiveRange], conflicts: &Conflicts, order: &[usize]) -> Vec<u64> {
    let tight = place(ranges, conflicts, order, Gap::Tightest);
    let low = place(ranges, conflicts, order, Gap::Lowest);
    if peak(ranges, &low) < peak(ranges, &tight) { low } else { tight }
}
