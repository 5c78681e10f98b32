//! Finds the dispatches that need a barrier before them.
//!
//! A dispatch must wait if it reads a byte range that was written since the last barrier, or writes a range that was
//! read or written since then. All other dispatches may overlap on the device.

use super::Location;

/// A range of bytes that a dispatch reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Buffer that contains the region. Tensors of an arena share one buffer; every input, output and state has its
    /// own.
    pub buffer: Location,
    /// First byte.
    pub start: u64,
    /// Offset of the first byte after the region.
    pub end: u64,
}

impl Region {
    fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// Returns for each dispatch, given its reads and writes, whether it needs a barrier before it.
pub fn barriers(dispatches: &[(Vec<Region>, Vec<Region>)]) -> Vec<bool> {
    let mut read: Vec<Region> = Vec::new();
    let mut written: Vec<Region> = Vec::new();
    let mut out = Vec::with_capacity(dispatches.len());
    for (reads, writes) in dispatches {
        let hazard = reads.iter().any(|r| written.iter().any(|w| w.overlaps(r)))
            || writes.iter().any(|w| written.iter().chain(&read).any(|o| o.overlaps(w)));
        if hazard {
            read.clear();
            written.clear();
        }
        read.extend(reads);
        written.extend(writes);
        out.push(hazard);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Region, barriers};
    use crate::plan::Location;

    #[test]
    fn barriers_are_set_only_for_hazards() {
        let at = |start, end| Region { buffer: Location::Arena(0), start, end };
        let input = Region { buffer: Location::Input(0), start: 0, end: 64 };
        let steps = [
            (vec![input], vec![at(0, 64)]),
            (vec![input], vec![at(64, 128)]),                   // independent
            (vec![at(0, 64), at(64, 128)], vec![at(128, 192)]), // reads both
            (vec![input], vec![at(0, 64)]), // overwrites a range that was read since the barrier
        ];
        assert_eq!(barriers(&steps), [false, false, true, true]);
    }
}
