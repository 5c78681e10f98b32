//! Times f16 matmuls and convolutions as single nodes and in every alternative of every decomposition, beside the estimates. A
//! line has the time in microseconds and the TFLOP/s, which always count the original node's operations. The fastest alternative
//! comes first; `->` marks the one that the compiler selects.
//!
//! `cargo bench -p drift-benches --bench alternatives -- [FILTER]`; `DRIFT_TEST_TARGET` names the profile and
//! `DRIFT_PRECISION=f32` another precision.

use std::path::Path;

use drift_benches::medians;
use drift_runtime::Session;
use driftc::compile::{Model, Options, compile, lower};
use driftc::decompose::DECOMPOSITIONS;
use driftc::ir::graph::Graph;
use driftc::ir::graph_text;
use driftc::passes::Precision;
use driftc::plan::Alternatives;
use driftc::target::TargetProfile;

/// Sizes M, N and K of the timed matmuls.
const MATMULS: &[[u32; 3]] = &[
    [512, 3072, 8192],
    [512, 8192, 3072],
    [512, 1024, 4096],
    [197, 768, 3072],
    [1, 4096, 4096],
    [2, 4096, 4096],
    [4, 4096, 4096],
    [8, 4096, 4096],
    [16, 4096, 4096],
    [32, 4096, 4096],
    [64, 4096, 4096],
    [1, 3072, 8192],
    [2, 3072, 8192],
    [4, 3072, 8192],
    [8, 3072, 8192],
    [16, 3072, 8192],
    [32, 3072, 8192],
    [64, 3072, 8192],
    [1, 1000, 2048],
];

/// Timed 3 x 3 convolutions: input channels, output channels and image side in pixels.
const CONVOLUTIONS: &[[u32; 3]] = &[
    [64, 64, 56],
    [128, 128, 28],
    [256, 256, 14],
    [512, 512, 7],
    [320, 320, 64],
    [640, 640, 32],
    [1280, 1280, 16],
    [1280, 1280, 8],
    [128, 128, 112],
    [256, 256, 64],
    [512, 512, 64],
];

/// Timed pairs of convolutions: channels of a depthwise 3 x 3 convolution, output channels of the pointwise convolution after
/// it, side of the result in pixels, and stride of the depthwise convolution.
const PAIRS: &[[u32; 4]] = &[
    [32, 16, 112, 1],
    [96, 24, 56, 2],
    [144, 24, 56, 1],
    [144, 32, 28, 2],
    [192, 32, 28, 1],
    [192, 64, 14, 2],
    [384, 64, 14, 1],
    [576, 96, 14, 1],
    [960, 160, 7, 1],
    [32, 64, 112, 1],
    [128, 128, 56, 1],
    [256, 256, 28, 1],
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let precision: Precision = std::env::var("DRIFT_PRECISION").unwrap_or_else(|_| "f16".into()).parse()?;
    let folder = std::env::temp_dir().join(format!("drift-alternatives-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let matmuls = MATMULS.iter().map(|[m, n, k]| {
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{m},{k}]}}\n%1 = neg %0\n\
             %2 = constant {{\"dtype\":\"f32\",\"shape\":[{k},{n}],\"random\":2}}\n\
             %3 = matmul %1 %2 {{\"trans_a\":false,\"trans_b\":false}} \"timed\"\n%4 = neg %3\noutput \"y\" %4\n"
        );
        (format!("matmul {m}x{n}x{k}"), graph, 2.0 * f64::from(*m) * f64::from(*n) * f64::from(*k))
    });
    let convolutions = CONVOLUTIONS.iter().map(|[c, o, side]| {
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,{c},{side},{side}]}}\n%1 = neg %0\n\
             %2 = constant {{\"dtype\":\"f32\",\"shape\":[{o},{c},3,3],\"random\":2}}\n\
             %3 = constant {{\"dtype\":\"f32\",\"shape\":[{o}],\"random\":3}}\n\
             %4 = conv %1 %2 %3 {{\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"group\":1}} \"timed\"\n\
             %5 = pool %4 {{\"kind\":\"max\",\"kernel\":[2,2],\"strides\":[2,2],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"ceil\":false}}\n\
             output \"y\" %5\n"
        );
        (format!("conv 3x3, {c} to {o} channels, {side} x {side} pixels"), graph, 18.0 * f64::from(side * side) * f64::from(*o) * f64::from(*c))
    });
    let pairs = PAIRS.iter().map(|[c, o, side, step]| {
        let input = side * step;
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,{c},{input},{input}]}}\n%1 = neg %0\n\
             %2 = constant {{\"dtype\":\"f32\",\"shape\":[{c},1,3,3],\"random\":2}}\n\
             %3 = constant {{\"dtype\":\"f32\",\"shape\":[{c}],\"random\":3}}\n\
             %4 = conv %1 %2 %3 {{\"strides\":[{step},{step}],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"group\":{c}}} \"timed\"\n\
             %5 = clip %4 {{\"low\":0.0,\"high\":6.0}} \"timed\"\n\
             %6 = constant {{\"dtype\":\"f32\",\"shape\":[{o},{c},1,1],\"random\":4}}\n\
             %7 = constant {{\"dtype\":\"f32\",\"shape\":[{o}],\"random\":5}}\n\
             %8 = conv %5 %6 %7 {{\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"group\":1}} \"timed\"\n\
             %9 = pool %8 {{\"kind\":\"max\",\"kernel\":[2,2],\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"ceil\":false}}\n\
             output \"y\" %9\n"
        );
        let flops = 2.0 * f64::from(side * side) * f64::from(*c) * (9.0 + f64::from(*o));
        (format!("depthwise 3x3 of {c} channels, then 1x1 to {o} channels, {side} x {side} pixels, stride {step}"), graph, flops)
    });
    for (name, graph, flops) in
        matmuls.chain(convolutions).chain(pairs).filter(|(name, ..)| name.contains(&filter))
    {
        run(&name, &graph_text::parse(&graph)?, flops, precision, &target, &folder.join("one.drift"))?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prints the time of a graph's node named `timed`: as one node, and as each alternative that a decomposition offers.
fn run(
    name: &str,
    graph: &Graph,
    flops: f64,
    precision: Precision,
    target: &TargetProfile,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = |alternatives: Alternatives| {
        let mut options = Options { precision, ..Options::default() };
        options.plan.alternatives = alternatives;
        options
    };
    let whole = lower(graph, target, &options(Alternatives::Never))?.graph;
    let mut all = vec![("as it is".to_string(), Alternatives::Never)];
    for decomposition in DECOMPOSITIONS {
        for variant in
            whole.topological().into_iter().flat_map(|id| (decomposition.alternatives)(&whole, id, target))
        {
            let always = Alternatives::Always(decomposition.name.to_string(), Some(variant));
            all.push(((decomposition.describe)(variant), always));
        }
    }
    let selected = lower(graph, target, &options(Alternatives::Cheaper))?;
    let mut measured = Vec::new();
    for (what, alternatives) in all {
        let options = options(alternatives);
        let lowered = lower(graph, target, &options)?;
        let decisions = lowered.plan.decisions.iter().filter(|d| d.name.starts_with("timed"));
        let estimated: f64 =
            decisions.filter_map(|d| d.choices.first()).map(|c| c.candidate.cost / 1e3).sum();
        let is_selected = graph_text::print(&lowered.graph) == graph_text::print(&selected.graph);
        let model = Model { graph: graph.clone(), ..Model::default() };
        compile(&model, std::slice::from_ref(target), &options, path)?;
        let times = medians(&mut Session::load(path, &drift_runtime::Options::default())?)?;
        let dispatches =
            times.iter().zip(&lowered.plan.dispatches).filter(|(_, s)| s.label.starts_with("timed"));
        let parts: Vec<String> =
            dispatches.clone().map(|(time, s)| format!("{} {time:.1}", s.launch.kernel)).collect();
        measured.push((dispatches.map(|(t, _)| t).sum::<f64>(), estimated, is_selected, what, parts));
    }
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("{name}");
    for (time, estimated, is_selected, what, parts) in &measured {
        let mark = if *is_selected { "->" } else { "  " };
        println!(
            "  {mark} {time:>9.1} µs {:>6.1} TFLOP/s  estimated {estimated:>9.1} µs  {what}: {}",
            flops / time / 1e6,
            parts.join(", ")
        );
    }
    Ok(())
}
