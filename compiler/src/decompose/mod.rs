//! Alternatives to nodes, selected by cost: one node as several dispatches, or several nodes as one dispatch.
//!
//! ```text
//! %2 = matmul f32[64, 512] %0 %1        ->      %3 = transpose (reshape %0)            f16[8, 64, 1024]
//!                                               %4 = matmul f32[8, 64, 512] %3 %1'
//!                                               %5 = reduce sum f16[64, 512] %4
//! ```
//!
//! A [`Decomposition`] rewrites one node into several ordinary operators. The CPU reference can evaluate them, and
//! every kernel, layout and fused epilogue applies to them. Whether an alternative is faster depends on the kernels,
//! which passes do not know, so this step runs after the passes and before the plan. It adds each alternative to the
//! graph next to its node, sums the costs of the alternative's cheapest candidates, and replaces the node if the sum is
//! clearly lower. A sweep removes the other alternatives.
//!
//! An alternative may also compute operands of the node. If the node is the only user of such an operand, and the
//! alternative does not read it, the operand disappears; its cost then counts on the node's side. This is how two nodes
//! become one where a kernel computes both.
//!
//! To add a decomposition, add a file here and a line in [`DECOMPOSITIONS`].

pub mod attention_matmuls;
pub mod dequantize;
pub mod dequantize_filters;
pub mod norm_of_sums;
pub(crate) mod params;
mod scratch;
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
use crate::pass::{Changes, Note, PassReport};
use crate::plan::estimate::{Cost, Costs};
use crate::plan::{Alternatives, Options};
use crate::target::TargetProfile;
pub use params::Params;

/// Name of the decomposition step in reports.
pub const STAGE: &str = "decompose";

/// All decompositions. If two alternatives have equal costs, the decomposition that is earlier in this list is
/// selected.
pub const DECOMPOSITIONS: &[Decomposition] = &[
    split_k::DECOMPOSITION,
    winograd::DECOMPOSITION,
    separable::DECOMPOSITION,
    whole_groups::DECOMPOSITION,
    dequantize::DECOMPOSITION,
    dequantize_filters::DECOMPOSITION,
    attention_matmuls::DECOMPOSITION,
    norm_of_sums::DECOMPOSITION,
];

/// A rewrite of one kind of node into other nodes.
#[derive(Debug, Clone, Copy)]
pub struct Decomposition {
    /// Name of the decomposition in reports and options.
    pub name: &'static str,
    /// Returns one number for each alternative to a node, such as its count of K splits. The list is empty if the
    /// decomposition does not apply. Only this decomposition interprets the numbers.
    pub alternatives: fn(&Graph, NodeId, &TargetProfile) -> Vec<u32>,
    /// True if an alternative needs more weights in the bundle: new constants, or the node's constants packed in
    /// another element order.
    pub repacks: bool,
    /// Maximum cost of an alternative as a fraction of the node's cost, if both are estimates. Measured costs are
    /// compared directly.
    pub max_cost_ratio: fn(&Params) -> f64,
    /// True if an alternative is worth an estimate of its cost. False if only a large error of the estimate could make
    /// the alternative win.
    pub worth_estimating: fn(&Graph, NodeId, u32, &Params) -> bool,
    /// Adds all nodes of an alternative to the graph, except the last node. Returns the operator and operands of the
    /// last node.
    pub build: fn(&mut Graph, NodeId, u32, ConstantData) -> Result<LastNode>,
    /// Describes an alternative in reports.
    pub describe: fn(u32) -> String,
    /// Test graphs in text form with a node that the decomposition can replace. Their sizes are not multiples of tile
    /// sizes.
    pub cases: &'static [&'static str],
}

/// The last operator of an alternative, which takes the place of the decomposed node, and its operands. The epilogue of
/// the decomposed node is appended to it.
#[derive(Debug)]
pub struct LastNode {
    /// Operator.
    pub op: Op,
    /// Operands.
    pub operands: Vec<NodeId>,
    /// An operand of the decomposed node that other nodes read too, and that the alternative computes in another way.
    pub beside: Option<Beside>,
}

/// A value that an alternative computes beside its last node, without waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// Node of the original graph that computes the value.
    pub old: NodeId,
    /// Node that computes it in the alternative.
    pub new: NodeId,
}

/// Contents of the constants that an alternative adds to the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstantData {
    /// Zeros in place of the real values. They suffice to compare costs.
    Placeholder,
    /// Real values.
    Real,
}

/// Replaces nodes by cheaper alternatives.
///
/// # Errors
/// An internal error that names the decomposition step, if a decomposition makes the graph invalid.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    if options.alternatives != Alternatives::Never && options.prefer_kernel.is_none() {
        let order = graph.topological();
        let max_scratch = scratch::max_bytes(graph, &order, costs.target);
        let params = Params::from_target(costs.target);
        let params = params
            .ok_or_else(|| Error::internal(STAGE, "the profile lacks parameters in `costs.decompose`"))?;
        for id in order {
            decide(graph, id, costs, (options, &params, max_scratch), &mut changes)?;
        }
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// An alternative in the graph: its last node, and what it computes beside this node.
#[derive(Debug, Clone, Copy)]
struct Added {
    last: NodeId,
    beside: Option<Beside>,
}

impl Added {
    /// Makes all users of the decomposed node `id` read the alternative.
    fn replace_uses(self, graph: &mut Graph, id: NodeId) {
        graph.replace_uses(id, self.last);
        if let Some(Beside { old, new }) = self.beside
            && old != new
        {
            graph.replace_uses(old, new);
        }
    }
}

/// One alternative to a node, added to the graph next to the node.
struct Alternative {
    decomposition: &'static Decomposition,
    number: u32,
    /// Value that the alternative computes beside its last node.
    beside: Option<Beside>,
    /// Bytes of the alternative's intermediate values.
    scratch_bytes: i64,
    /// Operands of the original node that no other node of the original graph reads, but that this alternative reads
    /// too.
    kept: Vec<NodeId>,
    cost: Cost,
}

/// Adds the alternatives of one node that are worth an estimate to the graph, and returns them. If an option forces an
/// alternative, that alternative replaces the node at once, and the result is empty. `exclusive` has the operands that
/// only this node uses.
fn add_alternatives(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    (options, params, max_scratch): (&Options, &Params, i64),
    exclusive: &[NodeId],
    changes: &mut Changes,
) -> Result<Vec<Alternative>> {
    let forced = match &options.alternatives {
        Alternatives::Always(name, number) => Some((name.as_str(), *number)),
        _ => None,
    };
    let mut alternatives = Vec::new();
    let wanted = |d: &&Decomposition| {
        forced.map_or(!(options.avoid_weight_copies && d.repacks), |(name, _)| name == d.name)
    };
    for decomposition in DECOMPOSITIONS.iter().filter(wanted) {
        for number in (decomposition.alternatives)(graph, id, costs.target) {
            if let Some((name, wanted)) = forced {
                if wanted.is_some_and(|wanted| wanted != number) {
                    continue;
                }
                let added = replace(graph, id, decomposition, number, ConstantData::Real)?;
                added.replace_uses(graph, id);
                changes.note(
                    graph,
                    added.last,
                    format!("{}, forced by option {name}", (decomposition.describe)(number)),
                );
                return Ok(Vec::new());
            }
            if !(decomposition.worth_estimating)(graph, id, number, params) {
                continue;
            }
            let Added { last, beside } =
                replace(graph, id, decomposition, number, ConstantData::Placeholder)?;
            let added = added_nodes(graph, id, last);
            let intermediate = added.iter().filter(|node| **node != last);
            let scratch_bytes =
                intermediate.map(|node| scratch::value_bytes(graph, *node)).fold(0, i64::saturating_add);
            if scratch_bytes > max_scratch {
                continue;
            }
            let read: BTreeSet<NodeId> = added.iter().flat_map(|node| graph.operands(*node)).collect();
            let kept = exclusive.iter().copied().filter(|o| read.contains(o)).collect();
            let cost = alternative_cost(graph, &added, Added { last, beside }, costs, params);
            alternatives.push(Alternative { decomposition, number, beside, scratch_bytes, kept, cost });
        }
    }
    Ok(alternatives)
}

/// Adds the alternatives of one node to the graph, and replaces the node if one of them is clearly cheaper.
fn decide(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    (options, params, max_scratch): (&Options, &Params, i64),
    changes: &mut Changes,
) -> Result<()> {
    // Operands that only this node uses.
    let mut exclusive: Vec<NodeId> = graph.operands(id);
    exclusive.retain(|o| graph.use_count(*o) == 1);
    let mut alternatives =
        add_alternatives(graph, id, costs, (options, params, max_scratch), &exclusive, changes)?;
    if alternatives.is_empty() {
        return Ok(());
    }
    // If any alternative drops an operand, every side that keeps the operand pays for it.
    exclusive.retain(|o| alternatives.iter().any(|a| !a.kept.contains(o)));
    // The same holds for a value that an alternative computes beside its last node.
    let beside: BTreeSet<NodeId> = alternatives.iter().filter_map(|a| Some(a.beside?.old)).collect();
    let replaced: Vec<NodeId> = exclusive.iter().copied().chain(beside.iter().copied()).chain([id]).collect();
    let node_cost = costs.sum(graph, &replaced);
    for alternative in &mut alternatives {
        let kept = alternative.kept.iter().copied().filter(|o| exclusive.contains(o));
        let own = alternative.beside.map(|beside| beside.old);
        let kept: Vec<NodeId> = kept.chain(beside.iter().copied().filter(|o| Some(*o) != own)).collect();
        alternative.cost = alternative.cost.plus(costs.sum(graph, &kept));
    }
    // Measured times are used only if both sides have them.
    let measured = costs.has_measurements()
        && node_cost.measured.is_some()
        && alternatives.iter().any(|a| a.cost.measured.is_some());
    let kind = |cost: Cost| if measured { cost.measured } else { cost.estimated };
    let Some(node_cost) = kind(node_cost) else { return Ok(()) };
    let costs: Vec<(&Alternative, f64)> =
        alternatives.iter().filter_map(|a| Some((a, kind(a.cost)?))).collect();
    let cheapest = costs.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
    let ties = costs.iter().filter(|(_, cost)| *cost <= cheapest * params.tie_cost_ratio);
    let Some((best, cost)) = ties.min_by_key(|(alternative, _)| alternative.scratch_bytes) else {
        return Ok(());
    };
    let what = (best.decomposition.describe)(best.number);
    let how = if measured { "measured" } else { "estimated" };
    let (node_us, us) = (node_cost / 1e3, *cost / 1e3);
    let name = graph.node(id).name.clone();
    if *cost >= node_cost * if measured { 1.0 } else { (best.decomposition.max_cost_ratio)(params) } {
        let what = format!("node unchanged: {node_us:.1} µs, against {us:.1} µs {how} for {what}");
        changes.notes.push(Note { node: name, what });
        return Ok(());
    }
    let (decomposition, number) = (best.decomposition, best.number);
    let added = replace(graph, id, decomposition, number, ConstantData::Real)?;
    added.replace_uses(graph, id);
    changes.note(
        graph,
        added.last,
        format!("{what}: {us:.1} µs {how}, against {node_us:.1} µs for the original node"),
    );
    Ok(())
}

/// Adds an alternative to the graph next to its node. The last operator of the alternative gets the node's epilogue,
/// type and layout.
fn replace(
    graph: &mut Graph,
    id: NodeId,
    decomposition: &Decomposition,
    number: u32,
    data: ConstantData,
) -> Result<Added> {
    let LastNode { op, mut operands, beside } = (decomposition.build)(graph, id, number, data)?;
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
    let what = Replacement { op, operands, arity, epilogue };
    Ok(Added { last: add_equivalent(graph, id, what, decomposition.name)?, beside })
}

/// Returns the cost of the nodes of an alternative. The last node and the node beside it run at the same time, so the
/// cheaper one counts only in part.
fn alternative_cost(
    graph: &Graph,
    nodes: &[NodeId],
    Added { last, beside }: Added,
    costs: &mut Costs<'_>,
    params: &Params,
) -> Cost {
    let Some(Beside { new, .. }) = beside else { return costs.sum(graph, nodes) };
    let before: Vec<NodeId> = nodes.iter().copied().filter(|node| ![last, new].contains(node)).collect();
    let concurrent = costs.node(graph, last).concurrent(costs.node(graph, new), params.concurrent_cost_ratio);
    costs.sum(graph, &before).plus(concurrent)
}

/// Adds an operator that computes the same value as a node, with the node's type and layout. Does not remove the node.
///
/// # Errors
/// An internal error that names `stage`, if the shapes differ.
pub(crate) fn add_equivalent(
    graph: &mut Graph,
    id: NodeId,
    what: Replacement,
    stage: &'static str,
) -> Result<NodeId> {
    let node = graph.node(id).clone();
    let added = graph.add_fused(what, &node.name)?;
    if graph.tensor(added).shape != node.tensor.shape {
        let (added, expected) = (graph.tensor(added), &node.tensor);
        return Err(Error::internal(stage, format!("the replacement has type {added}, not {expected}")));
    }
    graph.set_storage_type(added, node.tensor.dtype);
    graph.set_layout(added, node.tensor.layout);
    Ok(added)
}

/// Returns the nodes that an alternative added: `last` and its ancestors. The search stops at the operands of the
/// replaced node, and at the operands of these operands.
fn added_nodes(graph: &Graph, id: NodeId, last: NodeId) -> Vec<NodeId> {
    let operands = graph.operands(id);
    let mut seen: BTreeSet<NodeId> = operands.iter().flat_map(|o| graph.operands(*o)).collect();
    seen.extend(operands);
    let (mut added, mut stack) = (Vec::new(), vec![last]);
    while let Some(node) = stack.pop() {
        if seen.insert(node) {
            added.push(node);
            stack.extend(graph.operands(node));
        }
    }
    added
}

/// Returns a constant of zeros with a tensor's type and shape, for comparing costs.
///
/// # Errors
/// If the size is not known, or overflows.
pub fn placeholder_constant(tensor: &TensorDesc) -> Result<Constant> {
    let wrong = || Error::internal(STAGE, format!("{tensor} cannot be a constant"));
    let shape = tensor.known_shape().ok_or_else(wrong)?;
    let bytes = shape.iter().try_fold(tensor.dtype.bytes(), |n, d| n.checked_mul(*d)).ok_or_else(wrong)?;
    Constant::new(tensor.dtype, shape, vec![0; bytes]).map_err(|e| Error::internal(STAGE, e.0))
}
