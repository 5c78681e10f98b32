//! Split-K: computes a matmul with large K and few results as several matmuls of ranges of K, and adds their results.
//!
//! ```text
//! %2 = matmul [M, N] %0 %1        ->      %3 = reshape [M, S, K/S] %0
//!                                         %4 = transpose [S, M, K/S] %3
//!                                         %5 = matmul [S, M, N] %4 %1 seen as [S, K/S, N]
//!                                         %6 = reduce sum over S of %5
//! ```
//!
//! One workgroup computes one tile of results, so few tiles leave most of a device idle however large K is. The splits
//! of the first operand are a view of it; the splits of a constant second operand are packed like any constant. Partial
//! sums are f32 whatever the type of the result: rounding each to f16 would add an error of f16 precision per split.

use super::{ConstantData, Decomposition, LastNode, Params, placeholder_constant};
use crate::error::{Error, OpError, Result};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, MatMul, Op, Operation, Reduce, Reshape, Transpose};
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::target::TargetProfile;

/// The decomposition `split-k`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "split-k",
    alternatives,
    repacks: true,
    max_cost_ratio: |p| p.split_k_max_cost_ratio,
    worth_estimating,
    build,
    describe,
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[37,768]}
%1 = constant {"dtype":"f32","shape":[768,41],"random":1}
%2 = constant {"dtype":"f32","shape":[41],"random":2}
%3 = neg %0
%4 = matmul %3 %1 {"trans_a":false,"trans_b":false}
%5 = add %4 %2
%6 = relu %5
output "c" %6
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[256,19]}
%1 = constant {"dtype":"f32","shape":[30,256],"random":1}
%2 = neg %0
%3 = matmul %2 %1 {"trans_a":true,"trans_b":true}
%4 = tanh %3
%5 = add %3 %4
output "c" %5
"#,
    r#"
symbol m 1..9
%0 = input {"name":"a","dtype":"f32","shape":[2,3,"m",288]}
%1 = input {"name":"b","dtype":"f32","shape":[3,288,21]}
%2 = neg %0
%3 = neg %1
%4 = matmul %2 %3 {"trans_a":false,"trans_b":false}
output "c" %4
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[9,512]}
%1 = constant {"dtype":"f32","shape":[3,1,512,10],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = mul %2 %2
output "c" %3
"#,
];

/// Counts of K splits to try.
const K_SPLITS: &[u32] = &[2, 3, 4, 6, 8, 12, 16, 24, 32];
/// K of each split is a multiple of this number, so that kernels read whole vec4s and matrix fragments.
const K_MULTIPLE: i64 = 16;
/// Maximum rank of a matmul's result for split-K, because the splits need one more axis.
const MAX_RANK: usize = 6;

/// A matmul whose K can be split.
struct SplittableMatmul {
    op: MatMul,
    operands: [NodeId; 2],
    /// Rank of the matmul's result.
    rank: usize,
    k: i64,
}

/// Returns a node as a row-major float matmul with known K. Returns `None` for other nodes.
fn splittable_matmul(graph: &Graph, id: NodeId) -> Option<SplittableMatmul> {
    let node = graph.node(id);
    let Op::MatMul(op) = &node.op else { return None };
    let operands = [*graph.operands(id).first()?, *graph.operands(id).get(1)?];
    let [a, b] = operands.map(|o| graph.tensor(o));
    let rank = node.tensor.rank();
    let rows = [a, b, &node.tensor].iter().all(|t| t.layout == Layout::RowMajor && t.rank() >= 2);
    let k = a.shape.get(a.rank().checked_sub(if op.trans_a { 2 } else { 1 })?)?.as_known()?;
    let fits = rows && rank <= MAX_RANK && a.dtype.is_float() && graph.constant(operands[0]).is_none();
    fits.then(|| SplittableMatmul { op: op.clone(), operands, rank, k })
}

fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    // Splits of quantized rows would have to be dequantized; `dequantize` does both.
    let second = graph.operands(id).get(1).and_then(|b| graph.constant(*b));
    let quantized = second.is_some_and(|b| b.encoding.quant_format().is_some());
    if quantized { Vec::new() } else { k_splits(graph, id) }
}

/// Returns the possible counts of K splits for a matmul, whether or not its second operand is quantized. Empty for
/// other nodes.
pub(super) fn k_splits(graph: &Graph, id: NodeId) -> Vec<u32> {
    let Some(SplittableMatmul { k, .. }) = splittable_matmul(graph, id) else { return Vec::new() };
    let divides = |splits: &&u32| {
        let splits = i64::from(**splits);
        k % (splits * K_MULTIPLE) == 0
    };
    K_SPLITS.iter().filter(divides).copied().collect()
}

pub(super) fn worth_estimating(graph: &Graph, id: NodeId, splits: u32, p: &Params) -> bool {
    splittable_matmul(graph, id).is_some_and(|matmul| matmul.k as f64 / f64::from(splits) >= p.min_k_split)
}

fn describe(splits: u32) -> String {
    format!("K in {splits} splits ({})", DECOMPOSITION.name)
}

pub(super) fn build(graph: &mut Graph, id: NodeId, splits: u32, data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal("split-k", "the node is not a matmul that can be split");
    let SplittableMatmul { op, operands: [a, b], rank, k } =
        splittable_matmul(graph, id).ok_or_else(wrong)?;
    let name = graph.node(id).name.clone();
    let sizes = [i64::from(splits), k / i64::from(splits)];
    let a = split_operand(graph, a, rank, usize::from(!op.trans_a), sizes, &name)?;
    let axis = usize::from(op.trans_b);
    let b = match graph.constant(b).cloned() {
        Some(constant) => split_constant(graph, &constant, rank, axis, sizes, (&name, data))?,
        None => split_operand(graph, b, rank, axis, sizes, &name)?,
    };
    let partial = graph.add(op, &[a, b], &format!("{name} (partial sums)"))?;
    graph.set_storage_type(partial, DType::F32);
    Ok(LastNode { op: Reduce::sum_of_terms().into(), operands: vec![partial], beside: None })
}

/// Returns the shape of an operand with its K axis split into two axes of `sizes` (number of splits, K of one split),
/// and the permutation that moves the splits to the front. The shape is padded to `rank` axes with leading ones; K is
/// the last axis if `axis` is 1, else the axis before.
fn split_shape(shape: &[Dim], rank: usize, axis: usize, sizes: [i64; 2]) -> (Vec<Dim>, Vec<usize>) {
    let mut out = vec![Dim::known(1); rank.saturating_sub(shape.len())];
    out.extend(shape.iter().cloned());
    let at = rank - 2 + axis;
    out.splice(at..=at, sizes.map(Dim::known));
    let perm = [at].into_iter().chain((0..=rank).filter(|i| *i != at)).collect();
    (out, perm)
}

/// Adds a view of a matmul's operand with the K splits as the first axis.
fn split_operand(
    graph: &mut Graph,
    operand: NodeId,
    rank: usize,
    axis: usize,
    sizes: [i64; 2],
    name: &str,
) -> Result<NodeId> {
    let (shape, perm) = split_shape(&graph.tensor(operand).shape, rank, axis, sizes);
    let view = graph.add(Reshape { shape }, &[operand], name)?;
    graph.add(Transpose { perm }, &[view], name)
}

/// Adds a constant operand of a matmul with the K splits as the first axis: a view of the same bytes if possible, else
/// a copy.
fn split_constant(
    graph: &mut Graph,
    constant: &Constant,
    rank: usize,
    axis: usize,
    sizes: [i64; 2],
    (name, data): (&str, ConstantData),
) -> Result<NodeId> {
    let given: Vec<Dim> = constant.shape.iter().map(|d| Dim::from(*d)).collect();
    let (shape, perm) = split_shape(&given, rank, axis, sizes);
    let moved: Vec<Dim> = perm.iter().filter_map(|p| shape.get(*p).cloned()).collect();
    let desc = TensorDesc::new(constant.dtype, moved);
    let known_shape = TensorDesc::new(constant.dtype, shape.clone()).known_shape().unwrap_or_default();
    if let Some(view) = constant.reshaped(&known_shape).and_then(|c| c.transposed(&perm)) {
        return graph.add_constant(view, name);
    }
    let copy = match data {
        ConstantData::Placeholder => return graph.add_constant(placeholder_constant(&desc)?, name),
        ConstantData::Real => transposed_copy(constant, &shape, &desc, perm),
    };
    graph.add_constant(copy.map_err(|e| Error::internal("split-k", e.0))?, name)
}

/// Returns a copy of a constant, reshaped to `shape` and then transposed by `perm` to the shape of `desc`.
fn transposed_copy(
    constant: &Constant,
    shape: &[Dim],
    desc: &TensorDesc,
    perm: Vec<usize>,
) -> std::result::Result<Constant, OpError> {
    let mut array = constant.to_array()?;
    array.shape = TensorDesc::new(constant.dtype, shape.to_vec()).known_shape().unwrap_or_default();
    let sizes = desc.known_shape().unwrap_or_default();
    Ok(Constant::from_array(&Transpose { perm }.eval(&[&array], &sizes, &Bindings::new())?))
}
