//! Moves transposes down the graph until they cancel, or a matmul reads its operand transposed.
//!
//! ```text
//! %1 = transpose {"perm": [0, 2, 3, 1]} %0
//! %2 = unary relu %1                               ->      %3 = unary relu %0
//! %3 = transpose {"perm": [0, 3, 1, 2]} %2
//!
//! %1 = transpose {"perm": [0, 2, 1]} %0            ->      %3 = matmul {"trans_b": true} %x %0
//! %3 = matmul %x %1
//! ```
//!
//! A transpose moves past an elementwise node, concatenation, padding, slice, reduction or softmax if all its
//! non-constant operands have the same permutation. Constants get the inverse permutation.
//! It moves only if it has no other user, or if it surely cancels after the node, so the number of transposes never
//! grows. `fold-constants` folds a transposed constant.

use super::matching::{name, plain, rewrite, single_use};
use super::simplify::views;
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Concat, Constant, Op, Operation, Pad, Reduce, Slice, Softmax, Transpose};

/// Maximum bytes of a constant that is permuted although another node uses the original.
const SMALL: usize = 1 << 16;

/// Folds transposes.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(
        graph,
        &[
            ("removed: has no effect", views::identity),
            ("merged with the transpose that computes its operand", views::transpose_of_transpose),
            ("matmul reads its operand transposed", into_matmul),
            ("transpose of the operands moved to the result", sink),
        ],
    )
}

/// Lets a matmul read an operand whose last two axes were swapped.
fn into_matmul(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::MatMul(matmul), mut operands)) = plain(graph, id) else { return Ok(None) };
    let mut matmul = matmul.clone();
    let mut found = false;
    for (i, operand) in operands.iter_mut().enumerate() {
        let Some((Op::Transpose(transpose), inner)) = plain(graph, *operand) else { continue };
        let Some(x) = inner.first().copied().filter(|_| swaps_last_two(&transpose.perm)) else { continue };
        let flag = if i == 0 { &mut matmul.trans_a } else { &mut matmul.trans_b };
        *flag = !*flag;
        *operand = x;
        found = true;
    }
    if !found {
        return Ok(None);
    }
    graph.add(matmul, &operands, &name(graph, id)).map(Some)
}

fn swaps_last_two(perm: &[usize]) -> bool {
    let Some(m) = perm.len().checked_sub(2) else { return false };
    perm.iter().take(m).enumerate().all(|(i, p)| i == *p) && perm[m..] == [m + 1, m]
}

/// Moves a common transpose of all operands to the result.
fn sink(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, operands)) = plain(graph, id) else { return Ok(None) };
    let op = op.clone();
    let Some(perm) = common_permutation(graph, id, &operands) else { return Ok(None) };
    let Some(moved) = permuted(&op, &perm) else { return Ok(None) };
    let inverse = invert(&perm);
    let mut before = Vec::with_capacity(operands.len());
    for operand in &operands {
        match plain(graph, *operand) {
            Some((Op::Transpose(_), inner)) => before.extend(inner.first().copied()),
            _ => match permute_constant(graph, *operand, &inverse)? {
                Some(constant) => before.push(constant),
                None => return Ok(None),
            },
        }
    }
    let name = name(graph, id);
    let result = graph.add(moved, &before, &name)?;
    graph.add(Transpose { perm }, &[result], &name).map(Some)
}

/// Returns the permutation by which all non-constant operands are transposed. Returns `None` if the permutations
/// differ, or if moving the transposes to the result would add one.
fn common_permutation(graph: &Graph, id: NodeId, operands: &[NodeId]) -> Option<Vec<usize>> {
    let mut common: Option<Vec<usize>> = None;
    let mut all_single = true;
    for operand in operands {
        if graph.constant(*operand).is_some() {
            continue;
        }
        let (Op::Transpose(transpose), _) = plain(graph, *operand)? else { return None };
        if transpose.perm.len() != graph.tensor(id).rank() {
            return None;
        }
        all_single &= single_use(graph, *operand);
        match &common {
            Some(perm) if *perm != transpose.perm => return None,
            _ => common = Some(transpose.perm.clone()),
        }
    }
    let perm = common?;
    let cancels = || {
        let inverse = invert(&perm);
        let users = graph.users(id);
        let undone =
            |u: &NodeId| matches!(plain(graph, *u), Some((Op::Transpose(t), _)) if t.perm == inverse);
        !users.is_empty() && users.iter().all(undone) && !graph.is_output(id)
    };
    (all_single || cancels()).then_some(perm)
}

/// Returns the operator with its axes renumbered for operands that are not transposed; `None` if the operator's axes
/// cannot be renumbered.
fn permuted(op: &Op, perm: &[usize]) -> Option<Op> {
    let at = |axis: usize| perm.get(axis).copied();
    let inverse = invert(perm);
    Some(match op {
        Op::Elementwise(_) => op.clone(),
        Op::Concat(o) => Concat { axis: at(o.axis)? }.into(),
        Op::Softmax(o) => Softmax { axis: at(o.axis)?, log: o.log }.into(),
        Op::Pad(o) => Pad {
            mode: o.mode,
            before: reorder(&o.before, &inverse)?,
            after: reorder(&o.after, &inverse)?,
            value: o.value,
        }
        .into(),
        Op::Slice(o) => Slice {
            starts: reorder(&o.starts, &inverse)?,
            steps: reorder(&o.steps, &inverse)?,
            sizes: reorder(&o.sizes, &inverse)?,
        }
        .into(),
        Op::Reduce(o) if o.keepdims => {
            let mut axes: Vec<usize> = o.axes.iter().map(|a| at(*a)).collect::<Option<_>>()?;
            axes.sort_unstable();
            Reduce { kind: o.kind, axes, keepdims: true }.into()
        }
        _ => return None,
    })
}

/// Returns a list with one value per axis in another order: element `i` of the result is `values[order[i]]`. Returns
/// `None` if an index is out of range.
fn reorder<T: Clone>(values: &[T], order: &[usize]) -> Option<Vec<T>> {
    order.iter().map(|i| values.get(*i).cloned()).collect()
}

fn invert(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    for (i, p) in perm.iter().enumerate() {
        if let Some(at) = inverse.get_mut(*p) {
            *at = i;
        }
    }
    inverse
}

/// Permutes the axes of a constant after adding leading axes of size 1. Returns `None` if the constant is large and has
/// other users.
fn permute_constant(graph: &mut Graph, id: NodeId, order: &[usize]) -> Result<Option<NodeId>> {
    let Some(constant) = graph.constant(id) else { return Ok(None) };
    if constant.elements() == 1 && constant.shape.len() <= order.len() {
        return Ok(Some(id));
    }
    let (Some(missing), true) = (
        order.len().checked_sub(constant.shape.len()),
        constant.bytes.len() <= SMALL || single_use(graph, id),
    ) else {
        return Ok(None);
    };
    let Ok(array) = constant.to_array() else { return Ok(None) };
    let mut shape = vec![1; missing];
    shape.extend(&array.shape);
    let out: Vec<usize> = order.iter().filter_map(|i| shape.get(*i).copied()).collect();
    let array = Array { shape, ..array };
    let Ok(permuted) = (Transpose { perm: order.to_vec() }).eval(&[&array], &out, &Bindings::new()) else {
        return Ok(None);
    };
    graph.add_constant(Constant::from_array(&permuted), &name(graph, id)).map(Some)
}
