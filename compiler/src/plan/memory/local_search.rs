//! Local search over the order in which tensors are placed: those that end above the lower bound are placed earlier
//! the next time, and now and then a tensor changes places with another at random.
//!
//! The seed is fixed and the work is bounded, so the result is the same every time.

use super::LiveRange;
use super::bounds;
use super::conflicts::Conflicts;
use super::fit::{Gap, descending, peak, place};
use super::{greedy_by_area, greedy_by_conflict, greedy_by_duration, greedy_by_size};

/// Most placements that are tried, and most pairs of tensors that they compare in all.
const TRIES: usize = 2000;
const WORK: usize = 8_000_000;
/// Tries without success after which the search goes back to the best order.
const PATIENCE: usize = 40;

/// The offset of each range.
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
    let tries = TRIES.min(WORK / (ranges.len() + conflicts.pairs()).max(1));
    // The order of offsets gives the same placement or a lower one when every tensor takes the lowest gap.
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

/// Moves the tensors that end above the bound, or a random one, to an earlier place.
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
    /// A number below `n`, which is at least 1.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(bits).unwrap_or(0) % n.max(1)
    }
}
