//! Fuses small-M matmuls with the RMSNorm before them, the residual add before that, the SwiGLU gate and RoPE after
//! them.
//!
//! ```text
//! %2 = layer-norm %0 %1                           ->   %6 = fused-matmul %0 %4 %3 %1 {epsilon, gate: (swish #0) * @2}
//! %5 = matmul %2 %3                                    %8 = fused-matmul %0 %7 %1 {epsilon}
//! %6 = matmul %2 %4 then (swish #0) (mul #1 %5)
//! %8 = matmul %2 %7
//! ```
//!
//! In the gate, `#0` is the product with the first matrix (%4), and `@2` is the product with operand 2 (%3). A layer
//! norm that subtracts no mean is an RMSNorm.
//!
//! With few rows, a dispatch after a barrier costs about as much as its work, so each saved barrier counts. A norm is
//! fused into all of its users or into none. The decision depends on the graph and on which kernels exist, not on
//! estimates. So functions of one row and of up to 16 rows give the same sums with quantized weights, with two
//! exceptions: targets where matrix units multiply the rows, and targets where the residual sums of all rows do not fit
//! into workgroup memory.
//!
//! Matmuls of the same quantized rows are merged if the merged matmul is faster by the estimates (`quantized_rows`).

mod quantized_rows;
mod residual;
mod rotary;

use crate::decompose::add_equivalent;
use crate::error::Result;
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{FusedMatMul, LayerNorm, MatMul, Op};
use crate::ir::ops::fused_matmul::{SECOND_MATRIX, is_row_scale};
use crate::ir::verify::verify;
use crate::pass::{Changes, PassReport};
use crate::plan::estimate::Costs;
use crate::plan::{Alternatives, Options};
use crate::shader::pack::quantized_panels::QuantizedPanels;
use crate::target::{MatrixScope, TargetProfile};

/// Name of the fusion step in reports.
pub const STAGE: &str = "fuse-matmuls";

/// Test graphs in text form with matmuls that the fusion step can fuse. Their sizes are not multiples of tile sizes.
pub const CASES: &[&str] = &[
    r#"
symbol m 1..5
%0 = input {"name":"x","dtype":"f32","shape":[1,"m",64]}
%1 = constant {"dtype":"f32","shape":[64],"random":1}
%2 = layer-norm %0 %1 {"axis":2,"epsilon":0.00001,"rms":true}
%3 = constant {"dtype":"f32","shape":[90,64],"encoding":"q4_0","random":2}
%4 = constant {"dtype":"f32","shape":[90,64],"encoding":"q4_0","random":3}
%5 = matmul %2 %3 {"trans_a":false,"trans_b":true}
%6 = matmul %2 %4 {"trans_a":false,"trans_b":true}
%7 = swish %6 {"alpha":1.0}
%8 = mul %7 %5
%9 = constant {"dtype":"f32","shape":[33,64],"encoding":"q8_0","random":4}
%10 = matmul %2 %9 {"trans_a":false,"trans_b":true}
%11 = constant {"dtype":"f32","shape":[33],"random":5}
%12 = add %10 %11
output "y" %8
output "z" %12
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[3,200]}
%1 = constant {"dtype":"f32","shape":[24,200],"encoding":"u8 in groups of 200","random":2}
%2 = constant {"dtype":"f32","shape":[24,200],"encoding":"u8 in groups of 200","random":3}
%3 = matmul %0 %1 {"trans_a":false,"trans_b":true}
%4 = matmul %0 %2 {"trans_a":false,"trans_b":true}
%5 = tanh %3
%6 = mul %4 %5
output "y" %6
"#,
    r#"
symbol m 1..3
%0 = input {"name":"x","dtype":"f32","shape":[1,"m",36]}
%1 = constant {"dtype":"f32","shape":[36],"random":1}
%2 = layer-norm %0 %1 {"axis":2,"epsilon":0.00001,"rms":true}
%3 = constant {"dtype":"f32","shape":[36,50],"random":2}
%4 = constant {"dtype":"f32","shape":[36,50],"random":3}
%5 = matmul %2 %3 {"trans_a":false,"trans_b":false}
%6 = matmul %2 %4 {"trans_a":false,"trans_b":false}
%7 = swish %6 {"alpha":1.0}
%8 = mul %7 %5
output "y" %8
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,3,64]}
%1 = constant {"dtype":"f32","shape":[64],"random":1}
%2 = layer-norm %0 %1 {"axis":2,"epsilon":0.00001,"rms":true}
%3 = constant {"dtype":"f32","shape":[128,64],"encoding":"q8_0","random":2}
%4 = matmul %2 %3 {"trans_a":false,"trans_b":true}
%5 = reshape %4 {"shape":[1,3,2,2,32]}
%6 = slice %5 {"starts":[0,0,0,1,0],"steps":[1,1,1,-1,1],"sizes":[1,3,2,2,32]}
%7 = constant {"dtype":"f32","shape":[64,1,1,32],"random":3}
%8 = slice %7 {"starts":[5,0,0,0],"steps":[1,1,1,1],"sizes":[3,1,1,32]}
%9 = constant {"dtype":"f32","shape":[64,1,1,32],"random":4}
%10 = slice %9 {"starts":[5,0,0,0],"steps":[1,1,1,1],"sizes":[3,1,1,32]}
%11 = constant {"dtype":"f32","shape":[2,1],"values":[-1.0,1.0]}
%12 = mul %5 %8
%13 = mul %6 %10
%14 = mul %13 %11
%15 = add %12 %14
%16 = reshape %15 {"shape":[1,3,2,64]}
output "y" %16
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,2,64]}
%3 = constant {"dtype":"f32","shape":[48,64],"encoding":"q4_0","random":2}
%4 = matmul %0 %3 {"trans_a":false,"trans_b":true}
%5 = reshape %4 {"shape":[1,2,4,6,2]}
%6 = slice %5 {"starts":[0,0,0,0,1],"steps":[1,1,1,1,-1],"sizes":[1,2,4,6,2]}
%7 = constant {"dtype":"f32","shape":[64,1,6,1],"random":3}
%8 = slice %7 {"starts":[5,0,0,0],"steps":[1,1,1,1],"sizes":[2,1,6,1]}
%9 = constant {"dtype":"f32","shape":[64,1,6,1],"random":4}
%10 = slice %9 {"starts":[5,0,0,0],"steps":[1,1,1,1],"sizes":[2,1,6,1]}
%11 = constant {"dtype":"f32","shape":[2],"values":[-1.0,1.0]}
%12 = mul %5 %8
%13 = mul %6 %10
%14 = mul %13 %11
%15 = add %12 %14
%16 = reshape %15 {"shape":[1,2,4,12]}
output "y" %16
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,1,36]}
%1 = constant {"dtype":"f32","shape":[36],"random":1}
%2 = layer-norm %0 %1 {"axis":2,"epsilon":0.00001,"rms":true}
%3 = constant {"dtype":"f32","shape":[36,96],"random":2}
%4 = matmul %2 %3 {"trans_a":false,"trans_b":false}
%5 = reshape %4 {"shape":[1,1,3,2,16]}
%6 = slice %5 {"starts":[0,0,0,1,0],"steps":[1,1,1,-1,1],"sizes":[1,1,3,2,16]}
%7 = constant {"dtype":"f32","shape":[1,1,1,16],"random":3}
%9 = constant {"dtype":"f32","shape":[1,1,1,16],"random":4}
%11 = constant {"dtype":"f32","shape":[2,1],"values":[-1.0,1.0]}
%12 = mul %5 %7
%13 = mul %6 %9
%14 = mul %13 %11
%15 = add %12 %14
%16 = reshape %15 {"shape":[1,1,3,32]}
output "y" %16
"#,
    r#"
symbol m 1..4
%0 = input {"name":"x","dtype":"f32","shape":[1,"m",64]}
%1 = input {"name":"o","dtype":"f32","shape":[1,"m",64]}
%2 = constant {"dtype":"f32","shape":[64],"random":1}
%3 = layer-norm %1 %2 {"axis":2,"epsilon":0.00001,"rms":true}
%4 = add %3 %0
%5 = constant {"dtype":"f32","shape":[64],"random":2}
%6 = layer-norm %4 %5 {"axis":2,"epsilon":0.001,"rms":true}
%7 = constant {"dtype":"f32","shape":[90,64],"encoding":"q8_0","random":3}
%8 = constant {"dtype":"f32","shape":[90,64],"encoding":"q8_0","random":4}
%9 = matmul %6 %7 {"trans_a":false,"trans_b":true}
%10 = matmul %6 %8 {"trans_a":false,"trans_b":true}
%11 = swish %10 {"alpha":1.0}
%12 = mul %11 %9
%14 = input {"name":"d","dtype":"f32","shape":[1,"m",64]}
%15 = constant {"dtype":"f32","shape":[64],"random":6}
%16 = layer-norm %14 %15 {"axis":2,"epsilon":0.00001,"rms":true}
%17 = add %4 %16
output "y" %12
output "z" %17
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,50]}
%1 = input {"name":"o","dtype":"f32","shape":[2,50]}
%2 = constant {"dtype":"f32","shape":[50],"random":1}
%3 = layer-norm %1 %2 {"axis":1,"epsilon":0.00001,"rms":true}
%4 = add %0 %3
%5 = constant {"dtype":"f32","shape":[50],"random":2}
%6 = layer-norm %4 %5 {"axis":1,"epsilon":0.00001,"rms":true}
%7 = constant {"dtype":"f32","shape":[50,38],"random":3}
%8 = constant {"dtype":"f32","shape":[50,24],"random":4}
%9 = matmul %6 %7 {"trans_a":false,"trans_b":false}
%10 = matmul %6 %8 {"trans_a":false,"trans_b":false}
%11 = constant {"dtype":"f32","shape":[24],"random":5}
%12 = add %10 %11
output "y" %9
output "z" %12
"#,
];

/// Fuses RMSNorms, SwiGLU gates, residual adds and rotary embeddings into matmuls, each only if some kernel can compute
/// the resulting fused matmul. Then merges matmuls of the same quantized rows.
///
/// # Errors
/// An internal error that names the fusion step, if the step makes the graph invalid.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    if options.alternatives == Alternatives::Cheaper && options.prefer_kernel.is_none() {
        for id in graph.topological() {
            if let Some(pair) = fused_pair(graph, id) {
                let added = add_equivalent(graph, id, pair, STAGE)?;
                if has_kernel(graph, costs, added) {
                    graph.replace_uses(id, added);
                    changes.note(graph, added, "matmul fused with its gate matmul: one dispatch computes both and multiplies the results");
                }
            }
        }
        graph.sweep();
        for id in graph.topological() {
            fuse_norm(graph, id, costs, &mut changes)?;
        }
        graph.sweep();
        for id in graph.topological() {
            residual::fuse_residual(graph, id, costs, &mut changes)?;
        }
        graph.sweep();
        for id in graph.topological() {
            rotary::fuse_rotary(graph, id, costs, &mut changes)?;
        }
        for id in graph.topological() {
            quantized_rows::merge_matmuls(graph, id, costs, &mut changes)?;
        }
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// True if some kernel can compute a node.
fn has_kernel(graph: &Graph, costs: &mut Costs<'_>, id: NodeId) -> bool {
    costs.sum(graph, &[id]).best_known().is_finite()
}

/// Returns the operator and the operands of a node that is a matmul of float rows with a constant. Returns `None` for
/// other nodes.
fn constant_matmul(graph: &Graph, id: NodeId) -> Option<(&MatMul, [NodeId; 2])> {
    let Op::MatMul(op) = graph.op(id) else { return None };
    let [x, matrix] = *graph.operands(id).get(..2)? else { return None };
    let fits = !op.trans_a && graph.tensor(x).dtype.is_float() && graph.constant(matrix).is_some();
    fits.then_some((op, [x, matrix]))
}

/// Returns a matmul or fused matmul as a fused matmul, with everything that is already fused into it. Returns `None`
/// for other operators.
fn as_fused(op: &Op) -> Option<FusedMatMul> {
    match op {
        Op::MatMul(matmul) => Some(matmul.clone().into()),
        Op::FusedMatMul(fused) => Some(fused.clone()),
        _ => None,
    }
}

/// Returns one operator that replaces the matmul `id` and a second matmul of the same rows, as in a SwiGLU gate. Only
/// the epilogue of `id` may read the result of the second matmul. Returns `None` if `id` has no such second matmul.
fn fused_pair(graph: &Graph, id: NodeId) -> Option<Replacement> {
    let (op, [x, matrix]) = constant_matmul(graph, id)?;
    let node = graph.node(id);
    let operands = graph.operands(id);
    let &[other] = operands.get(node.arity..)? else { return None };
    let (second_op, [second_x, second]) = constant_matmul(graph, other)?;
    let second_node = graph.node(other);
    let alone = graph.use_count(other) == 1 && graph.operands(other).len() == second_node.arity;
    if !alone || second_op != op || second_x != x || second_node.tensor.shape != node.tensor.shape {
        return None;
    }
    // The epilogue of the second matmul comes first. Its input, step 0, becomes operand `SECOND_MATRIX`.
    let before = u32::try_from(second_node.epilogue.len()).ok()?;
    let start = if before == 0 { Arg::Input(SECOND_MATRIX) } else { Arg::Step(before) };
    let second_steps = second_node.epilogue.iter().map(|step| {
        let args = step.args.iter().map(|arg| match *arg {
            Arg::Step(0) => Arg::Input(SECOND_MATRIX),
            other => other,
        });
        EpilogueStep { element: step.element, args: args.collect() }
    });
    let first_steps = node.epilogue.iter().map(|step| {
        let args = step.args.iter().map(|arg| match *arg {
            Arg::Step(0) => Arg::Step(0),
            Arg::Step(s) => Arg::Step(s + before),
            Arg::Input(_) => start,
        });
        EpilogueStep { element: step.element, args: args.collect() }
    });
    let gate: Vec<EpilogueStep> = second_steps.chain(first_steps).collect();
    let op = FusedMatMul { gate, ..op.clone().into() };
    Some(Replacement { op: op.into(), operands: vec![x, matrix, second], arity: 3, epilogue: Vec::new() })
}

/// RMSNorm along the last axis with a constant scale `[K]`.
struct Norm {
    x: NodeId,
    scale: NodeId,
    epsilon: f32,
}

/// Returns the RMSNorm that a node computes before its epilogue, with a constant scale `[K]`. Returns `None` for other
/// nodes.
fn norm(graph: &Graph, id: NodeId) -> Option<Norm> {
    let node = graph.node(id);
    let Op::LayerNorm(LayerNorm { axis, epsilon, rms: true }) = node.op else { return None };
    let [x, scale] = *graph.operands(id).get(..node.arity)? else { return None };
    let last = axis + 1 == node.tensor.rank() && graph.constant(scale).is_some();
    (last && is_row_scale(graph.tensor(scale), &node.tensor)).then_some(Norm { x, scale, epsilon })
}

/// Fuses an RMSNorm into all nodes that read its result, if each of them can compute the norm.
fn fuse_norm(graph: &mut Graph, id: NodeId, costs: &mut Costs<'_>, changes: &mut Changes) -> Result<()> {
    let Some(norm) = norm(graph, id).filter(|_| graph.node(id).epilogue.is_empty()) else { return Ok(()) };
    let users = graph.users(id);
    if users.is_empty() || graph.is_output(id) {
        return Ok(());
    }
    if matrix_units_read_rows_from_memory(costs.target)
        && users.iter().any(|user| is_quantized_matmul(graph, *user))
    {
        return Ok(());
    }
    let with = users.iter().map(|user| with_norm(graph, *user, id, &norm)).collect();
    replace_all(graph, &users, with, costs, changes, "matmul fused with the RMSNorm of its input rows")
}

/// Replaces each node by the operator that `with` has at the node's index. Replaces no node if `with` is `None`, or if
/// one of the operators has no kernel.
fn replace_all(
    graph: &mut Graph,
    nodes: &[NodeId],
    with: Option<Vec<Replacement>>,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
    note: &str,
) -> Result<()> {
    let Some(with) = with else { return Ok(()) };
    let mut added = Vec::with_capacity(nodes.len());
    for (node, what) in nodes.iter().zip(with) {
        let replacement = add_equivalent(graph, *node, what, STAGE)?;
        if !has_kernel(graph, costs, replacement) {
            return Ok(());
        }
        added.push(replacement);
    }
    for (node, replacement) in nodes.iter().zip(added) {
        graph.replace_uses(*node, replacement);
        changes.note(graph, replacement, note);
    }
    Ok(())
}

/// True if matrix units load the rows of a matmul straight from memory. Every workgroup would then have to normalize
/// the rows, which takes longer than a dispatch for the RMSNorm, so the norm is not fused. If the target profile knows
/// the layout of matrix fragments, kernels load rows into registers first and normalize them there at low cost.
fn matrix_units_read_rows_from_memory(target: &TargetProfile) -> bool {
    target.has_matrices(MatrixScope::Subgroup) && target.known_fragments().is_none()
}

/// True if a node is a matmul of more than one row with quantized weights.
fn is_quantized_matmul(graph: &Graph, id: NodeId) -> bool {
    let rows = graph.tensor(id).shape.iter().rev().nth(1).map_or(1, |rows| rows.range(&graph.bounds).1);
    let quantized =
        |operand: &NodeId| graph.constant(*operand).and_then(QuantizedPanels::from_constant).is_some();
    rows > 1 && graph.operands(id).get(1).is_some_and(quantized)
}

/// Returns the operator that replaces `user`, a matmul of the RMSNorm's result, with the norm fused into it. Returns
/// `None` if the norm cannot be fused.
fn with_norm(
    graph: &Graph,
    user: NodeId,
    norm_id: NodeId,
    Norm { x, scale, epsilon }: &Norm,
) -> Option<Replacement> {
    let node = graph.node(user);
    let operands = graph.operands(user);
    let fused = as_fused(&node.op).filter(|fused| fused.epsilon.is_none())?;
    let [first, rest @ ..] = operands.as_slice() else { return None };
    if *first != norm_id || rest.contains(&norm_id) || fused.matmul.trans_a {
        return None;
    }
    let (matrices, epilogue_operands) = rest.split_at_checked(fused.matrices())?;
    if !matrices.iter().all(|matrix| graph.constant(*matrix).is_some()) {
        return None;
    }
    let epilogue = shifted_operands(&node.epilogue, 1);
    let operands = [&[*x], matrices, &[*scale], epilogue_operands].concat();
    let arity = matrices.len() + 2;
    let op = FusedMatMul { epsilon: Some(*epsilon), ..fused };
    Some(Replacement { op: op.into(), operands, arity, epilogue })
}

/// Returns an epilogue with all operand indices increased by `by`.
fn shifted_operands(epilogue: &[EpilogueStep], by: u32) -> Vec<EpilogueStep> {
    let mut epilogue = epilogue.to_vec();
    for arg in epilogue.iter_mut().flat_map(|step| &mut step.args) {
        match arg {
            Arg::Input(k) => *k += by,
            Arg::Step(_) => {}
        }
    }
    epilogue
}
