//! Shared objects: buffers that tensors use one after another, for strategies that assign tensors to buffers.

use super::LiveRange;

/// Sizes of the shared objects so far, and the dispatches that use them.
#[derive(Debug, Default)]
pub(super) struct Objects {
    sizes: Vec<u64>,
    /// For each shared object, the first and last dispatch of each live range that uses it.
    busy: Vec<Vec<(usize, usize)>>,
}

impl Objects {
    /// True if a shared object is free while a live range is live.
    pub(super) fn is_free(&self, object: usize, range: &LiveRange) -> bool {
        self.busy[object].iter().all(|(first, last)| *last < range.first || range.last < *first)
    }

    /// Distance, in dispatches, between a live range and the nearest one of the live ranges that use a shared object. The object
    /// must be free while `range` is live.
    pub(super) fn distance(&self, object: usize, range: &LiveRange) -> usize {
        let distance = |(first, last): &(usize, usize)| {
            if *last < range.first { range.first - last } else { first.saturating_sub(range.last) }
        };
        self.busy[object].iter().map(distance).min().unwrap_or(usize::MAX)
    }

    /// Returns the best shared object that is free for a live range: the smallest that holds the range, else the
    /// largest, which then grows.
    pub(super) fn best_fit(&self, range: &LiveRange) -> Option<usize> {
        let free = || (0..self.sizes.len()).filter(|o| self.is_free(*o, range));
        let holds = free().filter(|o| self.sizes[*o] >= range.size).min_by_key(|o| self.sizes[*o]);
        holds.or_else(|| free().max_by_key(|o| (self.sizes[*o], std::cmp::Reverse(*o))))
    }

    /// Size of a shared object in bytes.
    pub(super) fn size(&self, object: usize) -> u64 {
        self.sizes[object]
    }

    /// Number of shared objects.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Adds a live range to a shared object, or to a new one. Returns the index of the object.
    pub(super) fn assign(&mut self, object: Option<usize>, range: &LiveRange) -> usize {
        let object = object.unwrap_or_else(|| {
            self.sizes.push(0);
            self.busy.push(Vec::new());
            self.sizes.len() - 1
        });
        self.sizes[object] = self.sizes[object].max(range.size);
        self.busy[object].push((range.first, range.last));
        object
    }
}

/// Returns the byte offset of each live range if the shared objects lie one after the other in memory.
pub(super) fn offsets(ranges: &[LiveRange], objects: &[usize]) -> Vec<u64> {
    let count = objects.iter().map(|o| o + 1).max().unwrap_or(0);
    let mut sizes = vec![0u64; count];
    for (object, range) in objects.iter().zip(ranges) {
        sizes[*object] = sizes[*object].max(range.size);
    }
    let mut end = 0;
    let starts: Vec<u64> = sizes
        .iter()
        .map(|size| {
            end += size;
            end - size
        })
        .collect();
    objects.iter().map(|o| starts[*o]).collect()
}

/// Orders live ranges by first dispatch, then by index.
pub(super) fn by_first(ranges: &[LiveRange]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].first, *i));
    order
}
