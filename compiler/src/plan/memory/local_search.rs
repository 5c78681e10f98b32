//! Memory strategy "local search": searches the order in which tensors are placed. Tensors that end above the lower
//! bound move to an earlier place in the order; sometimes two random tensors swap places.
//!
//! The seed is fixed and the work is bounded, so results are reproducible.

use super::LiveRange;
use super::bounds;
use super::conflicts::Conflicts;
use super::gaps::{Gap, descending, peak, place};
use super::{greedy_by_area, greedy_by_conflict, greedy_by_duration, greedy_by_size};

/// Maximum number of placements that the local search tries.
const MAX_TRIES: usize = 2000;
/// Maximum number of comparisons of two tensors in the whole local search, over all placements that it tries.
const MAX_PAIRS: usize = 8_000_000;
/// Number of tries without a smaller placement after which the search returns to the best order of tensors.
const PATIENCE: usize = 40;

/// Returns the byte offset of each live range in the arena.
pub(super) fn offsets(ranges: &[LiveRange], conflicts: &Conflicts) -> Vec<u64> {
    let bound = bounds::offsets(ranges);
    let starts = [
        greedy_by_size::offsets,
        greedy_by_area::offsets,
        greedy_by_conflict::offsets,
        greedy_by_duration::offsets,
    ];
    let mut best = vec![0u64; ranges.len()];
    let mut least = u64::MAX;
    for start in starts {
        let found = start(ranges, conflicts);
        let reached = peak(ranges, &found);
        if reached < least {
            (best, least) = (found, reached);
        }
    }
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let tries = MAX_TRIES.min(MAX_PAIRS / (ranges.len() + conflicts.pairs()).max(1));
    // In the order of offsets, the lowest gaps give the same placement or a lower one.
    let mut best_order = descending(ranges, |i| u128::from(u64::MAX - best[i]));
    let mut order = best_order.clone();
    let mut waited = 0;
    for _ in 0..tries {
        if least <= bound {
            break;
        }
        let gap = if random.below(4) == 0 { Gap::Tightest } else { Gap::Lowest };
        let found = place(ranges, conflicts, &order, gap);
        let reached = peak(ranges, &found);
        if reached < least {
            (best, least) = (found.clone(), reached);
            best_order.clone_from(&order);
            waited = 0;
        } else {
            waited += 1;
        }
        if waited > PATIENCE {
            order.clone_from(&best_order);
            waited = 0;
        }
        disturb(&mut order, ranges, &found, bound, &mut random);
    }
    best
}

/// Moves tensors that end above the lower bound to earlier places in the order. Half of the time, also swaps two random
/// tensors.
fn disturb(order: &mut [usize], ranges: &[LiveRange], offsets: &[u64], bound: u64, random: &mut Random) {
    let high: Vec<usize> =
        (0..order.len()).filter(|at| offsets[order[*at]] + ranges[order[*at]].size > bound).collect();
    for at in high {
        let to = random.below(at + 1);
        order[to..=at].rotate_right(1);
    }
    if random.below(2) == 0 {
        let (a, b) = (random.below(order.len()), random.below(order.len()));
        order.swap(a, b);
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    /// Returns a random number from 0 to `n - 1`. `n` must be at least 1.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(bits).unwrap_or(0) % n.max(1)
    }
}
