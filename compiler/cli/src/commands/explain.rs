//! `driftc explain`: for each node the candidates, their costs, the pick and the reason; why its result lies in memory
//! as it does, and where; its dispatches; and what passes did.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use driftc::compile::Lowered;
use driftc::functions::label;
use driftc::plan::choice::Choice;
use driftc::plan::{self, Location, Plan};
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model::{ModelArgs, show_notes};
use crate::output::{Out, bytes, nanoseconds};
use crate::specialize::SpecializeArgs;
use crate::tuning::TuningArgs;

/// The step whose notes say what nodes would cost as several.
const ALTERNATIVES: &str = driftc::decompose::STAGE;

/// The steps whose notes say how results lie in memory; the later one has the last word.
const LAYOUTS: [&str; 2] = driftc::layouts::STAGES;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The target: a profile's name or the path of its TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    specialize: SpecializeArgs,
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
    #[serde(flatten)]
    function: Function,
    /// Functions for some of the sizes only.
    specialized: Vec<Function>,
    /// Whose numbers the estimates of the candidates rest on, by group of parameters.
    parameters: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct Function {
    function: String,
    nodes: Vec<Node>,
    /// What passes did to nodes, most of which no longer exist under that name.
    passes: Vec<Note>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: String,
    what: String,
    /// Why elements have their order; none where there was nothing to decide.
    layout: Option<String>,
    /// What it would cost as several nodes, or as one; none where there was nothing to decide.
    alternatives: Option<String>,
    /// Cheapest first; the first is the pick. None where the result is a view of the operand.
    candidates: Vec<Candidate>,
    dispatches: Vec<Dispatch>,
    /// Where the result lies; none for a view.
    result: Option<Place>,
}

/// A launch of the picked kernel, or a copy that brings the result into another order.
#[derive(Debug, Serialize)]
struct Dispatch {
    index: usize,
    kernel: &'static str,
    copy: bool,
    grid: Vec<String>,
    workgroup: [u32; 3],
    flops: String,
    bytes: String,
    barrier_before: bool,
    weights: Vec<Weights>,
}

/// A constant as a dispatch reads it.
#[derive(Debug, Serialize)]
struct Weights {
    /// The name of its order and the positions of each group of an axis, slowest first.
    order: String,
    #[serde(rename = "in")]
    kind: &'static str,
    bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "in")]
enum Place {
    Output {
        name: String,
    },
    Arena {
        offset: u64,
        bytes: u64,
        /// The first and the last dispatch that touch it.
        first: usize,
        last: usize,
        /// Tensors that use some of the same bytes, at other times or in its place.
        shares_with: usize,
    },
    Texture {
        kind: &'static str,
        /// Texels along x and y, and along z or in layers.
        extent: [u32; 3],
        /// Other tensors that live in the same texture, at other times.
        shares_with: usize,
    },
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
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    let mut options = loaded.options(&args.model.given, false)?;
    args.tuning.apply(&mut options, std::slice::from_ref(&target))?;
    args.specialize.apply(&mut options)?;
    let functions = lower_all(&args.model, &loaded, &target, &options)?;
    let mut reports: Vec<Function> = functions.iter().map(|f| report(f, args.node.as_deref())).collect();
    if let (Some(name), Some(general)) = (&args.node, functions.first())
        && reports.iter().all(|f| f.nodes.is_empty() && f.passes.is_empty())
    {
        return Err(unknown(name, general));
    }
    let parameters = parameters(&functions, args.node.as_deref(), &target);
    if args.json {
        let specialized = reports.split_off(reports.len().min(1));
        let Some(function) = reports.pop() else { return Ok(()) };
        return out.json(&Report { target: target.name, function, specialized, parameters });
    }
    for report in &reports {
        if functions.len() > 1 {
            writeln!(out, "function {}", report.function)?;
        }
        print(report, args.node.is_some(), out)?;
    }
    print_parameters(&parameters, out)
}

/// Where the parameters come from that kernels offering candidates read.
fn parameters(
    functions: &[Lowered],
    only: Option<&str>,
    target: &TargetProfile,
) -> BTreeMap<&'static str, String> {
    let decisions = functions.iter().flat_map(|f| &f.plan.decisions);
    let wanted = decisions.filter(|d| only.is_none_or(|only| only == d.name));
    let groups = wanted.flat_map(|d| &d.choices).flat_map(|choice| choice.kernel.params);
    groups.map(|group| (group.name, target.costs_source(group.name).to_owned())).collect()
}

fn print_parameters(parameters: &BTreeMap<&'static str, String>, out: &mut Out) -> Result<()> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, source) in parameters {
        groups.entry(source).or_default().push(group);
    }
    for (source, groups) in groups {
        writeln!(out, "estimates of {}: {source}", groups.join(", "))?;
    }
    Ok(())
}

/// `one` says that a single node was asked for.
fn print(report: &Function, one: bool, out: &mut Out) -> Result<()> {
    for node in &report.nodes {
        writeln!(out, "{}\n  {}", node.node, node.what)?;
        if let Some(reason) = &node.layout {
            writeln!(out, "  layout: {reason}")?;
        }
        if let Some(what) = &node.alternatives {
            writeln!(out, "  alternatives: {what}")?;
        }
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
        print_places(node, out)?;
        let shown = |pass| LAYOUTS.contains(&pass) || pass == ALTERNATIVES;
        let told = |n: &&Note| n.node == node.node && !shown(n.pass);
        for note in report.passes.iter().filter(|n| one && told(n)) {
            writeln!(out, "  pass {}: {}", note.pass, note.what)?;
        }
    }
    // Nodes that passes removed have no entry above.
    let gone = |n: &&Note| report.nodes.iter().all(|node| node.node != n.node);
    if one {
        for note in report.passes.iter().filter(gone) {
            writeln!(out, "{}\n  pass {}: {}", note.node, note.pass, note.what)?;
        }
    }
    Ok(())
}

fn report(lowered: &Lowered, only: Option<&str>) -> Function {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let note_of = |stages: &[&str], name: &str| {
        let passes = lowered.passes.iter().filter(|p| stages.contains(&p.pass));
        let mut notes = passes.flat_map(|p| &p.changes.notes);
        notes.rfind(|n| n.node == name).map(|n| n.what.clone())
    };
    let steps = steps_by_node(&lowered.plan);
    let nodes = lowered.plan.decisions.iter().filter(|d| wanted(&d.name)).map(|d| {
        let own = steps.get(d.name.as_str()).map_or(&[][..], Vec::as_slice);
        Node {
            node: d.name.clone(),
            what: d.what.clone(),
            layout: note_of(&LAYOUTS, &d.name),
            alternatives: note_of(&[ALTERNATIVES], &d.name),
            candidates: d.choices.iter().map(candidate).collect(),
            dispatches: own.iter().map(|(index, copy)| dispatch(&lowered.plan, *index, *copy)).collect(),
            result: place(&lowered.plan, own),
        }
    });
    let notes = lowered.passes.iter().flat_map(|p| p.changes.notes.iter().map(move |n| (p.pass, n)));
    let notes = notes.filter(|(_, n)| wanted(&n.node));
    Function {
        function: label(&lowered.name, &lowered.plan.bounds),
        nodes: nodes.collect(),
        passes: notes.map(|(pass, n)| Note { pass, node: n.node.clone(), what: n.what.clone() }).collect(),
    }
}

fn candidate(choice: &Choice) -> Candidate {
    Candidate {
        kernel: choice.kernel.name,
        cost_ns: choice.candidate.cost,
        measured_ns: choice.measured,
        knobs: choice.candidate.knobs.clone(),
        reason: choice.candidate.reason.clone(),
    }
}

/// The dispatches of each node in order, and whether each is a copy of its result.
fn steps_by_node(plan: &Plan) -> BTreeMap<&str, Vec<(usize, bool)>> {
    let mut steps: BTreeMap<&str, Vec<(usize, bool)>> = BTreeMap::new();
    for (index, step) in plan.dispatches.iter().enumerate() {
        let copied = step.label.strip_suffix(" (copy)");
        let name = copied.unwrap_or(&step.label);
        steps.entry(name).or_default().push((index, copied.is_some()));
    }
    steps
}

fn dispatch(plan: &Plan, index: usize, copy: bool) -> Dispatch {
    let step = plan.dispatches.get(index);
    let launch = step.map(|s| &s.launch);
    Dispatch {
        index,
        kernel: launch.map_or("", |l| l.kernel),
        copy,
        grid: launch.map_or_else(Vec::new, |l| l.grid.iter().map(ToString::to_string).collect()),
        workgroup: launch.map_or([0; 3], |l| l.workgroup),
        flops: launch.map_or_else(String::new, |l| l.flops.to_string()),
        bytes: step.map_or_else(String::new, |s| s.bytes.to_string()),
        barrier_before: step.is_some_and(|s| s.barrier),
        weights: step.map_or_else(Vec::new, |step| weights(plan, step)),
    }
}

fn weights(plan: &Plan, step: &plan::Dispatch) -> Vec<Weights> {
    let read = step.locations.iter().zip(&step.launch.bindings).filter_map(|(location, binding)| {
        let Location::Weight(i) = location else { return None };
        let packed = plan.weights.get(*i)?;
        Some(Weights { order: packed.to_string(), kind: binding.resource.name(), bytes: packed.bytes() })
    });
    read.collect()
}

/// What the last dispatch of a node that is no copy writes.
fn place(plan: &Plan, own: &[(usize, bool)]) -> Option<Place> {
    let (last, _) = own.iter().rev().find(|(_, copy)| !copy)?;
    let step = plan.dispatches.get(*last)?;
    let written = step.locations.iter().zip(&step.launch.bindings).rev().find(|(_, b)| b.writable);
    match written.map(|(location, _)| *location)? {
        Location::Output(i) => Some(Place::Output { name: plan.outputs.get(i)?.name.clone() }),
        Location::Arena(i) => {
            let (size, offset) = (*plan.tensors.get(i)?, *plan.memory.offsets.get(i)?);
            let touching =
                plan.dispatches.iter().enumerate().filter(|(_, s)| s.locations.contains(&Location::Arena(i)));
            let ends = touching
                .map(|(at, _)| at)
                .fold((usize::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
            let end = offset.saturating_add(size);
            let shares = plan
                .tensors
                .iter()
                .zip(&plan.memory.offsets)
                .enumerate()
                .filter(|(j, _)| plan.memory.arena(*j) == plan.memory.arena(i))
                .filter(|(j, (s, o))| *j != i && **s > 0 && **o < end && offset < o.saturating_add(**s));
            Some(Place::Arena {
                offset,
                bytes: size,
                first: ends.0,
                last: ends.1,
                shares_with: shares.count(),
            })
        }
        Location::Image(i) => {
            let object = *plan.images.places.get(i)?;
            let image = plan.images.objects.get(object)?;
            let tenants = plan.images.places.iter().filter(|o| **o == object).count();
            Some(Place::Texture {
                kind: image.storage.name(),
                extent: image.extent,
                shares_with: tenants.saturating_sub(1),
            })
        }
        Location::Input(_) | Location::State(_) | Location::Weight(_) | Location::Params => None,
    }
}

fn print_places(node: &Node, out: &mut Out) -> Result<()> {
    for d in &node.dispatches {
        let what = if d.copy { "copy to rows" } else { d.kernel };
        let (grid, [x, y, z]) = (d.grid.join(" x "), d.workgroup);
        let wait = if d.barrier_before { ", after a barrier" } else { "" };
        let (index, flops, moved) = (d.index, &d.flops, &d.bytes);
        writeln!(
            out,
            "  dispatch {index}: {what}, {grid} groups of {x} x {y} x {z}, {flops} flops, {moved} bytes{wait}"
        )?;
        for w in &d.weights {
            writeln!(out, "    weights of {} in a {}: {}", bytes(w.bytes), w.kind, w.order)?;
        }
    }
    match &node.result {
        Some(Place::Output { name }) => writeln!(out, "  result: output `{name}`")?,
        Some(Place::Arena { offset, bytes: size, first, last, shares_with }) => writeln!(
            out,
            "  result: {} at {offset} of the arena during dispatches {first} to {last}, bytes shared with {shares_with} others",
            bytes(*size)
        )?,
        Some(Place::Texture { kind, extent: [x, y, z], shares_with }) => {
            writeln!(out, "  result: a {kind} of {x} x {y} x {z} texels, shared with {shares_with} others")?;
        }
        None => {}
    }
    Ok(())
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
