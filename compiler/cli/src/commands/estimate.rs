//! `driftc estimate`: estimates latency, memory, bundle size and the most expensive nodes for a target, without a
//! device.
//!
//! The time of a function is the sum of the selected candidates' estimates at the upper bounds of its symbols. A profile
//! with its own measurements has a margin of error from its fit. Other profiles use a default margin, and the output
//! says so.

use std::io::Write;

use clap::Args;
use drift_runtime::Bundle;
use driftc::compile::{Lowered, write};
use driftc::entry_points::function_label;
use driftc::plan::params::Params;
use driftc::self_test::References;
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::bytes_read::BytesRead;
use crate::estimated_time::{EstimatedTime, estimated_time};
use crate::failure::Result;
use crate::lowering::lower_all;
use crate::memory_report::Memory;
use crate::model_args::ModelArgs;
use crate::output::{Out, bytes, nanoseconds, show_notes};
use crate::progress::Progress;
use crate::self_tests::with_self_test;
use crate::specialize::SpecializeArgs;
use crate::target_args::load_targets;
use crate::tuning::TuningArgs;

#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Estimate for this target profile: a name from `driftc targets list` or a TOML file (repeatable)
    #[arg(short, long = "target", value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Show the N most expensive nodes
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
    /// Factor by which the real time may be longer or shorter than the estimate.
    margin: f64,
    /// True if the margin comes from measurements on the device.
    measured: bool,
    functions: Vec<Function>,
}

#[derive(Debug, Serialize)]
struct Function {
    function: String,
    ns: f64,
    /// Estimated time of copies between layouts, in nanoseconds. The time `ns` of the function includes it.
    copies_ns: f64,
    dispatches: usize,
    memory: Memory,
    reads: BytesRead,
    most_expensive: Vec<Node>,
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
    let mut options = loaded.compile_options(&args.model.options, false)?;
    args.tuning.apply(&mut options, &targets)?;
    args.specialize.apply(&mut options)?;
    let folder = tempfile::tempdir()?;
    let mut reports = Vec::with_capacity(targets.len());
    let references = References::default();
    for target in &targets {
        progress.stage(&format!("planning for {}", target.name));
        let functions = lower_all(&args.model, &loaded, target, &options)?;
        let path = folder.path().join("estimate.drift");
        let (described, _) = with_self_test(&loaded.model, &[&functions], &options, None, &references)?;
        write(&described, std::slice::from_ref(target), &[&functions], &options, &path)?;
        let bundle = Bundle::open(&path)?;
        let variant = bundle.manifest().variants.first();
        let reads =
            variant.into_iter().flat_map(|v| v.functions.iter().map(|f| BytesRead::from_function(f, v)));
        reports.push(Report {
            target: target.name.clone(),
            bundle_bytes: std::fs::metadata(&path)?.len(),
            margin: match &target.fit {
                Some(fit) => fit.margin,
                None => Params::for_stage(target, "estimate")?.unmeasured_margin_ratio,
            },
            measured: target.fit.is_some(),
            functions: functions
                .iter()
                .zip(reads)
                .map(|(f, r)| describe_function(f, r, target, args.nodes))
                .collect(),
        });
    }
    drop(progress);
    if args.json {
        return out.json(&reports);
    }
    reports.iter().try_for_each(|report| print(report, out))
}

fn describe_function(lowered: &Lowered, reads: BytesRead, target: &TargetProfile, shown: usize) -> Function {
    let plan = &lowered.plan;
    let selected = plan.decisions.iter().filter_map(|d| Some((d, d.choices.first()?)));
    let mut nodes: Vec<Node> = selected
        .map(|(decision, choice)| Node {
            node: decision.name.clone(),
            what: decision.what.clone(),
            kernel: choice.kernel.name,
            ns: choice.candidate.cost,
        })
        .collect();
    let EstimatedTime { total, copies } = estimated_time(lowered, target);
    nodes.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    nodes.truncate(shown);
    Function {
        function: function_label(&lowered.name, &plan.bounds),
        ns: total,
        copies_ns: copies,
        dispatches: plan.dispatches.len(),
        memory: Memory::from_lowered(lowered),
        reads,
        most_expensive: nodes,
    }
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    let Report { target, margin, .. } = report;
    writeln!(out, "{target}: bundle of {}", bytes(report.bundle_bytes))?;
    for f in &report.functions {
        let [low, high] = [f.ns / margin, f.ns * margin].map(nanoseconds);
        let (time, peak) = (nanoseconds(f.ns), bytes(f.memory.peak));
        writeln!(
            out,
            "  {}: {time} ({low} to {high}) in {} dispatches, {peak} of intermediate tensors",
            f.function, f.dispatches
        )?;
        writeln!(out, "    reads {}", f.reads)?;
        for node in &f.most_expensive {
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
        true => {
            "range from measurements on the target device, where 9 of 10 selected kernels take a time within their range"
        }
        false => "not measured on this device: cost parameters of other devices, so the range is wide",
    };
    writeln!(out, "  {note}")?;
    Ok(())
}
