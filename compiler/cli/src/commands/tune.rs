//! `driftc tune`: measures kernel candidates for a model's problems on this device and writes a tuning database.
//!
//! Problems that occur several times are measured once. One bundle holds many candidates, so the device is opened and
//! pipelines are created once for all of them. The database is written after each bundle, so an interrupted run can
//! continue.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use driftc::compile::Options;
use driftc::ir::graph::Graph;
use driftc::plan::choice::Choice;
use driftc::plan::trial::Trial;
use driftc::plan::tuning::{self, Database, Outcome};
use driftc::plan::{Alternatives, build_visiting};
use driftc::shader::problem::Problem;
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model_args::ModelArgs;
use crate::output::{Out, nanoseconds, show_notes};
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::target_args::load_target;
use crate::trials::{self, TrialRunner};

/// Maximum estimated cost of a candidate to measure, as a multiple of the cheapest candidate's cost.
const MAX_COST_RATIO: f64 = 64.0;
/// A problem is printed if the candidate that the estimates select takes at least this multiple of the time of the
/// fastest candidate.
const REPORTED_RATIO: f64 = 1.05;
/// The estimates count as good for a problem if the candidate that they select takes at most this multiple of the time
/// of the fastest candidate.
const GOOD_RATIO: f64 = 1.15;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Set the profile of this device: a name or a TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    /// Add measurements to this database and keep its earlier ones
    #[arg(short, long, value_name = "DB")]
    output: PathBuf,
    /// Measure only nodes with this text in their name
    #[arg(long, value_name = "TEXT")]
    nodes: Option<String>,
    /// Measure the N cheapest candidates of each problem by estimate
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..))]
    candidates: u16,
    /// Start no measurement after this many seconds; expensive problems come first
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u64>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    target: String,
    device: Option<String>,
    database: PathBuf,
    problems: usize,
    /// Number of candidates measured in this run of the command.
    measured: usize,
    /// Number of candidates whose measurement the database already had.
    known: usize,
    failed: usize,
    /// Number of candidates that were not measured because time ran out.
    left: usize,
    /// Problems for which the estimates do not select the fastest candidate, largest loss first.
    changed: Vec<Changed>,
}

/// Problem whose cheapest candidate by estimate is not the fastest one.
#[derive(Debug, Serialize)]
struct Changed {
    problem: String,
    estimated: String,
    estimated_ns: f64,
    fastest: String,
    fastest_ns: f64,
}

/// A distinct kernel problem of the model, with the candidates to measure.
#[derive(Debug, Default)]
struct Task {
    /// Sum of the estimated times of all nodes of the model that have this problem, in nanoseconds.
    weight: f64,
    /// Configuration that the estimates select for the problem.
    selected: String,
    trials: Vec<Trial>,
    known: usize,
}

pub(crate) fn run(args: &TuneArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let target = load_target(&args.target, &args.device)?;
    let mut database = match args.output.exists() {
        true => Database::load(&args.output)?,
        false => Database::default(),
    };
    let progress = Progress::start("planning");
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    let options = loaded.compile_options(&args.model.options, false)?;
    let mut tasks = BTreeMap::new();
    // Also measure nodes that a decomposition would replace, so that measured times can decide between the two.
    let mut undecomposed = options.clone();
    undecomposed.plan.alternatives = Alternatives::Never;
    for lowered in [&options, &undecomposed] {
        for function in lower_all(&args.model, &loaded, &target, lowered)? {
            for (key, task) in unmeasured_tasks(args, &function.graph, &target, &options, &database)? {
                tasks.entry(key).or_insert(task);
            }
        }
    }
    if tasks.is_empty() && args.nodes.is_some() {
        return Err(Failure::usage("no node's name contains the text of --nodes")
            .help("`driftc explain` lists the nodes"));
    }
    drop(progress);
    let mut report = Report {
        target: target.name.clone(),
        device: None,
        database: args.output.clone(),
        problems: tasks.len(),
        measured: 0,
        known: tasks.values().map(|t| t.known).sum(),
        failed: 0,
        left: 0,
        changed: Vec::new(),
    };
    let mut order: Vec<&Task> = tasks.values().collect();
    order.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let trials: Vec<&Trial> = order.iter().flat_map(|t| &t.trials).collect();
    let progress = Progress::steps("measuring", trials.len());
    let end = args.budget.map(|s| start + Duration::from_secs(s));
    let runner = TrialRunner::new(&target, &args.device, &args.output, end)?;
    let tally = runner.measure_all(&trials, &mut database, &progress)?;
    drop(progress);
    (report.measured, report.failed, report.left) = (tally.measured, tally.failed, tally.left);
    report.device = tally.measured.gt(&0).then(|| database.device(&target.name).map(str::to_owned)).flatten();
    if trials.is_empty() && !args.output.exists() {
        trials::save(&args.output, &database)?;
    }
    report.changed = changed(&tasks, &database, &target.name);
    if args.json { out.json(&report) } else { print(&report, start.elapsed(), out) }
}

/// Distinct problems of a graph, each with trials for the candidates that have no measurement in the database.
fn unmeasured_tasks(
    args: &TuneArgs,
    graph: &Graph,
    target: &TargetProfile,
    options: &Options,
    database: &Database,
) -> Result<BTreeMap<String, Task>> {
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    let mut failure: Option<Failure> = None;
    let mut visit = |name: &str, problem: &Problem<'_>, choices: &[Choice]| {
        let Some(cheapest) = choices.first() else { return };
        if args.nodes.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            return;
        }
        let key = tuning::key(problem);
        let cost = cheapest.candidate.cost;
        if let Some(task) = tasks.get_mut(&key) {
            task.weight += cost;
            return;
        }
        let mut task =
            Task { weight: cost, selected: tuning::configuration_with_hash(cheapest), ..Task::default() };
        let measured = database.measured(&target.name, || key.clone());
        let affordable = choices.iter().filter(|c| c.candidate.cost <= cost * MAX_COST_RATIO);
        // Candidates with equal configurations differ only in their reason. Measure one of them.
        let mut seen = BTreeSet::new();
        for choice in affordable
            .filter(|c| seen.insert(tuning::configuration_with_hash(c)))
            .take(args.candidates.into())
        {
            if measured.is_some_and(|m| m.get(&tuning::configuration_with_hash(choice)).is_some()) {
                task.known += 1;
                continue;
            }
            match Trial::new(problem, choice) {
                Ok(trial) => task.trials.extend(trial),
                Err(e) => failure = Some(Failure::input(format!("at node `{name}`: {}", e.0))),
            }
        }
        tasks.insert(key, task);
    };
    build_visiting(graph, target, &options.plan, &mut visit)?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(tasks),
    }
}

fn changed(tasks: &BTreeMap<String, Task>, database: &Database, target: &str) -> Vec<Changed> {
    let mut changed: Vec<Changed> = Vec::new();
    for (key, task) in tasks {
        let Some(measured) = database.measured(target, || key.clone()) else { continue };
        let Some(Outcome::Time(estimated_ns)) = measured.get(&task.selected) else { continue };
        let took = measured.iter().filter_map(|(configuration, outcome)| match outcome {
            Outcome::Time(ns) => Some((configuration, ns)),
            Outcome::Failed => None,
        });
        let Some((fastest, fastest_ns)) = took.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if fastest_ns < estimated_ns {
            let (problem, estimated) = (key.clone(), task.selected.clone());
            let fastest = fastest.to_owned();
            changed.push(Changed { problem, estimated, estimated_ns, fastest, fastest_ns });
        }
    }
    changed.sort_by(|a, b| (b.estimated_ns / b.fastest_ns).total_cmp(&(a.estimated_ns / a.fastest_ns)));
    changed
}

fn print(report: &Report, time: Duration, out: &mut Out) -> Result<()> {
    let Report { target, problems, measured, known, failed, left, .. } = report;
    if let Some(device) = &report.device {
        writeln!(out, "{target} on {device}")?;
    }
    let took = crate::output::time(time);
    writeln!(
        out,
        "{problems} problems: {measured} candidates measured in {took}, {known} already in the database"
    )?;
    if *failed > 0 {
        writeln!(out, "{failed} candidates failed: the driver refused them or lost the device")?;
    }
    if *left > 0 {
        writeln!(out, "{left} candidates left; run the same command again to continue")?;
    }
    let slow = report.changed.iter().filter(|c| c.estimated_ns > c.fastest_ns * GOOD_RATIO).count();
    let good = problems.saturating_sub(slow);
    writeln!(
        out,
        "for {good} of {problems} problems the estimates select a candidate within 15 % of the fastest one"
    )?;
    let reported = |c: &&Changed| c.estimated_ns >= c.fastest_ns * REPORTED_RATIO;
    match report.changed.iter().filter(reported).count() {
        0 => {
            writeln!(
                out,
                "for every problem the estimates select a candidate within 5 % of the fastest one"
            )?;
        }
        n => writeln!(out, "for {n} problems the estimates select a slower candidate:")?,
    }
    for c in report.changed.iter().filter(reported) {
        let ratio = c.estimated_ns / c.fastest_ns;
        writeln!(out, "{ratio:.2} x  {}", c.problem)?;
        writeln!(out, "    {:>8}  {}  by estimate", nanoseconds(c.estimated_ns), c.estimated)?;
        writeln!(out, "    {:>8}  {}  by measurement", nanoseconds(c.fastest_ns), c.fastest)?;
    }
    Ok(())
}
