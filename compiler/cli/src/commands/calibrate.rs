//! `driftc calibrate`: measures the calibration suite's kernel candidates on this device. Cost parameters are fitted to
//! the resulting database.
//!
//! With `--static`, the driver compiles the candidates and nothing is measured ([`static_facts`]).
//!
//! The suite is ordered so that its first graphs already cover all kinds of problems, in case the time limit ends the
//! measurements early.
//! Measurements that the database already has are not repeated, so the same command continues an interrupted run.

mod static_facts;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use driftc::calibration_suite::{graphs, problems};
use driftc::plan::choice::Choice;
use driftc::plan::select::candidates;
use driftc::plan::trial::Trial;
use driftc::plan::tuning::{self, Database};
use driftc::shader::problem::Problem;
use serde::Serialize;

use crate::cli_help::DEVICE_OPTIONS;
use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::target_args::load_target;
use crate::trials::{BATCH, Tally, TrialRunner, save};

/// Minimum number of candidates to measure of each kernel, cheapest first, whatever their estimated cost.
const MIN_PER_KERNEL: usize = 2;
/// Maximum estimated cost of a candidate to measure, as a multiple of the cheapest candidate's cost.
const MAX_COST_RATIO: f64 = 256.0;

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// With --static, also compile the kernels of these models
    #[arg(value_name = "MODEL", requires = "is_static")]
    models: Vec<PathBuf>,
    /// Set the profile of this device: a name or a TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    /// Add measurements to this database (default: targets/measured/NAME.txt; with --static, targets/static/NAME.toml)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Start no measurement after this many minutes
    #[arg(long, value_name = "MINUTES", default_value = "60")]
    limit: f64,
    /// Measure the N cheapest candidates of each problem by estimate
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..))]
    candidates: u16,
    /// Skip candidates with an estimated time above this many milliseconds
    #[arg(long, value_name = "MS", default_value = "50")]
    longest: f64,
    /// Measure only suite graphs with this text in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Compile the candidates with the device's driver instead of measuring them, and write which ones spill registers
    #[arg(long = "static", conflicts_with_all = ["limit", "longest"])]
    is_static: bool,
    /// With --static, compile with the driver of this device, which need not be here (`make drivers`)
    #[arg(long, value_name = "NAME", help_heading = DEVICE_OPTIONS, requires = "is_static", conflicts_with = "device")]
    driver: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    target: String,
    device: Option<String>,
    database: PathBuf,
    graphs: usize,
    /// Number of suite graphs that were not measured because time ran out.
    left: usize,
    measured: usize,
    failed: usize,
    /// Number of problems in the database, including problems of earlier runs.
    problems: usize,
}

pub(crate) fn run(args: &CalibrateArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let target = load_target(&args.target, &args.device)?;
    if args.is_static {
        return static_facts::run(args, &target, out);
    }
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from("targets").join("measured").join(format!("{}.txt", target.name)));
    if !(args.limit > 0.0 && args.longest > 0.0) {
        return Err(Failure::usage("--limit and --longest must be positive"));
    }
    let mut database = match output.exists() {
        true => Database::load(&output)?,
        false => Database::default(),
    };
    if !output.exists() {
        // Report a path that cannot be written before measuring anything.
        save(&output, &database)?;
    }
    let wanted = |name: &str| args.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let set: Vec<_> = graphs().into_iter().filter(|g| wanted(&g.name)).collect();
    let progress = Progress::start("measuring the calibration suite");
    // A limit beyond the range of the clock is no limit.
    let end = Duration::try_from_secs_f64(args.limit * 60.0).ok().and_then(|limit| start.checked_add(limit));
    let runner = TrialRunner::new(&target, &args.device, &output, end)?;
    let mut report = Report { target: target.name.clone(), graphs: set.len(), ..Report::default() };
    // Trials of the bundle that is being filled.
    let mut waiting = Vec::new();
    let mut begun: BTreeSet<(String, String)> = BTreeSet::new();
    for (i, suite_graph) in set.iter().enumerate() {
        if runner.is_over() {
            report.left = set.len() - i;
            break;
        }
        progress.stage(&format!(
            "{i} of {} graphs: {} {}",
            set.len(),
            suite_graph.name,
            suite_graph.precision
        ));
        let graph = suite_graph.lowered(&target)?;
        let mut trials = Vec::new();
        for problem in problems(&graph, &target) {
            trials.extend(unmeasured_trials(args, &problem, &database)?);
        }
        // Graphs share problems. On a target without f16, both precisions of a graph have the same problems.
        trials.retain(|trial| begun.insert((trial.problem.clone(), trial.configuration.clone())));
        if waiting.len() + trials.len() > BATCH {
            flush(&runner, &mut waiting, &mut database, &mut report, &progress)?;
        }
        waiting.append(&mut trials);
    }
    flush(&runner, &mut waiting, &mut database, &mut report, &progress)?;
    drop(progress);
    report.device = database.device(&target.name).map(str::to_owned);
    report.problems = database.problems(&target.name);
    report.database = output;
    if args.json { out.json(&report) } else { print(&report, start.elapsed(), out) }
}

/// Measures the trials in `waiting` and empties the list. A trial is one measurement of one candidate.
fn flush(
    runner: &TrialRunner<'_>,
    waiting: &mut Vec<Trial>,
    database: &mut Database,
    report: &mut Report,
    progress: &Progress,
) -> Result<()> {
    let trials: Vec<&Trial> = waiting.iter().collect();
    let Tally { measured, failed, .. } = runner.measure_all(&trials, database, progress)?;
    (report.measured, report.failed) = (report.measured + measured, report.failed + failed);
    waiting.clear();
    Ok(())
}

/// Trials for the candidates of a problem that have no measurement in the database. A trial measures one candidate.
fn unmeasured_trials(args: &CalibrateArgs, problem: &Problem<'_>, database: &Database) -> Result<Vec<Trial>> {
    let choices = candidates(problem, None, None);
    let Some(cheapest) = choices.first().map(|c| c.candidate.cost) else { return Ok(Vec::new()) };
    let known = database.measured(&problem.target.name, || tuning::key(problem));
    let mut seen = BTreeSet::new();
    let mut per_kernel: BTreeMap<&str, usize> = BTreeMap::new();
    let mut selected = 0;
    let mut wanted = |choice: &&Choice| {
        let cost = choice.candidate.cost;
        let too_slow = cost > cheapest * MAX_COST_RATIO || cost > args.longest * 1e6;
        if too_slow || !seen.insert(tuning::configuration_with_hash(choice)) {
            return false;
        }
        let of_kernel = per_kernel.entry(choice.kernel.name).or_default();
        *of_kernel += 1;
        selected += 1;
        selected <= usize::from(args.candidates) || *of_kernel <= MIN_PER_KERNEL
    };
    let mut out = Vec::new();
    for choice in choices.iter().filter(|choice| wanted(choice)) {
        if known.is_some_and(|m| m.get(&tuning::configuration_with_hash(choice)).is_some()) {
            continue;
        }
        let trial = Trial::new(problem, choice);
        out.extend(trial.map_err(|e| Failure::input(format!("{}: {}", tuning::key(problem), e.0)))?);
    }
    Ok(out)
}

fn print(report: &Report, time: Duration, out: &mut Out) -> Result<()> {
    let Report { target, measured, failed, left, graphs, problems, .. } = report;
    if let Some(device) = &report.device {
        writeln!(out, "{target} on {device}")?;
    }
    let took = crate::output::time(time);
    writeln!(out, "{measured} candidates measured in {took}, {failed} of them failed")?;
    if *left > 0 {
        writeln!(out, "{left} of {graphs} graphs left; run the same command again to continue")?;
    }
    let path = report.database.display();
    writeln!(out, "{path} has {problems} problems; fit the cost parameters to it next")?;
    Ok(())
}
