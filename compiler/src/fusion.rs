//! Products of few rows that take in what stands beside them: the normalisation before them, the residual sum before that, the
//! product that gates them, and the rotation of queries and keys behind them.
//!
//! ```text
//! %2 = layer-norm %0 %1             ->     %5 = fused-matmul %0 %3 %4 %1 {epsilon, join: (swish #0) * @2}
//! %5 = matmul %2 %3                         %7 = fused-matmul %0 %6 %1 {epsilon}
//! %6 = matmul %2 %4 then (swish #0) (mul #1 %5)
//! ```
//!
//! With few rows a dispatch behind a barrier costs about as much as its work, so what is saved are barriers. A normalisation is
//! taken in by all of its users or by none. Whether that is done follows from the graph and from which kernels there are, not
//! from estimates, so that with constants of codes functions of one row and of up to sixteen give the same sums, where no matrix
//! units multiply the latter, and where as many rows that are residual sums fit into workgroup memory.

mod residual;
mod rotary;

use crate::decompose::put_beside;
use crate::error::Result;
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{FusedMatMul, LayerNorm, MatMul, Op};
use crate::ir::ops::fused_matmul::{SECOND, is_row};
use crate::ir::verify::verify;
use crate::passes::{Changes, PassReport};
use crate::plan::estimate::Costs;
use crate::plan::{Alternatives, Options};
use crate::shader::pack::codes::CodePanels;
use crate::target::{MatrixScope, TargetProfile};

/// The name in reports.
pub const STAGE: &str = "fuse-products";

/// Graphs in text form with products that it can fuse, with sizes that divide nothing.
pub const CASES: &[&str] = &[
    r#"
symbol m 1..5
%0 = input {"name":"x","dtype":"f32","shape":[1,"m",64]}
%1 = constant {"dtype":"f32","shape":[64],"random":1}
%2 = layer-norm %0 %1 {"axis":2,"epsilon":0.00001,"rms":true}
%3 = constant {"dtype":"f32","shape":[90,64],"stored":"q4_0","random":2}
%4 = constant {"dtype":"f32","shape":[90,64],"stored":"q4_0","random":3}
%5 = matmul %2 %3 {"trans_a":false,"trans_b":true}
%6 = matmul %2 %4 {"trans_a":false,"trans_b":true}
%7 = swish %6 {"alpha":1.0}
%8 = mul %7 %5
%9 = constant {"dtype":"f32","shape":[33,64],"stored":"q8_0","random":4}
%10 = matmul %2 %9 {"trans_a":false,"trans_b":true}
%11 = constant {"dtype":"f32","shape":[33],"random":5}
%12 = add %10 %11
output "y" %8
output "z" %12
"#,
    r#"
%0 = input {"name":"x","dtype":"f32","shape":[3,200]}
%1 = constant {"dtype":"f32","shape":[24,200],"stored":"u8 in groups of 200","random":2}
%2 = constant {"dtype":"f32","shape":[24,200],"stored":"u8 in groups of 200","random":3}
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
%3 = constant {"dtype":"f32","shape":[128,64],"stored":"q8_0","random":2}
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
%3 = constant {"dtype":"f32","shape":[48,64],"stored":"q4_0","random":2}
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
%7 = constant {"dtype":"f32","shape":[90,64],"stored":"q8_0","random":3}
%8 = constant {"dtype":"f32","shape":[90,64],"stored":"q8_0","random":4}
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

/// Fuses normalisations and gates into products for which there is a kernel that computes them together.
///
/// # Errors
/// When the graph is broken by it: an internal error that names this step.
pub fn run(graph: &mut Graph, costs: &mut Costs<'_>, options: &Options) -> Result<PassReport> {
    let mut changes = Changes::default();
    if options.alternatives == Alternatives::Cheaper && options.prefer_kernel.is_none() {
        for id in graph.topological() {
            if let Some(pair) = pair(graph, id) {
                let made = put_beside(graph, id, pair, STAGE)?;
                if known(graph, costs, made) {
                    graph.replace_uses(id, made);
                    changes.note(graph, made, "with the product that it is multiplied with in one dispatch");
                }
            }
        }
        graph.sweep();
        for id in graph.topological() {
            normalised(graph, id, costs, &mut changes)?;
        }
        graph.sweep();
        for id in graph.topological() {
            residual::summed(graph, id, costs, &mut changes)?;
        }
        graph.sweep();
        for id in graph.topological() {
            rotary::rotated(graph, id, costs, &mut changes)?;
        }
    }
    let swept = graph.sweep();
    verify(graph, STAGE)?;
    Ok(PassReport { pass: STAGE, changes, swept, nodes: graph.len(), time: None })
}

/// Whether some kernel computes a node.
fn known(graph: &Graph, costs: &mut Costs<'_>, id: NodeId) -> bool {
    costs.sum(graph, &[id]).best_known().is_finite()
}

/// A product of rows with a constant, and its operands.
fn product(graph: &Graph, id: NodeId) -> Option<(&MatMul, [NodeId; 2])> {
    let Op::MatMul(op) = graph.op(id) else { return None };
    let [x, matrix] = *graph.operands(id).get(..2)? else { return None };
    let fits = !op.trans_a && graph.tensor(x).dtype.is_float() && graph.constant(matrix).is_some();
    fits.then_some((op, [x, matrix]))
}

/// A product with what is already fused to it.
fn fused(op: &Op) -> Option<FusedMatMul> {
    match op {
        Op::MatMul(product) => Some(product.clone().into()),
        Op::FusedMatMul(fused) => Some(fused.clone()),
        _ => None,
    }
}

/// The product and another one of the same rows that only its epilogue reads, as one operator.
fn pair(graph: &Graph, id: NodeId) -> Option<Replacement> {
    let (op, [x, matrix]) = product(graph, id)?;
    let node = graph.node(id);
    let operands = graph.operands(id);
    let &[other] = operands.get(node.arity..)? else { return None };
    let (second_op, [second_x, second]) = product(graph, other)?;
    let beside = graph.node(other);
    let alone = graph.use_count(other) == 1 && graph.operands(other).len() == beside.arity;
    if !alone || second_op != op || second_x != x || beside.tensor.shape != node.tensor.shape {
        return None;
    }
    // The epilogue of the second product comes first, with that product in place of its start.
    let before = u32::try_from(beside.epilogue.len()).ok()?;
    let start = if before == 0 { Arg::Input(SECOND) } else { Arg::Step(before) };
    let own = beside.epilogue.iter().map(|step| {
        let args = step.args.iter().map(|arg| match *arg {
            Arg::Step(0) => Arg::Input(SECOND),
            other => other,
        });
        EpilogueStep { element: step.element, args: args.collect() }
    });
    let rest = node.epilogue.iter().map(|step| {
        let args = step.args.iter().map(|arg| match *arg {
            Arg::Step(0) => Arg::Step(0),
            Arg::Step(s) => Arg::Step(s + before),
            Arg::Input(_) => start,
        });
        EpilogueStep { element: step.element, args: args.collect() }
    });
    let join: Vec<EpilogueStep> = own.chain(rest).collect();
    let op = FusedMatMul { join, ..op.clone().into() };
    Some(Replacement { op: op.into(), operands: vec![x, matrix, second], arity: 3, epilogue: Vec::new() })
}

/// A normalisation of rows along the last axis by their root mean square, with a constant scale `[K]`.
struct Norm {
    x: NodeId,
    scale: NodeId,
    epsilon: f32,
}

/// The normalisation that a node is, before its epilogue.
fn norm(graph: &Graph, id: NodeId) -> Option<Norm> {
    let node = graph.node(id);
    let Op::LayerNorm(LayerNorm { axis, epsilon, rms: true }) = node.op else { return None };
    let [x, scale] = *graph.operands(id).get(..node.arity)? else { return None };
    let last = axis + 1 == node.tensor.rank() && graph.constant(scale).is_some();
    (last && is_row(graph.tensor(scale), &node.tensor)).then_some(Norm { x, scale, epsilon })
}

/// Lets every user of a normalisation normalise for itself, if all of them can.
fn normalised(graph: &mut Graph, id: NodeId, costs: &mut Costs<'_>, changes: &mut Changes) -> Result<()> {
    let Some(norm) = norm(graph, id).filter(|_| graph.node(id).epilogue.is_empty()) else { return Ok(()) };
    let users = graph.users(id);
    if users.is_empty() || graph.is_output(id) {
        return Ok(());
    }
    if multiplies_rows_as_they_lie(costs.target) && users.iter().any(|user| multiplies_codes(graph, *user)) {
        return Ok(());
    }
    let with = users.iter().map(|user| with_norm(graph, *user, id, &norm)).collect();
    replace_all(graph, &users, with, costs, changes, "normalises its rows by itself")
}

/// Replaces nodes by what computes the same, if all of them can be, by operators for which there are kernels.
fn replace_all(
    graph: &mut Graph,
    nodes: &[NodeId],
    with: Option<Vec<Replacement>>,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
    note: &str,
) -> Result<()> {
    let Some(with) = with else { return Ok(()) };
    let mut made = Vec::with_capacity(nodes.len());
    for (node, what) in nodes.iter().zip(with) {
        let beside = put_beside(graph, *node, what, STAGE)?;
        if !known(graph, costs, beside) {
            return Ok(());
        }
        made.push(beside);
    }
    for (node, beside) in nodes.iter().zip(made) {
        graph.replace_uses(*node, beside);
        changes.note(graph, beside, note);
    }
    Ok(())
}

/// Whether matrix units take several rows as they lie in memory. Normalising them in every workgroup takes longer than a dispatch
/// of its own then; where fragments are known, rows pass through registers anyway.
fn multiplies_rows_as_they_lie(target: &TargetProfile) -> bool {
    target.has_matrices(MatrixScope::Subgroup) && target.known_fragments().is_none()
}

/// Whether a node is a product of several rows with a constant of codes.
fn multiplies_codes(graph: &Graph, id: NodeId) -> bool {
    let rows = graph.tensor(id).shape.iter().rev().nth(1).map_or(1, |rows| rows.range(&graph.bounds).1);
    let codes = |operand: &NodeId| graph.constant(*operand).and_then(CodePanels::of).is_some();
    rows > 1 && graph.operands(id).get(1).is_some_and(codes)
}

/// A product of normalised rows that normalises them.
fn with_norm(
    graph: &Graph,
    user: NodeId,
    normal: NodeId,
    Norm { x, scale, epsilon }: &Norm,
) -> Option<Replacement> {
    let node = graph.node(user);
    let operands = graph.operands(user);
    let fused = fused(&node.op).filter(|fused| fused.epsilon.is_none())?;
    let [first, rest @ ..] = operands.as_slice() else { return None };
    if *first != normal || rest.contains(&normal) || fused.product.trans_a {
        return None;
    }
    let (own, chained) = rest.split_at_checked(fused.matrices())?;
    if !own.iter().all(|matrix| graph.constant(*matrix).is_some()) {
        return None;
    }
    let epilogue = moved(&node.epilogue, 1);
    let operands = [&[*x], own, &[*scale], chained].concat();
    let arity = own.len() + 2;
    let op = FusedMatMul { epsilon: Some(*epsilon), ..fused };
    Some(Replacement { op: op.into(), operands, arity, epilogue })
}

/// An epilogue whose operands stand so many places later.
fn moved(epilogue: &[EpilogueStep], by: u32) -> Vec<EpilogueStep> {
    let mut epilogue = epilogue.to_vec();
    for arg in epilogue.iter_mut().flat_map(|step| &mut step.args) {
        match arg {
            Arg::Input(k) => *k += by,
            Arg::Step(_) => {}
        }
    }
    epilogue
}
