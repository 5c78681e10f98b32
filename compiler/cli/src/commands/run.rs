//! `driftc run`: arrays in, arrays out.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use drift_runtime::format::Port;
use drift_runtime::{Array, ArrayRef, Session};
use serde::Serialize;

use crate::arrays::{NamedFile, known, named_file, read_named};
use crate::failure::{Failure, Result};
use crate::npy;
use crate::output::{Out, file_name, make_folder, milliseconds, time};
use crate::progress::Progress;
use crate::reused::Reused;
use crate::session::{CacheArgs, DeviceArgs, load};
use crate::trace::write_trace;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The bundle
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    /// An input by its name, or by its position counted from 0
    #[arg(short, long = "input", value_name = "NAME=FILE.npy", value_parser = named_file)]
    inputs: Vec<NamedFile>,
    /// Folder for the outputs, each as NAME.npy; what a file name cannot hold becomes `_`
    #[arg(short, long, value_name = "DIR")]
    output_dir: PathBuf,
    /// Write output_0.npy, output_1.npy, ... instead
    #[arg(long)]
    positional: bool,
    /// The function to run
    #[arg(long, value_name = "NAME", default_value = "main")]
    function: String,
    /// Run N times more and report the times
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Write when each dispatch ran, for chrome://tracing or ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Use the variant for this target (default: the one that fits best)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    target: String,
    outputs: Vec<OutputReport>,
    load_ms: f64,
    run_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<Repeated>,
}

#[derive(Debug, Serialize)]
struct OutputReport {
    name: String,
    #[serde(rename = "type")]
    dtype: &'static str,
    shape: Vec<usize>,
    file: PathBuf,
}

#[derive(Debug, Serialize)]
struct Repeated {
    n: u32,
    min_ms: f64,
    median_ms: f64,
}

pub(crate) fn run(args: &RunArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let mut session = load(&args.bundle, &args.device, args.target.as_deref(), &args.cache)?;
    let load_time = start.elapsed();
    let inputs = read_inputs(&session, &args.function, &args.inputs)?;
    let inputs: Vec<(&str, ArrayRef<'_>)> = inputs.iter().map(|(n, a)| (n.as_str(), a.as_ref())).collect();
    let (first, outputs) = {
        let _progress = Progress::start("running");
        let start = Instant::now();
        let outputs = session.run(&args.function, &inputs)?;
        (start.elapsed(), outputs)
    };
    let repeated = args.repeat.map(|n| repeat(&mut session, &args.function, &inputs, n)).transpose()?;
    let ports = session.outputs(&args.function)?.to_vec();
    let report = Report {
        device: session.device().name.clone(),
        target: session.variant().target.clone(),
        outputs: write_outputs(args, &ports, &outputs)?,
        load_ms: milliseconds(load_time),
        run_ms: milliseconds(first),
        repeated,
    };
    if let Some(path) = &args.trace {
        let times = session.replay_timed(&args.function)?;
        write_trace(path, &session, &args.function, &times)?;
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// The arrays for a function's inputs, in the function's order; every one must be there.
fn read_inputs(session: &Session, function: &str, files: &[NamedFile]) -> Result<Vec<(String, Array)>> {
    let names: Vec<String> = session.inputs(function)?.iter().map(|p| p.name.clone()).collect();
    let arrays = read_named(files, &names, "input")?;
    let missing = (0..names.len()).find(|i| arrays.iter().all(|(p, _)| p != i));
    if let Some(name) = missing.and_then(|i| names.get(i)) {
        return Err(Failure::usage(format!("input `{name}` is missing"))
            .help(format!("add --input {name}=FILE.npy; {}", known(&names, "input"))));
    }
    let named = arrays.into_iter().filter_map(|(p, array)| Some((names.get(p)?.clone(), array)));
    Ok(named.collect())
}

fn repeat(
    session: &mut Session,
    function: &str,
    inputs: &[(&str, ArrayRef<'_>)],
    n: u32,
) -> Result<Repeated> {
    let progress = Progress::steps("running", n as usize);
    let mut outputs = Reused::new(session, function)?;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..n {
        let start = Instant::now();
        outputs.run(session, function, inputs)?;
        times.push(start.elapsed());
        progress.step();
    }
    times.sort_unstable();
    let min_ms = times.first().copied().map_or(0.0, milliseconds);
    let median_ms = times.get(times.len() / 2).copied().map_or(0.0, milliseconds);
    Ok(Repeated { n, min_ms, median_ms })
}

fn write_outputs(args: &RunArgs, ports: &[Port], outputs: &[Array]) -> Result<Vec<OutputReport>> {
    make_folder(&args.output_dir)?;
    let mut files: Vec<PathBuf> = Vec::with_capacity(outputs.len());
    for (i, (port, array)) in ports.iter().zip(outputs).enumerate() {
        let name = if args.positional { format!("output_{i}") } else { file_name(&port.name) };
        let mut file = args.output_dir.join(format!("{name}.npy"));
        // Two names may become one when characters are replaced.
        if files.contains(&file) {
            file = args.output_dir.join(format!("{name}_{i}.npy"));
        }
        npy::write(&file, array)?;
        files.push(file);
    }
    let one = |((port, array), file): ((&Port, &Array), PathBuf)| OutputReport {
        name: port.name.clone(),
        dtype: array.dtype.name(),
        shape: array.shape.clone(),
        file,
    };
    Ok(ports.iter().zip(outputs).zip(files).map(one).collect())
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    for o in &report.outputs {
        writeln!(out, "{}: {}{:?} -> {}", o.name, o.dtype, o.shape, o.file.display())?;
    }
    let ms = |ms: f64| time(Duration::from_secs_f64(ms / 1e3));
    let (load, first) = (ms(report.load_ms), ms(report.run_ms));
    writeln!(out, "{} ({}): load {load}, first run {first}", report.device, report.target)?;
    if let Some(Repeated { n, min_ms, median_ms }) = report.repeated {
        writeln!(out, "{n} runs: minimum {}, median {}", ms(min_ms), ms(median_ms))?;
    }
    Ok(())
}
