//! Greedy placement of tensors into gaps between placed tensors, used by several strategies.

use std::cmp::Reverse;

use super::LiveRange;
use super::conflicts::Conflicts;

/// Rule that selects a gap between placed tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// The smallest gap that the tensor fits.
    Tightest,
    /// The gap with the lowest offset that the tensor fits.
    Lowest,
}

/// Places live ranges one by one, in the given order of their indices. Each range goes into a gap between placed ranges that
/// overlap it in time, or after the last of them.
pub(super) fn place(ranges: &[LiveRange], conflicts: &Conflicts, order: &[usize], gap: Gap) -> Vec<u64> {
    let mut offsets: Vec<Option<u64>> = vec![None; ranges.len()];
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &index in order {
        taken.clear();
        let placed = conflicts.with(index).iter().filter_map(|o| Some((offsets[*o]?, ranges[*o].size)));
        taken.extend(placed.map(|(start, size)| (start, start + size)));
        taken.sort_unstable();
        offsets[index] = Some(find_gap(&taken, ranges[index].size, gap));
    }
    offsets.into_iter().map(Option::unwrap_or_default).collect()
}

/// Returns the offset of a gap of at least `size` bytes between byte ranges in ascending order, or the end of the last range if
/// there is no such gap.
fn find_gap(taken: &[(u64, u64)], size: u64, gap: Gap) -> u64 {
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

/// Returns the indices of live ranges in descending order of `key`. Ranges with equal keys are in descending order of size, then
/// in the order of their indices.
pub(super) fn descending(ranges: &[LiveRange], key: impl Fn(usize) -> u128) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_cached_key(|i| (Reverse(key(*i)), Reverse(ranges[*i].size), *i));
    order
}

/// Returns the byte offset at which the memory of all ranges ends.
pub(super) fn peak(ranges: &[LiveRange], offsets: &[u64]) -> u64 {
    offsets.iter().zip(ranges).map(|(o, r)| o + r.size).max().unwrap_or(0)
}

/// Places live ranges in the given order twice, by the rules for gaps "tightest" and "lowest". Returns the offset of each range
/// in the placement that needs less memory.
pub(super) fn place_best(ranges: &[LiveRange], conflicts: &Conflicts, order: &[usize]) -> Vec<u64> {
    let tight = place(ranges, conflicts, order, Gap::Tightest);
    let low = place(ranges, conflicts, order, Gap::Lowest);
    if peak(ranges, &low) < peak(ranges, &tight) { low } else { tight }
}
