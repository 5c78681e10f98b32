//! Tests that estimates are monotonic: no candidate costs less on a slower device or for a larger problem.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::cases::{CASES, Cases};
use crate::calibration_suite::problems;
use crate::ir::graph::Graph;
use crate::ir::graph_text;
use crate::passes::{self, Context, Precision};
use crate::plan::select::candidates;
use crate::plan::tuning::configuration;
use crate::target::{Machine, TargetProfile, names};

/// Returns the names of every fourth target profile.
fn sampled_profiles() -> impl Iterator<Item = &'static str> {
    names().step_by(4)
}

/// Loads a target profile without its overrides.
fn target(name: &str) -> TargetProfile {
    TargetProfile { overrides: Vec::new(), ..TargetProfile::load(name).unwrap() }
}

/// Parses a graph and returns it after the passes, in f16 precision.
fn lowered(graph: &str, target: &TargetProfile) -> Graph {
    let mut graph = graph_text::parse(graph).unwrap();
    let context = Context { target, precision: Precision::F16 };
    passes::run_pipeline(&mut graph, &context, passes::Options::default()).unwrap();
    graph
}

/// Returns the estimated cost of every candidate. The key is the index of its problem and its configuration.
fn costs(graph: &Graph, target: &TargetProfile) -> BTreeMap<(usize, String), f64> {
    let offered = problems(graph, target).into_iter().enumerate().flat_map(|(i, problem)| {
        let choices = candidates(&problem, None, None);
        choices.iter().map(|choice| ((i, configuration(choice)), choice.candidate.cost)).collect::<Vec<_>>()
    });
    offered.collect()
}

/// Lowest accepted ratio of the estimate after a change to the estimate before it. An estimate that switches between
/// two bounds may decrease by 2 %.
const TOLERANCE: f64 = 0.98;

/// Describes the candidates whose estimated cost is lower in `after` than in `before`, beyond the tolerance.
fn cheaper(before: &BTreeMap<(usize, String), f64>, after: &BTreeMap<(usize, String), f64>) -> Vec<String> {
    let both = before.iter().filter_map(|(key, cost)| Some((key, *cost, *after.get(key)?)));
    both.filter(|(_, cost, now)| *now < cost * TOLERANCE)
        .map(|((_, configuration), cost, now)| format!("{configuration}: {cost} ns became {now} ns"))
        .collect()
}

/// A change of the machine numbers that makes a device slower: its name for messages, and the function that applies it.
type Slower = (&'static str, fn(&mut Machine));

const SLOWER: [Slower; 6] = [
    ("memory", |m| m.bandwidth_gb_s /= 2.0),
    ("the cache", |m| m.cache_bandwidth_gb_s /= 2.0),
    ("arithmetic", |m| {
        let peak = &mut m.peak;
        for peak in [&mut peak.f32, &mut peak.f16, &mut peak.int8] {
            *peak /= 2.0;
        }
        for peak in [&mut peak.matrix_f16, &mut peak.matrix_int8, &mut peak.int_to_float] {
            *peak = peak.map(|peak| peak / 2.0);
        }
    }),
    ("a launch", |m| m.launch_us *= 2.0),
    ("a load", |m| m.memory_latency_ns *= 2.0),
    ("a barrier", |m| m.barrier_ns *= 2.0),
];

#[test]
fn costs_do_not_decrease_on_a_slower_device() {
    let cases: Vec<&str> = CASES.iter().flat_map(Cases::graphs).collect();
    for name in sampled_profiles() {
        let fast = target(name);
        let wrong: Vec<String> = cases
            .par_iter()
            .flat_map_iter(|case| {
                let graph = lowered(case, &fast);
                let before = costs(&graph, &fast);
                let mut wrong = Vec::new();
                for (what, change) in SLOWER {
                    let mut slow = fast.clone();
                    change(&mut slow.machine);
                    let found = cheaper(&before, &costs(&graph, &slow));
                    wrong.extend(found.into_iter().map(|w| format!("with {what} slower, {w}\n{case}\n")));
                }
                wrong
            })
            .collect();
        assert!(
            wrong.is_empty(),
            "{name}: {} candidates\n{}",
            wrong.len(),
            wrong[..wrong.len().min(5)].join("\n")
        );
    }
}

/// Returns graphs with operators of all kinds, whose amount of work grows with the size `n`.
fn growing(n: usize) -> Vec<String> {
    let graph = |shape: &str, rest: &str| {
        let input =
            format!("%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":{shape}}}\n%1 = neg %0\n");
        format!("{input}{rest}\noutput \"y\" %9\n").replace("{n}", &n.to_string())
    };
    let window = r#""strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":"#;
    vec![
        graph(
            "[{n},128]",
            "%2 = constant {\"dtype\":\"f32\",\"shape\":[128,96],\"random\":1}\n%9 = matmul %1 %2 {\"trans_a\":false,\"trans_b\":false}",
        ),
        graph(
            "[64,{n}]",
            "%2 = input {\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[{n},32]}\n%9 = matmul %1 %2 {\"trans_a\":false,\"trans_b\":false}",
        ),
        graph(
            "[{n},16,14,14]",
            &format!(
                "%2 = constant {{\"dtype\":\"f32\",\"shape\":[32,16,3,3],\"random\":1}}\n%9 = conv %1 %2 {{{window}1}}"
            ),
        ),
        graph(
            "[1,16,{n},28]",
            &format!(
                "%2 = constant {{\"dtype\":\"f32\",\"shape\":[16,1,3,3],\"random\":1}}\n%9 = conv %1 %2 {{{window}16}}"
            ),
        ),
        graph(
            "[1,{n},8,8]",
            "%9 = pool %1 {\"kind\":\"max\",\"kernel\":[2,2],\"strides\":[2,2],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"ceil\":false}",
        ),
        graph("[{n},96]", "%9 = softmax %1 {\"axis\":1,\"log\":false}"),
        graph("[4,{n}]", "%9 = reduce %1 {\"kind\":\"sum\",\"axes\":[1],\"keepdims\":true}"),
        graph("[4,{n}]", "%9 = cum-sum %1 {\"axis\":1,\"exclusive\":false,\"reverse\":false}"),
        graph("[{n},12]", "%9 = tanh %1"),
        graph("[{n},12]", "%9 = concat %1 %0 {\"axis\":1}"),
        graph(
            "[3,{n}]",
            "%9 = pad %1 {\"mode\":\"constant\",\"before\":[0,1],\"after\":[0,1],\"value\":0.0}",
        ),
        graph(
            "[{n},12]",
            "%2 = input {\"name\":\"i\",\"dtype\":\"i64\",\"shape\":[{n}]}\n%9 = gather %1 %2 {\"axis\":0}",
        ),
        graph(
            "[1,4,{n},6]",
            "%2 = input {\"name\":\"at\",\"dtype\":\"f32\",\"shape\":[1,{n},7,2]}\n%9 = grid-sample %1 %2 {\"mode\":\"linear\",\"padding\":\"zeros\",\"align_corners\":false}",
        ),
    ]
}

#[test]
fn costs_do_not_decrease_for_larger_problems() {
    for name in sampled_profiles() {
        let target = target(name);
        let mut compared = 0;
        for n in (0..11).map(|bit| 4usize << bit) {
            for (small, large) in growing(n).iter().zip(growing(2 * n)) {
                let [before, after] = [small, &large].map(|graph| costs(&lowered(graph, &target), &target));
                compared += before.keys().filter(|key| after.contains_key(*key)).count();
                let wrong = cheaper(&before, &after);
                assert!(wrong.is_empty(), "{name}, from {n} to {}:\n{}\n{small}", 2 * n, wrong.join("\n"));
            }
        }
        assert!(compared > 500, "{name}: only {compared} candidates exist for both sizes of the graphs");
    }
}
