//! Rewrites a matmul with quantized weights as dequantizing the weights and a matmul with the floats.
//!
//! ```text
//! %2 = matmul [M, N] %0 %1 (q4_0 [N, K]) transposed    ->    %3 = relayout f16[K, N] %1 seen as [K, N]
//!                                                           %4 = matmul [M, N] %0 %3
//! ```
//!
//! A kernel that reads quantized weights dequantizes them once per tile of M. With many rows that takes longer than the
//! multiplications, while dequantizing once costs little more than the memory traffic of the floats. The rewrite
//! applies only to f16: dequantized floats are rounded exactly as the kernels for matrix units round them. The floats
//! are stored `[K, N]`, like packed constants, because kernels load tiles into workgroup memory more slowly if elements
//! along K are contiguous. The matmul of floats may also be split along K (`split_k`); each number of splits is an
//! alternative.

use super::{ConstantData, Decomposition, LastNode, Params, split_k};
use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, MatMul, Op, Relayout};
use crate::ir::tensor::{DType, Layout};
use crate::kernels::MAX_SMALL_M;
use crate::shader::pack::quantized_panels::QuantizedPanels;
use crate::target::TargetProfile;

/// The decomposition `dequantize`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "dequantize",
    alternatives,
    repacks: false,
    max_cost_ratio: |p| p.dequantize_max_cost_ratio,
    worth_estimating,
    build,
    describe,
    cases: CASES,
};

/// Number of K splits that stands for a matmul without split-K.
const UNSPLIT: u32 = 1;

const CASES: &[&str] = &[
    r#"
symbol m 1..70
%0 = input {"name":"a","dtype":"f32","shape":["m",256]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[33,256],"encoding":"q4_0","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[34,256],"encoding":"q4_1","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[35,256],"encoding":"q5_0","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
%8 = constant {"dtype":"f32","shape":[36,256],"encoding":"q5_1","random":4}
%9 = matmul %1 %8 {"trans_a":false,"trans_b":true}
%10 = constant {"dtype":"f32","shape":[37,256],"encoding":"q8_0","random":5}
%11 = matmul %1 %10 {"trans_a":false,"trans_b":true}
%12 = constant {"dtype":"f32","shape":[38,256],"encoding":"q2_k","random":6}
%13 = matmul %1 %12 {"trans_a":false,"trans_b":true}
%14 = constant {"dtype":"f32","shape":[39,256],"encoding":"q3_k","random":7}
%15 = matmul %1 %14 {"trans_a":false,"trans_b":true}
%16 = constant {"dtype":"f32","shape":[40,256],"encoding":"q4_k","random":8}
%17 = matmul %1 %16 {"trans_a":false,"trans_b":true}
%18 = constant {"dtype":"f32","shape":[41,256],"encoding":"q5_k","random":9}
%19 = matmul %1 %18 {"trans_a":false,"trans_b":true}
%20 = constant {"dtype":"f32","shape":[42,256],"encoding":"q6_k","random":10}
%21 = matmul %1 %20 {"trans_a":false,"trans_b":true}
output "q4_0" %3
output "q4_1" %5
output "q5_0" %7
output "q5_1" %9
output "q8_0" %11
output "q2_k" %13
output "q3_k" %15
output "q4_k" %17
output "q5_k" %19
output "q6_k" %21
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[40,320]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[20,320],"encoding":"u2 in groups of 16 with zeros","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[37,320],"encoding":"u4 in groups of 40 with zeros","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[33,320],"encoding":"u8 in groups of 320","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
%8 = constant {"dtype":"f32","shape":[19,320],"encoding":"u4 in groups of 20","random":4}
%9 = matmul %1 %8 {"trans_a":false,"trans_b":true}
%10 = constant {"dtype":"f32","shape":[48,320],"encoding":"u8 in groups of 64 with zeros","random":5}
%11 = matmul %1 %10 {"trans_a":false,"trans_b":true}
output "y0" %3
output "y1" %5
output "y2" %7
output "y3" %9
output "y4" %11
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[17,300]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[18,300],"encoding":"u4 in groups of 60 with zeros","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[35,300],"encoding":"u8 in groups of 300","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[17,300],"encoding":"u4 in groups of 25","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
output "y0" %3
output "y1" %5
output "y2" %7
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[40,320]}
%1 = constant {"dtype":"f32","shape":[44,320],"encoding":"u4 in groups of 64 with zeros","random":12}
%2 = neg %0
%3 = transpose %1 {"perm":[1,0]}
%4 = matmul %2 %3 {"trans_a":false,"trans_b":false}
%5 = relu %4
%6 = add %5 %4
output "c" %6
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[3,32,21]}
%1 = constant {"dtype":"f32","shape":[3,23,32],"encoding":"q8_0","random":13}
%2 = input {"name":"b","dtype":"f32","shape":[2,18,33]}
%3 = constant {"dtype":"f32","shape":[2,33,64],"encoding":"q4_1","random":14}
%4 = neg %0
%5 = matmul %4 %1 {"trans_a":true,"trans_b":true}
%6 = neg %2
%7 = matmul %6 %3 {"trans_a":false,"trans_b":false}
%8 = tanh %7
output "c" %5
output "d" %8
"#,
];

/// A matmul with quantized weights.
struct QuantizedMatmul {
    op: MatMul,
    operands: [NodeId; 2],
    /// The weights with their last two axes swapped, if they are stored `[N, K]`.
    transposed: Option<Constant>,
}

/// Returns a node as an f16 matmul of many rows with quantized weights. Returns `None` for other nodes.
fn quantized_matmul(graph: &Graph, id: NodeId) -> Option<QuantizedMatmul> {
    let node = graph.node(id);
    let Op::MatMul(op) = &node.op else { return None };
    let operands = [*graph.operands(id).first()?, *graph.operands(id).get(1)?];
    let rows = node.tensor.shape.iter().rev().nth(1)?.range(&graph.bounds).1;
    let constant = graph.constant(operands[1]).filter(|constant| constant.dtype == DType::F16)?;
    if rows <= MAX_SMALL_M || graph.constant(operands[0]).is_some() {
        return None;
    }
    let weights_transposed = op.trans_b;
    let op = MatMul { trans_b: false, ..op.clone() };
    if !weights_transposed {
        return QuantizedPanels::from_constant(constant).map(|_| QuantizedMatmul {
            op,
            operands,
            transposed: None,
        });
    }
    let last = constant.shape.len().checked_sub(1)?;
    let mut perm: Vec<usize> = (0..=last).collect();
    perm.swap(last, last.checked_sub(1)?);
    let transposed =
        constant.transposed(&perm).filter(|constant| QuantizedPanels::from_constant(constant).is_some())?;
    Some(QuantizedMatmul { op, operands, transposed: Some(transposed) })
}

fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    match quantized_matmul(graph, id) {
        Some(_) => [UNSPLIT].into_iter().chain(split_k::k_splits(graph, id)).collect(),
        None => Vec::new(),
    }
}

fn worth_estimating(graph: &Graph, id: NodeId, splits: u32, p: &Params) -> bool {
    splits == UNSPLIT || split_k::worth_estimating(graph, id, splits, p)
}

fn describe(splits: u32) -> String {
    let split_k = if splits == UNSPLIT { String::new() } else { format!(", K in {splits} splits") };
    format!("weights dequantized first{split_k} ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, splits: u32, data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal("dequantize", "the node is not a matmul with quantized weights");
    let QuantizedMatmul { op, operands: [a, b], transposed } =
        quantized_matmul(graph, id).ok_or_else(wrong)?;
    let name = graph.node(id).name.clone();
    let weights_name = format!("{name} (dequantized)");
    let quantized = match transposed {
        Some(constant) => graph.add_constant(constant, &weights_name)?,
        None => b,
    };
    let floats = graph.add(Relayout { layout: Layout::RowMajor }, &[quantized], &weights_name)?;
    if splits == UNSPLIT {
        return Ok(LastNode { op: op.into(), operands: vec![a, floats], beside: None });
    }
    let matmul = graph.add(op, &[a, floats], &name)?;
    split_k::build(graph, matmul, splits, data)
}
