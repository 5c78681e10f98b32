//! Placement of intermediate tensors in one arena, or in several.
//!
//! A tensor is live from the dispatch that writes it to the last one that reads it. Tensors that are never live
//! together may share bytes. A strategy either assigns an offset in one arena to every tensor, or assigns tensors to
//! shared objects, which then lie one after the other. The compiler runs several strategies and uses the smallest
//! result. The classic strategies and their names are from Lee et al., "On-device neural net inference with mobile
//! GPUs", and Pisarchyk and Lee, "Efficient memory management for deep neural net inference".

mod arenas;
pub mod bounds;
mod conflicts;
mod equality;
mod gaps;
mod greedy_by_area;
mod greedy_by_breadth;
mod greedy_by_conflict;
mod greedy_by_duration;
mod greedy_by_size;
mod greedy_by_size_objects;
mod greedy_in_order;
mod local_search;
mod min_cost_flow;
mod naive;
mod objects;
#[cfg(test)]
mod tests;

use conflicts::Conflicts;

/// Size and live range of one intermediate tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveRange {
    /// Size in bytes, rounded up to the alignment.
    pub size: u64,
    /// First dispatch that writes the tensor.
    pub first: usize,
    /// Last dispatch that reads or writes the tensor.
    pub last: usize,
}

impl LiveRange {
    /// True if two tensors are ever live together.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A strategy that places tensors in memory.
#[derive(Debug)]
pub struct Strategy {
    /// Name of the strategy in reports.
    pub name: &'static str,
    place: Place,
    /// Maximum number of tensors for which the strategy runs, so that its run time is a small part of compilation.
    max_tensors: usize,
}

/// Function that implements a memory strategy. The variants differ in what the function returns.
#[derive(Debug)]
enum Place {
    /// Function that returns the byte offset of each live range.
    Offsets(fn(&[LiveRange], &Conflicts) -> Vec<u64>),
    /// Function that returns the index of each live range's shared object, counted from 0.
    Objects(fn(&[LiveRange], &Conflicts) -> Vec<usize>),
}

/// All memory strategies. If two strategies need equal bytes, the one earlier in this list is used.
pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        name: "greedy-by-size",
        place: Place::Offsets(greedy_by_size::offsets),
        max_tensors: usize::MAX,
    },
    Strategy {
        name: "greedy-by-area",
        place: Place::Offsets(greedy_by_area::offsets),
        max_tensors: usize::MAX,
    },
    Strategy {
        name: "greedy-by-conflict",
        place: Place::Offsets(greedy_by_conflict::offsets),
        max_tensors: usize::MAX,
    },
    Strategy {
        name: "greedy-by-duration",
        place: Place::Offsets(greedy_by_duration::offsets),
        max_tensors: usize::MAX,
    },
    Strategy { name: "local-search", place: Place::Offsets(local_search::offsets), max_tensors: usize::MAX },
    Strategy {
        name: "greedy-by-size-objects",
        place: Place::Objects(greedy_by_size_objects::objects),
        max_tensors: 2000,
    },
    Strategy {
        name: "greedy-by-breadth",
        place: Place::Objects(greedy_by_breadth::objects),
        max_tensors: 2000,
    },
    Strategy {
        name: "greedy-in-order",
        place: Place::Objects(greedy_in_order::objects),
        max_tensors: usize::MAX,
    },
    Strategy { name: "min-cost-flow", place: Place::Objects(min_cost_flow::objects), max_tensors: 200 },
    Strategy { name: "equality", place: Place::Objects(equality::objects), max_tensors: usize::MAX },
    Strategy { name: "naive", place: Place::Objects(naive::objects), max_tensors: usize::MAX },
];

/// Placement in arenas of all intermediate tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Byte offset of each tensor in its arena, in the order of the live ranges.
    pub offsets: Vec<u64>,
    /// Arena of each tensor. Tensors past the end of this list are in arena 0.
    pub arena_of: Vec<usize>,
    /// Bytes of each arena; no arena is empty.
    pub arenas: Vec<u64>,
    /// Bytes of all arenas.
    pub peak: u64,
    /// Bytes that a single arena for all tensors would need.
    pub single_arena_peak: u64,
    /// Minimum bytes of any placement: the largest sum of live sizes at any dispatch.
    pub lower_bound: u64,
    /// Bytes without reuse.
    pub naive: u64,
    /// Name of the memory strategy that gave the placement.
    pub strategy: &'static str,
}

impl MemoryPlan {
    /// Returns the arena of a tensor.
    pub fn arena(&self, tensor: usize) -> usize {
        self.arena_of.get(tensor).copied().unwrap_or(0)
    }

    /// Returns the difference between peak and lower bound, as a fraction of the lower bound.
    pub fn gap(&self) -> f64 {
        self.peak.saturating_sub(self.lower_bound) as f64 / self.lower_bound.max(1) as f64
    }
}

/// Places all tensors by the strategy that needs the fewest bytes. Stops at a strategy that reaches the lower bound.
pub fn plan(ranges: &[LiveRange]) -> MemoryPlan {
    let conflicts = Conflicts::from_ranges(ranges);
    let mut best: Option<MemoryPlan> = None;
    for strategy in STRATEGIES.iter().filter(|s| ranges.len() <= s.max_tensors) {
        let plan = strategy.run(ranges, &conflicts);
        if best.as_ref().is_none_or(|b| plan.peak < b.peak) {
            best = Some(plan);
        }
        if best.as_ref().is_some_and(|b| b.peak == b.lower_bound) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Places tensors in several arenas such that the two tensors of each pair in `separated` are in different arenas.
pub fn plan_separated(ranges: &[LiveRange], separated: &[(usize, usize)]) -> MemoryPlan {
    arenas::plan(ranges, separated)
}

/// Places all tensors by the memory strategy with the given name. Returns `None` if there is no such strategy.
pub fn plan_by(name: &str, ranges: &[LiveRange]) -> Option<MemoryPlan> {
    let strategy = STRATEGIES.iter().find(|s| s.name == name)?;
    Some(strategy.run(ranges, &Conflicts::from_ranges(ranges)))
}

impl Strategy {
    fn run(&self, ranges: &[LiveRange], conflicts: &Conflicts) -> MemoryPlan {
        let offsets = match self.place {
            Place::Offsets(place) => place(ranges, conflicts),
            Place::Objects(place) => objects::offsets(ranges, &place(ranges, conflicts)),
        };
        let peak = gaps::peak(ranges, &offsets);
        MemoryPlan {
            peak,
            single_arena_peak: peak,
            arenas: Some(peak).filter(|bytes| *bytes > 0).into_iter().collect(),
            arena_of: Vec::new(),
            offsets,
            lower_bound: bounds::offsets(ranges),
            naive: ranges.iter().map(|r| r.size).sum(),
            strategy: self.name,
        }
    }
}
