//! Where intermediate tensors live in the arena, or in several of them.
//!
//! A tensor is live from the dispatch that writes it to the last one that reads it; tensors that are never live
//! together may share bytes. A strategy either gives every tensor an offset in one arena, or assigns tensors to
//! shared objects, which then lie one after the other. The compiler runs several and takes the smallest result.
//! Names and ideas of the classic ones: Lee et al., "On-device neural net inference with mobile GPUs", and Pisarchyk
//! and Lee, "Efficient memory management for deep neural net inference".

mod arenas;
pub mod bounds;
mod conflicts;
mod equality;
mod fit;
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

/// One intermediate tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveRange {
    /// Bytes, already rounded to the alignment.
    pub size: u64,
    /// The dispatch that first writes it.
    pub first: usize,
    /// The last dispatch that touches it.
    pub last: usize,
}

impl LiveRange {
    /// Whether two tensors are ever live together.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A strategy of placing tensors.
#[derive(Debug)]
pub struct Strategy {
    /// Name in reports.
    pub name: &'static str,
    place: Place,
    /// The most tensors for which its work stays small beside the rest of compiling.
    most: usize,
}

/// What a strategy computes.
#[derive(Debug)]
enum Place {
    /// The offset of each range.
    Offsets(fn(&[LiveRange], &Conflicts) -> Vec<u64>),
    /// The shared object of each range, counted from 0.
    Objects(fn(&[LiveRange], &Conflicts) -> Vec<usize>),
}

/// Every strategy; among equal results the earlier one is taken.
pub const STRATEGIES: &[Strategy] = &[
    Strategy { name: "greedy-by-size", place: Place::Offsets(greedy_by_size::offsets), most: usize::MAX },
    Strategy { name: "greedy-by-area", place: Place::Offsets(greedy_by_area::offsets), most: usize::MAX },
    Strategy {
        name: "greedy-by-conflict",
        place: Place::Offsets(greedy_by_conflict::offsets),
        most: usize::MAX,
    },
    Strategy {
        name: "greedy-by-duration",
        place: Place::Offsets(greedy_by_duration::offsets),
        most: usize::MAX,
    },
    Strategy { name: "local-search", place: Place::Offsets(local_search::offsets), most: usize::MAX },
    Strategy {
        name: "greedy-by-size-objects",
        place: Place::Objects(greedy_by_size_objects::objects),
        most: 2000,
    },
    Strategy { name: "greedy-by-breadth", place: Place::Objects(greedy_by_breadth::objects), most: 2000 },
    Strategy { name: "greedy-in-order", place: Place::Objects(greedy_in_order::objects), most: usize::MAX },
    Strategy { name: "min-cost-flow", place: Place::Objects(min_cost_flow::objects), most: 200 },
    Strategy { name: "equality", place: Place::Objects(equality::objects), most: usize::MAX },
    Strategy { name: "naive", place: Place::Objects(naive::objects), most: usize::MAX },
];

/// A placement of every tensor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Byte offset of each tensor in its arena, in the order of the ranges.
    pub offsets: Vec<u64>,
    /// The arena of each tensor; all lie in the first where this is shorter.
    pub arena_of: Vec<usize>,
    /// Bytes of each arena, none of them 0.
    pub arenas: Vec<u64>,
    /// Bytes of all arenas.
    pub peak: u64,
    /// Bytes of one arena for all tensors.
    pub together: u64,
    /// No placement can need fewer bytes: the largest sum of sizes live at one time.
    pub lower_bound: u64,
    /// Bytes when nothing is shared.
    pub naive: u64,
    /// Name of the strategy.
    pub strategy: &'static str,
}

impl MemoryPlan {
    /// The arena of a tensor.
    pub fn arena(&self, tensor: usize) -> usize {
        self.arena_of.get(tensor).copied().unwrap_or(0)
    }

    /// How far the peak lies above the lower bound, as a fraction of it.
    pub fn gap(&self) -> f64 {
        self.peak.saturating_sub(self.lower_bound) as f64 / self.lower_bound.max(1) as f64
    }
}

/// Places every tensor by the strategy that needs the fewest bytes. It stops at one that meets the lower bound.
pub fn plan(ranges: &[LiveRange]) -> MemoryPlan {
    let conflicts = Conflicts::of(ranges);
    let mut best: Option<MemoryPlan> = None;
    for strategy in STRATEGIES.iter().filter(|s| ranges.len() <= s.most) {
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

/// Places tensors in several arenas, so that the two of each pair of `apart` lie in different ones.
pub fn plan_apart(ranges: &[LiveRange], apart: &[(usize, usize)]) -> MemoryPlan {
    arenas::plan(ranges, apart)
}

/// Places every tensor by the strategy of a name; `None` when there is none.
pub fn plan_by(name: &str, ranges: &[LiveRange]) -> Option<MemoryPlan> {
    let strategy = STRATEGIES.iter().find(|s| s.name == name)?;
    Some(strategy.run(ranges, &Conflicts::of(ranges)))
}

impl Strategy {
    fn run(&self, ranges: &[LiveRange], conflicts: &Conflicts) -> MemoryPlan {
        let offsets = match self.place {
            Place::Offsets(place) => place(ranges, conflicts),
            Place::Objects(place) => objects::offsets(ranges, &place(ranges, conflicts)),
        };
        let peak = fit::peak(ranges, &offsets);
        MemoryPlan {
            peak,
            together: peak,
            arenas: Some(peak).filter(|bytes| *bytes > 0).into_iter().collect(),
            arena_of: Vec::new(),
            offsets,
            lower_bound: bounds::offsets(ranges),
            naive: ranges.iter().map(|r| r.size).sum(),
            strategy: self.name,
        }
    }
}
