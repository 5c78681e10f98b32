//! Where intermediate tensors live in the arena.
//!
//! A tensor is live from the dispatch that writes it to the last one that reads it; tensors that are never live
//! together may share bytes.

pub mod greedy_by_size;

/// One intermediate tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Bytes, already rounded to the alignment.
    pub size: u64,
    /// The dispatch that first writes it.
    pub first: usize,
    /// The last dispatch that touches it.
    pub last: usize,
}

impl Record {
    /// Whether two tensors are ever live together.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A placement of every tensor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Byte offset of each tensor, in the order of the records.
    pub offsets: Vec<u64>,
    /// Bytes of the arena.
    pub peak: u64,
    /// No placement can need fewer bytes: the largest sum of sizes live at one time.
    pub lower_bound: u64,
    /// Bytes when nothing is shared.
    pub naive: u64,
    /// Name of the strategy.
    pub strategy: &'static str,
}

/// Places every tensor.
pub fn plan(records: &[Record]) -> MemoryPlan {
    let offsets = greedy_by_size::offsets(records);
    let peak = offsets.iter().zip(records).map(|(o, r)| o + r.size).max().unwrap_or(0);
    MemoryPlan {
        offsets,
        peak,
        lower_bound: lower_bound(records),
        naive: records.iter().map(|r| r.size).sum(),
        strategy: greedy_by_size::NAME,
    }
}

/// The largest sum of sizes live at one dispatch.
fn lower_bound(records: &[Record]) -> u64 {
    let end = records.iter().map(|r| r.last + 1).max().unwrap_or(0);
    let mut change = vec![0i128; end + 1];
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

#[cfg(test)]
mod tests {
    use super::{Record, plan};

    #[test]
    fn nothing_live_together_overlaps() {
        // A pseudo-random set of live ranges.
        let mut seed = 7u64;
        let mut draw = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..50 {
            let records: Vec<Record> = (0..40)
                .map(|_| {
                    let first = draw(30) as usize;
                    Record { size: 16 * (1 + draw(9)), first, last: first + draw(6) as usize }
                })
                .collect();
            let plan = plan(&records);
            assert!(plan.peak >= plan.lower_bound && plan.peak <= plan.naive);
            for (i, a) in records.iter().enumerate() {
                for (j, b) in records.iter().enumerate().skip(i + 1) {
                    let apart = plan.offsets[i] + a.size <= plan.offsets[j]
                        || plan.offsets[j] + b.size <= plan.offsets[i];
                    assert!(apart || !a.overlaps(b), "{i} and {j}");
                }
            }
        }
    }
}
