//! Every kernel on the device against the CPU reference, over its own cases, in f32 and in f16 storage.

use std::collections::BTreeMap;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::device;
use driftc::compile::Options;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::ops::constant::random;
use driftc::ir::{array::Array, eval, text};
use driftc::kernels::KERNELS;
use driftc::passes::Precision;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        for (i, case) in kernel.cases.iter().enumerate() {
            for precision in [Precision::F32, Precision::F16] {
                trials.push(Trial::test(format!("{}/{i}/{precision}", kernel.name), move || {
                    run(kernel.name, case, precision).map_err(Into::into)
                }));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn run(kernel: &str, case: &str, precision: Precision) -> Result<(), String> {
    let graph = text::parse(case).map_err(|e| e.to_string())?;
    let mut options = Options { precision, ..Options::default() };
    options.plan.prefer_kernel = Some(kernel.to_string());
    let lowered = driftc::compile::lower(&graph, &device::target(), &options).map_err(|e| e.to_string())?;
    let used = lowered.plan.steps.iter().any(|s| s.launch.kernel == kernel);
    if !used {
        return Err(format!("kernel {kernel} takes no part in its own case"));
    }
    let own =
        lowered.plan.decisions.iter().filter(|d| d.choices.first().is_some_and(|c| c.kernel.name == kernel));
    // Storage changes the hooks only, so that every candidate runs in one precision.
    let candidates =
        if precision == Precision::F32 { own.map(|d| d.choices.len()).max().unwrap_or(1) } else { 1 };
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    // A symbolic case runs at the ends of its range and in between.
    for pick in [0, 1, 2] {
        let symbols: Bindings = graph
            .bounds
            .iter()
            .map(|(name, (low, high))| (name.clone(), [*low, (low + high) / 2, *high][pick]))
            .collect();
        let inputs = random_inputs(&graph, &symbols)?;
        let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
        for candidate in 0..candidates {
            options.plan.prefer_candidate = candidate;
            let got = device::run(&graph, &options, &inputs)?;
            for ((name, want), (_, got)) in want.iter().zip(&got) {
                compare(name, got, want, tolerance).map_err(|e| format!("candidate {candidate}: {e}"))?;
            }
        }
        if symbols.is_empty() {
            break;
        }
    }
    Ok(())
}

fn random_inputs(graph: &Graph, symbols: &Bindings) -> Result<BTreeMap<String, Array>, String> {
    let mut inputs = BTreeMap::new();
    for (i, id) in graph.inputs().iter().enumerate() {
        let input = graph.input(*id).ok_or("an input node without a payload")?;
        let shape: Option<Vec<usize>> =
            input.shape.iter().map(|d| usize::try_from(d.eval(symbols)?).ok()).collect();
        let shape = shape.ok_or("a size that is not bound")?;
        inputs.insert(input.name.clone(), random(input.dtype, &shape, 100 + i as u64));
    }
    Ok(inputs)
}
