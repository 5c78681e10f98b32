//! Greedy by size, for offsets (Pisarchyk and Lee, "Efficient memory management for deep neural net inference").
//!
//! Tensors are placed from the largest down. Each goes into the smallest gap that fits between the tensors placed
//! already whose live ranges meet its own, or after the last of them.

use super::Record;

/// Name in reports.
pub const NAME: &str = "greedy-by-size";

/// The offset of each record; equal sizes keep their order, so the result is deterministic.
pub fn offsets(records: &[Record]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(records[*i].size), *i));
    let mut offsets = vec![0u64; records.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(records.len());
    for index in order {
        let record = &records[index];
        let mut best: Option<(u64, u64)> = None;
        let mut end = 0u64;
        for other in placed.iter().filter(|o| records[**o].overlaps(record)) {
            let start = offsets[*other];
            if start > end {
                let gap = start - end;
                if gap >= record.size && best.is_none_or(|(g, _)| gap < g) {
                    best = Some((gap, end));
                }
            }
            end = end.max(start + records[*other].size);
        }
        offsets[index] = best.map_or(end, |(_, at)| at);
        let at = placed.partition_point(|o| (offsets[*o], *o) < (offsets[index], index));
        placed.insert(at, index);
    }
    offsets
}
