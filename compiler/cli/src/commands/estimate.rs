//! `driftc estimate`: what a model would take on devices that are not at hand: time, memory, bytes of the bundle, and the
//! nodes that most of the time goes to.
//!
//! Times are sums of what the picked candidates cost by the profile's numbers, of every function at the upper bounds of
//! its symbols. A profile that was measured says how far such times are off; for others the margin is a guess that is said
//! to be one.

use std::io::Write;

use clap::Args;
use drift_runtime::Bundle;
use driftc::compile::{Lowered, write};
use driftc::functions::label;
use driftc::target::TargetProfile;
use serde::Serialize;

use super::compile::load_targets;
use super::inspect::reads::Reads;
use crate::failure::Result;
use crate::lowering::lower_all;
use crate::model::{ModelArgs, show_notes};
use crate::output::{Out, bytes, nanoseconds};
use crate::progress::Progress;
use crate::specialize::SpecializeArgs;
use crate::tuning::TuningArgs;

/// How many times as long, or as short, as estimated a model may take where nobody measured the profile.
const UNMEASURED: f64 = 4.0;

#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// A target: a profile's name (`driftc targets list`) or the path of its TOML file; any number
    #[arg(short, long = "target", value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Nodes to show, those that take longest
    #[arg(long, value_name = "N", default_value = "5")]
    nodes: usize,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    specialize: SpecializeArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    target: String,
    bundle_bytes: u64,
    /// How many times as long, or as short, as estimated a run may take, and whether measurements say so.
    margin: f64,
    measured: bool,
    functions: Vec<Function>,
}

#[derive(Debug, Serialize)]
struct Function {
    function: String,
    ns: f64,
    /// Of that, copies between layouts.
    copies_ns: f64,
    dispatches: usize,
    /// Bytes of intermediate tensors.
    peak_bytes: u64,
    reads: Reads,
    dearest: Vec<Node>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: String,
    what: String,
    kernel: &'static str,
    ns: f64,
}

pub(crate) fn run(args: &EstimateArgs, out: &mut Out) -> Result<()> {
    let targets = load_targets(&args.targets)?;
    let progress = Progress::start("importing");
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    let mut options = loaded.options(&args.model.given, false)?;
    args.tuning.apply(&mut options, &targets)?;
    args.specialize.apply(&mut options)?;
    let folder = tempfile::tempdir()?;
    let mut reports = Vec::with_capacity(targets.len());
    for target in &targets {
        progress.stage(&format!("planning for {}", target.name));
        let functions = lower_all(&args.model, &loaded, target, &options)?;
        let path = folder.path().join("estimate.drift");
        write(&loaded.model, std::slice::from_ref(target), &[&functions], &options, &path)?;
        let bundle = Bundle::open(&path)?;
        let variant = bundle.manifest().variants.first();
        let reads = variant.into_iter().flat_map(|v| v.functions.iter().map(|f| Reads::of(f, v)));
        reports.push(Report {
            target: target.name.clone(),
            bundle_bytes: std::fs::metadata(&path)?.len(),
            margin: target.fit.as_ref().map_or(UNMEASURED, |fit| fit.margin),
            measured: target.fit.is_some(),
            functions: functions.iter().zip(reads).map(|(f, r)| function(f, r, target, args.nodes)).collect(),
        });
    }
    drop(progress);
    if args.json {
        return out.json(&reports);
    }
    reports.iter().try_for_each(|report| print(report, out))
}

fn function(lowered: &Lowered, reads: Reads, target: &TargetProfile, shown: usize) -> Function {
    let plan = &lowered.plan;
    let picked = plan.decisions.iter().filter_map(|d| Some((d, d.choices.first()?)));
    let mut nodes: Vec<Node> = picked
        .map(|(decision, choice)| Node {
            node: decision.name.clone(),
            what: decision.what.clone(),
            kernel: choice.kernel.name,
            ns: choice.candidate.cost,
        })
        .collect();
    let machine = &target.machine;
    let copies = plan.dispatches.iter().filter(|step| step.label.ends_with(" (copy)"));
    let moved = copies.map(|step| step.bytes.range(&plan.bounds).1.max(0) as f64);
    let copies_ns: f64 = moved.map(|moved| moved / machine.bandwidth_gb_s + machine.launch_us * 1e3).sum();
    let ns = nodes.iter().map(|node| node.ns).sum::<f64>() + copies_ns;
    nodes.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    nodes.truncate(shown);
    Function {
        function: label(&lowered.name, &plan.bounds),
        ns,
        copies_ns,
        dispatches: plan.dispatches.len(),
        peak_bytes: plan.memory.peak,
        reads,
        dearest: nodes,
    }
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    let Report { target, margin, .. } = report;
    writeln!(out, "{target}: a bundle of {}", bytes(report.bundle_bytes))?;
    for f in &report.functions {
        let [low, high] = [f.ns / margin, f.ns * margin].map(nanoseconds);
        let (time, peak) = (nanoseconds(f.ns), bytes(f.peak_bytes));
        writeln!(
            out,
            "  {}: {time} ({low} to {high}) in {} dispatches, {peak} of intermediate tensors",
            f.function, f.dispatches
        )?;
        writeln!(out, "    reads {}", f.reads)?;
        for node in &f.dearest {
            let share = node.ns / f.ns.max(1.0) * 100.0;
            writeln!(
                out,
                "    {:>8} {share:>3.0} %  {}: {} by {}",
                nanoseconds(node.ns),
                node.node,
                node.what,
                node.kernel
            )?;
        }
    }
    let note = match report.measured {
        true => "the range is that of nine in ten picks on the measured device",
        false => "nobody measured this profile: parameters are generic, the range is a guess",
    };
    writeln!(out, "  {note}")?;
    Ok(())
}
