//! Several arenas, for devices on which no dispatch may read one part of a buffer and write another.
//!
//! Which tensors must lie apart is a graph whose colours are the arenas. Tensors are given to arenas in the order in
//! which they begin to live, in many partitions at once. Of all so far those that take the least are kept, but none that
//! holds live tensors where another does and takes as much in every arena, so that those kept differ in what can follow.
//! What an arena takes is estimated by the largest sum of sizes live at one time, which placements come close to; the
//! arenas of the best partitions are then planned as one arena is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::objects::by_first;
use super::{LiveRange, MemoryPlan, bounds};

/// How many partitions are kept.
const WAYS: usize = 96;
/// How many of them are planned in the end.
const PLANNED: usize = 4;

/// Places every tensor.
pub(super) fn plan(ranges: &[LiveRange], apart: &[(usize, usize)]) -> MemoryPlan {
    let together = super::plan(ranges);
    if apart.is_empty() {
        return together;
    }
    let mut others = vec![Vec::new(); ranges.len()];
    for &(a, b) in apart {
        others[a].push(b);
        others[b].push(a);
    }
    let divisions = divide(ranges, &others);
    let plans = divisions.iter().take(PLANNED).map(|arena_of| place(ranges, arena_of));
    let best = plans.min_by_key(|plan| plan.peak).unwrap_or_default();
    MemoryPlan {
        together: together.peak,
        lower_bound: bounds::offsets(ranges),
        naive: together.naive,
        ..best
    }
}

/// A partition of giving the first tensors to arenas.
#[derive(Debug, Clone, Default)]
struct Partition {
    /// Live tensors with their arenas, in the order of the former.
    live: Vec<(usize, usize)>,
    /// What is live now in each arena, and the most that ever was.
    arenas: Vec<(u64, u64)>,
    /// Which partition it goes on from, by its place among those kept.
    before: usize,
    /// Where the last tensor went.
    arena: usize,
}

impl Partition {
    fn bytes(&self) -> u64 {
        self.arenas.iter().map(|(_, most)| most).sum()
    }

    /// Whether no arena took more than in another partition, which may have further ones.
    fn covers(&self, other: &Self) -> bool {
        let mut pairs = self.arenas.iter().zip(&other.arenas);
        self.arenas.len() <= other.arenas.len() && pairs.all(|(a, b)| a.1 <= b.1)
    }

    /// Forgets tensors that no dispatch from one on touches.
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

    /// Goes on with a tensor in an arena, which may be a new one.
    fn with(&self, before: usize, ranges: &[LiveRange], index: usize, arena: usize) -> Self {
        let mut partition = Self { before, arena, ..self.clone() };
        if arena == partition.arenas.len() {
            partition.arenas.push((0, 0));
        }
        let (now, most) = &mut partition.arenas[arena];
        *now += ranges[index].size;
        *most = (*most).max(*now);
        partition.live.push((index, arena));
        partition
    }

    /// The less, the better: bytes, the number of arenas, and how unlike they are, as unlike ones hold more in the end.
    fn rank(&self) -> (u64, usize, Reverse<u64>) {
        let largest = self.arenas.iter().map(|(_, most)| *most).max().unwrap_or(0);
        (self.bytes(), self.arenas.len(), Reverse(largest))
    }
}

/// Ways of giving all tensors to arenas, best first: the arena of each.
fn divide(ranges: &[LiveRange], others: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let order = by_first(ranges);
    let mut partitions = vec![Partition::default()];
    // For each tensor in the order: where it went in each partition that was kept, and which partition that goes on from.
    let mut steps: Vec<Vec<(usize, usize)>> = Vec::with_capacity(order.len());
    for &index in &order {
        let mut next: Vec<Partition> = Vec::with_capacity(partitions.len() * 4);
        for (number, partition) in partitions.iter_mut().enumerate() {
            partition.release(ranges, ranges[index].first);
            let taken =
                |arena: usize| partition.live.iter().any(|(o, a)| *a == arena && others[index].contains(o));
            let free = (0..=partition.arenas.len()).filter(|arena| !taken(*arena));
            next.extend(free.map(|arena| partition.with(number, ranges, index, arena)));
        }
        next.sort_by_cached_key(Partition::rank);
        // Partitions that hold live tensors in the same arenas can go on alike, and what no arena gains by goes.
        let mut held: BTreeMap<Vec<(usize, usize)>, Vec<Partition>> = BTreeMap::new();
        next.retain(|partition| {
            let alike = held.entry(partition.live.clone()).or_default();
            let gains = alike.iter().all(|other| !other.covers(partition));
            alike.extend(gains.then(|| partition.clone()));
            gains
        });
        next.truncate(WAYS);
        steps.push(next.iter().map(|partition| (partition.before, partition.arena)).collect());
        partitions = next;
    }
    let trace = |number: usize| {
        let mut arena_of = vec![0; ranges.len()];
        let mut at = number;
        for (index, step) in order.iter().zip(&steps).rev() {
            let Some((before, arena)) = step.get(at) else { break };
            arena_of[*index] = *arena;
            at = *before;
        }
        arena_of
    };
    (0..partitions.len().min(PLANNED)).map(trace).collect()
}

/// Places the tensors of each arena.
fn place(ranges: &[LiveRange], arena_of: &[usize]) -> MemoryPlan {
    let mut plan = MemoryPlan {
        offsets: vec![0; ranges.len()],
        arena_of: vec![0; ranges.len()],
        ..MemoryPlan::default()
    };
    for arena in 0..=arena_of.iter().copied().max().unwrap_or(0) {
        let own: Vec<usize> = (0..ranges.len()).filter(|i| arena_of[*i] == arena).collect();
        let inside: Vec<LiveRange> = own.iter().map(|i| ranges[*i]).collect();
        let placed = super::plan(&inside);
        // An arena of empty tensors is none; they lie wherever the others do.
        if placed.peak == 0 {
            continue;
        }
        for (index, offset) in own.iter().zip(placed.offsets) {
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
    use super::super::{LiveRange, plan_apart};

    #[test]
    fn what_must_lie_apart_does_and_nothing_live_together_overlaps() {
        for seed in 0..40 {
            let ranges = random(seed, 40, 30, 6);
            // Each tensor is written while those of which the first dispatch lies before are read.
            let apart: Vec<(usize, usize)> = (0..ranges.len())
                .flat_map(|a| (0..ranges.len()).map(move |b| (a, b)))
                .filter(|(a, b)| {
                    a != b && ranges[*b].first < ranges[*a].first && ranges[*a].first <= ranges[*b].last
                })
                .collect();
            let plan = plan_apart(&ranges, &apart);
            for (a, b) in &apart {
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
    fn what_follows_a_long_chain_finds_room_in_the_arenas_before_it() {
        let live = |size: u64, first: usize, last: usize| LiveRange { size, first, last };
        let mut ranges = vec![live(100, 0, 1), live(90, 1, 2), live(8, 2, 3)];
        let mut apart = vec![(1, 0), (2, 1)];
        for (i, at) in (3..27).step_by(2).enumerate() {
            let next = ranges.len();
            ranges.extend([live(4 + i as u64 % 2, at, at + 2), live(8, at + 1, at + 3)]);
            apart.extend([(next, next - 1), (next + 1, next)]);
        }
        // Two that lie apart become one: the larger and the result fit where the chain began, the smaller one does not.
        let next = ranges.len();
        ranges.extend([live(60, 27, 30), live(30, 28, 30), live(90, 30, 31)]);
        apart.extend([(next, next - 1), (next + 1, next), (next + 2, next), (next + 2, next + 1)]);
        let plan = plan_apart(&ranges, &apart);
        assert_eq!(plan.peak, 100 + 90 + 30, "{:?}", plan.arenas);
    }

    #[test]
    fn a_chain_takes_two_arenas_and_no_more_memory() {
        let at = |first: usize| LiveRange { size: 64, first, last: first + 1 };
        let ranges: Vec<LiveRange> = (0..9).map(at).collect();
        let apart: Vec<(usize, usize)> = (1..9).map(|i| (i, i - 1)).collect();
        let plan = plan_apart(&ranges, &apart);
        assert_eq!(plan.arenas, [64, 64]);
        assert_eq!(plan.together, 128);
    }
}
