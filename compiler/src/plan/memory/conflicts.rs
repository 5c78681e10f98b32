//! Pairs of tensors that are live together.

use super::LiveRange;

/// For each live range, the others that overlap it, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflicts {
    with: Vec<Vec<usize>>,
}

impl Conflicts {
    /// Finds all overlaps by a sweep over the ranges in order of their first dispatch.
    pub(super) fn from_ranges(ranges: &[LiveRange]) -> Self {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|i| (ranges[*i].first, *i));
        let mut with = vec![Vec::new(); ranges.len()];
        let mut live: Vec<usize> = Vec::new();
        for i in order {
            live.retain(|j| ranges[*j].last >= ranges[i].first);
            for j in &live {
                with[i].push(*j);
                with[*j].push(i);
            }
            live.push(i);
        }
        for list in &mut with {
            list.sort_unstable();
        }
        Self { with }
    }

    /// Number of overlapping pairs, each counted twice.
    pub(super) fn pairs(&self) -> usize {
        self.with.iter().map(Vec::len).sum()
    }

    /// Returns the ranges that overlap a range.
    pub(super) fn with(&self, index: usize) -> &[usize] {
        &self.with[index]
    }
}
