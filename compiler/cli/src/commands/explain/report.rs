//! Report of `driftc explain`: the structs of its JSON, and their values for each node, collected from the plan.

use std::collections::BTreeMap;

use driftc::compile::Lowered;
use driftc::entry_points::function_label;
use driftc::plan::choice::Choice;
use driftc::plan::{self, Location, Plan};
use driftc::target::TargetProfile;
use serde::Serialize;

/// Compiler stage whose notes compare the cost of a node with the costs of its decompositions.
pub(super) const DECOMPOSITION_STAGE: &str = driftc::decompose::STAGE;

/// Compiler stages whose notes explain the layouts of nodes. A note of the later stage overrides a note of the earlier
/// one.
pub(super) const LAYOUT_STAGES: [&str; 2] = driftc::layouts::STAGES;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) target: String,
    #[serde(flatten)]
    pub(super) function: Function,
    /// Specializations: copies of the function that are compiled for narrower bounds of its symbols.
    pub(super) specialized: Vec<Function>,
    /// Source of the values of each group of cost parameters (such as a fit to measurements), by the name of the group.
    pub(super) parameters: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Function {
    pub(super) function: String,
    pub(super) nodes: Vec<Node>,
    /// Notes of the passes about nodes that they changed. Most of these nodes no longer exist under their old name.
    pub(super) passes: Vec<Note>,
}

#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) node: String,
    pub(super) what: String,
    /// Reason for the layout of the node's result. `None` if only one layout was possible.
    pub(super) layout: Option<String>,
    /// Costs of the node's decompositions, as text. `None` if the node has no decomposition.
    pub(super) alternatives: Option<String>,
    /// Kernel candidates of the node, cheapest first. The first one is selected. Empty if the node is only a view of
    /// its operand.
    pub(super) candidates: Vec<Candidate>,
    pub(super) dispatches: Vec<Dispatch>,
    /// Memory of the node's result. `None` if the result is a view of an operand.
    pub(super) result: Option<Place>,
}

/// Launch of the selected kernel, or a copy of the result into another layout.
#[derive(Debug, Serialize)]
pub(super) struct Dispatch {
    pub(super) index: usize,
    pub(super) kernel: &'static str,
    pub(super) copy: bool,
    pub(super) grid: Vec<String>,
    pub(super) workgroup: [u32; 3],
    pub(super) flops: String,
    pub(super) bytes: String,
    pub(super) barrier_before: bool,
    pub(super) weights: Vec<Weights>,
}

/// Packed constant that a dispatch reads.
#[derive(Debug, Serialize)]
pub(super) struct Weights {
    /// Layout of the packed constant as text, such as the name of its packing order, then the axis and the size of each
    /// level of the order, slowest varying first.
    pub(super) order: String,
    #[serde(rename = "in")]
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
}

/// Place of a node's result in memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "in")]
pub(super) enum Place {
    Output {
        name: String,
    },
    Arena {
        offset: u64,
        bytes: u64,
        /// Index of the first dispatch that reads or writes the tensor.
        first: usize,
        /// Index of the last dispatch that reads or writes the tensor.
        last: usize,
        /// Number of other tensors that reuse or alias some bytes of this tensor.
        shares_with: usize,
    },
    Texture {
        kind: &'static str,
        /// Number of texels along x, y and z. For an array texture, z is the number of layers.
        extent: [u32; 3],
        /// Number of other tensors that reuse the texture.
        shares_with: usize,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct Candidate {
    pub(super) kernel: &'static str,
    /// Cost of the candidate in nanoseconds: the measured time if the tuning database has one, else the estimate.
    pub(super) cost_ns: f64,
    pub(super) measured_ns: Option<f64>,
    pub(super) knobs: Vec<(&'static str, u32)>,
    pub(super) reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Note {
    pub(super) pass: &'static str,
    pub(super) node: String,
    pub(super) what: String,
}

/// Builds the report of a function. `only` restricts the report to the node of this name.
pub(super) fn function_report(lowered: &Lowered, only: Option<&str>) -> Function {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let note_of = |stages: &[&str], name: &str| {
        let passes = lowered.passes.iter().filter(|p| stages.contains(&p.pass));
        let mut notes = passes.flat_map(|p| &p.changes.notes);
        notes.rfind(|n| n.node == name).map(|n| n.what.clone())
    };
    let steps = steps_by_node(&lowered.plan);
    let nodes = lowered.plan.decisions.iter().filter(|d| wanted(&d.name)).map(|d| {
        let node_steps = steps.get(d.name.as_str()).map_or(&[][..], Vec::as_slice);
        Node {
            node: d.name.clone(),
            what: d.what.clone(),
            layout: note_of(&LAYOUT_STAGES, &d.name),
            alternatives: note_of(&[DECOMPOSITION_STAGE], &d.name),
            candidates: d.choices.iter().map(candidate).collect(),
            dispatches: node_steps
                .iter()
                .map(|(index, copy)| dispatch(&lowered.plan, *index, *copy))
                .collect(),
            result: place(&lowered.plan, node_steps),
        }
    });
    let notes = lowered.passes.iter().flat_map(|p| p.changes.notes.iter().map(move |n| (p.pass, n)));
    let notes = notes.filter(|(_, n)| wanted(&n.node));
    Function {
        function: function_label(&lowered.name, &lowered.plan.bounds),
        nodes: nodes.collect(),
        passes: notes.map(|(pass, n)| Note { pass, node: n.node.clone(), what: n.what.clone() }).collect(),
    }
}

fn candidate(choice: &Choice) -> Candidate {
    Candidate {
        kernel: choice.kernel.name,
        cost_ns: choice.candidate.cost,
        measured_ns: choice.measured,
        knobs: choice.candidate.knobs.iter().collect(),
        reason: choice.candidate.reason.clone(),
    }
}

/// Indices of each node's dispatches, in order. The flag of a dispatch is true if it copies the result into another
/// layout.
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

/// Memory of a node's result: the memory that the node's last dispatch writes, copies into other layouts excluded.
fn place(plan: &Plan, node_steps: &[(usize, bool)]) -> Option<Place> {
    let (last, _) = node_steps.iter().rev().find(|(_, copy)| !copy)?;
    let step = plan.dispatches.get(*last)?;
    let written = step.locations.iter().zip(&step.launch.bindings).rev().find(|(_, b)| b.writable);
    match written.map(|(location, _)| *location)? {
        Location::Output(i) => Some(Place::Output { name: plan.outputs.get(i)?.name.clone() }),
        Location::Arena(i) => {
            let (size, offset) = (*plan.tensors.get(i)?, *plan.memory.offsets.get(i)?);
            let users =
                plan.dispatches.iter().enumerate().filter(|(_, s)| s.locations.contains(&Location::Arena(i)));
            let (first, last) = users
                .map(|(at, _)| at)
                .fold((usize::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
            let end = offset.saturating_add(size);
            let overlapping = plan
                .tensors
                .iter()
                .zip(&plan.memory.offsets)
                .enumerate()
                .filter(|(j, _)| plan.memory.arena(*j) == plan.memory.arena(i))
                .filter(|(j, (s, o))| *j != i && **s > 0 && **o < end && offset < o.saturating_add(**s));
            Some(Place::Arena { offset, bytes: size, first, last, shares_with: overlapping.count() })
        }
        Location::Image(i) => {
            let object = *plan.images.texture_of.get(i)?;
            let image = plan.images.textures.get(object)?;
            let tensors = plan.images.texture_of.iter().filter(|o| **o == object).count();
            Some(Place::Texture {
                kind: image.storage.name(),
                extent: image.extent,
                shares_with: tensors.saturating_sub(1),
            })
        }
        Location::Input(_) | Location::State(_) | Location::Weight(_) | Location::Params => None,
    }
}

/// Source of the values (such as a fit to measurements) of each group of cost parameters that the kernels of the
/// candidates read. `only` restricts the candidates to one node.
pub(super) fn parameter_sources(
    functions: &[Lowered],
    only: Option<&str>,
    target: &TargetProfile,
) -> BTreeMap<&'static str, String> {
    let decisions = functions.iter().flat_map(|f| &f.plan.decisions);
    let wanted = decisions.filter(|d| only.is_none_or(|only| only == d.name));
    let groups = wanted.flat_map(|d| &d.choices).flat_map(|choice| choice.kernel.params);
    groups.map(|group| (group.name, target.costs_source(group.name).to_owned())).collect()
}
