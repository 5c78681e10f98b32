//! `driftc tune`: measures the candidates of a model's problems on the present device, into a database.
//!
//! Problems that occur several times are measured once. Many candidates go into one bundle, so that a device is opened
//! and pipelines are created for all of them together; after each bundle the database is written, so that an
//! interrupted run continues where it was.

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
use crate::model::{ModelArgs, show_notes};
use crate::output::{Out, nanoseconds};
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::trials::{self, Bench};

/// Candidates that are estimated to be this much slower than the cheapest are not worth a measurement.
const HOPELESS: f64 = 64.0;
/// A pick that is slower than the fastest candidate by less than this is as good.
const WORTH_TELLING: f64 = 1.05;
/// A pick that takes no longer than this many times the fastest candidate is a good one.
const GOOD: f64 = 1.15;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The profile of the present device: a name or the path of its TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    /// The database; what it already knows is kept and not measured again
    #[arg(short, long, value_name = "DB")]
    output: PathBuf,
    /// Only nodes whose name contains this
    #[arg(long, value_name = "TEXT")]
    nodes: Option<String>,
    /// Candidates of each problem to measure, the cheapest by estimate
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..))]
    candidates: u16,
    /// Start no further measurement after so many seconds; the most expensive problems come first
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
    /// Candidates measured now, known before, that failed, and left for another run.
    measured: usize,
    known: usize,
    failed: usize,
    left: usize,
    /// Where a measurement disagrees with the estimates, the worst first.
    changed: Vec<Changed>,
}

/// A problem whose cheapest candidate by estimate is not the fastest one.
#[derive(Debug, Serialize)]
struct Changed {
    problem: String,
    estimated: String,
    estimated_ns: f64,
    fastest: String,
    fastest_ns: f64,
}

/// A distinct problem of the model.
#[derive(Debug, Default)]
struct Task {
    /// Estimated time of all its occurrences.
    weight: f64,
    /// The way that the estimates prefer.
    pick: String,
    trials: Vec<Trial>,
    known: usize,
}

pub(crate) fn run(args: &TuneArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let target = TargetProfile::load(&args.target)?;
    let mut database = match args.output.exists() {
        true => Database::load(&args.output)?,
        false => Database::default(),
    };
    let progress = Progress::start("planning");
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    let options = loaded.options(&args.model.given, false)?;
    let mut tasks = BTreeMap::new();
    // A node that an alternative replaced is measured whole, too, so that the choice between the two can be.
    let mut whole = options.clone();
    whole.plan.alternatives = Alternatives::Never;
    for lowered in [&options, &whole] {
        for function in lower_all(&args.model, &loaded, &target, lowered)? {
            for (key, task) in tasks_of(args, &function.graph, &target, &options, &database)? {
                tasks.entry(key).or_insert(task);
            }
        }
    }
    if tasks.is_empty() && args.nodes.is_some() {
        return Err(Failure::usage("no node's name contains what --nodes asks for")
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
    let bench = Bench::new(&target, &args.device, &args.output, end)?;
    let tally = bench.measure_all(&trials, &mut database, &progress)?;
    drop(progress);
    (report.measured, report.failed, report.left) = (tally.measured, tally.failed, tally.left);
    report.device = tally.measured.gt(&0).then(|| database.device(&target.name).map(str::to_owned)).flatten();
    if trials.is_empty() && !args.output.exists() {
        trials::save(&args.output, &database)?;
    }
    report.changed = changed(&tasks, &database, &target.name);
    if args.json { out.json(&report) } else { print(&report, start.elapsed(), out) }
}

/// The distinct problems with the candidates that the database does not know.
fn tasks_of(
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
            Task { weight: cost, pick: tuning::configuration_with_hash(cheapest), ..Task::default() };
        let measured = database.measured(&target.name, || key.clone());
        let hopeful = choices.iter().filter(|c| c.candidate.cost <= cost * HOPELESS);
        // Candidates that differ in nothing but their reason are one.
        let mut seen = BTreeSet::new();
        for choice in
            hopeful.filter(|c| seen.insert(tuning::configuration_with_hash(c))).take(args.candidates.into())
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
        let Some(Outcome::Took(estimated_ns)) = measured.get(&task.pick) else { continue };
        let took = measured.iter().filter_map(|(way, outcome)| match outcome {
            Outcome::Took(ns) => Some((way, ns)),
            Outcome::Failed => None,
        });
        let Some((fastest, fastest_ns)) = took.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if fastest_ns < estimated_ns {
            let (problem, estimated) = (key.clone(), task.pick.clone());
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
    writeln!(out, "{problems} problems: {measured} candidates measured in {took}, {known} known before")?;
    if *failed > 0 {
        writeln!(out, "{failed} failed: the driver refused them or lost the device")?;
    }
    if *left > 0 {
        writeln!(out, "{left} left; the same command continues")?;
    }
    let slow = report.changed.iter().filter(|c| c.estimated_ns > c.fastest_ns * GOOD).count();
    let good = problems.saturating_sub(slow);
    writeln!(
        out,
        "{good} of {problems} picks by estimate are within 15 % of the fastest candidate measured"
    )?;
    let worth = |c: &&Changed| c.estimated_ns >= c.fastest_ns * WORTH_TELLING;
    match report.changed.iter().filter(worth).count() {
        0 => writeln!(out, "the estimates pick a candidate within 5 % of the fastest, for every problem")?,
        n => writeln!(out, "for {n} problems the estimates pick a slower candidate:")?,
    }
    for c in report.changed.iter().filter(worth) {
        let ratio = c.estimated_ns / c.fastest_ns;
        writeln!(out, "{ratio:.2} x  {}", c.problem)?;
        writeln!(out, "    {:>8}  {}  by estimate", nanoseconds(c.estimated_ns), c.estimated)?;
        writeln!(out, "    {:>8}  {}  by measurement", nanoseconds(c.fastest_ns), c.fastest)?;
    }
    Ok(())
}
