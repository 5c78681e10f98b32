//! Tests of all strategies: the rules of placement, and the best placement of a few tensors.

use super::conflicts::Conflicts;
use super::gaps::{Gap, peak, place};
use super::{LiveRange, MemoryPlan, Place, STRATEGIES, bounds, plan};

/// Returns pseudo-random live ranges.
pub(super) fn random(seed: u64, count: usize, dispatches: u64, longest: u64) -> Vec<LiveRange> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut draw = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    (0..count)
        .map(|_| {
            let first = draw(dispatches) as usize;
            LiveRange { size: 16 * (1 + draw(9)), first, last: first + draw(longest) as usize }
        })
        .collect()
}

fn check(ranges: &[LiveRange], plan: &MemoryPlan) {
    let name = plan.strategy;
    assert!(plan.peak >= plan.lower_bound && plan.peak <= plan.naive, "{name}: {} bytes", plan.peak);
    assert_eq!(plan.peak, peak(ranges, &plan.offsets), "{name}");
    for (i, a) in ranges.iter().enumerate() {
        for (j, b) in ranges.iter().enumerate().skip(i + 1) {
            let apart =
                plan.offsets[i] + a.size <= plan.offsets[j] || plan.offsets[j] + b.size <= plan.offsets[i];
            assert!(apart || !a.overlaps(b), "{name}: {i} and {j}");
        }
    }
}

#[test]
fn live_tensors_do_not_overlap() {
    for seed in 0..50 {
        let ranges = random(seed, 40, 30, 6);
        let conflicts = Conflicts::from_ranges(&ranges);
        let least = bounds::objects(&ranges);
        for strategy in STRATEGIES {
            let plan = strategy.run(&ranges, &conflicts);
            check(&ranges, &plan);
            let objects = matches!(strategy.place, Place::Objects(_));
            assert!(!objects || plan.peak >= least, "{}", strategy.name);
        }
        let best = plan(&ranges);
        check(&ranges, &best);
        assert_eq!(best, plan(&ranges));
    }
}

#[test]
fn no_tensor_and_one_tensor_are_planned() {
    assert_eq!(plan(&[]).peak, 0);
    let one = [LiveRange { size: 48, first: 3, last: 3 }];
    for strategy in STRATEGIES {
        assert_eq!(strategy.run(&one, &Conflicts::from_ranges(&one)).peak, 48, "{}", strategy.name);
    }
}

/// Size of the smallest arena. Placing tensors as low as possible, in the order of their offsets in an optimal
/// placement, gives an optimal placement again, so trying all orders finds one.
fn best_offsets(ranges: &[LiveRange]) -> u64 {
    fn go(ranges: &[LiveRange], conflicts: &Conflicts, order: &mut Vec<usize>, best: &mut u64) {
        let offsets = place(ranges, conflicts, order, Gap::Lowest);
        let reached = order.iter().map(|i| offsets[*i] + ranges[*i].size).max().unwrap_or(0);
        if reached >= *best {
            return;
        }
        if order.len() == ranges.len() {
            *best = reached;
            return;
        }
        for next in 0..ranges.len() {
            if !order.contains(&next) {
                order.push(next);
                go(ranges, conflicts, order, best);
                order.pop();
            }
        }
    }
    let mut best = u64::MAX;
    go(ranges, &Conflicts::from_ranges(ranges), &mut Vec::new(), &mut best);
    best
}

/// Smallest sum of the sizes of shared objects, found by trying every partition of the tensors.
fn best_objects(ranges: &[LiveRange]) -> u64 {
    fn go(ranges: &[LiveRange], objects: &mut Vec<Vec<usize>>, next: usize, best: &mut u64) {
        let size = |o: &Vec<usize>| o.iter().map(|i| ranges[*i].size).max().unwrap_or(0);
        let sum: u64 = objects.iter().map(size).sum();
        if sum >= *best {
            return;
        }
        if next == ranges.len() {
            *best = sum;
            return;
        }
        for o in 0..objects.len() {
            if objects[o].iter().all(|i| !ranges[*i].overlaps(&ranges[next])) {
                objects[o].push(next);
                go(ranges, objects, next + 1, best);
                objects[o].pop();
            }
        }
        objects.push(vec![next]);
        go(ranges, objects, next + 1, best);
        objects.pop();
    }
    let mut best = u64::MAX;
    go(ranges, &mut Vec::new(), 0, &mut best);
    best
}

#[test]
fn the_planner_finds_the_optimum_that_no_strategy_beats() {
    for seed in 0..60 {
        let ranges = random(seed, 7, 8, 4);
        let conflicts = Conflicts::from_ranges(&ranges);
        let (arena, objects) = (best_offsets(&ranges), best_objects(&ranges));
        assert!(arena >= bounds::offsets(&ranges) && objects >= bounds::objects(&ranges));
        for strategy in STRATEGIES {
            let reached = strategy.run(&ranges, &conflicts).peak;
            let least = if matches!(strategy.place, Place::Objects(_)) { objects } else { arena };
            assert!(reached >= least, "{}: {reached} < {least}", strategy.name);
        }
        assert_eq!(plan(&ranges).peak, arena, "seed {seed}");
    }
}

#[test]
fn many_tensors_are_packed_within_two_percent_of_the_bound() {
    for seed in 0..10 {
        let ranges = random(seed + 1000, 200, 150, 8);
        let plan = plan(&ranges);
        check(&ranges, &plan);
        assert!(
            plan.gap() <= 0.02,
            "seed {seed}: the memory of strategy {} is above the lower bound by the fraction {:.3}",
            plan.strategy,
            plan.gap()
        );
    }
}
