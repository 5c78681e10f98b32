//! Norm of sums: a norm adds the partial sums of the matmul before it.
//!
//! ```text
//! %2 = matmul %0 %1 then (add #0 @2)      ->      %4 = matmul %3 %1'   (partial sums of ranges of K)
//! %3 = layer-norm %2 ..                           %5 = reduce sum of %4 then (add #0 @1)
//! %4 = add %2 %3                                  %6 = norm-of-sums %4 .. | (add #0 @1)
//!                                                 %7 = add %5 %6
//! ```
//!
//! With split-K, the norm would wait for the node that adds the partial sums. If the norm adds them by itself, both run
//! at the same time, and if nothing else reads the sum, one of them disappears. So K is also split where the matmul alone
//! would not gain from it.

use super::{Beside, ConstantData, Decomposition, LastNode, Params, replace, split_k};
use crate::error::{Error, Result};
use crate::ir::element::Arg;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{LayerNorm, NormOfSums, Op, Reduce};
use crate::ir::tensor::Layout;
use crate::target::TargetProfile;

/// The decomposition `norm-of-sums`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "norm-of-sums",
    alternatives,
    repacks: true,
    max_cost_ratio: |p| p.norm_of_sums_max_cost_ratio,
    worth_estimating,
    build,
    describe,
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"a","dtype":"f32","shape":[5,768]}
%1 = constant {"dtype":"f32","shape":[768,44],"random":1}
%2 = constant {"dtype":"f32","shape":[44],"random":2}
%3 = input {"name":"r","dtype":"f32","shape":[5,44]}
%4 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%5 = add %4 %2
%6 = add %5 %3
%7 = layer-norm %6 %2 %2 {"axis":1,"epsilon":0.00001,"rms":false}
%8 = neg %7
output "x" %6
output "y" %8
"#,
    r#"
symbol m 1..9
%0 = input {"name":"a","dtype":"f32","shape":[2,"m",288]}
%1 = constant {"dtype":"f32","shape":[37,288],"random":1}
%2 = constant {"dtype":"f32","shape":[37],"random":2}
%3 = matmul %0 %1 {"trans_a":false,"trans_b":true}
%4 = layer-norm %3 %2 {"axis":2,"epsilon":0.001,"rms":true}
output "y" %4
"#,
    r#"
%0 = input {"name":"p","dtype":"f32","shape":[4,3,7,8]}
%1 = constant {"dtype":"f32","shape":[7,8],"random":2}
%2 = reduce %0 {"kind":"sum","axes":[0],"keepdims":false}
%3 = sigmoid %2
%4 = mul %2 %3
%5 = layer-norm %4 %1 {"axis":1,"epsilon":0.001,"rms":false}
output "y" %5
"#,
];

/// Number of the alternative for a sum that is already computed from terms.
const GIVEN_TERMS: u32 = 1;
/// Maximum number of terms.
const MAX_TERMS: i64 = 32;

/// Returns a norm, and the row-major value that it normalizes. Returns `None` for other nodes.
fn norm(graph: &Graph, id: NodeId) -> Option<(&LayerNorm, NodeId)> {
    let Op::LayerNorm(norm) = &graph.node(id).op else { return None };
    let x = *graph.operands(id).first()?;
    let rows = [x, id].iter().all(|node| graph.tensor(*node).layout == Layout::RowMajor);
    rows.then_some((norm, x))
}

/// True if a node adds a known number of terms, which are the first axis of its operand.
fn adds_terms(graph: &Graph, id: NodeId) -> bool {
    let terms = graph.operands(id).first().map(|terms| graph.tensor(*terms));
    let fits = terms.is_some_and(|terms| {
        let count = terms.shape.first().and_then(|count| count.as_known());
        terms.layout == Layout::RowMajor
            && terms.dtype.is_float()
            && count.is_some_and(|count| (1..=MAX_TERMS).contains(&count))
    });
    fits && *graph.op(id) == Op::Reduce(Reduce::sum_of_terms())
}

fn alternatives(graph: &Graph, id: NodeId, target: &TargetProfile) -> Vec<u32> {
    match norm(graph, id) {
        Some((_, x)) if adds_terms(graph, x) => vec![GIVEN_TERMS],
        Some((_, x)) => (split_k::DECOMPOSITION.alternatives)(graph, x, target),
        None => Vec::new(),
    }
}

fn worth_estimating(graph: &Graph, id: NodeId, splits: u32, p: &Params) -> bool {
    let Some((_, x)) = norm(graph, id) else { return false };
    splits == GIVEN_TERMS || split_k::worth_estimating(graph, x, splits, p)
}

fn describe(splits: u32) -> String {
    match splits {
        GIVEN_TERMS => format!("the norm adds the terms ({})", DECOMPOSITION.name),
        _ => format!("the norm adds {splits} partial sums of the matmul ({})", DECOMPOSITION.name),
    }
}

fn build(graph: &mut Graph, id: NodeId, splits: u32, data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal("norm-of-sums", "the node is not a norm of sums");
    let (norm, x) = norm(graph, id).ok_or_else(wrong)?;
    let norm = norm.clone();
    let sum = match splits {
        GIVEN_TERMS => x,
        _ => replace(graph, x, &split_k::DECOMPOSITION, splits, data)?.last,
    };
    let arity = graph.node(id).arity;
    let of_norm: Vec<NodeId> = graph.operands(id).into_iter().take(arity).skip(1).collect();
    let of_sum = graph.operands(sum);
    let [terms, of_steps @ ..] = of_sum.as_slice() else { return Err(wrong()) };
    let first = 1 + of_norm.len();
    let mut steps = graph.node(sum).epilogue.clone();
    for arg in steps.iter_mut().flat_map(|step| &mut step.args) {
        if let Arg::Input(k) = arg {
            // Operand 0 of the sum are the terms, which no step reads.
            let place = (*k as usize).checked_sub(1).ok_or_else(wrong)? + first;
            *k = u32::try_from(place).map_err(|_| wrong())?;
        }
    }
    let op = NormOfSums { norm, bias: of_norm.len() > 1, steps };
    let operands = [*terms].into_iter().chain(of_norm).chain(of_steps.iter().copied()).collect();
    let beside = (graph.use_count(x) > 1).then_some(Beside { old: x, new: sum });
    Ok(LastNode { op: op.into(), operands, beside })
}
