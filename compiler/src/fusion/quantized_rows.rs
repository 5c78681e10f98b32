//! Merges matmuls of the same quantized rows into one matmul, if the merged matmul is faster by the estimates.
//!
//! ```text
//! %3 = quantized-rows-matmul %0 %1           %3 = quantized-rows-matmul %0 %1 %2
//! %4 = quantized-rows-matmul %0 %2     ->    %4 = slice %3 {"starts": [0, 0], "sizes": [m, n]}
//!                                            %5 = slice %3 {"starts": [0, n], "sizes": [m, n]}
//! ```
//!
//! One matmul with more columns fills more of the device than several matmuls. The merged matmul reads the packed
//! matrices where they are, so functions of few rows share them and the bundle stores them once. Slices are views. A
//! node that would have to be copied from its slice is not merged, such as the values of a KV cache.

use std::collections::BTreeSet;

use super::STAGE;
use crate::decompose::{Params, add_equivalent};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Op, Slice};
use crate::pass::Changes;
use crate::plan::estimate::{Cost, Costs};
use crate::plan::views::is_view;

/// Slices begin at multiples of this number of columns, so that kernels load aligned vectors.
const ALIGNMENT: i64 = 8;
/// Maximum number of matmuls of one operand. All combinations are tried, so with more matmuls none is.
const MAX_MATMULS: usize = 4;

/// A merged matmul, and pairs of a matmul that it replaces and the slice that takes its place.
struct Merged {
    matmul: NodeId,
    replaced: Vec<(NodeId, NodeId)>,
}

/// Merges matmuls of the quantized rows `rows`.
pub(super) fn merge_matmuls(
    graph: &mut Graph,
    rows: NodeId,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
) -> Result<()> {
    if !matches!(graph.op(rows), Op::QuantizeRows(_)) {
        return Ok(());
    }
    let all = mergeable(graph, rows);
    if all.len() < 2 || all.len() > MAX_MATMULS {
        return Ok(());
    }
    let mut best: Option<(f64, Vec<NodeId>)> = None;
    for subset in 1u32..1 << all.len() {
        let chosen: Vec<NodeId> =
            all.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, id)| *id).collect();
        if chosen.len() < 2 {
            continue;
        }
        let saved = saved_ns(graph, rows, &chosen, costs)?;
        if let Some(saved) = saved.filter(|saved| best.as_ref().is_none_or(|(most, _)| saved > most)) {
            best = Some((saved, chosen));
        }
    }
    if let Some((_, chosen)) = best {
        let merged = merge(graph, rows, &chosen)?;
        changes.note(
            graph,
            merged.matmul,
            format!("{} matmuls of the same quantized rows merged", chosen.len()),
        );
    }
    Ok(())
}

/// Returns the time that a merge saves, in nanoseconds. Returns `None` if the merge saves no time or too little. The graph
/// does not change.
fn saved_ns(
    graph: &mut Graph,
    rows: NodeId,
    chosen: &[NodeId],
    costs: &mut Costs<'_>,
) -> Result<Option<f64>> {
    let before = cost_with_readers(graph, costs, chosen);
    let merged = merge(graph, rows, chosen)?;
    let added: Vec<NodeId> = merged.replaced.iter().map(|(_, new)| *new).chain([merged.matmul]).collect();
    let after = cost_with_readers(graph, costs, &added);
    for (old, new) in merged.replaced.iter().rev() {
        graph.replace_uses(*new, *old);
    }
    // The nodes of the trial read other nodes, so they must not remain.
    graph.sweep();
    let params = Params::from_target(costs.target)
        .ok_or_else(|| Error::internal(STAGE, "the profile lacks parameters in `costs.decompose`"))?;
    let (pair, max_ratio) = match (before.measured.zip(after.measured), costs.has_measurements()) {
        (Some(pair), true) => (Some(pair), 1.0),
        _ => (before.estimated.zip(after.estimated), params.merged_rows_max_cost_ratio),
    };
    Ok(pair.and_then(|(before, after)| (after < before * max_ratio).then_some(before - after)))
}

/// Returns the cost of nodes and of the nodes that read their results, also through views.
fn cost_with_readers(graph: &Graph, costs: &mut Costs<'_>, nodes: &[NodeId]) -> Cost {
    let mut all: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let mut stack = nodes.to_vec();
    while let Some(id) = stack.pop() {
        for user in graph.users(id) {
            if all.insert(user) && is_plain_view(graph, user) {
                stack.push(user);
            }
        }
    }
    costs.sum(graph, &all.into_iter().collect::<Vec<_>>())
}

fn is_plain_view(graph: &Graph, id: NodeId) -> bool {
    is_view(graph.op(id)) && graph.node(id).epilogue.is_empty()
}

/// Returns the matmuls of the quantized rows that can be merged with each other, in the order of the graph.
fn mergeable(graph: &Graph, rows: NodeId) -> Vec<NodeId> {
    let users: BTreeSet<NodeId> =
        graph.users(rows).into_iter().filter(|user| can_merge(graph, rows, *user)).collect();
    if users.len() < 2 {
        return Vec::new();
    }
    let mut users: Vec<NodeId> = graph.topological().into_iter().filter(|id| users.contains(id)).collect();
    let kind = |id: NodeId| (graph.op(id), graph.tensor(id).dtype, graph.tensor(id).layout);
    let first = users.first().map(|id| kind(*id));
    users.retain(|id| Some(kind(*id)) == first);
    users
}

/// True if a node multiplies the rows by one matrix, and its readers can read a slice of a merged matmul.
fn can_merge(graph: &Graph, rows: NodeId, id: NodeId) -> bool {
    let node = graph.node(id);
    let operands = graph.operands(id);
    let columns = node.tensor.shape.last().and_then(Dim::as_known);
    matches!(node.op, Op::QuantizedRowsMatMul(_))
        && node.arity == 2
        && operands.first() == Some(&rows)
        && !operands[1..].contains(&rows)
        && columns.is_some_and(|columns| columns % ALIGNMENT == 0)
        && node.epilogue.is_empty()
        && !is_copied(graph, id)
}

/// True if a value is an output or stored in a state, directly or through views. Its node writes it there, but a slice
/// would have to be copied.
fn is_copied(graph: &Graph, id: NodeId) -> bool {
    let copied = |user: NodeId| match graph.op(user) {
        Op::Update(_) | Op::Concat(_) => true,
        _ => is_plain_view(graph, user) && is_copied(graph, user),
    };
    graph.is_output(id) || graph.users(id).into_iter().any(copied)
}

/// Replaces matmuls by slices of one matmul.
fn merge(graph: &mut Graph, rows: NodeId, chosen: &[NodeId]) -> Result<Merged> {
    let first = chosen[0];
    let matrices: Vec<NodeId> = chosen.iter().filter_map(|id| graph.operands(*id).get(1).copied()).collect();
    let (op, name) = (graph.op(first).clone(), graph.node(first).name.clone());
    let (dtype, layout) = (graph.tensor(first).dtype, graph.tensor(first).layout);
    let matmul = graph.add(op, &[&[rows], matrices.as_slice()].concat(), &name)?;
    graph.set_storage_type(matmul, dtype);
    graph.set_layout(matmul, layout);
    let mut replaced = Vec::with_capacity(chosen.len());
    let mut start = Dim::known(0);
    for id in chosen {
        let sizes = graph.tensor(*id).shape.clone();
        let columns = sizes.last().cloned().unwrap_or(Dim::known(0));
        let mut starts = vec![Dim::known(0); sizes.len()];
        if let Some(last) = starts.last_mut() {
            last.clone_from(&start);
        }
        let op = Slice { starts, steps: vec![1; sizes.len()], sizes }.into();
        let replacement = Replacement { op, operands: vec![matmul], arity: 1, epilogue: Vec::new() };
        let slice = add_equivalent(graph, *id, replacement, STAGE)?;
        graph.replace_uses(*id, slice);
        replaced.push((*id, slice));
        start = start.add(&columns);
    }
    Ok(Merged { matmul, replaced })
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::graph_text::parse;
    use crate::shader::pack::Packed;
    use crate::target::TargetProfile;

    /// Functions of few rows read each matrix on its own, so a merged matmul must not need another packed form.
    #[test]
    fn a_merged_matmul_reads_the_packed_matrices_of_other_functions() {
        let text = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,64,256]}
%1 = quantize-rows %0 {"aligned":true}
%2 = constant {"dtype":"f32","shape":[256,256],"encoding":"u8 in groups of 256","random":1}
%3 = constant {"dtype":"f32","shape":[64,256],"encoding":"u8 in groups of 256","random":2}
%4 = quantized-rows-matmul %1 %2 {"trans_b":true}
%5 = quantized-rows-matmul %1 %3 {"trans_b":true}
%6 = reshape %4 {"shape":[1,64,4,64]}
%7 = softmax %6 {"axis":3,"log":false}
%8 = softmax %5 {"axis":2,"log":false}
output "q" %7
output "k" %8
"#;
        let graph = parse(text).unwrap();
        let constants = graph.ids().into_iter().filter_map(|id| graph.constant(id));
        let mut expected: Vec<_> = constants.map(|constant| Packed::dense(constant).identity()).collect();
        for target in ["nvidia-hopper", "webgpu-baseline"] {
            let target = TargetProfile::load(target).unwrap();
            let lowered = lower(&graph, &target, &Options::default()).unwrap();
            let ops = lowered.graph.ids().into_iter().map(|id| lowered.graph.op(id).name());
            assert_eq!(ops.filter(|name| *name == "quantized-rows-matmul").count(), 1, "{}", target.name);
            let mut packed: Vec<_> = lowered.plan.weights.iter().map(Packed::identity).collect();
            packed.sort();
            expected.sort();
            assert_eq!(packed, expected, "{}", target.name);
        }
    }
}
