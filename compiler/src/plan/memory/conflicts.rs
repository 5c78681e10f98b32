//! Which tensors are live together.

use super::LiveRange;

/// For each range the others that are ever live with it, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflicts {
    with: Vec<Vec<usize>>,
}

impl Conflicts {
    /// Sweeps over the ranges in order of their beginning, keeping those that have not ended.
    pub(super) fn of(ranges: &[LiveRange]) -> Self {
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

    /// How many pairs there are, each counted from both sides.
    pub(super) fn pairs(&self) -> usize {
        self.with.iter().map(Vec::len).sum()
    }

    /// The ranges that are live with one.
    pub(super) fn with(&self, index: usize) -> &[usize] {
        &self.with[index]
    }
}
