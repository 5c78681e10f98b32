//! Alternatives of another number of dispatches: nodes that are cheaper computed as several, or with others as one.
//!
//! ```text
//! %2 = matmul f32[64, 512] %0 %1        ->      %3 = transpose (reshape %0)            f16[8, 64, 1024]
//!                                               %4 = matmul f32[8, 64, 512] %3 %1'
//!                                               %5 = reduce sum f16[64, 512] %4
//! ```
//!
//! A [`Decomposition`] rewrites one node into several operators that the graph has anyway, so that the CPU reference
//! evaluates what it made, and every kernel, layout and fused epilogue works there as everywhere. Whether that is worth it
//! depends on the kernels, of which passes know nothing; so this step runs after them and before the plan. Each variant of
//! each decomposition is added beside its node, every node of it is asked for its cheapest candidate, and the variant
//! replaces the node where the sum is clearly lower. What lost is swept.
//!
//! A variant may compute some of the node's operands, too: operands that the node alone uses and the variant does not are gone
//! with it, and count on the node's side. So two nodes become one where a kernel computes both.
//!
//! A decomposition is a file here and a line in [`DECOMPOSITIONS`].

pub mod decoded;
pub(crate) mod params;
pub mod separable;
pub mod split_k;
pub mod whole_groups;
pub mod winograd;

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::ir::element::Arg;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Op};
use crate::ir::tensor::TensorDesc;
use crate::ir::verify::verify;
use crate::passes::{Changes, Note, PassReport};
use crate::plan::estimate::{Cost, Costs, operand};
use crate::plan::views::is_view;
use crate::plan::{Alternatives, Options};
use crate::target::TargetProfile;
pub use params::Params;

/// The name in reports.
pub const STAGE: &str = "decompose";

/// What a variant stores in between may take as much memory as so many of the most that any node of the graph reads and
/// writes, as the last-level cache holds, or as this part of all constants takes: time is not bought with any amount of
/// memory.
const ROOM: i64 = 4;
const PART_OF_CONSTANTS: i64 = 16;

/// Every decomposition; among equal costs the earlier one wins.
pub const DECOMPOSITIONS: &[Decomposition] = &[
    split_k::DECOMPOSITION,
    winograd::DECOMPOSITION,
    separable::DECOMPOSITION,
    whole_groups::DECOMPOSITION,
    decoded::DECOMPOSITION,
];

/// A variant of computing one kind of node as several.
#[derive(Debug, Clone, Copy)]
pub struct Decomposition {
    /// Name of its file.
    pub name: &'static str,
    /// The variants it can take a node apart, as numbers of its own; none where it cannot.
    pub variants: fn(&Graph, NodeId, &TargetProfile) -> Vec<u32>,
    /// Whether it brings constants of its own, or the node's in an order of their own.
    pub repacks: bool,
    /// The part of the node's cost below which a variant must be estimated. Measured times are taken at their word.
    pub margin: fn(&Params) -> f64,
    /// Whether a variant may be worth its while; estimates are not asked where they would have to be far off.
    pub sensible: fn(&Graph, NodeId, u32, &Params) -> bool,
    /// Adds the nodes of a variant but the last, which it returns.
    pub build: fn(&mut Graph, NodeId, u32, Elements) -> Result<Last>,
    /// What a variant does, for people.
    pub describe: fn(u32) -> String,
    /// Graphs in text form with a node that it can replace, with sizes that divide nothing.
    pub cases: &'static [&'static str],
}

/// The operator that takes a node's place, and its operands; the node's epilogue moves behind it.
#[derive(Debug)]
pub struct Last {
    /// The operator.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<NodeId>,
}

/// What new constants hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Zeros, while costs are compared.
    Any,
    /// What they must.
    True,
}

/// Replaces nodes by cheaper decompositions.
///
/// # Errors
/// When a decomposition breaks the graph: an internal error that names this step.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    if options.alternatives != Alternatives::Never && options.prefer_kernel.is_none() {
        let order = graph.topological();
        let most = order.iter().map(|id| touched(graph, *id)).max().unwrap_or(0);
        let cache = i64::try_from(costs.target.machine.last_level_cache).unwrap_or(i64::MAX);
        let constants = order.iter().filter(|id| graph.constant(**id).is_some());
        let constants = constants.map(|id| operand(graph, *id).bytes(&graph.bounds));
        let part = constants.fold(0, i64::saturating_add) / PART_OF_CONSTANTS;
        let room = most.saturating_mul(ROOM).max(cache).max(part);
        let params = Params::of(costs.target);
        let params =
            params.ok_or_else(|| Error::internal(STAGE, "a profile without parameters of this step"))?;
        for id in order {
            decide(graph, id, costs, (options, &params, room), &mut changes)?;
        }
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// One variant, added beside its node.
struct Attempt {
    decomposition: &'static Decomposition,
    variant: u32,
    /// Bytes stored in between.
    stored: i64,
    /// Operands of the node that it still needs.
    kept: Vec<NodeId>,
    cost: Cost,
}

fn decide(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    (options, params, room): (&Options, &Params, i64),
    changes: &mut Changes,
) -> Result<()> {
    let forced = match &options.alternatives {
        Alternatives::Always(name, variant) => Some((name.as_str(), *variant)),
        _ => None,
    };
    // Operands that nothing else uses.
    let mut alone: Vec<NodeId> = graph.operands(id);
    alone.retain(|o| graph.use_count(*o) == 1);
    let mut attempts = Vec::new();
    let wanted =
        |d: &&Decomposition| forced.map_or(!(options.spare && d.repacks), |(name, _)| name == d.name);
    for decomposition in DECOMPOSITIONS.iter().filter(wanted) {
        for variant in (decomposition.variants)(graph, id, costs.target) {
            if let Some((name, wanted)) = forced {
                if wanted.is_some_and(|wanted| wanted != variant) {
                    continue;
                }
                let last = replace(graph, id, decomposition, variant, Elements::True)?;
                graph.replace_uses(id, last);
                changes.note(
                    graph,
                    last,
                    format!("{}, as asked for with {name}", (decomposition.describe)(variant)),
                );
                return Ok(());
            }
            if !(decomposition.sensible)(graph, id, variant, params) {
                continue;
            }
            let last = replace(graph, id, decomposition, variant, Elements::Any)?;
            let parts = parts(graph, id, last);
            let between = parts.iter().filter(|part| **part != last);
            let stored = between.map(|part| bytes(graph, *part)).fold(0, i64::saturating_add);
            if stored > room {
                continue;
            }
            let read: BTreeSet<NodeId> = parts.iter().flat_map(|part| graph.operands(*part)).collect();
            let kept = alone.iter().copied().filter(|o| read.contains(o)).collect();
            let cost = costs.sum(graph, &parts);
            attempts.push(Attempt { decomposition, variant, stored, kept, cost });
        }
    }
    if attempts.is_empty() {
        return Ok(());
    }
    // Both sides pay for operands that any of the variants does without.
    alone.retain(|o| attempts.iter().any(|t| !t.kept.contains(o)));
    let whole: Vec<NodeId> = alone.iter().copied().chain([id]).collect();
    let own = costs.sum(graph, &whole);
    for attempt in &mut attempts {
        let kept: Vec<NodeId> = attempt.kept.iter().copied().filter(|o| alone.contains(o)).collect();
        attempt.cost = attempt.cost.plus(costs.sum(graph, &kept));
    }
    // Measurements count only where both sides have them.
    let measured = costs.has_measurements()
        && own.measured.is_some()
        && attempts.iter().any(|t| t.cost.measured.is_some());
    let kind = |cost: Cost| if measured { cost.measured } else { cost.estimated };
    let Some(own) = kind(own) else { return Ok(()) };
    let costs: Vec<(&Attempt, f64)> = attempts.iter().filter_map(|t| Some((t, kind(t.cost)?))).collect();
    let least = costs.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
    let close = costs.iter().filter(|(_, cost)| *cost <= least * params.close);
    let Some((best, cost)) = close.min_by_key(|(attempt, _)| attempt.stored) else { return Ok(()) };
    let what = (best.decomposition.describe)(best.variant);
    let how = if measured { "measured" } else { "estimated" };
    let (own_us, us) = (own / 1e3, *cost / 1e3);
    let name = graph.node(id).name.clone();
    if *cost >= own * if measured { 1.0 } else { (best.decomposition.margin)(params) } {
        let what = format!("as it is: {own_us:.1} µs, against {us:.1} µs {how} for {what}");
        changes.notes.push(Note { node: name, what });
        return Ok(());
    }
    let (decomposition, variant) = (best.decomposition, best.variant);
    let last = replace(graph, id, decomposition, variant, Elements::True)?;
    graph.replace_uses(id, last);
    changes.note(graph, last, format!("{what}: {us:.1} µs {how}, against {own_us:.1} µs as it is"));
    Ok(())
}

/// Adds a variant beside its node, with the node's epilogue, type and layout at its end.
fn replace(
    graph: &mut Graph,
    id: NodeId,
    decomposition: &Decomposition,
    variant: u32,
    elements: Elements,
) -> Result<NodeId> {
    let Last { op, mut operands } = (decomposition.build)(graph, id, variant, elements)?;
    let (node, before) = (graph.node(id).clone(), graph.operands(id));
    let arity = operands.len();
    let mut epilogue = node.epilogue.clone();
    for arg in epilogue.iter_mut().flat_map(|s| &mut s.args) {
        if let Arg::Input(k) = arg
            && let Some(operand) = before.get(*k as usize)
        {
            let known = operands.iter().skip(arity).position(|o| o == operand);
            let place = arity + known.unwrap_or(operands.len() - arity);
            if known.is_none() {
                operands.push(*operand);
            }
            *k = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
    put_beside(graph, id, Replacement { op, operands, arity, epilogue }, decomposition.name)
}

/// Adds an operator that computes what a node does beside it, with the node's type and layout. `stage` is named where their
/// shapes differ.
pub(crate) fn put_beside(
    graph: &mut Graph,
    id: NodeId,
    what: Replacement,
    stage: &'static str,
) -> Result<NodeId> {
    let node = graph.node(id).clone();
    let made = graph.add_fused(what, &node.name)?;
    if graph.tensor(made).shape != node.tensor.shape {
        let (made, wanted) = (graph.tensor(made), &node.tensor);
        return Err(Error::internal(stage, format!("{made} in place of {wanted}")));
    }
    graph.set_storage_type(made, node.tensor.dtype);
    graph.set_layout(made, node.tensor.layout);
    Ok(made)
}

/// The nodes that a variant added: those between the last one and the node's operands, or theirs.
fn parts(graph: &Graph, id: NodeId, last: NodeId) -> Vec<NodeId> {
    let operands = graph.operands(id);
    let mut seen: BTreeSet<NodeId> = operands.iter().flat_map(|o| graph.operands(*o)).collect();
    seen.extend(operands);
    let (mut parts, mut stack) = (Vec::new(), vec![last]);
    while let Some(part) = stack.pop() {
        if seen.insert(part) {
            parts.push(part);
            stack.extend(graph.operands(part));
        }
    }
    parts
}

/// Bytes that a value takes of its arity: none for constants and views.
fn bytes(graph: &Graph, id: NodeId) -> i64 {
    let node = graph.node(id);
    let view = is_view(&node.op) && node.epilogue.is_empty();
    let none = view || matches!(node.op, Op::Constant(_));
    if none { 0 } else { operand(graph, id).bytes(&graph.bounds) }
}

/// Bytes of the values that a node reads and writes, without constants and views.
fn touched(graph: &Graph, id: NodeId) -> i64 {
    graph.operands(id).into_iter().map(|o| bytes(graph, o)).fold(bytes(graph, id), i64::saturating_add)
}

/// A constant of zeros, to be compared in costs; its memory is never touched.
///
/// # Errors
/// When the size overflows.
pub fn stand_in(tensor: &TensorDesc) -> Result<Constant> {
    let wrong = || Error::internal(STAGE, format!("no constant is {tensor}"));
    let shape = tensor.known_shape().ok_or_else(wrong)?;
    let bytes = shape.iter().try_fold(tensor.dtype.bytes(), |n, d| n.checked_mul(*d)).ok_or_else(wrong)?;
    Constant::new(tensor.dtype, shape, vec![0; bytes]).map_err(|e| Error::internal(STAGE, e.0))
}
