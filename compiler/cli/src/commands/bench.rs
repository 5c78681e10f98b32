//! `driftc bench`: measures loading, runs and dispatches of a bundle on this device.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use drift_runtime::format::{Function, element_count};
use drift_runtime::{Array, ArrayRef, Session};
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::arrays::{dtype, generate_array, to_runtime};
use crate::cli_help::DEVICE_OPTIONS;
use crate::failure::{Failure, Result};
use crate::measure::{dispatch_runs, median};
use crate::model_args::{DimArg, parse_dim};
use crate::output::{Out, bytes, milliseconds, nanoseconds, three_digits, time};
use crate::progress::Progress;
use crate::reused::ReusedOutputs;
use crate::roofline::{roofline, roofline_profile, uses_matrices};
use crate::session::{CacheArgs, DeviceArgs, load};
use crate::trace::write_trace;

/// Approximate total time of the measurements if `--repeat` is not given.
const TIME_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Bundle to measure
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    /// Run this function
    #[arg(long, value_name = "NAME", default_value = "main")]
    function: String,
    /// Set the value of a symbolic dimension (default: its upper bound)
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<DimArg>,
    /// Measure N runs (default: about two seconds of runs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// List the N slowest dispatches (default: 30, all with --json)
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Select the variant for this target (default: best fit for the device)
    #[arg(short, long, value_name = "TARGET", help_heading = DEVICE_OPTIONS)]
    target: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Compute rooflines from this profile (default: the profile of the bundle)
    #[arg(long, value_name = "TARGET")]
    profile: Option<String>,
    /// Write the dispatch times of one run for chrome://tracing or ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    driver: String,
    target: String,
    function: String,
    symbols: Vec<(String, i64)>,
    load: Load,
    /// Times of whole runs, including conversion and copies of inputs and outputs.
    with_copies: Times,
    /// Times of the dispatches alone, from submission to completion, without copies of inputs and outputs.
    without_copies: Times,
    /// Sum of the dispatch times in milliseconds, by the device's clock. `None` if the device has no timestamps.
    device_ms: Option<f64>,
    /// Name of the target profile whose machine numbers give the rooflines.
    profile: Option<String>,
    /// Sum of the rooflines of all dispatches, in milliseconds.
    #[serde(rename = "floor_ms")]
    roofline_ms: Option<f64>,
    dispatches: Vec<DispatchReport>,
}

#[derive(Debug, Serialize)]
struct Load {
    total_ms: f64,
    open_ms: f64,
    device_ms: f64,
    prepare_ms: f64,
    pipelines: u32,
    allocations: u32,
    allocated_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Times {
    runs: usize,
    min_ms: f64,
    median_ms: f64,
}

#[derive(Debug, Serialize)]
struct DispatchReport {
    index: usize,
    kernel: String,
    node: String,
    ns: f64,
    /// Time of this dispatch as a fraction of the time of all dispatches.
    share: f64,
    flops: i64,
    bytes: i64,
    gflop_s: f64,
    gb_s: f64,
    /// Roofline of the dispatch: minimum time in nanoseconds by the profile's machine numbers.
    #[serde(rename = "floor_ns")]
    roofline_ns: Option<f64>,
    /// Resource that limits the roofline: `memory` for bandwidth, `arithmetic` for peak throughput.
    bound: Option<&'static str>,
    /// Measured time of the dispatch divided by its roofline.
    ratio: Option<f64>,
}

pub(crate) fn run(args: &BenchArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let mut session = load(&args.bundle, &args.device, args.target.as_deref(), &args.cache)?;
    let total = start.elapsed();
    let progress = Progress::start("measuring");
    let function = session.function(&args.function)?.clone();
    let symbols = symbols(&function, &args.dims)?;
    let inputs = inputs(&function, &symbols)?;
    let inputs: Vec<(&str, ArrayRef<'_>)> = inputs.iter().map(|(n, a)| (n.as_str(), a.as_ref())).collect();
    for (symbol, value) in function.symbols.iter().zip(&symbols) {
        session.set_symbol(&function.name, &symbol.name, *value)?;
    }
    session.run(&function.name, &inputs)?;
    // The session may have selected a function that is specialized for these sizes.
    let function = session.last_replayed(&args.function)?.clone();
    let stats = session.stats();
    let mut outputs = ReusedOutputs::new(&session, &function.name)?;
    let with_copies = measure(args.repeat, || Ok(outputs.run(&mut session, &function.name, &inputs)?))?;
    let without_copies = measure(args.repeat, || Ok(session.replay_on_device(&function.name)?))?;
    let dispatches = match dispatch_times(&mut session, &function, args.repeat) {
        Ok(times) => Some(times),
        Err(drift_runtime::Error::NoTimestamps) => None,
        Err(error) => return Err(error.into()),
    };
    let device_ns: Option<f64> = dispatches.as_ref().map(|d| d.iter().sum());
    if let Some(path) = &args.trace {
        let times = session.replay_timed(&function.name)?;
        write_trace(path, &session, &function.name, &times)?;
    }
    drop(progress);
    let profile = roofline_profile(&session, args.profile.as_deref())?;
    let dispatches =
        describe_dispatches(&session, &function, &symbols, &dispatches.unwrap_or_default(), profile.as_ref());
    let roofline_ns: f64 = dispatches.iter().filter_map(|d| d.roofline_ns).sum();
    let report = Report {
        device: session.device().name.clone(),
        driver: format!("{} {}", session.device().driver_name, session.device().driver_info),
        target: session.variant().target.clone(),
        function: function.name.clone(),
        symbols: function.symbols.iter().map(|s| s.name.clone()).zip(symbols.iter().copied()).collect(),
        load: Load {
            total_ms: milliseconds(total),
            open_ms: milliseconds(stats.open_time),
            device_ms: milliseconds(stats.device_time),
            prepare_ms: milliseconds(stats.prepare_time),
            pipelines: stats.pipelines,
            allocations: stats.allocations,
            allocated_bytes: stats.allocated_bytes,
        },
        with_copies,
        without_copies,
        device_ms: device_ns.map(|ns| ns / 1e6),
        roofline_ms: profile.as_ref().map(|_| roofline_ns / 1e6),
        profile: profile.map(|p| p.name),
        dispatches,
    };
    match args.json {
        true => out.json(&report),
        false => print(&report, args.top.unwrap_or(30), out),
    }
}

/// Values of the function's symbols: from `--dim`, else the upper bounds.
fn symbols(function: &Function, dims: &[DimArg]) -> Result<Vec<i64>> {
    if let Some(unknown) = dims.iter().find(|d| function.symbols.iter().all(|s| s.name != d.name)) {
        let names: Vec<&str> = function.symbols.iter().map(|s| s.name.as_str()).collect();
        let list = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        return Err(Failure::usage(format!("`{}` has no symbolic size `{}`", function.name, unknown.name))
            .help(format!("its symbolic sizes: {list}")));
    }
    let value = |symbol: &drift_runtime::format::Symbol| {
        let Some(dim) = dims.iter().find(|d| d.name == symbol.name) else { return Ok(symbol.max) };
        match dim.low == dim.high && (symbol.min..=symbol.max).contains(&dim.low) {
            true => Ok(dim.low),
            false => {
                Err(Failure::usage(format!("--dim {} must be one size within the bundle's bounds", dim.name))
                    .help(format!("the bundle was compiled for sizes from {} to {}", symbol.min, symbol.max)))
            }
        }
    };
    function.symbols.iter().map(value).collect()
}

fn inputs(function: &Function, symbols: &[i64]) -> Result<Vec<(String, Array)>> {
    let mut inputs = Vec::with_capacity(function.inputs.len());
    for (i, port) in function.inputs.iter().enumerate() {
        let wrong = || Failure::input(format!("cannot compute the shape of input `{}`", port.name));
        let shape = port.shape_at(symbols).map_err(|e| wrong().because(e.to_string()))?;
        let within = element_count(&shape).is_some_and(|n| n <= 1 << 32);
        let sizes: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let sizes = sizes.ok().filter(|_| within).ok_or_else(wrong)?;
        inputs
            .push((port.name.clone(), to_runtime(&generate_array(dtype(port.host_type), &sizes, i as u64))));
    }
    Ok(inputs)
}

fn measure(repeat: Option<u32>, mut run: impl FnMut() -> Result<()>) -> Result<Times> {
    let begin = Instant::now();
    let mut times: Vec<Duration> = Vec::new();
    let more = |times: &[Duration]| match repeat {
        Some(n) => times.len() < n as usize,
        None => times.len() < 3 || (times.len() < 1000 && begin.elapsed() < TIME_LIMIT),
    };
    while more(&times) {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(Times {
        runs: times.len(),
        min_ms: times.first().copied().map_or(0.0, milliseconds),
        median_ms: times.get(times.len() / 2).copied().map_or(0.0, milliseconds),
    })
}

/// Median time of each dispatch over several runs, in nanoseconds.
fn dispatch_times(
    session: &mut Session,
    function: &Function,
    repeat: Option<u32>,
) -> Result<Vec<f64>, drift_runtime::Error> {
    let repeat = repeat.map(|n| n as usize);
    let runs = dispatch_runs(session, &function.name, repeat, TIME_LIMIT)?;
    let times = |i: usize| runs.iter().filter_map(|run| run.get(i).copied()).collect();
    Ok((0..function.dispatches.len()).map(|i| median(times(i))).collect())
}

/// Reports of the dispatches, slowest first.
fn describe_dispatches(
    session: &Session,
    function: &Function,
    symbols: &[i64],
    times: &[f64],
    profile: Option<&TargetProfile>,
) -> Vec<DispatchReport> {
    let total: f64 = times.iter().sum();
    let mut rows: Vec<DispatchReport> = function
        .dispatches
        .iter()
        .zip(times)
        .enumerate()
        .map(|(index, (dispatch, ns))| {
            let pipeline = session.variant().pipelines.get(dispatch.pipeline as usize);
            let (flops, moved) =
                (dispatch.flops.eval(symbols).unwrap_or(0), dispatch.bytes.eval(symbols).unwrap_or(0));
            let matrix = uses_matrices(session.bundle(), session.variant(), dispatch);
            let roofline = profile.map(|p| roofline(p, matrix, flops, moved));
            DispatchReport {
                roofline_ns: roofline.map(|r| r.ns),
                bound: roofline.map(|r| r.bound),
                ratio: roofline.filter(|r| r.ns > 0.0).map(|r| ns / r.ns),
                index,
                kernel: pipeline.map_or_else(String::new, |p| p.name.clone()),
                node: dispatch.label.clone(),
                ns: *ns,
                share: if total > 0.0 { ns / total } else { 0.0 },
                flops,
                bytes: moved,
                gflop_s: if *ns > 0.0 { flops as f64 / ns } else { 0.0 },
                gb_s: if *ns > 0.0 { moved as f64 / ns } else { 0.0 },
            }
        })
        .collect();
    rows.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    rows
}

fn print(report: &Report, top: usize, out: &mut Out) -> Result<()> {
    let ms = |ms: f64| time(Duration::from_secs_f64(ms.max(0.0) / 1e3));
    let symbols: Vec<String> = report.symbols.iter().map(|(n, v)| format!(" {n}={v}")).collect();
    writeln!(
        out,
        "{} ({}), variant {}{}",
        report.device,
        report.driver.trim(),
        report.target,
        symbols.concat()
    )?;
    let l = &report.load;
    writeln!(
        out,
        "load            {} = open {} + device {} + weights and pipelines {}",
        ms(l.total_ms),
        ms(l.open_ms),
        ms(l.device_ms),
        ms(l.prepare_ms)
    )?;
    let (n, size) = (l.allocations, bytes(l.allocated_bytes));
    writeln!(out, "                {} pipelines, {n} allocations of {size}", l.pipelines)?;
    for (what, t) in [("run with copies ", &report.with_copies), ("run             ", &report.without_copies)]
    {
        writeln!(out, "{what}minimum {}, median {} of {} runs", ms(t.min_ms), ms(t.median_ms), t.runs)?;
    }
    let Some(device_ms) = report.device_ms else {
        return Ok(writeln!(out, "dispatches      not timed: the device has no timestamps")?);
    };
    write!(out, "dispatches      {} in {}", report.dispatches.len(), ms(device_ms))?;
    if let (Some(profile), Some(roofline)) = (&report.profile, report.roofline_ms) {
        let ratio = three_digits(device_ms / roofline.max(1e-9));
        write!(
            out,
            ", {ratio} x the roofline of {}, computed from the machine numbers of {profile}",
            ms(roofline)
        )?;
    }
    writeln!(out, "\n")?;
    let head = ["time", "share", "roofline", "ratio", "bound by", "GFLOP/s", "GB/s", "kernel", "node"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for d in report.dispatches.iter().take(top) {
        rows.push(vec![
            nanoseconds(d.ns),
            format!("{:.1} %", d.share * 100.0),
            d.roofline_ns.map_or_else(String::new, nanoseconds),
            d.ratio.map_or_else(String::new, three_digits),
            d.bound.unwrap_or_default().to_owned(),
            three_digits(d.gflop_s),
            three_digits(d.gb_s),
            d.kernel.clone(),
            d.node.clone(),
        ]);
    }
    out.table(&[true, true, true, true, false, true, true, false, false], &rows)?;
    match report.dispatches.len().saturating_sub(top) {
        0 => Ok(()),
        more => Ok(writeln!(out, "{more} more dispatches; list them with --top")?),
    }
}
