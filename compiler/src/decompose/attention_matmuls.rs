//! Rewrites attention as two matmuls and a softmax.
//!
//! ```text
//! %3 = attention [B, H, S, E] %0 %1 %2    ->    %3 = matmul [B, H, S, T] %0 (transpose of %1), times the scale
//!                                               %4 = softmax [B, H, S, T] %3
//!                                               %5 = matmul [B, H, S, E] %4 %2
//! ```
//!
//! The kernels of attention keep queries, scores and sums of a tile in registers or workgroup memory, so that few rows fit if
//! heads are large. Autoencoders of diffusion models have one head of 512 elements. The scores are f32, as in the kernels of
//! attention. They pass through memory twice.

use super::{ConstantData, Decomposition, LastNode, Params};
use crate::error::{Error, Result};
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, MatMul, Op, Softmax};
use crate::ir::tensor::{DType, Layout};
use crate::target::TargetProfile;

/// The decomposition `attention-matmuls`, as an entry of the table of decompositions.
pub const DECOMPOSITION: Decomposition = Decomposition {
    name: "attention-matmuls",
    alternatives,
    repacks: false,
    max_cost_ratio: |p| p.attention_matmuls_max_cost_ratio,
    worth_estimating,
    build,
    describe: |_| format!("scores in memory ({})", DECOMPOSITION.name),
    cases: CASES,
};

const CASES: &[&str] = &[
    r#"
%0 = input {"name":"q","dtype":"f32","shape":[2,3,37,20]}
%1 = input {"name":"k","dtype":"f32","shape":[2,3,29,20]}
%2 = input {"name":"v","dtype":"f32","shape":[2,3,29,12]}
%3 = attention %0 %1 %2 {"scale":0.3,"causal":false}
%4 = relu %3
output "y" %4
"#,
    r#"
symbol s 1..40
symbol t 1..70
%0 = input {"name":"q","dtype":"f32","shape":[1,1,"s",200]}
%1 = input {"name":"k","dtype":"f32","shape":[1,1,"t",200]}
%2 = input {"name":"v","dtype":"f32","shape":[1,1,"t",201]}
%3 = neg %0
%4 = attention %3 %1 %2 {"scale":0.07,"causal":false}
output "y" %4
"#,
];

/// Returns the scale and the operands (queries, keys, values) of attention over all keys, without mask, and with a key head for
/// each query head. Returns `None` for other nodes.
fn plain_attention(graph: &Graph, id: NodeId) -> Option<(f32, [NodeId; 3])> {
    let node = graph.node(id);
    let Op::Attention(op) = &node.op else { return None };
    let operands: Vec<NodeId> = graph.operands(id).into_iter().take(node.arity).collect();
    let operands: [NodeId; 3] = operands.try_into().ok()?;
    let [q, k, v] = operands.map(|operand| graph.tensor(operand));
    let all_keys = !op.causal && op.window.is_none() && op.softcap.is_none();
    let plain = [q, k, v].iter().all(|t| t.layout == Layout::RowMajor && t.dtype.is_float());
    let some_keys = k.shape.get(2)?.range(&graph.bounds).0 >= 1;
    let same_heads = q.shape.get(1)? == k.shape.get(1)?;
    (all_keys && plain && some_keys && same_heads).then_some((op.scale, operands))
}

fn alternatives(graph: &Graph, id: NodeId, _target: &TargetProfile) -> Vec<u32> {
    if plain_attention(graph, id).is_some() { vec![1] } else { Vec::new() }
}

fn worth_estimating(graph: &Graph, id: NodeId, _number: u32, p: &Params) -> bool {
    let head_size =
        plain_attention(graph, id).and_then(|(_, [q, ..])| graph.tensor(q).shape.get(3)?.as_known());
    head_size.is_some_and(|size| size as f64 >= p.min_attention_matmuls_head_size)
}

fn build(graph: &mut Graph, id: NodeId, _number: u32, _data: ConstantData) -> Result<LastNode> {
    let wrong = || Error::internal(DECOMPOSITION.name, "the node is not attention over all keys");
    let (scale, [q, k, v]) = plain_attention(graph, id).ok_or_else(wrong)?;
    let name = graph.node(id).name.clone();
    let scale = Constant::new(DType::F32, Vec::new(), scale.to_le_bytes().to_vec())
        .map_err(|e| Error::internal(DECOMPOSITION.name, e.0))?;
    let scale = graph.add_constant(scale, &name)?;
    let args = vec![Arg::Step(0), Arg::Input(2)];
    let scores = Replacement {
        op: MatMul { trans_a: false, trans_b: true }.into(),
        operands: vec![q, k, scale],
        arity: 2,
        epilogue: vec![EpilogueStep { element: Element::Binary(BinaryFn::Mul), args }],
    };
    let scores = graph.add_fused(scores, &format!("{name} (scores)"))?;
    graph.set_storage_type(scores, DType::F32);
    let weights = graph.add(Softmax { axis: 3, log: false }, &[scores], &format!("{name} (weights)"))?;
    graph.set_storage_type(weights, graph.tensor(v).dtype);
    let op = MatMul { trans_a: false, trans_b: false }.into();
    Ok(LastNode { op, operands: vec![weights, v], beside: None })
}
