//! Fuses residual adds into the nodes that read them.
//!
//! ```text
//! %3 = layer-norm %1 %2 then (add #0 %0)             %6 = fused-matmul %1 %4 %5 %0 %2 {epsilon, residual}
//! %6 = fused-matmul %3 %4 %5 {epsilon}         ->    %9 = add-norms %7 %8 %1 %2 then (add #0 %0)
//! %9 = layer-norm %7 %8 then (add #0 %3)
//! ```
//!
//! The residual sum `%3` is no longer stored: the matmul `%6` and the later residual add `%9` both compute it from the
//! operands of `%3`.

use super::{Norm, is_quantized_matmul, norm, replace_all, shifted_operands};
use crate::error::Result;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{AddNorms, FusedMatMul, Op};
use crate::pass::Changes;
use crate::plan::estimate::Costs;
use crate::target::MatrixScope;

/// An RMSNorm whose result is added to a residual.
struct ResidualSum {
    norm: Norm,
    residual: NodeId,
}

/// Fuses a residual sum into all nodes that read it, if each of them can compute the sum and one of them is a matmul.
pub(super) fn fuse_residual(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
) -> Result<()> {
    let Some(sum) = residual_sum(graph, id).filter(|_| !graph.is_output(id)) else { return Ok(()) };
    let users = graph.users(id);
    if !users.iter().any(|user| matches!(graph.op(*user), Op::FusedMatMul(_))) {
        return Ok(());
    }
    // Where matrix units multiply several rows, computing the sum in each matmul takes longer than a separate dispatch.
    let matrices = costs.target.has_matrices(MatrixScope::Subgroup);
    if matrices && users.iter().any(|user| is_quantized_matmul(graph, *user)) {
        return Ok(());
    }
    let with = users.iter().map(|user| with_sum(graph, *user, id, &sum)).collect();
    replace_all(graph, &users, with, costs, changes, "fused with the residual add that computes an operand")
}

/// Returns the residual sum that a node computes: an RMSNorm whose epilogue only adds a residual of equal shape.
/// Returns `None` for other nodes.
fn residual_sum(graph: &Graph, id: NodeId) -> Option<ResidualSum> {
    let node = graph.node(id);
    let norm = norm(graph, id)?;
    let [EpilogueStep { element: Element::Binary(BinaryFn::Add), args }] = node.epilogue.as_slice() else {
        return None;
    };
    let arity = u32::try_from(node.arity).ok()?;
    let added = *args == [Arg::Step(0), Arg::Input(arity)] || *args == [Arg::Input(arity), Arg::Step(0)];
    let &[residual] = graph.operands(id).get(node.arity..)? else { return None };
    let same_shape =
        graph.tensor(residual).shape == node.tensor.shape && graph.tensor(residual).dtype.is_float();
    (added && same_shape).then_some(ResidualSum { norm, residual })
}

/// Returns the operator that replaces `user`, a node that reads the residual sum `sum_id`, with the sum fused into it.
/// Returns `None` if the sum cannot be fused.
fn with_sum(graph: &Graph, user: NodeId, sum_id: NodeId, sum: &ResidualSum) -> Option<Replacement> {
    match graph.op(user) {
        Op::FusedMatMul(fused) => matmul_with_sum(graph, user, fused, sum_id, sum),
        _ => residual_with_sum(graph, user, sum_id, sum),
    }
}

/// Returns a matmul of normalized rows with the residual sum `sum_id` fused into it. Returns `None` if the sum cannot
/// be fused.
fn matmul_with_sum(
    graph: &Graph,
    user: NodeId,
    fused: &FusedMatMul,
    sum_id: NodeId,
    sum: &ResidualSum,
) -> Option<Replacement> {
    let node = graph.node(user);
    let operands = graph.operands(user);
    let [first, rest @ ..] = operands.as_slice() else { return None };
    let able = fused.epsilon.is_some() && fused.residual.is_none();
    if !able || *first != sum_id || rest.contains(&sum_id) {
        return None;
    }
    let ResidualSum { norm: Norm { x, scale, epsilon }, residual } = *sum;
    let (before, after) = rest.split_at_checked(fused.first_residual_operand() - 1)?;
    Some(Replacement {
        op: FusedMatMul { residual: Some(epsilon), ..fused.clone() }.into(),
        operands: [&[x], before, &[residual, scale], after].concat(),
        arity: node.arity + 2,
        epilogue: shifted_operands(&node.epilogue, 2),
    })
}

/// Returns a later residual sum, whose residual is the earlier sum `sum_id`, with the earlier sum fused into it.
/// Returns `None` if the earlier sum cannot be fused.
fn residual_with_sum(
    graph: &Graph,
    user: NodeId,
    sum_id: NodeId,
    earlier: &ResidualSum,
) -> Option<Replacement> {
    let ResidualSum { norm: Norm { x, scale, epsilon }, residual } = residual_sum(graph, user)?;
    if residual != sum_id || x == sum_id {
        return None;
    }
    let op = AddNorms { epsilons: [epsilon, earlier.norm.epsilon] };
    Some(Replacement {
        op: op.into(),
        operands: vec![x, scale, earlier.norm.x, earlier.norm.scale, earlier.residual],
        arity: 4,
        epilogue: shifted_operands(&graph.node(user).epilogue, 2),
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::graph_text::parse;
    use crate::target::TargetProfile;

    /// Compiles a test graph and returns the names of its operators. The graph has a residual sum of up to `rows` rows.
    /// A later residual sum and the nodes in `more`, text lines that are appended to the graph, read it.
    fn lowered(target: &str, rows: &str, more: &str) -> Vec<&'static str> {
        let text = format!(
            r#"
symbol m 1..{rows}
%0 = input {{"name":"x","dtype":"f32","shape":[1,"m",64]}}
%1 = input {{"name":"o","dtype":"f32","shape":[1,"m",64]}}
%2 = constant {{"dtype":"f32","shape":[64],"random":1}}
%3 = layer-norm %1 %2 {{"axis":2,"epsilon":0.00001,"rms":true}}
%4 = add %3 %0
%5 = layer-norm %4 %2 {{"axis":2,"epsilon":0.00001,"rms":true}}
%6 = constant {{"dtype":"f32","shape":[96,64],"encoding":"q8_0","random":2}}
%7 = input {{"name":"d","dtype":"f32","shape":[1,"m",64]}}
%8 = layer-norm %7 %2 {{"axis":2,"epsilon":0.00001,"rms":true}}
%9 = add %8 %4
{more}output "z" %9
"#
        );
        let target = TargetProfile::load(target).unwrap();
        let graph = lower(&parse(&text).unwrap(), &target, &Options::default()).unwrap().graph;
        let names = graph.topological().into_iter().map(|id| graph.op(id).name());
        names.filter(|name| !["input", "constant", "reshape"].contains(name)).collect()
    }

    const MATMUL: &str = "%10 = matmul %5 %6 {\"trans_a\":false,\"trans_b\":true}\noutput \"y\" %10\n";

    #[test]
    fn residual_sums_are_fused_into_users() {
        let mut found = lowered("lavapipe", "4", MATMUL);
        found.sort_unstable();
        assert_eq!(found, ["add-norms", "fused-matmul"]);
    }

    #[test]
    fn residual_sums_with_other_users_are_kept() {
        let sums = |target, rows, more: &str| {
            let found = lowered(target, rows, more);
            assert!(!found.contains(&"add-norms"), "{found:?}");
            found.iter().filter(|name| **name == "layer-norm").count()
        };
        // The sum is an output, or squared.
        assert_eq!(sums("lavapipe", "4", &format!("{MATMUL}output \"h\" %4\n")), 2);
        assert_eq!(sums("lavapipe", "4", &format!("{MATMUL}%11 = mul %4 %4\noutput \"h\" %11\n")), 2);
        // No matmul reads it; or a matmul of many rows; or a matmul of several rows on matrix units.
        assert_eq!(sums("lavapipe", "4", "output \"y\" %5\n"), 3);
        assert_eq!(sums("lavapipe", "64", MATMUL), 3);
        assert_eq!(sums("nvidia-ada", "4", MATMUL), 3);
        assert_eq!(sums("nvidia-hopper", "4", MATMUL), 2);
    }
}
