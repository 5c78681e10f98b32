//! Several arenas, for devices on which no dispatch may read one range of a buffer and write another.
//!
//! This is graph coloring: pairs of tensors that must be in different arenas are edges, arenas are colors. A beam
//! search assigns tensors to arenas in the order of their first dispatch; a partition is an assignment so far. The beam
//! keeps the partitions with the fewest bytes. It drops a partition if another one has the same live tensors in the
//! same arenas and no larger arena, so that the kept partitions lead to different results. The bytes of an arena are
//! estimated by the largest sum of live sizes, because real placements come close to it. The arenas of the best
//! partitions are then planned like single arenas.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::objects::by_first;
use super::{LiveRange, MemoryPlan, bounds};

/// Maximum number of partitions in the beam.
const BEAM_WIDTH: usize = 96;
/// Number of final partitions whose arenas are planned.
const PLANNED_PARTITIONS: usize = 4;

/// Places all tensors in arenas. `separated` are the pairs of tensors that must be in different arenas.
pub(super) fn plan(ranges: &[LiveRange], separated: &[(usize, usize)]) -> MemoryPlan {
    let single = super::plan(ranges);
    if separated.is_empty() {
        return single;
    }
    let mut neighbors = vec![Vec::new(); ranges.len()];
    for &(a, b) in separated {
        neighbors[a].push(b);
        neighbors[b].push(a);
    }
    let partitions = partition(ranges, &neighbors);
    let plans = partitions.iter().take(PLANNED_PARTITIONS).map(|arena_of| place(ranges, arena_of));
    let best = plans.min_by_key(|plan| plan.peak).unwrap_or_default();
    MemoryPlan {
        single_arena_peak: single.peak,
        lower_bound: bounds::offsets(ranges),
        naive: single.naive,
        ..best
    }
}

/// A partition of the beam search: an assignment to arenas of the first tensors, in order of their first dispatch.
#[derive(Debug, Clone, Default)]
struct Partition {
    /// Index and arena of each live tensor, in the order in which the tensors were assigned.
    live: Vec<(usize, usize)>,
    /// For each arena, the bytes of its tensors that are live now, and the maximum of this number so far.
    arenas: Vec<(u64, u64)>,
    /// Index, in the previous beam, of the partition that this partition extends by one tensor.
    parent: usize,
    /// Arena of the tensor that this partition assigned last.
    arena: usize,
}

impl Partition {
    fn bytes(&self) -> u64 {
        self.arenas.iter().map(|(_, max)| max).sum()
    }

    /// True if no arena of this partition is larger than the same arena of another partition, which may have further
    /// arenas.
    fn dominates(&self, other: &Self) -> bool {
        let mut pairs = self.arenas.iter().zip(&other.arenas);
        self.arenas.len() <= other.arenas.len() && pairs.all(|(a, b)| a.1 <= b.1)
    }

    /// Removes the tensors whose last use is before dispatch `from` from the partition's live tensors.
    fn release(&mut self, ranges: &[LiveRange], from: usize) {
        let arenas = &mut self.arenas;
        self.live.retain(|(index, arena)| {
            let dead = ranges[*index].last < from;
            if dead {
                arenas[*arena].0 -= ranges[*index].size;
            }
            !dead
        });
    }

    /// Returns this partition extended by a tensor in an existing or new arena. `parent` is this partition's index in the beam.
    fn with(&self, parent: usize, ranges: &[LiveRange], index: usize, arena: usize) -> Self {
        let mut partition = Self { parent, arena, ..self.clone() };
        if arena == partition.arenas.len() {
            partition.arenas.push((0, 0));
        }
        let (now, max) = &mut partition.arenas[arena];
        *now += ranges[index].size;
        *max = (*max).max(*now);
        partition.live.push((index, arena));
        partition
    }

    /// Sort key of a partition, smaller is better: fewer bytes, then fewer arenas, then a larger largest arena, because unequal
    /// arenas fit more tensors later.
    fn rank(&self) -> (u64, usize, Reverse<u64>) {
        let largest = self.arenas.iter().map(|(_, max)| *max).max().unwrap_or(0);
        (self.bytes(), self.arenas.len(), Reverse(largest))
    }
}

/// Returns assignments of all tensors to arenas, best first. Each assignment has the arena of every tensor.
fn partition(ranges: &[LiveRange], neighbors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let order = by_first(ranges);
    let mut partitions = vec![Partition::default()];
    // For each tensor in order, the parent and the arena of each partition in the beam.
    let mut steps: Vec<Vec<(usize, usize)>> = Vec::with_capacity(order.len());
    for &index in &order {
        let mut next: Vec<Partition> = Vec::with_capacity(partitions.len() * 4);
        for (number, partition) in partitions.iter_mut().enumerate() {
            partition.release(ranges, ranges[index].first);
            let taken = |arena: usize| {
                partition.live.iter().any(|(o, a)| *a == arena && neighbors[index].contains(o))
            };
            let free = (0..=partition.arenas.len()).filter(|arena| !taken(*arena));
            next.extend(free.map(|arena| partition.with(number, ranges, index, arena)));
        }
        next.sort_by_cached_key(Partition::rank);
        // Partitions with equal live tensors have equal futures, so dominated ones are dropped.
        let mut by_live: BTreeMap<Vec<(usize, usize)>, Vec<Partition>> = BTreeMap::new();
        next.retain(|partition| {
            let alike = by_live.entry(partition.live.clone()).or_default();
            let kept = alike.iter().all(|other| !other.dominates(partition));
            alike.extend(kept.then(|| partition.clone()));
            kept
        });
        next.truncate(BEAM_WIDTH);
        steps.push(next.iter().map(|partition| (partition.parent, partition.arena)).collect());
        partitions = next;
    }
    let trace = |number: usize| {
        let mut arena_of = vec![0; ranges.len()];
        let mut at = number;
        for (index, step) in order.iter().zip(&steps).rev() {
            let Some((parent, arena)) = step.get(at) else { break };
            arena_of[*index] = *arena;
            at = *parent;
        }
        arena_of
    };
    (0..partitions.len().min(PLANNED_PARTITIONS)).map(trace).collect()
}

/// Assigns an offset in its arena to every tensor, given the arena of each tensor.
fn place(ranges: &[LiveRange], arena_of: &[usize]) -> MemoryPlan {
    let mut plan = MemoryPlan {
        offsets: vec![0; ranges.len()],
        arena_of: vec![0; ranges.len()],
        ..MemoryPlan::default()
    };
    for arena in 0..=arena_of.iter().copied().max().unwrap_or(0) {
        let members: Vec<usize> = (0..ranges.len()).filter(|i| arena_of[*i] == arena).collect();
        let inside: Vec<LiveRange> = members.iter().map(|i| ranges[*i]).collect();
        let placed = super::plan(&inside);
        // An arena with only empty tensors is dropped; its tensors stay at offset 0 of arena 0.
        if placed.peak == 0 {
            continue;
        }
        for (index, offset) in members.iter().zip(placed.offsets) {
            plan.offsets[*index] = offset;
            plan.arena_of[*index] = plan.arenas.len();
        }
        plan.arenas.push(placed.peak);
        plan.strategy = placed.strategy;
    }
    plan.peak = plan.arenas.iter().sum();
    plan
}

#[cfg(test)]
mod tests {
    use super::super::tests::random;
    use super::super::{LiveRange, plan_separated};

    #[test]
    fn separated_tensors_are_in_different_arenas_and_live_tensors_do_not_overlap() {
        for seed in 0..40 {
            let ranges = random(seed, 40, 30, 6);
            // Each tensor is written while earlier tensors that are still live are read.
            let separated: Vec<(usize, usize)> = (0..ranges.len())
                .flat_map(|a| (0..ranges.len()).map(move |b| (a, b)))
                .filter(|(a, b)| {
                    a != b && ranges[*b].first < ranges[*a].first && ranges[*a].first <= ranges[*b].last
                })
                .collect();
            let plan = plan_separated(&ranges, &separated);
            for (a, b) in &separated {
                assert_ne!(plan.arena(*a), plan.arena(*b), "seed {seed}: {a} and {b}");
            }
            for (i, a) in ranges.iter().enumerate() {
                assert!(plan.offsets[i] + a.size <= plan.arenas[plan.arena(i)]);
                for (j, b) in ranges.iter().enumerate().skip(i + 1) {
                    let disjoint = plan.offsets[i] + a.size <= plan.offsets[j]
                        || plan.offsets[j] + b.size <= plan.offsets[i];
                    assert!(disjoint || plan.arena(i) != plan.arena(j) || !a.overlaps(b), "seed {seed}");
                }
            }
            assert_eq!(plan.peak, plan.arenas.iter().sum::<u64>());
            assert!(plan.peak >= plan.lower_bound && plan.peak <= plan.naive);
        }
    }

    #[test]
    fn tensors_after_a_long_chain_fit_into_the_arenas_before_it() {
        let live = |size: u64, first: usize, last: usize| LiveRange { size, first, last };
        let mut ranges = vec![live(100, 0, 1), live(90, 1, 2), live(8, 2, 3)];
        let mut separated = vec![(1, 0), (2, 1)];
        for (i, at) in (3..27).step_by(2).enumerate() {
            let next = ranges.len();
            ranges.extend([live(4 + i as u64 % 2, at, at + 2), live(8, at + 1, at + 3)]);
            separated.extend([(next, next - 1), (next + 1, next)]);
        }
        // Two separated tensors produce one. The larger one and the result fit into the first arenas, the smaller one
        // does not.
        let next = ranges.len();
        ranges.extend([live(60, 27, 30), live(30, 28, 30), live(90, 30, 31)]);
        separated.extend([(next, next - 1), (next + 1, next), (next + 2, next), (next + 2, next + 1)]);
        let plan = plan_separated(&ranges, &separated);
        assert_eq!(plan.peak, 100 + 90 + 30, "{:?}", plan.arenas);
    }

    #[test]
    fn a_chain_needs_two_arenas_and_no_more_memory() {
        let at = |first: usize| LiveRange { size: 64, first, last: first + 1 };
        let ranges: Vec<LiveRange> = (0..9).map(at).collect();
        let separated: Vec<(usize, usize)> = (1..9).map(|i| (i, i - 1)).collect();
        let plan = plan_separated(&ranges, &separated);
        assert_eq!(plan.arenas, [64, 64]);
        assert_eq!(plan.single_arena_peak, 128);
    }
}
