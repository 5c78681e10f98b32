//! Every strategy against the rules, and against the best placement there is for a few tensors.

use super::conflicts::Conflicts;
use super::fit::{Gap, peak, place};
use super::{MemoryPlan, Place, Record, STRATEGIES, bounds, plan};

/// A pseudo-random set of live ranges.
pub(super) fn random(seed: u64, count: usize, dispatches: u64, longest: u64) -> Vec<Record> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut draw = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    (0..count)
        .map(|_| {
            let first = draw(dispatches) as usize;
            Record { size: 16 * (1 + draw(9)), first, last: first + draw(longest) as usize }
        })
        .collect()
}

fn check(records: &[Record], plan: &MemoryPlan) {
    let name = plan.strategy;
    assert!(plan.peak >= plan.lower_bound && plan.peak <= plan.naive, "{name}: {} bytes", plan.peak);
    assert_eq!(plan.peak, peak(records, &plan.offsets), "{name}");
    for (i, a) in records.iter().enumerate() {
        for (j, b) in records.iter().enumerate().skip(i + 1) {
            let apart =
                plan.offsets[i] + a.size <= plan.offsets[j] || plan.offsets[j] + b.size <= plan.offsets[i];
            assert!(apart || !a.overlaps(b), "{name}: {i} and {j}");
        }
    }
}

#[test]
fn nothing_live_together_overlaps() {
    for seed in 0..50 {
        let records = random(seed, 40, 30, 6);
        let conflicts = Conflicts::of(&records);
        let least = bounds::objects(&records);
        for strategy in STRATEGIES {
            let plan = strategy.run(&records, &conflicts);
            check(&records, &plan);
            let objects = matches!(strategy.place, Place::Objects(_));
            assert!(!objects || plan.peak >= least, "{}", strategy.name);
        }
        let best = plan(&records);
        check(&records, &best);
        assert_eq!(best, plan(&records));
    }
}

#[test]
fn nothing_and_one_tensor_are_planned() {
    assert_eq!(plan(&[]).peak, 0);
    let one = [Record { size: 48, first: 3, last: 3 }];
    for strategy in STRATEGIES {
        assert_eq!(strategy.run(&one, &Conflicts::of(&one)).peak, 48, "{}", strategy.name);
    }
}

/// The smallest arena: placing tensors in the order of their offsets in a best placement, each as low as it goes, gives
/// a best placement again, so trying every order finds one.
fn best_offsets(records: &[Record]) -> u64 {
    fn go(records: &[Record], conflicts: &Conflicts, order: &mut Vec<usize>, best: &mut u64) {
        let offsets = place(records, conflicts, order, Gap::Lowest);
        let reached = order.iter().map(|i| offsets[*i] + records[*i].size).max().unwrap_or(0);
        if reached >= *best {
            return;
        }
        if order.len() == records.len() {
            *best = reached;
            return;
        }
        for next in 0..records.len() {
            if !order.contains(&next) {
                order.push(next);
                go(records, conflicts, order, best);
                order.pop();
            }
        }
    }
    let mut best = u64::MAX;
    go(records, &Conflicts::of(records), &mut Vec::new(), &mut best);
    best
}

/// The smallest sum of shared objects, by trying every partition.
fn best_objects(records: &[Record]) -> u64 {
    fn go(records: &[Record], objects: &mut Vec<Vec<usize>>, next: usize, best: &mut u64) {
        let size = |o: &Vec<usize>| o.iter().map(|i| records[*i].size).max().unwrap_or(0);
        let sum: u64 = objects.iter().map(size).sum();
        if sum >= *best {
            return;
        }
        if next == records.len() {
            *best = sum;
            return;
        }
        for o in 0..objects.len() {
            if objects[o].iter().all(|i| !records[*i].overlaps(&records[next])) {
                objects[o].push(next);
                go(records, objects, next + 1, best);
                objects[o].pop();
            }
        }
        objects.push(vec![next]);
        go(records, objects, next + 1, best);
        objects.pop();
    }
    let mut best = u64::MAX;
    go(records, &mut Vec::new(), 0, &mut best);
    best
}

#[test]
fn no_strategy_beats_the_best_placement_and_the_planner_finds_it() {
    for seed in 0..60 {
        let records = random(seed, 7, 8, 4);
        let conflicts = Conflicts::of(&records);
        let (arena, objects) = (best_offsets(&records), best_objects(&records));
        assert!(arena >= bounds::offsets(&records) && objects >= bounds::objects(&records));
        for strategy in STRATEGIES {
            let reached = strategy.run(&records, &conflicts).peak;
            let least = if matches!(strategy.place, Place::Objects(_)) { objects } else { arena };
            assert!(reached >= least, "{}: {reached} < {least}", strategy.name);
        }
        assert_eq!(plan(&records).peak, arena, "seed {seed}");
    }
}

#[test]
fn a_crowd_is_packed_to_within_two_percent() {
    for seed in 0..10 {
        let records = random(seed + 1000, 200, 150, 8);
        let plan = plan(&records);
        check(&records, &plan);
        assert!(plan.gap() <= 0.02, "seed {seed}: {} is {:.3} above the bound", plan.strategy, plan.gap());
    }
}
