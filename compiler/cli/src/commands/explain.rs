//! `driftc explain`: for each node the candidates, their costs, the pick and the reason, and what passes did.

use std::io::Write;

use clap::Args;
use driftc::compile::{Lowered, lower};
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::model::{ModelArgs, show_notes};
use crate::output::{Out, nanoseconds};
use crate::tuning::TuningArgs;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The target: a profile's name or the path of its TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    tuning: TuningArgs,
    /// Only the node of this name in the model
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    target: String,
    nodes: Vec<Node>,
    /// What passes did to nodes, most of which no longer exist under that name.
    passes: Vec<Note>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: String,
    what: String,
    /// Cheapest first; the first is the pick. None where the result is a view of the operand.
    candidates: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
struct Candidate {
    kernel: &'static str,
    /// Measured where a tuning database knows it, else estimated.
    cost_ns: f64,
    measured_ns: Option<f64>,
    knobs: Vec<(&'static str, u32)>,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Note {
    pass: &'static str,
    node: String,
    what: String,
}

pub(crate) fn run(args: &ExplainArgs, out: &mut Out) -> Result<()> {
    let target = TargetProfile::load(&args.target)?;
    let (model, notes) = args.model.load()?;
    show_notes(&notes);
    let mut options = args.model.options(false);
    args.tuning.apply(&mut options, std::slice::from_ref(&target))?;
    let lowered = lower(&model.graph, &target, &options)?;
    let report = report(&target.name, &lowered, args.node.as_deref());
    if let Some(name) = &args.node
        && report.nodes.is_empty()
        && report.passes.is_empty()
    {
        return Err(unknown(name, &lowered));
    }
    if args.json {
        return out.json(&report);
    }
    for node in &report.nodes {
        writeln!(out, "{}\n  {}", node.node, node.what)?;
        if node.candidates.is_empty() {
            writeln!(out, "  a view: no dispatch, the operand's memory is read in another order")?;
        }
        for (i, c) in node.candidates.iter().enumerate() {
            let knobs: Vec<String> = c.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mark = if i == 0 { "->" } else { "  " };
            let cost = if c.cost_ns == f64::MAX { "failed".to_owned() } else { nanoseconds(c.cost_ns) };
            let knobs = knobs.join(" ");
            writeln!(out, "  {mark} {:<12} {cost:>8}  {knobs}\n     {}", c.kernel, c.reason)?;
        }
        for note in report.passes.iter().filter(|n| args.node.is_some() && n.node == node.node) {
            writeln!(out, "  pass {}: {}", note.pass, note.what)?;
        }
    }
    // Nodes that passes removed have no entry above.
    let gone = |n: &&Note| report.nodes.iter().all(|node| node.node != n.node);
    if args.node.is_some() {
        for note in report.passes.iter().filter(gone) {
            writeln!(out, "{}\n  pass {}: {}", note.node, note.pass, note.what)?;
        }
    }
    Ok(())
}

fn report(target: &str, lowered: &Lowered, only: Option<&str>) -> Report {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let nodes = lowered.plan.decisions.iter().filter(|d| wanted(&d.name)).map(|d| Node {
        node: d.name.clone(),
        what: d.what.clone(),
        candidates: d
            .choices
            .iter()
            .map(|c| Candidate {
                kernel: c.kernel.name,
                cost_ns: c.candidate.cost,
                measured_ns: c.measured,
                knobs: c.candidate.knobs.clone(),
                reason: c.candidate.reason.clone(),
            })
            .collect(),
    });
    let notes = lowered.passes.iter().flat_map(|p| p.changes.notes.iter().map(move |n| (p.pass, n)));
    let notes = notes.filter(|(_, n)| wanted(&n.node));
    Report {
        target: target.to_owned(),
        nodes: nodes.collect(),
        passes: notes.map(|(pass, n)| Note { pass, node: n.node.clone(), what: n.what.clone() }).collect(),
    }
}

fn unknown(name: &str, lowered: &Lowered) -> Failure {
    let wanted = name.to_lowercase();
    let mut close: Vec<&str> = lowered
        .plan
        .decisions
        .iter()
        .map(|d| d.name.as_str())
        .filter(|known| known.to_lowercase().contains(&wanted) || wanted.contains(&known.to_lowercase()))
        .collect();
    close.dedup();
    close.truncate(8);
    let help = match close.is_empty() {
        true => "leave out --node to see them all".to_owned(),
        false => format!("there are {}", close.join(", ")),
    };
    Failure::usage(format!("no node is called `{name}`")).help(help)
}
