//! Times how fast matmuls of 1 to 16 rows stream their weights, with independent matmuls whose weights together exceed the
//! device's cache. The time of one matmul is the difference between runs of 2n and of n matmuls, divided by n.
//!
//! `cargo bench -p drift-benches --bench streams -- [FILTER]`; `DRIFT_TEST_TARGET` names the profile, `DRIFT_BENCH_MIB` the MiB
//! of weights to stream for each line, and `DRIFT_BENCH_KERNEL` a kernel whose candidates are all measured instead of the
//! selected one.

use std::path::Path;

use drift_benches::shortest_run;
use drift_runtime::Session;
use driftc::calibration_suite::problems;
use driftc::compile::{Model, Options, compile};
use driftc::ir::graph::Graph;
use driftc::ir::graph_text;
use driftc::ir::op::Op;
use driftc::passes::{self, Context, Precision, run_pipeline};
use driftc::plan::Alternatives;
use driftc::plan::choice::Choice;
use driftc::plan::select::candidates;
use driftc::plan::tuning::configuration;
use driftc::target::TargetProfile;

/// N and K.
const SIZES: &[[u64; 2]] =
    &[[2048, 2048], [3072, 8192], [8192, 3072], [4096, 4096], [14336, 4096], [4096, 14336], [8192, 2048]];
const ROWS: &[u64] = &[1, 2, 4, 8, 16];

/// Encoding of a timed matmul's weights.
struct Weights {
    name: &'static str,
    transposed: bool,
    /// Bits of a quantized weight, and number of inputs that share a scale (0 for all inputs); `None` for f16 weights.
    codes: Option<[u64; 2]>,
}

const WEIGHTS: &[Weights] = &[
    Weights { name: "[K, N] f16", transposed: false, codes: None },
    Weights { name: "[N, K] f16", transposed: true, codes: None },
    Weights { name: "q8", transposed: true, codes: Some([8, 0]) },
    Weights { name: "w4", transposed: true, codes: Some([4, 0]) },
    Weights { name: "w4 g128", transposed: true, codes: Some([4, 128]) },
    Weights { name: "w4 g32", transposed: true, codes: Some([4, 32]) },
];

impl Weights {
    /// Bytes of a weight matrix of `n` outputs and `k` inputs on the device, with its f16 scales.
    fn bytes(&self, [n, k]: [u64; 2]) -> u64 {
        match self.codes {
            None => n * k * 2,
            Some([bits, group]) => n * k * bits / 8 + n * k.checked_div(group).unwrap_or(1) * 2,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let mib: u64 = std::env::var("DRIFT_BENCH_MIB").ok().and_then(|s| s.parse().ok()).unwrap_or(256);
    let only = std::env::var("DRIFT_BENCH_KERNEL").ok();
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-streams-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    println!("| M x N x K | weights | us per matmul | GB/s | kernel |\n|---|---|---|---|---|");
    for [n, k] in SIZES {
        for m in ROWS {
            for weights in WEIGHTS {
                let name = format!("{m} x {n} x {k}");
                // One row in both orders: the order in the file must not matter.
                let of_interest = weights.name != "[N, K] f16" || *m == 1;
                if !format!("{name} {}", weights.name).contains(&filter) || !of_interest {
                    continue;
                }
                let bytes = weights.bytes([*n, *k]);
                let count = (mib << 20).div_ceil(bytes).max(4);
                let path = folder.join("m.drift");
                let matmul = graph([*m, *n, *k], weights, 1)?;
                for (candidate, choice) in choices(matmul, &target, only.as_deref())?.iter().enumerate() {
                    let time = |count| {
                        let graph = graph([*m, *n, *k], weights, count)?;
                        run(graph, only.as_deref(), candidate, &target, &path)
                    };
                    let us = (time(2 * count)? - time(count)?) / count as f64;
                    let rate = bytes as f64 / us / 1e3;
                    let kernel = configuration(choice);
                    println!("| {name} | {} | {us:.2} | {rate:.0} | {kernel} |", weights.name);
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Graph of `count` independent matmuls that read the same `[m, k]` input, each with its own weights.
fn graph([m, n, k]: [u64; 3], weights: &Weights, count: u64) -> Result<Graph, Box<dyn std::error::Error>> {
    let transposed = weights.transposed;
    let shape = if transposed { [n, k] } else { [k, n] };
    let encoding = weights.codes.map_or(String::new(), |[bits, group]| {
        let group = if group == 0 { k } else { group };
        format!("\"encoding\":\"u{bits} in groups of {group}\",")
    });
    let mut graph =
        format!("%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{m},{k}]}}\n%1 = neg %0\n");
    for i in 0..count {
        let (constant, matmul) = (2 + 2 * i, 3 + 2 * i);
        graph += &format!(
            "%{constant} = constant {{\"dtype\":\"f32\",\"shape\":[{},{}],{encoding}\"random\":{i}}}\n\
             %{matmul} = matmul %1 %{constant} {{\"trans_a\":false,\"trans_b\":{transposed}}}\n",
            shape[0], shape[1]
        );
    }
    for i in 0..count {
        graph += &format!("output \"y{i}\" %{}\n", 3 + 2 * i);
    }
    Ok(graph_text::parse(&graph)?)
}

/// Candidates to measure for the graph's matmul: all of the kernel `only`, or else the selected candidate.
fn choices(
    mut graph: Graph,
    target: &TargetProfile,
    only: Option<&str>,
) -> Result<Vec<Choice>, Box<dyn std::error::Error>> {
    let context = Context { target, precision: Precision::F16 };
    run_pipeline(&mut graph, &context, passes::Options::default())?;
    let matmul = problems(&graph, target).into_iter().find(|p| matches!(p.op, Op::MatMul(_)));
    let matmul =
        matmul.ok_or("the graph has no matmul after the passes: a pass rewrote the matmul to measure")?;
    let all = candidates(&matmul, only, None);
    let wanted = all.iter().filter(|choice| only.is_none_or(|kernel| choice.kernel.name == kernel));
    Ok(wanted.take(if only.is_some() { usize::MAX } else { 1 }).cloned().collect())
}

/// Shortest time of a run of all matmuls of a graph in microseconds, with the run's overhead.
fn run(
    graph: Graph,
    kernel: Option<&str>,
    candidate: usize,
    target: &TargetProfile,
    path: &Path,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut options = Options { precision: Precision::F16, ..Options::default() };
    options.plan.alternatives = Alternatives::Never;
    options.plan.prefer_kernel = kernel.map(str::to_string);
    options.plan.prefer_candidate = candidate;
    compile(&Model { graph, ..Model::default() }, std::slice::from_ref(target), &options, path)?;
    let mut session = Session::load(path, &drift_runtime::Options::default())?;
    shortest_run(&mut session)
}
