//! Times f16 matmuls, convolutions that use matmul kernels, and attention: every candidate in microseconds and TFLOP/s beside its
//! estimate, fastest first. The line below each case is the fastest candidate as an entry of a profile's `overrides`.
//! `cargo bench -p drift-benches --bench matrix -- [FILTER]`; `DRIFT_TEST_TARGET` names the profile.

use std::path::Path;
use std::sync::Mutex;

use drift_benches::medians;
use drift_runtime::Session;
use driftc::compile::{Model, Options, compile, lower};
use driftc::ir::graph_text;
use driftc::passes::Precision;
use driftc::plan::Alternatives;
use driftc::plan::choice::Choice;
use driftc::plan::estimate::problem;
use driftc::plan::tuning::{configuration, key_without_epilogue};
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// Sizes M, N and K of the timed matmuls.
const MATMULS: &[[u32; 3]] = &[
    [4096, 4096, 4096],
    [8192, 8192, 4096],
    [512, 8192, 3072],
    [512, 3072, 8192],
    [512, 1024, 1024],
    [512, 4096, 1024],
    [512, 1024, 4096],
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
    [1, 768, 768],
    [1, 3072, 768],
    [1, 768, 3072],
    [1, 2048, 2048],
];

/// Timed convolutions: input channels, output channels, image side in pixels, side of the filter window, and stride.
const CONVOLUTIONS: &[[u32; 5]] = &[
    [3, 64, 224, 7, 2],
    [64, 64, 56, 1, 1],
    [64, 64, 56, 3, 1],
    [64, 256, 56, 1, 1],
    [256, 128, 56, 1, 1],
    [128, 128, 56, 3, 2],
    [128, 128, 28, 3, 1],
    [128, 512, 28, 1, 1],
    [256, 256, 14, 3, 1],
    [256, 1024, 14, 1, 1],
    [1024, 256, 14, 1, 1],
    [512, 512, 7, 3, 1],
    [512, 2048, 7, 1, 1],
    [2048, 512, 7, 1, 1],
    [320, 320, 64, 3, 1],
    [16, 96, 112, 1, 1],
    [32, 192, 28, 1, 1],
    [96, 576, 14, 1, 1],
    [576, 96, 14, 1, 1],
    [160, 960, 7, 1, 1],
    [960, 160, 7, 1, 1],
    [320, 1280, 7, 1, 1],
];

/// Timed attentions: number of heads, number of queries, number of keys, and number of elements of a head.
const ATTENTIONS: &[[u32; 4]] = &[
    [8, 4096, 4096, 40],
    [8, 1024, 1024, 80],
    [8, 256, 256, 160],
    [8, 64, 64, 160],
    [8, 4096, 77, 40],
    [8, 1024, 77, 80],
    [8, 256, 77, 160],
    [16, 512, 512, 64],
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-matrix-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let matmuls = MATMULS.iter().map(|[m, n, k]| {
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{m},{k}]}}\n%1 = neg %0\n\
             %2 = constant {{\"dtype\":\"f32\",\"shape\":[{k},{n}],\"random\":2}}\n\
             %3 = matmul %1 %2 {{\"trans_a\":false,\"trans_b\":false}}\n\
             %4 = reduce %3 {{\"kind\":\"max\",\"axes\":[1],\"keepdims\":true}}\noutput \"y\" %4\n"
        );
        (format!("matmul {m}x{n}x{k}"), graph, 2.0 * f64::from(*m) * f64::from(*n) * f64::from(*k))
    });
    let convolutions = CONVOLUTIONS.iter().map(|[c, o, side, window, stride]| {
        let pad = window / 2;
        let after = side.div_ceil(*stride);
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,{c},{side},{side}]}}\n%1 = neg %0\n\
             %2 = constant {{\"dtype\":\"f32\",\"shape\":[{o},{c},{window},{window}],\"random\":2}}\n\
             %3 = constant {{\"dtype\":\"f32\",\"shape\":[{o}],\"random\":3}}\n\
             %4 = conv %1 %2 %3 {{\"strides\":[{stride},{stride}],\"dilations\":[1,1],\"pads_begin\":[{pad},{pad}],\"pads_end\":[{pad},{pad}],\"group\":1}}\n\
             %5 = pool %4 {{\"kind\":\"max\",\"kernel\":[2,2],\"strides\":[2,2],\"dilations\":[1,1],\"pads_begin\":[0,0],\"pads_end\":[0,0],\"ceil\":false}}\n\
             output \"y\" %5\n"
        );
        let taps = f64::from(window * window * c);
        (format!("conv {window}x{window}, {c} to {o} channels, {side} x {side} pixels, stride {stride}"), graph, 2.0 * f64::from(after * after) * f64::from(*o) * taps)
    });
    // Queries, keys and values have the layout of projections: the heads of a position together.
    let attentions = ATTENTIONS.iter().map(|[heads, queries, keys, size]| {
        let operand = |at: u32, name: &str, length: &u32| {
            format!(
                "%{at} = input {{\"name\":\"{name}\",\"dtype\":\"f32\",\"shape\":[1,{length},{heads},{size}]}}\n\
                 %{} = neg %{at}\n%{} = transpose %{} {{\"perm\":[0,2,1,3]}}\n",
                at + 1,
                at + 2,
                at + 1
            )
        };
        let graph = format!(
            "{}{}{}%9 = attention %2 %5 %8 {{\"scale\":{:?},\"causal\":false}}\n\
             %10 = transpose %9 {{\"perm\":[0,2,1,3]}}\n%11 = neg %10\noutput \"y\" %11\n",
            operand(0, "q", queries),
            operand(3, "k", keys),
            operand(6, "v", keys),
            f64::from(*size).sqrt().recip()
        );
        let flops = 4.0 * f64::from(*heads * *size) * f64::from(*queries) * f64::from(*keys);
        (format!("attention {heads}x{queries}x{keys}x{size}"), graph, flops)
    });
    let all = matmuls.chain(convolutions).chain(attentions);
    for (name, graph, flops) in all.filter(|(name, ..)| name.contains(&filter)) {
        run(&name, &graph, flops, &target, &folder)?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prints the time of each candidate for the timed operator of a graph, and the fastest one as an override.
fn run(
    name: &str,
    graph: &str,
    flops: f64,
    target: &TargetProfile,
    folder: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let operator = name.split(' ').next().unwrap_or(name);
    let graph = graph_text::parse(graph)?;
    let model = Model { graph: graph.clone(), ..Model::default() };
    let options = || {
        let mut options = Options { precision: Precision::F16, ..Options::default() };
        options.plan.alternatives = Alternatives::Never;
        options
    };
    let choices = |options: &Options| -> Result<(Vec<Choice>, String), String> {
        let lowered = lower(&graph, target, options).map_err(|e| e.to_string())?;
        let decision = lowered.plan.decisions.into_iter().find(|d| d.what.starts_with(operator));
        let key = decision
            .as_ref()
            .and_then(|d| problem(&lowered.graph, d.node, target))
            .map(|p| key_without_epilogue(&p));
        Ok((decision.map(|d| d.choices).unwrap_or_default(), key.unwrap_or_default()))
    };
    let (all, key) = choices(&options())?;
    // A candidate whose estimate is many times the best one is not timed.
    let best = all.first().map_or(0.0, |c| c.candidate.cost);
    let worth = |place: usize, choice: &Choice| place < 12 || choice.candidate.cost < 6.0 * best;
    // Drivers compile a kernel slowly, so kernels are compiled in parallel and timed one at a time.
    let device = Mutex::new(());
    let measure = |place: usize, choice: &Choice| -> Result<f64, String> {
        let path = folder.join(format!("{place}.drift"));
        let mut options = options();
        options.plan.prefer_kernel = Some(choice.kernel.name.to_string());
        let (choices, _) = choices(&options)?;
        options.plan.prefer_candidate =
            choices.iter().position(|c| c.candidate == choice.candidate).unwrap_or(0);
        compile(&model, std::slice::from_ref(target), &options, &path).map_err(|e| e.to_string())?;
        let steps = lower(&graph, target, &options).map_err(|e| e.to_string())?.plan.dispatches;
        let mut session =
            Session::load(&path, &drift_runtime::Options::default()).map_err(|e| e.to_string())?;
        let alone = device.lock().map_err(|e| e.to_string())?;
        let times = medians(&mut session).map_err(|e| e.to_string())?;
        drop(alone);
        Ok(times
            .iter()
            .zip(&steps)
            .filter(|(_, s)| s.launch.kernel == choice.kernel.name)
            .map(|(t, _)| t)
            .sum())
    };
    let measured: Result<Vec<(f64, usize, &Choice)>, String> = all
        .par_iter()
        .enumerate()
        .filter(|(place, choice)| worth(*place, choice))
        .map(|(place, choice)| Ok((measure(place, choice)?, place, choice)))
        .collect();
    let mut measured = measured?;
    let selected = measured.iter().find(|(_, place, _)| *place == 0).map_or(0.0, |(t, ..)| *t);
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    print(name, &key, flops, selected, &measured);
    Ok(())
}

/// Prints measured candidates, fastest first, each with its time in microseconds and its number in the order of estimates.
/// `selected` is the time of the selected candidate.
fn print(name: &str, key: &str, flops: f64, selected: f64, measured: &[(f64, usize, &Choice)]) {
    let fastest = measured.first().map_or(0.0, |(t, ..)| *t);
    println!(
        "{name}: selected {selected:.1} µs, best {fastest:.1} µs, ratio {:.2}",
        selected / fastest.max(1e-9)
    );
    if let Some((time, _, choice)) = measured.first() {
        println!("  {{ problem = '{key}', configuration = \"{}\", us = {time:.1} }},", configuration(choice));
    }
    for (time, place, choice) in measured {
        let knobs: Vec<String> = choice.candidate.knobs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        println!(
            "  {:>9.1} µs {:>6.1} TFLOP/s  estimated {:>9.1} µs (place {place:>3})  {:<14} {}",
            time,
            flops / time / 1e6,
            choice.candidate.cost / 1e3,
            choice.kernel.name,
            knobs.join(" ")
        );
    }
}
