//! Merges matmuls of one operand, if only attention reads their results: the projections of queries, keys and values.
//!
//! ```text
//! %3 = matmul %0 %wq                         %3 = matmul %0 (concat %wq %wk)
//! %4 = add %3 %bias                          %4 = add %3 (concat %bias 0)
//! %5 = matmul %0 %wk                 ->      %5 = slice %4 {"starts": [0, 0], "sizes": [m, n]}
//! %6 = attention %4 %5 ..                    %6 = slice %4 {"starts": [0, n], "sizes": [m, n]}
//!                                            %7 = attention %5 %6 ..
//! ```
//!
//! One matmul with more columns fills more of the device than several matmuls, and saves their launches. Attention reads the
//! slices where they are, because slices, reshapes and transposes are views. Other users would need the slices in memory of
//! their own, so their matmuls are not merged. Matmuls of language models are not merged either: their keys and values are
//! stored in states.

use super::matching::{both_orders, name, plain, single_use};
use super::split_weights::{device_bytes, max_bytes};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::element::BinaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, MatMul, Op};

/// Slices begin at multiples of this number of columns, so that kernels load aligned vectors.
const ALIGNMENT: usize = 8;

/// Maximum bytes of the merged weights of a graph. Merged weights are copies in memory, while the weights of a checkpoint stay
/// in its mapped files, so this number bounds the memory that the pass needs for large checkpoints.
const MAX_BYTES: usize = 1 << 29;

/// A matmul with constant weights, and the bias that is added to its result.
struct Projection {
    matmul: NodeId,
    op: MatMul,
    weights: Constant,
    bias: Option<Constant>,
    /// The value with the bias.
    result: NodeId,
    columns: usize,
}

/// Merges matmuls.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    let mut left = MAX_BYTES;
    for x in graph.topological() {
        let mut all: Vec<Projection> =
            graph.users(x).into_iter().filter_map(|user| projection(graph, x, user)).collect();
        while let Some(first) = all.first() {
            let op = first.op.clone();
            let (group, rest): (Vec<Projection>, Vec<Projection>) = all.into_iter().partition(|p| p.op == op);
            all = rest;
            let bytes: usize = group.iter().map(|p| p.weights.bytes.len()).sum();
            // The pass split-weights would split larger weights again.
            let on_device: usize = group.iter().map(|p| device_bytes(&p.weights, context.precision)).sum();
            let fits = bytes <= left && on_device <= max_bytes(context);
            if group.len() > 1 && fits && merge(graph, x, &op, &group)? {
                left -= bytes;
                let first = &group[0];
                changes.note(graph, first.matmul, format!("{} matmuls of one operand merged", group.len()));
            }
        }
    }
    graph.sweep();
    Ok(changes)
}

/// Returns a user of `x` as a projection. Returns `None` if it is none, or if another operator than attention reads its result.
fn projection(graph: &Graph, x: NodeId, user: NodeId) -> Option<Projection> {
    let (Op::MatMul(op), operands) = plain(graph, user)? else { return None };
    let [a, b] = operands[..] else { return None };
    let weights = graph.constant(b).filter(|weights| weights.shape.len() == 2)?;
    if a != x || b == x || op.trans_a || weights.encoding.plain_dtype().is_none() {
        return None;
    }
    let columns = weights.shape[usize::from(!op.trans_b)];
    let (result, bias) = match biased(graph, user, columns) {
        Some((sum, bias)) => (sum, Some(bias)),
        None => (user, None),
    };
    let merges = columns.is_multiple_of(ALIGNMENT) && only_attention_reads(graph, result);
    merges.then(|| Projection {
        matmul: user,
        op: op.clone(),
        weights: weights.clone(),
        bias,
        result,
        columns,
    })
}

/// Returns the sum of a value and a constant bias along its last axis, if the sum is the only user of the value.
fn biased(graph: &Graph, id: NodeId, columns: usize) -> Option<(NodeId, Constant)> {
    let [user] = graph.users(id)[..] else { return None };
    let (_, bias) = both_orders(graph, user, BinaryFn::Add).into_iter().find(|(value, _)| *value == id)?;
    let bias = graph.constant(bias)?;
    let matches = bias.elements() == columns
        && bias.shape.last() == Some(&columns)
        && bias.shape.len() <= graph.tensor(id).rank()
        && bias.encoding.plain_dtype().is_some();
    (matches && single_use(graph, id)).then(|| Some((user, bias.reshaped(&[columns])?)))?
}

/// True if attention reads the value as queries, keys or values, directly or through views, and nothing else reads it.
fn only_attention_reads(graph: &Graph, id: NodeId) -> bool {
    let users = graph.users(id);
    let reads = |user: &NodeId| match plain(graph, *user) {
        Some((Op::Reshape(_) | Op::Transpose(_), _)) => only_attention_reads(graph, *user),
        Some((Op::Attention(_), operands)) => !operands.iter().skip(3).any(|operand| *operand == id),
        _ => false,
    };
    !users.is_empty() && !graph.is_output(id) && users.iter().all(reads)
}

/// Replaces projections of `x` by slices of one matmul. Returns false if their constants cannot be concatenated.
fn merge(graph: &mut Graph, x: NodeId, op: &MatMul, group: &[Projection]) -> Result<bool> {
    let same_type = |p: &Projection| graph.tensor(p.result).dtype == graph.tensor(group[0].result).dtype;
    if !group.iter().all(same_type) {
        return Ok(false);
    }
    let weights: Vec<&Constant> = group.iter().map(|p| &p.weights).collect();
    let Some(weights) = Constant::concat(&weights, usize::from(!op.trans_b)) else { return Ok(false) };
    let bias = merged_bias(graph, group)?;
    let name = name(graph, group[0].matmul);
    let mut b = Builder::new(graph, &name);
    let weights = b.add(weights, &[])?;
    let mut merged = b.add(op.clone(), &[x, weights])?;
    if let Some(bias) = bias {
        let bias = b.constant(&bias)?;
        merged = b.binary(BinaryFn::Add, merged, bias)?;
    }
    let axis = b.tensor(merged).rank() - 1;
    let mut start = 0;
    for p in group {
        let slice = b.slice(merged, axis, Dim::from(start), Dim::from(p.columns))?;
        b.graph.replace_uses(p.result, slice);
        start += p.columns;
    }
    Ok(true)
}

/// Returns the biases one after another, with zeros for projections without a bias. Returns `None` if no projection has a bias.
fn merged_bias(graph: &Graph, group: &[Projection]) -> Result<Option<Array>> {
    if group.iter().all(|p| p.bias.is_none()) {
        return Ok(None);
    }
    let mut all = Vec::new();
    for p in group {
        match &p.bias {
            Some(bias) => {
                let bias = bias.to_array().map_err(|e| graph.error(p.matmul, e))?;
                all.extend_from_slice(bias.floats().map_err(|e| graph.error(p.matmul, e))?);
            }
            None => all.resize(all.len() + p.columns, 0.0),
        }
    }
    let dtype = graph.tensor(group[0].result).dtype;
    Ok(Some(Array::float(dtype, &[all.len()], all)))
}
