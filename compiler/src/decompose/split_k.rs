//! A matrix product with a long sum and few results as several products of parts of the sum, and their sum.
//!
//! ```text
//! %2 = matmul [M, N] %0 %1        ->      %3 = reshape [M, S, K/S] %0
//!                                         %4 = transpose [S, M, K/S] %3
//!                                         %5 = matmul [S, M, N] %4 %1 seen as [S, K/S, N]
//!                                         %6 = reduce sum over S of %5
//! ```
//!
//! One tile of results is computed by one workgroup, so few tiles leave most of a device idle however long the sums
//! are. The parts of the first operand are a view of it, and those of a constant second operand are packed like any
//! constant. Partial sums are stored in f32 whatever the product is stored in: rounding each to f16 would add an error
//! of the size of the result's own once per part.

use super::{Decomposition, Elements, Last, Params, stand_in};
use crate::error::{Error, OpError, Result};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, MatMul, Op, Operation, Reduce, Reshape, Transpose};
use crate::ir::ops::reduce::ReduceKind;
use crate::ir::tensor::{DType, Layout, TensorDesc};
use crate::target::TargetProfile;

/// As the table lists it.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "split-k",
    variants,
    repacks: true,
    margin: |p| p.split_k,
    sensible,
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

/// Parts tried.
const PARTS: &[u32] = &[2, 3, 4, 6, 8, 12, 16, 24, 32];
/// What the depth of a part must be a multiple of, for operands to be read in whole vectors and fragments.
const WHOLE: i64 = 16;
/// Most axes of a result: one more is needed for the parts.
const MOST_AXES: usize = 6;

/// A product as this decomposition sees it.
struct Product {
    op: MatMul,
    operands: [NodeId; 2],
    /// Axes of the result.
    rank: usize,
    depth: i64,
}

fn product(graph: &Graph, id: NodeId) -> Option<Product> {
    let node = graph.node(id);
    let Op::MatMul(op) = &node.op else { return None };
    let operands = [*graph.operands(id).first()?, *graph.operands(id).get(1)?];
    let [a, b] = operands.map(|o| graph.tensor(o));
    let rank = node.tensor.rank();
    let rows = [a, b, &node.tensor].iter().all(|t| t.layout == Layout::RowMajor && t.rank() >= 2);
    let depth = a.shape.get(a.rank().checked_sub(if op.trans_a { 2 } else { 1 })?)?.as_known()?;
    let fits = rows && rank <= MOST_AXES && a.dtype.is_float() && graph.constant(operands[0]).is_none();
    fits.then(|| Product { op: op.clone(), operands, rank, depth })
}

fn variants(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    // Parts of rows of codes would have to be decoded.
    let second = graph.operands(id).get(1).and_then(|b| graph.constant(*b));
    let coded = second.is_some_and(|b| b.stored.coding().is_some());
    if coded { Vec::new() } else { parts(graph, id) }
}

/// Numbers of parts in which a product can be taken, were its second operand no codes; none for anything else.
pub(super) fn parts(graph: &Graph, id: NodeId) -> Vec<u32> {
    let Some(Product { depth, .. }) = product(graph, id) else { return Vec::new() };
    let whole = |parts: &&u32| {
        let parts = i64::from(**parts);
        depth % (parts * WHOLE) == 0
    };
    PARTS.iter().filter(whole).copied().collect()
}

pub(super) fn sensible(graph: &Graph, id: NodeId, parts: u32, p: &Params) -> bool {
    product(graph, id).is_some_and(|product| product.depth as f64 / f64::from(parts) >= p.shortest_part)
}

fn describe(parts: u32) -> String {
    format!("the sum in {parts} parts ({})", DECOMPOSITION.name)
}

pub(super) fn build(graph: &mut Graph, id: NodeId, parts: u32, elements: Elements) -> Result<Last> {
    let wrong = || Error::internal("split-k", "a product that it cannot replace");
    let Product { op, operands: [a, b], rank, depth } = product(graph, id).ok_or_else(wrong)?;
    let name = graph.node(id).name.clone();
    let part = [i64::from(parts), depth / i64::from(parts)];
    let a = split(graph, a, rank, usize::from(!op.trans_a), part, &name)?;
    let axis = usize::from(op.trans_b);
    let b = match graph.constant(b).cloned() {
        Some(constant) => split_constant(graph, &constant, rank, axis, part, (&name, elements))?,
        None => split(graph, b, rank, axis, part, &name)?,
    };
    let partial = graph.add(op, &[a, b], &format!("{name} (parts)"))?;
    graph.set_storage_type(partial, DType::F32);
    let sum = Reduce { kind: ReduceKind::Sum, axes: vec![0], keepdims: false };
    Ok(Last { op: sum.into(), operands: vec![partial] })
}

/// The shape of an operand with ones in front up to `rank` axes and the depth, the last axis but `1 - axis`, split; and
/// the permutation that brings the parts to the front.
fn shapes(shape: &[Dim], rank: usize, axis: usize, part: [i64; 2]) -> (Vec<Dim>, Vec<usize>) {
    let mut out = vec![Dim::known(1); rank.saturating_sub(shape.len())];
    out.extend(shape.iter().cloned());
    let at = rank - 2 + axis;
    out.splice(at..=at, part.map(Dim::known));
    let perm = [at].into_iter().chain((0..=rank).filter(|i| *i != at)).collect();
    (out, perm)
}

/// The parts of an operand, as a view.
fn split(
    graph: &mut Graph,
    operand: NodeId,
    rank: usize,
    axis: usize,
    part: [i64; 2],
    name: &str,
) -> Result<NodeId> {
    let (shape, perm) = shapes(&graph.tensor(operand).shape, rank, axis, part);
    let view = graph.add(Reshape { shape }, &[operand], name)?;
    graph.add(Transpose { perm }, &[view], name)
}

/// The parts of a constant, as another one: the same bytes, seen in another order.
fn split_constant(
    graph: &mut Graph,
    constant: &Constant,
    rank: usize,
    axis: usize,
    part: [i64; 2],
    (name, elements): (&str, Elements),
) -> Result<NodeId> {
    let given: Vec<Dim> = constant.shape.iter().map(|d| Dim::from(*d)).collect();
    let (shape, perm) = shapes(&given, rank, axis, part);
    let moved: Vec<Dim> = perm.iter().filter_map(|p| shape.get(*p).cloned()).collect();
    let desc = TensorDesc::new(constant.dtype, moved);
    let split = TensorDesc::new(constant.dtype, shape.clone()).known_shape().unwrap_or_default();
    if let Some(seen) = constant.reshaped(&split).and_then(|c| c.transposed(&perm)) {
        return graph.add_constant(seen, name);
    }
    let made = match elements {
        Elements::Any => return graph.add_constant(stand_in(&desc)?, name),
        Elements::True => transposed(constant, &shape, &desc, perm),
    };
    graph.add_constant(made.map_err(|e| Error::internal("split-k", e.0))?, name)
}

/// A constant seen under `shape`, with its axes permuted.
fn transposed(
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
