//! `driftc run`: runs a bundle or a model on arrays. A model is first compiled for this device, unless it is cached.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use drift_runtime::format::Port;
use drift_runtime::{Array, ArrayRef, Session};
use serde::Serialize;

use crate::arrays::{NamedFile, list_names, named_file, read_named, to_host};
use crate::cache::cached_bundle;
use crate::cli_help::DEVICE_OPTIONS;
use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::model_args::{ModelArgs, ModelOptions};
use crate::npy;
use crate::output::{Out, file_name, make_folder, milliseconds, note, time};
use crate::progress::Progress;
use crate::reused::ReusedOutputs;
use crate::session::{CacheArgs, DeviceArgs, load};
use crate::trace::write_trace;

/// Maximum number of elements to print of each output.
const SHOWN_ELEMENTS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Bundle or model; driftc compiles a model for the device and the input sizes, and caches the bundle
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Read an input from a file, by name or by position from 0
    #[arg(short, long = "input", value_name = "NAME=FILE.npy", value_parser = named_file)]
    inputs: Vec<NamedFile>,
    /// Write each output to NAME.npy in this folder, with `_` for invalid characters (default: print the outputs)
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Name the output files output_0.npy, output_1.npy, ...
    #[arg(long, requires = "output_dir")]
    positional: bool,
    /// Run this function
    #[arg(long, value_name = "NAME", default_value = "main")]
    function: String,
    /// Run N more times and report the times
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Write the dispatch times for chrome://tracing or ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Select the bundle's variant for this target, or compile the model for it (default: best fit for the device)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Cache compiled models in this folder (default: driftc in the user's cache folder)
    #[arg(long, value_name = "DIR", help_heading = DEVICE_OPTIONS)]
    cache_dir: Option<PathBuf>,
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
    file: Option<PathBuf>,
    /// First elements of the output as text.
    #[serde(skip)]
    head: String,
}

#[derive(Debug, Serialize)]
struct Repeated {
    n: u32,
    min_ms: f64,
    median_ms: f64,
}

pub(crate) fn run(args: &RunArgs, out: &mut Out) -> Result<()> {
    let (mut session, inputs, load_time) = match is_model(&args.path) {
        true => open_model(args)?,
        false => open_bundle(args)?,
    };
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

/// A loaded session, its input arrays by name, and the time that loading took.
type Opened = (Session, Vec<(String, Array)>, Duration);

fn open_bundle(args: &RunArgs) -> Result<Opened> {
    args.options.refuse_for_bundle(&args.path)?;
    if args.cache_dir.is_some() {
        let reason = format!("--cache-dir needs a model, but {} is a bundle", args.path.display());
        return Err(Failure::usage(reason).help("leave out --cache-dir; a bundle is not compiled"));
    }
    let start = Instant::now();
    let session = load(&args.path, &args.device, args.target.as_deref(), &args.cache)?;
    let time = start.elapsed();
    let inputs = read_inputs(&session, &args.function, &args.inputs)?;
    Ok((session, inputs, time))
}

fn open_model(args: &RunArgs) -> Result<Opened> {
    let model = ModelArgs { path: args.path.clone(), options: args.options.clone() };
    let declared = model.inputs()?;
    let names: Vec<String> = declared.iter().map(|d| d.name.clone()).collect();
    let arrays = read_named(&args.inputs, &names, "input")?;
    let named = |(p, array): (usize, Array)| Some((names.get(p)?.clone(), array));
    let mut arrays: BTreeMap<String, Array> = arrays.into_iter().filter_map(named).collect();
    let absent: Vec<(&str, bool)> = declared
        .iter()
        .filter(|d| !arrays.contains_key(&d.name))
        .map(|d| (d.name.as_str(), d.shape.as_ref().is_some_and(|s| s.iter().all(|n| n.is(1)))))
        .collect();
    check_absent(&absent, &names)?;
    let samples = arrays.iter().map(|(n, a)| Ok((n.clone(), to_host(a)?))).collect::<Result<_>>()?;
    let folder = args.cache_dir.as_deref();
    let cached = cached_bundle(&model, &samples, args.target.as_deref(), &args.device, folder)?;
    match cached.compiled {
        Some(took) => note(&format!("compiled in {} and cached as {}", time(took), cached.bundle.display())),
        None => note(&format!("compiled before: {}", cached.bundle.display())),
    }
    let pipelines = args.cache.pipeline_cache.clone().unwrap_or(cached.pipelines);
    let start = Instant::now();
    let session = load(&cached.bundle, &args.device, None, &CacheArgs { pipeline_cache: Some(pipelines) })?;
    let loading = start.elapsed();
    arrays.retain(|name, _| !cached.constants.contains(name));
    Ok((session, arrays.into_iter().collect(), loading))
}

/// Fails if inputs are absent. The flag of an absent input selects the option that the help suggests: `--const` if it
/// is true (the input is a single number), else `--input`.
fn check_absent(absent: &[(&str, bool)], names: &[String]) -> Result<()> {
    let option = |(name, single): &(&str, bool)| match single {
        true => format!("--const {name}=VALUE"),
        false => format!("--input {name}=FILE.npy"),
    };
    let quoted: Vec<String> = absent.iter().map(|(name, _)| format!("`{name}`")).collect();
    let options: Vec<String> = absent.iter().map(option).collect();
    let reason = match quoted.as_slice() {
        [] => return Ok(()),
        [one] => format!("input {one} is missing"),
        all => format!("inputs {} are missing", all.join(", ")),
    };
    Err(Failure::usage(reason).help(format!("add {}; {}", options.join(" "), list_names(names, "input"))))
}

/// Reads the arrays of all inputs of a function from files, in the function's order.
fn read_inputs(session: &Session, function: &str, files: &[NamedFile]) -> Result<Vec<(String, Array)>> {
    let names: Vec<String> = session.inputs(function)?.iter().map(|p| p.name.clone()).collect();
    let arrays = read_named(files, &names, "input")?;
    let given = |i: usize| arrays.iter().any(|(p, _)| *p == i);
    let absent: Vec<(&str, bool)> =
        names.iter().enumerate().filter(|(i, _)| !given(*i)).map(|(_, n)| (n.as_str(), false)).collect();
    check_absent(&absent, &names)?;
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
    let mut outputs = ReusedOutputs::new(session, function)?;
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
    let files = match &args.output_dir {
        Some(folder) => write_files(folder, args.positional, ports, outputs)?,
        None => vec![None; outputs.len()],
    };
    let one = |((port, array), file): ((&Port, &Array), Option<PathBuf>)| OutputReport {
        name: port.name.clone(),
        dtype: array.dtype.name(),
        shape: array.shape.clone(),
        file,
        head: first_elements(array),
    };
    Ok(ports.iter().zip(outputs).zip(files).map(one).collect())
}

fn write_files(
    folder: &Path,
    positional: bool,
    ports: &[Port],
    outputs: &[Array],
) -> Result<Vec<Option<PathBuf>>> {
    make_folder(folder)?;
    let mut files: Vec<Option<PathBuf>> = Vec::with_capacity(outputs.len());
    for (i, (port, array)) in ports.iter().zip(outputs).enumerate() {
        let name = if positional { format!("output_{i}") } else { file_name(&port.name) };
        let mut file = folder.join(format!("{name}.npy"));
        // Two names may map to the same file name after character replacement.
        if files.iter().flatten().any(|f| *f == file) {
            file = folder.join(format!("{name}_{i}.npy"));
        }
        npy::write(&file, array)?;
        files.push(Some(file));
    }
    Ok(files)
}

/// First elements of an array as text.
fn first_elements(array: &Array) -> String {
    let size = usize::try_from(array.dtype.size()).unwrap_or(1);
    let bytes = array.bytes.get(..SHOWN_ELEMENTS * size).unwrap_or(&array.bytes);
    let first = Array { dtype: array.dtype, shape: vec![bytes.len() / size], bytes: bytes.to_vec() };
    let values: Vec<String> = first.to_f64().iter().map(|v| (*v as f32).to_string()).collect();
    let more = if first.bytes.len() < array.bytes.len() { ", ..." } else { "" };
    format!("{}{more}", values.join(", "))
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    for o in &report.outputs {
        match &o.file {
            Some(file) => writeln!(out, "{}: {}{:?} -> {}", o.name, o.dtype, o.shape, file.display())?,
            None => writeln!(out, "{}: {}{:?} = {}", o.name, o.dtype, o.shape, o.head)?,
        }
    }
    let ms = |ms: f64| time(Duration::from_secs_f64(ms / 1e3));
    let (load, first) = (ms(report.load_ms), ms(report.run_ms));
    writeln!(out, "{} ({}): load {load}, first run {first}", report.device, report.target)?;
    if let Some(Repeated { n, min_ms, median_ms }) = report.repeated {
        writeln!(out, "{n} runs: minimum {}, median {}", ms(min_ms), ms(median_ms))?;
    }
    Ok(())
}
