//! A matrix product with a constant of codes as a product with its elements, which are made first.
//!
//! ```text
//! %2 = matmul [M, N] %0 %1 (q4_0 [N, K]) transposed    ->    %3 = relayout f16[K, N] %1 seen as [K, N]
//!                                                           %4 = matmul [M, N] %0 %3
//! ```
//!
//! A kernel that reads codes makes elements of them once for each of its tiles along M. With many rows that takes longer
//! than the products themselves, while writing the elements once costs little more than their memory traffic. They are
//! rounded to f16 exactly as kernels on matrix units round them, so this is for f16 only. They are written in rows of N,
//! the order of packed constants: matrices that a workgroup holds load slowly along K. What reads elements may sum them up
//! in parts: variants are numbers of parts.

use super::{Decomposition, Elements, Last, Params, split_k};
use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, MatMul, Op, Relayout};
use crate::ir::tensor::{DType, Layout};
use crate::kernels::FEW_ROWS;
use crate::shader::pack::codes::CodePanels;
use crate::target::TargetProfile;

/// As the table lists it.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "decoded",
    variants,
    repacks: false,
    margin: |p| p.decoded,
    sensible,
    build,
    describe,
    cases: CASES,
};

/// The variant that leaves sums whole.
const WHOLE: u32 = 1;

const CASES: &[&str] = &[
    r#"
symbol m 1..70
%0 = input {"name":"a","dtype":"f32","shape":["m",256]}
%1 = neg %0
%2 = constant {"dtype":"f32","shape":[33,256],"stored":"q4_0","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[34,256],"stored":"q4_1","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[35,256],"stored":"q5_0","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
%8 = constant {"dtype":"f32","shape":[36,256],"stored":"q5_1","random":4}
%9 = matmul %1 %8 {"trans_a":false,"trans_b":true}
%10 = constant {"dtype":"f32","shape":[37,256],"stored":"q8_0","random":5}
%11 = matmul %1 %10 {"trans_a":false,"trans_b":true}
%12 = constant {"dtype":"f32","shape":[38,256],"stored":"q2_k","random":6}
%13 = matmul %1 %12 {"trans_a":false,"trans_b":true}
%14 = constant {"dtype":"f32","shape":[39,256],"stored":"q3_k","random":7}
%15 = matmul %1 %14 {"trans_a":false,"trans_b":true}
%16 = constant {"dtype":"f32","shape":[40,256],"stored":"q4_k","random":8}
%17 = matmul %1 %16 {"trans_a":false,"trans_b":true}
%18 = constant {"dtype":"f32","shape":[41,256],"stored":"q5_k","random":9}
%19 = matmul %1 %18 {"trans_a":false,"trans_b":true}
%20 = constant {"dtype":"f32","shape":[42,256],"stored":"q6_k","random":10}
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
%2 = constant {"dtype":"f32","shape":[20,320],"stored":"u2 in groups of 16 with zeros","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[37,320],"stored":"u4 in groups of 40 with zeros","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[33,320],"stored":"u8 in groups of 320","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
%8 = constant {"dtype":"f32","shape":[19,320],"stored":"u4 in groups of 20","random":4}
%9 = matmul %1 %8 {"trans_a":false,"trans_b":true}
%10 = constant {"dtype":"f32","shape":[48,320],"stored":"u8 in groups of 64 with zeros","random":5}
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
%2 = constant {"dtype":"f32","shape":[18,300],"stored":"u4 in groups of 60 with zeros","random":1}
%3 = matmul %1 %2 {"trans_a":false,"trans_b":true}
%4 = constant {"dtype":"f32","shape":[35,300],"stored":"u8 in groups of 300","random":2}
%5 = matmul %1 %4 {"trans_a":false,"trans_b":true}
%6 = constant {"dtype":"f32","shape":[17,300],"stored":"u4 in groups of 25","random":3}
%7 = matmul %1 %6 {"trans_a":false,"trans_b":true}
output "y0" %3
output "y1" %5
output "y2" %7
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[40,320]}
%1 = constant {"dtype":"f32","shape":[44,320],"stored":"u4 in groups of 64 with zeros","random":12}
%2 = neg %0
%3 = transpose %1 {"perm":[1,0]}
%4 = matmul %2 %3 {"trans_a":false,"trans_b":false}
%5 = relu %4
%6 = add %5 %4
output "c" %6
"#,
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[3,32,21]}
%1 = constant {"dtype":"f32","shape":[3,23,32],"stored":"q8_0","random":13}
%2 = input {"name":"b","dtype":"f32","shape":[2,18,33]}
%3 = constant {"dtype":"f32","shape":[2,33,64],"stored":"q4_1","random":14}
%4 = neg %0
%5 = matmul %4 %1 {"trans_a":true,"trans_b":true}
%6 = neg %2
%7 = matmul %6 %3 {"trans_a":false,"trans_b":false}
%8 = tanh %7
output "c" %5
output "d" %8
"#,
];

/// A product as this decomposition sees it.
struct Product {
    op: MatMul,
    operands: [NodeId; 2],
    /// The constant with its axes turned, where it has rows of K.
    turned: Option<Constant>,
}

fn product(graph: &Graph, id: NodeId) -> Option<Product> {
    let node = graph.node(id);
    let Op::MatMul(op) = &node.op else { return None };
    let operands = [*graph.operands(id).first()?, *graph.operands(id).get(1)?];
    let rows = node.tensor.shape.iter().rev().nth(1)?.range(&graph.bounds).1;
    let constant = graph.constant(operands[1]).filter(|constant| constant.dtype == DType::F16)?;
    if rows <= FEW_ROWS || graph.constant(operands[0]).is_some() {
        return None;
    }
    let transposed = op.trans_b;
    let op = MatMul { trans_b: false, ..op.clone() };
    if !transposed {
        return CodePanels::of(constant).map(|_| Product { op, operands, turned: None });
    }
    let last = constant.shape.len().checked_sub(1)?;
    let mut perm: Vec<usize> = (0..=last).collect();
    perm.swap(last, last.checked_sub(1)?);
    let turned = constant.transposed(&perm).filter(|turned| CodePanels::of(turned).is_some())?;
    Some(Product { op, operands, turned: Some(turned) })
}

fn variants(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    match product(graph, id) {
        Some(_) => [WHOLE].into_iter().chain(split_k::parts(graph, id)).collect(),
        None => Vec::new(),
    }
}

fn sensible(graph: &Graph, id: NodeId, variant: u32, p: &Params) -> bool {
    variant == WHOLE || split_k::sensible(graph, id, variant, p)
}

fn describe(variant: u32) -> String {
    let parts = if variant == WHOLE { String::new() } else { format!(", and the sum in {variant} parts") };
    format!("elements made of the second operand's codes first{parts} ({})", DECOMPOSITION.name)
}

fn build(graph: &mut Graph, id: NodeId, variant: u32, elements: Elements) -> Result<Last> {
    let wrong = || Error::internal("decoded", "a product that it cannot replace");
    let Product { op, operands: [a, b], turned } = product(graph, id).ok_or_else(wrong)?;
    let name = graph.node(id).name.clone();
    let made = format!("{name} (elements)");
    let codes = match turned {
        Some(constant) => graph.add_constant(constant, &made)?,
        None => b,
    };
    let decoded = graph.add(Relayout { layout: Layout::RowMajor }, &[codes], &made)?;
    if variant == WHOLE {
        return Ok(Last { op: op.into(), operands: vec![a, decoded] });
    }
    let whole = graph.add(op, &[a, decoded], &name)?;
    split_k::build(graph, whole, variant, elements)
}
