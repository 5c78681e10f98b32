//! Compiles a built-in architecture with random weights into a bundle:
//! `cargo run -p drift-benches --bin build-model -- sd14-unet -t nvidia-hopper --precision f16 -o unet.drift`
//!
//! With `--precision f16` the model's inputs, outputs and weights are f16 too, like an export in half precision. The weights are
//! written to a file beside the bundle, which is removed at the end, so that they need not fit into memory.

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use drift_models::builtin;
use driftc::compile::{Options, compile};
use driftc::ir::tensor::DType;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

/// Compiles a built-in architecture with random weights into a bundle.
#[derive(Debug, Parser)]
struct Args {
    /// The architecture, such as sd14-unet
    name: String,
    /// Compile for this target profile: a name or a TOML file (repeatable)
    #[arg(short, long = "target", value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Precision: f32, f16 or mixed
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// The bundle to write
    #[arg(short, long, value_name = "OUT.drift")]
    output: PathBuf,
    /// Keep the weights in this folder, as model.safetensors
    #[arg(long, value_name = "DIR")]
    weights: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let architecture = builtin::find_builtin(&args.name)?;
    let targets = args.targets.iter().map(|t| TargetProfile::load(t)).collect::<Result<Vec<_>, _>>()?;
    let element = if args.precision == Precision::F16 { DType::F16 } else { DType::F32 };
    let folder = args.weights.clone().unwrap_or_else(|| args.output.with_extension("weights"));
    std::fs::create_dir_all(&folder)?;
    let start = Instant::now();
    let model = architecture.random(element, &folder)?;
    println!("{} nodes, weights drawn in {:.1} s", model.graph.len(), start.elapsed().as_secs_f32());
    let start = Instant::now();
    let options = Options { precision: args.precision, ..Options::default() };
    let report = compile(&model, &targets, &options, &args.output);
    if args.weights.is_none() {
        drop(model);
        std::fs::remove_dir_all(&folder)?;
    }
    let report = report?;
    let targets = targets.iter().zip(&report.lowered);
    for (target, lowered) in
        targets.flat_map(|(target, functions)| functions.iter().map(move |f| (target, f)))
    {
        let memory = &lowered.plan.memory;
        println!(
            "{}: {} dispatches, intermediate memory {:.2} MB (lower bound {:.2}, without reuse {:.2})",
            target.name,
            lowered.plan.dispatches.len(),
            memory.peak as f64 / 1e6,
            memory.lower_bound as f64 / 1e6,
            memory.naive as f64 / 1e6,
        );
    }
    let seconds = start.elapsed().as_secs_f32();
    println!("{}: {:.1} MB in {seconds:.1} s", args.output.display(), report.summary.file_size as f64 / 1e6);
    Ok(())
}
