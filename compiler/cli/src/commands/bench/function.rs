//! Measurement of loading, runs and dispatches of a function.

use std::time::{Duration, Instant};

use drift_runtime::format::{Function, element_count};
use drift_runtime::{Array, ArrayRef, Session};
use driftc::entry_points::MAIN;
use driftc::target::TargetProfile;

use super::BenchArgs;
use super::function_print::print;
use super::function_report::{DispatchReport, Load, Report, Times};
use super::opened::{Opened, Size};
use crate::arrays::{dtype, generate_array, to_runtime};
use crate::failure::{Failure, Result};
use crate::measure::{dispatch_runs, median};
use crate::model_args::DimArg;
use crate::output::{Out, milliseconds};
use crate::progress::Progress;
use crate::reused::ReusedOutputs;
use crate::roofline::{roofline, roofline_profile, uses_matrices};
use crate::trace::write_trace;

/// Approximate total time of the measurements if `--repeat` is not given.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Measures a function and prints the report.
pub(super) fn run(args: &BenchArgs, opened: Opened, out: &mut Out) -> Result<()> {
    let (dims, mut sizes) = (opened.dims.clone(), opened.fixed.clone());
    let name = args.function.as_deref().unwrap_or(MAIN);
    let (mut session, total) = opened.load(args, 1)?;
    let progress = Progress::start("measuring");
    let function = session.function(name)?.clone();
    let symbols = symbols(&function, &dims)?;
    sizes.extend(function.symbols.iter().zip(&symbols).map(|(symbol, value)| Size {
        name: symbol.name.clone(),
        value: *value,
        from: if dims.iter().any(|dim| dim.name == symbol.name) { "--dim" } else { "upper bound" },
    }));
    let inputs = inputs(&function, &symbols)?;
    let inputs: Vec<(&str, ArrayRef<'_>)> = inputs.iter().map(|(n, a)| (n.as_str(), a.as_ref())).collect();
    for (symbol, value) in function.symbols.iter().zip(&symbols) {
        session.set_symbol(&function.name, &symbol.name, *value)?;
    }
    session.run(&function.name, &inputs)?;
    // The session may have selected a function that is specialized for these sizes.
    let function = session.last_replayed(name)?.clone();
    let load = Load::from_session(&session, total);
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
        sizes,
        load,
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
