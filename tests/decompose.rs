//! Compares every alternative of every decomposition with the node that it replaces, on the CPU reference and on the device,
//! for all cases of the decomposition, in f32 and in f16. Also compares fused matmuls with the nodes that they were fused from.

use std::collections::BTreeSet;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::device;
use driftc::compile::{self, Lowered, Options};
use driftc::decompose::{self, DECOMPOSITIONS, Decomposition};
use driftc::entry_points::MAIN;
use driftc::fusion;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::{eval, graph_text};
use driftc::passes::Precision;
use driftc::plan::estimate::Costs;
use driftc::plan::{self, Alternatives};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for decomposition in DECOMPOSITIONS {
        for (i, case) in decomposition.cases.iter().enumerate() {
            let name = format!("{}/{i}", decomposition.name);
            // An alternative may exist for one precision only.
            let taken = |precision: &Precision| {
                let found = whole(case, *precision).map(|whole| variants(decomposition, &whole));
                !found.unwrap_or_else(|e| panic!("{name}: {e}")).is_empty()
            };
            let precisions: Vec<Precision> =
                [Precision::F32, Precision::F16].into_iter().filter(taken).collect();
            assert!(
                !precisions.is_empty(),
                "{name}: the decomposition finds no node to replace in one of its own test cases"
            );
            for precision in precisions {
                let name = format!("{name}/{precision}");
                trials
                    .push(Trial::test(name, move || run(decomposition, case, precision).map_err(Into::into)));
            }
        }
    }
    for (i, case) in fusion::CASES.iter().enumerate() {
        for precision in [Precision::F32, Precision::F16] {
            trials.push(Trial::test(format!("fusion/{i}/{precision}"), move || {
                fuse(case, precision).map_err(Into::into)
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns the lowered graph of a case before an alternative replaces one of its nodes.
fn whole(case: &str, precision: Precision) -> Result<Graph, String> {
    let given = graph_text::parse(case).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.alternatives = Alternatives::Never;
    Ok(compile::lower(&given, &device::target(), &options).map_err(|e| e.to_string())?.graph)
}

/// Returns the numbers that identify the alternatives which a decomposition offers for the nodes of a graph.
fn variants(decomposition: &Decomposition, graph: &Graph) -> BTreeSet<u32> {
    let target = device::target();
    graph.topological().iter().flat_map(|id| (decomposition.alternatives)(graph, *id, &target)).collect()
}

fn run(decomposition: &Decomposition, case: &str, precision: Precision) -> Result<(), String> {
    let given = graph_text::parse(case).map_err(|e| e.to_string())?;
    let target = device::target();
    let mut options = Options { precision, ..Options::default() };
    let whole = whole(case, precision)?;
    let mut costs = Costs::new(&target, None);
    for variant in variants(decomposition, &whole) {
        options.plan.alternatives = Alternatives::Always(decomposition.name.into(), Some(variant));
        let mut graph = whole.clone();
        decompose::run(&mut graph, &mut costs, &options.plan).map_err(|e| e.to_string())?;
        for symbols in bindings(&given) {
            let inputs = device::random_inputs(&given, &symbols)?;
            let fail = |e: String| format!("variant {variant}: {e}");
            let same = eval::eval(&whole, &inputs).map_err(|e| e.to_string())?;
            let again = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
            let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
            for ((name, want), (_, got)) in same.iter().zip(&again) {
                compare(name, got, want, tolerance).map_err(|e| fail(format!("on the reference: {e}")))?;
            }
            let want = eval::eval(&given, &inputs).map_err(|e| e.to_string())?;
            let plan = plan::build(&graph, &target, &options.plan).map_err(|e| e.to_string())?;
            let copies = plan.dispatches.iter().filter(|s| s.is_copy).count();
            if copies > 0 {
                return Err(fail(format!("{copies} copies")));
            }
            let lowered = Lowered { name: MAIN.to_string(), graph: graph.clone(), passes: Vec::new(), plan };
            let got = device::run_lowered(&target, lowered, &options, &inputs).map_err(fail)?;
            for ((name, want), (_, got)) in want.iter().zip(&got) {
                compare(name, got, want, tolerance).map_err(fail)?;
            }
        }
    }
    Ok(())
}

fn fuse(case: &str, precision: Precision) -> Result<(), String> {
    let given = graph_text::parse(case).map_err(|e| e.to_string())?;
    let target = device::target();
    let options = Options { precision, ..Options::default() };
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    for symbols in bindings(&given) {
        let inputs = device::random_inputs(&given, &symbols)?;
        let want = eval::eval(&given, &inputs).map_err(|e| e.to_string())?;
        let lowered = compile::lower(&given, &target, &options).map_err(|e| e.to_string())?;
        let left = lowered.graph.topological().into_iter().map(|id| lowered.graph.op(id).name());
        let left =
            left.filter(|name| ["matmul", "layer-norm", "elementwise"].contains(name)).collect::<Vec<&str>>();
        if !left.is_empty() {
            return Err(format!("{left:?} are not fused"));
        }
        let again = eval::eval(&lowered.graph, &inputs).map_err(|e| e.to_string())?;
        let got = device::run_lowered(&target, lowered, &options, &inputs)?;
        for (((name, want), (_, again)), (_, got)) in want.iter().zip(&again).zip(&got) {
            compare(name, again, want, tolerance).map_err(|e| format!("on the reference: {e}"))?;
            compare(name, got, want, tolerance)?;
        }
    }
    Ok(())
}

/// Returns two sets of values for the symbols of a graph: all lower bounds, and all upper bounds. Returns one empty set
/// for a graph without symbols.
fn bindings(graph: &Graph) -> Vec<Bindings> {
    let at = |end: usize| graph.bounds.iter().map(|(name, b)| (name.clone(), [b.0, b.1][end])).collect();
    if graph.bounds.is_empty() { vec![Bindings::new()] } else { vec![at(0), at(1)] }
}
