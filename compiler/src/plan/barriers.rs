//! Which dispatches need a barrier before them.
//!
//! Since the last barrier a set of byte ranges has been read and another written; a dispatch must wait when it reads
//! a written range or writes a range that was read or written. Everything else may overlap on the device.

use super::Location;

/// A range of bytes that a dispatch touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The buffer: arena tensors share one, every input, output and state has its own.
    pub buffer: Location,
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
}

impl Region {
    fn meets(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// For each dispatch, given what it reads and writes, whether a barrier comes before it.
pub fn barriers(dispatches: &[(Vec<Region>, Vec<Region>)]) -> Vec<bool> {
    let mut read: Vec<Region> = Vec::new();
    let mut written: Vec<Region> = Vec::new();
    let mut out = Vec::with_capacity(dispatches.len());
    for (reads, writes) in dispatches {
        let hazard = reads.iter().any(|r| written.iter().any(|w| w.meets(r)))
            || writes.iter().any(|w| written.iter().chain(&read).any(|o| o.meets(w)));
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
    fn only_hazards_wait() {
        let at = |start, end| Region { buffer: Location::Arena(0), start, end };
        let input = Region { buffer: Location::Input(0), start: 0, end: 64 };
        let steps = [
            (vec![input], vec![at(0, 64)]),
            (vec![input], vec![at(64, 128)]),                   // independent
            (vec![at(0, 64), at(64, 128)], vec![at(128, 192)]), // reads both
            (vec![input], vec![at(0, 64)]),                     // overwrites what was read since the barrier
        ];
        assert_eq!(barriers(&steps), [false, false, true, true]);
    }
}
