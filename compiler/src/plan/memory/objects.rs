//! Shared objects, for strategies that assign tensors to objects.

use super::LiveRange;

/// Sizes and uses of the objects so far.
#[derive(Debug, Default)]
pub(super) struct Objects {
    sizes: Vec<u64>,
    /// First and last dispatch of each live range in the object.
    busy: Vec<Vec<(usize, usize)>>,
}

impl Objects {
    /// True if an object is free while a range is live.
    pub(super) fn is_free(&self, object: usize, range: &LiveRange) -> bool {
        self.busy[object].iter().all(|(first, last)| *last < range.first || range.last < *first)
    }

    /// Number of dispatches between a range and its nearest neighbor in an object that is free for it.
    pub(super) fn distance(&self, object: usize, range: &LiveRange) -> usize {
        let distance = |(first, last): &(usize, usize)| {
            if *last < range.first { range.first - last } else { first.saturating_sub(range.last) }
        };
        self.busy[object].iter().map(distance).min().unwrap_or(usize::MAX)
    }

    /// Returns the best free object: the smallest that holds the range, else the largest, which then grows.
    pub(super) fn best_fit(&self, range: &LiveRange) -> Option<usize> {
        let free = || (0..self.sizes.len()).filter(|o| self.is_free(*o, range));
        let holds = free().filter(|o| self.sizes[*o] >= range.size).min_by_key(|o| self.sizes[*o]);
        holds.or_else(|| free().max_by_key(|o| (self.sizes[*o], std::cmp::Reverse(*o))))
    }

    /// Size of an object in bytes.
    pub(super) fn size(&self, object: usize) -> u64 {
        self.sizes[object]
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Adds a range to an object, or to a new one. Returns the object.
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

/// Returns the offset of each range if the objects lie one after the other.
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

/// Orders ranges by first dispatch, then by index.
pub(super) fn by_first(ranges: &[LiveRange]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].first, *i));
    order
}
