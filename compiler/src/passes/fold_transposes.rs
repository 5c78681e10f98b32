//! Moves transposes down the graph until they cancel or disappear into a matrix product.
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
//! A transpose passes an elementwise node, concatenation, padding, slice, reduction or softmax when all operands
//! that are no constants come through the same permutation. Constants are permuted the other way.
//! It passes only when it has no other user, or when it is sure to cancel behind the node, so the number of
//! transposes never grows. A transposed constant is folded by `fold-constants`.

use super::matching::{name, plain, rewrite, single_use};
use super::simplify::views;
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Concat, Constant, Op, Operation, Pad, Reduce, Slice, Softmax, Transpose};

/// A constant up to this many bytes is permuted even when another node keeps using the original.
const SMALL: usize = 1 << 16;

/// Folds transposes.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(
        graph,
        &[
            ("does nothing", views::identity),
            ("two transposes are one", views::transpose_of_transpose),
            ("the product reads its operand transposed", into_product),
            ("the transpose before it moves behind it", sink),
        ],
    )
}

/// A product that reads an operand whose last two axes were swapped before.
fn into_product(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::MatMul(product), mut operands)) = plain(graph, id) else { return Ok(None) };
    let mut product = product.clone();
    let mut found = false;
    for (i, operand) in operands.iter_mut().enumerate() {
        let Some((Op::Transpose(transpose), inner)) = plain(graph, *operand) else { continue };
        let Some(x) = inner.first().copied().filter(|_| swaps_last_two(&transpose.perm)) else { continue };
        let flag = if i == 0 { &mut product.trans_a } else { &mut product.trans_b };
        *flag = !*flag;
        *operand = x;
        found = true;
    }
    if !found {
        return Ok(None);
    }
    graph.add(product, &operands, &name(graph, id)).map(Some)
}

fn swaps_last_two(perm: &[usize]) -> bool {
    let Some(m) = perm.len().checked_sub(2) else { return false };
    perm.iter().take(m).enumerate().all(|(i, p)| i == *p) && perm[m..] == [m + 1, m]
}

/// The same node on what its operands were before a common transpose, transposed afterwards.
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

/// The permutation through which all operands that are no constants come, when moving it pays.
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

/// The operator on axes before the permutation, when it has one.
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

/// Per-axis values of the result as those of the operand.
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

/// A constant with its axes permuted, leading ones added first; `None` when it is large and used elsewhere.
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
