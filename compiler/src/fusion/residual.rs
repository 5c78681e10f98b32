//! Residual sums that their users compute for themselves.
//!
//! ```text
//! %3 = layer-norm %1 %2 then (add #0 %0)             %6 = fused-matmul %1 %4 %5 %0 %2 {epsilon, residual}
//! %6 = fused-matmul %3 %4 %5 {epsilon}         ->    %9 = add-norms %7 %8 %1 %2 then (add #0 %0)
//! %9 = layer-norm %7 %8 then (add #0 %3)
//! ```
//!
//! What a product of normalised rows reads is summed up in it; what a later sum adds to is summed up with that.

use super::{Norm, moved, multiplies_codes, norm, replace_all};
use crate::error::Result;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{AddNorms, FusedMatMul, Op};
use crate::passes::Changes;
use crate::plan::estimate::Costs;
use crate::target::MatrixScope;

/// A normalisation whose result is added to a residual.
struct Sum {
    norm: Norm,
    residual: NodeId,
}

/// Lets every user of a residual sum compute it, if all of them can and one is a product.
pub(super) fn summed(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
) -> Result<()> {
    let Some(sum) = sum(graph, id).filter(|_| !graph.is_output(id)) else { return Ok(()) };
    let users = graph.users(id);
    if !users.iter().any(|user| matches!(graph.op(*user), Op::FusedMatMul(_))) {
        return Ok(());
    }
    // Where matrix units multiply several rows, a step before each product takes longer than a dispatch of its own.
    let matrices = costs.target.has_matrices(MatrixScope::Subgroup);
    if matrices && users.iter().any(|user| multiplies_codes(graph, *user)) {
        return Ok(());
    }
    let with = users.iter().map(|user| with_sum(graph, *user, id, &sum)).collect();
    replace_all(graph, &users, with, costs, changes, "computes the residual sum by itself")
}

/// The normalised rows that a node adds to a residual of their shape, where it does nothing else.
fn sum(graph: &Graph, id: NodeId) -> Option<Sum> {
    let node = graph.node(id);
    let norm = norm(graph, id)?;
    let [EpilogueStep { element: Element::Binary(BinaryFn::Add), args }] = node.epilogue.as_slice() else {
        return None;
    };
    let own = u32::try_from(node.arity).ok()?;
    let added = *args == [Arg::Step(0), Arg::Input(own)] || *args == [Arg::Input(own), Arg::Step(0)];
    let &[residual] = graph.operands(id).get(node.arity..)? else { return None };
    let alike = graph.tensor(residual).shape == node.tensor.shape && graph.tensor(residual).dtype.is_float();
    (added && alike).then_some(Sum { norm, residual })
}

/// A user of a residual sum that computes it.
fn with_sum(graph: &Graph, user: NodeId, of: NodeId, sum: &Sum) -> Option<Replacement> {
    match graph.op(user) {
        Op::FusedMatMul(fused) => product(graph, user, fused, of, sum),
        _ => later_sum(graph, user, of, sum),
    }
}

/// A product of normalised sums.
fn product(graph: &Graph, user: NodeId, fused: &FusedMatMul, of: NodeId, sum: &Sum) -> Option<Replacement> {
    let node = graph.node(user);
    let operands = graph.operands(user);
    let [first, rest @ ..] = operands.as_slice() else { return None };
    let able = fused.epsilon.is_some() && fused.residual.is_none();
    if !able || *first != of || rest.contains(&of) {
        return None;
    }
    let Sum { norm: Norm { x, scale, epsilon }, residual } = *sum;
    let (before, behind) = rest.split_at_checked(fused.before_residual() - 1)?;
    Some(Replacement {
        op: FusedMatMul { residual: Some(epsilon), ..fused.clone() }.into(),
        operands: [&[x], before, &[residual, scale], behind].concat(),
        arity: node.arity + 2,
        epilogue: moved(&node.epilogue, 2),
    })
}

/// A sum that has this one as its residual.
fn later_sum(graph: &Graph, user: NodeId, of: NodeId, own: &Sum) -> Option<Replacement> {
    let Sum { norm: Norm { x, scale, epsilon }, residual } = sum(graph, user)?;
    if residual != of || x == of {
        return None;
    }
    let op = AddNorms { epsilons: [epsilon, own.norm.epsilon] };
    Some(Replacement {
        op: op.into(),
        operands: vec![x, scale, own.norm.x, own.norm.scale, own.residual],
        arity: 4,
        epilogue: moved(&graph.node(user).epilogue, 2),
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, lower};
    use crate::ir::text::parse;
    use crate::target::TargetProfile;

    /// A sum of so many rows with a residual, whose rows a product of codes and a later sum take; then more lines.
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
%6 = constant {{"dtype":"f32","shape":[96,64],"stored":"q8_0","random":2}}
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

    const PRODUCT: &str = "%10 = matmul %5 %6 {\"trans_a\":false,\"trans_b\":true}\noutput \"y\" %10\n";

    #[test]
    fn users_compute_a_sum_for_themselves() {
        let mut found = lowered("lavapipe", "4", PRODUCT);
        found.sort_unstable();
        assert_eq!(found, ["add-norms", "fused-matmul"]);
    }

    #[test]
    fn a_sum_stays_that_something_else_needs() {
        let sums = |target, rows, more: &str| {
            let found = lowered(target, rows, more);
            assert!(!found.contains(&"add-norms"), "{found:?}");
            found.iter().filter(|name| **name == "layer-norm").count()
        };
        // It is returned, or squared.
        assert_eq!(sums("lavapipe", "4", &format!("{PRODUCT}output \"h\" %4\n")), 2);
        assert_eq!(sums("lavapipe", "4", &format!("{PRODUCT}%11 = mul %4 %4\noutput \"h\" %11\n")), 2);
        // No product needs it, or one of many rows, or one of several rows that matrix units take.
        assert_eq!(sums("lavapipe", "4", "output \"y\" %5\n"), 3);
        assert_eq!(sums("lavapipe", "64", PRODUCT), 3);
        assert_eq!(sums("nvidia-ada", "4", PRODUCT), 3);
        assert_eq!(sums("nvidia-hopper", "4", PRODUCT), 2);
    }
}
