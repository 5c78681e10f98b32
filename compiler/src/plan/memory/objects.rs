//! Shared objects: what strategies that assign tensors to objects have in common.

use super::Record;

/// Objects as they fill up.
#[derive(Debug, Default)]
pub(super) struct Objects {
    sizes: Vec<u64>,
    /// First and last dispatch of every record in the object.
    busy: Vec<Vec<(usize, usize)>>,
}

impl Objects {
    /// Whether an object is free while a record is live.
    pub(super) fn is_free(&self, object: usize, record: &Record) -> bool {
        self.busy[object].iter().all(|(first, last)| *last < record.first || record.last < *first)
    }

    /// How many dispatches lie between a record and its nearest neighbour in an object that is free for it.
    pub(super) fn distance(&self, object: usize, record: &Record) -> usize {
        let apart = |(first, last): &(usize, usize)| {
            if *last < record.first { record.first - last } else { first.saturating_sub(record.last) }
        };
        self.busy[object].iter().map(apart).min().unwrap_or(usize::MAX)
    }

    /// The free object that fits best: the smallest that holds the record, else the largest, which then grows.
    pub(super) fn best(&self, record: &Record) -> Option<usize> {
        let free = || (0..self.sizes.len()).filter(|o| self.is_free(*o, record));
        let holds = free().filter(|o| self.sizes[*o] >= record.size).min_by_key(|o| self.sizes[*o]);
        holds.or_else(|| free().max_by_key(|o| (self.sizes[*o], std::cmp::Reverse(*o))))
    }

    /// Bytes of an object.
    pub(super) fn size(&self, object: usize) -> u64 {
        self.sizes[object]
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Puts a record into an object, or into a new one; returns which.
    pub(super) fn assign(&mut self, object: Option<usize>, record: &Record) -> usize {
        let object = object.unwrap_or_else(|| {
            self.sizes.push(0);
            self.busy.push(Vec::new());
            self.sizes.len() - 1
        });
        self.sizes[object] = self.sizes[object].max(record.size);
        self.busy[object].push((record.first, record.last));
        object
    }
}

/// The offset of each record when the objects lie one after the other.
pub(super) fn offsets(records: &[Record], objects: &[usize]) -> Vec<u64> {
    let count = objects.iter().map(|o| o + 1).max().unwrap_or(0);
    let mut sizes = vec![0u64; count];
    for (object, record) in objects.iter().zip(records) {
        sizes[*object] = sizes[*object].max(record.size);
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

/// The records in the order in which they begin to be live; those of one dispatch keep their order.
pub(super) fn by_first(records: &[Record]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|i| (records[*i].first, *i));
    order
}
