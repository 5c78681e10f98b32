//! Pairs of tensors that are live together.

use super::LiveRange;

/// For each live range, the indices of the live ranges that overlap it in time, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflicts {
    with: Vec<Vec<usize>>,
}

impl Conflicts {
    /// Finds all overlaps of live ranges by a sweep in order of their first dispatch.
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

    /// Number of pairs of live ranges that overlap in time, each pair counted twice.
    pub(super) fn pairs(&self) -> usize {
        self.with.iter().map(Vec::len).sum()
    }

    /// Returns the indices of the live ranges that overlap the given live range.
    pub(super) fn with(&self, index: usize) -> &[usize] {
        &self.with[index]
    }
}
