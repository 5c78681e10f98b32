//! Tests of specializations: functions that are compiled for some sizes of a model. They run on the device at several sizes and
//! are compared with the CPU reference, and their packed constants are counted.

use std::collections::{BTreeMap, BTreeSet};

use drift_tests::compare::{Tolerance, compare};
use drift_tests::{device, random_graph};
use driftc::compile::{EntryPoint, Lowered, Model, Options, write};
use driftc::entry_points::Specialize;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::{eval, graph_text};
use driftc::kernels::cases::{CASES, Cases};
use driftc::lowering::{lower_all, lower_model};
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// Graph of a transformer block: a view that splits heads, attention over a symbolic length, two matmuls with residual adds.
const BLOCK: &str = r#"
symbol batch 1..4
symbol seq 1..70
%0 = input {"name":"x","dtype":"f32","shape":["batch","seq",64]}
%1 = constant {"dtype":"f32","shape":[64,64],"random":1}
%2 = constant {"dtype":"f32","shape":[64,200],"random":2}
%3 = constant {"dtype":"f32","shape":[200,64],"random":3}
%4 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%5 = reshape %4 {"shape":["batch","seq",4,16]}
%6 = transpose %5 {"perm":[0,2,1,3]}
%7 = matmul %6 %6 {"trans_a":false,"trans_b":true}
%8 = softmax %7 {"axis":3,"log":false}
%9 = matmul %8 %6 {"trans_a":false,"trans_b":false}
%10 = transpose %9 {"perm":[0,2,1,3]}
%11 = reshape %10 {"shape":["batch","seq",64]}
%12 = add %11 %0
%13 = matmul %12 %2 {"trans_a":false,"trans_b":false}
%14 = relu %13
%15 = matmul %14 %3 {"trans_a":false,"trans_b":false}
%16 = add %15 %12
output "y" %16
"#;

fn lower(graph: &Graph, specialize: Specialize) -> (Vec<Lowered>, Options) {
    let options = Options { specialize, ..Options::default() };
    (lower_all(graph, &device::target(), &options).unwrap(), options)
}

fn sizes(batch: i64, seq: i64) -> Bindings {
    Bindings::from([("batch".to_owned(), batch), ("seq".to_owned(), seq)])
}

#[test]
fn every_function_computes_what_the_graph_says() {
    let graph = graph_text::parse(BLOCK).unwrap();
    let asked = vec![Bindings::from([("seq".to_owned(), 1)]), sizes(1, 1), sizes(3, 17)];
    let (functions, options) = lower(&graph, Specialize::Sizes(asked));
    assert_eq!(functions.len(), 4);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block.drift");
    let model = Model { name: "block".into(), ..Model::default() };
    write(&model, &[device::target()], &[functions.as_slice()], &options, &path).unwrap();
    let mut session = drift_runtime::Session::load(&path, &drift_runtime::Options::default()).unwrap();
    for (batch, seq, ranges) in [
        (1, 1, [(1, 1), (1, 1)]),
        (4, 70, [(1, 4), (1, 70)]),
        (3, 17, [(3, 3), (17, 17)]),
        (2, 1, [(1, 4), (1, 1)]),
        (3, 16, [(1, 4), (1, 70)]),
        (1, 1, [(1, 1), (1, 1)]),
    ] {
        let mut known = graph.clone();
        known.substitute(&sizes(batch, seq));
        let inputs = random_graph::inputs(&known, 11);
        let want = eval::eval(&known, &inputs).unwrap();
        let got = device::run_session(&mut session, &inputs).unwrap();
        compare("y", &got[0].1, &want[0].1, Tolerance::F32)
            .unwrap_or_else(|e| panic!("batch {batch}, seq {seq}: {e}"));
        let symbols = &session.last_replayed("main").unwrap().symbols;
        assert_eq!(symbols.iter().map(|s| (s.min, s.max)).collect::<Vec<_>>(), ranges);
    }
}

#[test]
fn known_sizes_are_all_that_substitution_changes() {
    let graph = graph_text::parse(BLOCK).unwrap();
    let mut known = graph.clone();
    known.substitute(&sizes(2, 5));
    driftc::ir::verify::verify(&known, "substitute").unwrap();
    let inputs = random_graph::inputs(&known, 3);
    let all: BTreeMap<_, _> = eval::eval(&graph, &inputs).unwrap().into_iter().collect();
    let some: BTreeMap<_, _> = eval::eval(&known, &inputs).unwrap().into_iter().collect();
    assert_eq!(all, some);
}

#[test]
fn random_graphs_compute_the_same_with_sizes_put_in() {
    let mut symbolic = 0;
    for seed in 0..300 {
        let graph = random_graph::graph(seed);
        if graph.bounds.is_empty() {
            continue;
        }
        symbolic += 1;
        let mut known = graph.clone();
        known.substitute(&graph.bounds.iter().map(|(name, (low, _))| (name.clone(), *low)).collect());
        driftc::ir::verify::verify(&known, "substitute").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let inputs = random_graph::inputs(&known, seed);
        let (all, some) = (eval::eval(&graph, &inputs).unwrap(), eval::eval(&known, &inputs).unwrap());
        assert_eq!(all, some, "seed {seed}");
    }
    assert!(symbolic > 60, "{symbolic} graphs with symbols");
}

#[test]
fn functions_share_large_packed_constants_where_that_costs_little() {
    let graph = BLOCK.replace("64,200", "64,2000").replace("200,64", "2000,64");
    // The profile has no kernel for many rows whose packed weights no kernel for one row reads.
    let target = TargetProfile::load("vulkan-baseline").unwrap();
    let options = Options { specialize: Specialize::Sizes(vec![sizes(1, 1)]), ..Options::default() };
    let functions = lower_all(&graph_text::parse(&graph).unwrap(), &target, &options).unwrap();
    let large = |f: &Lowered| -> BTreeSet<_> {
        f.plan.weights.iter().filter(|w| w.bytes() > 1 << 16).map(|w| w.identity()).collect()
    };
    let (general, special) = (large(&functions[0]), large(&functions[1]));
    assert!(!special.is_empty() && special.is_subset(&general), "{special:?} besides {general:?}");
}

/// The test cases of each operator become functions of one model. On targets that compile shaders at every start, these
/// functions use common shaders that read sizes from parameters, and still compute the same results.
#[test]
fn shaders_that_serve_several_sizes_compute_the_same() {
    let counts: Vec<[usize; 2]> = CASES.par_iter().map(apart_and_together).collect();
    let [apart, together] = [0, 1].map(|i| counts.iter().map(|count| count[i]).sum::<usize>());
    assert!(
        together + 20 < apart,
        "common shaders should reduce the number of shaders by more than 20, but there are {together} with common shaders and {apart} without"
    );
}

/// Counts the shaders of an operator's cases without and with common shaders. Also runs every second case with common shaders and
/// compares the results with the CPU reference.
fn apart_and_together(cases: &Cases) -> [usize; 2] {
    let mut target = device::target();
    let options = Options { specialize: Specialize::Never, ..Options::default() };
    let graphs = cases.graphs().enumerate();
    let graphs = graphs.map(|(i, case)| {
        EntryPoint::new(format!("{}/{i}", cases.operator), graph_text::parse(case).unwrap())
    });
    let model = Model { entry_points: graphs.collect(), ..Model::default() };
    let [own, shared] = [false, true].map(|short| {
        target.prefer.short_shaders = short;
        lower_model(&model, &target, &options).unwrap_or_else(|e| panic!("{}: {e}", cases.operator))
    });
    let bundle = device::bundle(&target, &shared, &options).unwrap();
    let mut session =
        drift_runtime::Session::from_bundle(bundle, &drift_runtime::Options::default()).unwrap();
    for EntryPoint { name, graph, .. } in model.entry_points.iter().step_by(2) {
        for symbols in device::sizes(graph) {
            let inputs = device::random_inputs(graph, &symbols).unwrap();
            let want = eval::eval(graph, &inputs).unwrap();
            let got = device::run_function(&mut session, name, &inputs);
            let got = got.unwrap_or_else(|e| panic!("{name}: {e}"));
            for ((output, want), (_, got)) in want.iter().zip(&got) {
                compare(output, got, want, Tolerance::F32).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
    }
    [shaders(&own), shaders(&shared)]
}

fn shaders(functions: &[Lowered]) -> usize {
    let launches = functions.iter().flat_map(|f| &f.plan.dispatches).map(|step| step.launch.wgsl.as_str());
    launches.collect::<BTreeSet<&str>>().len()
}
