//! `driftc calibrate`: measures the candidates of the standing set of problems on the present device, into a database from
//! which the parameters of kernels are fitted.
//!
//! Every stretch of the set has something of everything, so that what an hour leaves undone is of all kinds. What the
//! database knows is not measured again: the same command continues an interrupted run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use driftc::plan::choice::Choice;
use driftc::plan::select::candidates;
use driftc::plan::trial::Trial;
use driftc::plan::tuning::{self, Database};
use driftc::shader::problem::Problem;
use driftc::standing::{graphs, problems};
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::trials::{BATCH, Bench, Tally, save};

/// The cheapest candidates of each kernel are measured, whatever the others cost.
const OF_A_KERNEL: usize = 2;
/// Candidates that are estimated to be this much slower than the cheapest are left out all the same.
const HOPELESS: f64 = 256.0;

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The profile of the present device: a name or the path of its TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    /// The database; what it already knows is kept and not measured again [default: targets/measured/NAME.txt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Start no further measurement after so many minutes
    #[arg(long, value_name = "MINUTES", default_value = "60")]
    limit: f64,
    /// Candidates of each problem to measure, the cheapest by estimate
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..))]
    candidates: u16,
    /// Leave out what is estimated to take more than so many milliseconds
    #[arg(long, value_name = "MS", default_value = "50")]
    longest: f64,
    /// Only graphs of the set whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
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
    /// Graphs that time did not suffice for.
    left: usize,
    measured: usize,
    failed: usize,
    /// Problems in the database, with those known before.
    problems: usize,
}

pub(crate) fn run(args: &CalibrateArgs, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let target = TargetProfile::load(&args.target)?;
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from("targets").join("measured").join(format!("{}.txt", target.name)));
    if !(args.limit > 0.0 && args.longest > 0.0) {
        return Err(Failure::usage("--limit and --longest are positive numbers"));
    }
    let mut database = match output.exists() {
        true => Database::load(&output)?,
        false => Database::default(),
    };
    if !output.exists() {
        // A place that cannot be written is told before anything is measured.
        save(&output, &database)?;
    }
    let wanted = |name: &str| args.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let set: Vec<_> = graphs().into_iter().filter(|g| wanted(&g.name)).collect();
    let progress = Progress::start("measuring the standing set");
    // A limit past all time is none.
    let end = Duration::try_from_secs_f64(args.limit * 60.0).ok().and_then(|limit| start.checked_add(limit));
    let bench = Bench::new(&target, &args.device, &output, end)?;
    let mut report = Report { target: target.name.clone(), graphs: set.len(), ..Report::default() };
    // Trials that wait for a bundle to be full.
    let mut waiting = Vec::new();
    let mut begun: BTreeSet<(String, String)> = BTreeSet::new();
    for (i, standing) in set.iter().enumerate() {
        if bench.over() {
            report.left = set.len() - i;
            break;
        }
        progress.stage(&format!("{i} of {} graphs: {} {}", set.len(), standing.name, standing.precision));
        let graph = standing.lowered(&target)?;
        let mut trials = Vec::new();
        for problem in problems(&graph, &target) {
            trials.extend(trials_of(args, &problem, &database)?);
        }
        // Graphs have problems in common, where a target lacks f16 all those of the two precisions.
        trials.retain(|trial| begun.insert((trial.problem.clone(), trial.configuration.clone())));
        if waiting.len() + trials.len() > BATCH {
            flush(&bench, &mut waiting, &mut database, &mut report, &progress)?;
        }
        waiting.append(&mut trials);
    }
    flush(&bench, &mut waiting, &mut database, &mut report, &progress)?;
    drop(progress);
    report.device = database.device(&target.name).map(str::to_owned);
    report.problems = database.problems(&target.name);
    report.database = output;
    if args.json { out.json(&report) } else { print(&report, start.elapsed(), out) }
}

/// Measures what waits.
fn flush(
    bench: &Bench<'_>,
    waiting: &mut Vec<Trial>,
    database: &mut Database,
    report: &mut Report,
    progress: &Progress,
) -> Result<()> {
    let trials: Vec<&Trial> = waiting.iter().collect();
    let Tally { measured, failed, .. } = bench.measure_all(&trials, database, progress)?;
    (report.measured, report.failed) = (report.measured + measured, report.failed + failed);
    waiting.clear();
    Ok(())
}

/// The candidates of a problem that are to be measured.
fn trials_of(args: &CalibrateArgs, problem: &Problem<'_>, database: &Database) -> Result<Vec<Trial>> {
    let choices = candidates(problem, None, None);
    let Some(cheapest) = choices.first().map(|c| c.candidate.cost) else { return Ok(Vec::new()) };
    let known = database.measured(&problem.target.name, || tuning::key(problem));
    let mut seen = BTreeSet::new();
    let mut of_kernel: BTreeMap<&str, usize> = BTreeMap::new();
    let mut taken = 0;
    let mut wanted = |choice: &&Choice| {
        let cost = choice.candidate.cost;
        let hopeless = cost > cheapest * HOPELESS || cost > args.longest * 1e6;
        if hopeless || !seen.insert(tuning::configuration_with_hash(choice)) {
            return false;
        }
        let own = of_kernel.entry(choice.kernel.name).or_default();
        *own += 1;
        taken += 1;
        taken <= usize::from(args.candidates) || *own <= OF_A_KERNEL
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
        writeln!(out, "{left} of {graphs} graphs left; the same command continues")?;
    }
    let path = report.database.display();
    writeln!(out, "{path} knows {problems} problems; a fit turns it into the parameters of kernels")?;
    Ok(())
}
