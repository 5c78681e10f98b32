//! Moves norms and elementwise nodes past reshapes, so that they read a transposed tensor in place of its copy.
//!
//! ```text
//! %1 = layer-norm %0                                 %1 = reshape %0 {"shape": [1, 8, 7, 8, 7, 96]}
//! %2 = reshape %1 {"shape": [1, 8, 7, 8, 7, 96]}     %2 = transpose %1 {"perm": [0, 1, 3, 2, 4, 5]}
//! %3 = transpose %2 {"perm": [0, 1, 3, 2, 4, 5]} ->  %3 = layer-norm %2
//! %4 = reshape %3 {"shape": [64, 49, 96]}            %4 = reshape %3 {"shape": [64, 49, 96]}
//! ```
//!
//! A reshape that splits axes, a transpose and a reshape that joins axes copy their operand: no strides describe the
//! result. Vision transformers with windows cut images into windows and join windows that way, or join neighboring
//! patches. The first reshape and the transpose alone are a view. A node that computes all elements anyway can read this
//! view, and the last reshape of its dense result is a view again.
//!
//! The pass runs after `link-elementwise`, because a producer absorbs no elementwise node of another shape.

use super::fold_constants::folded;
use super::matching::{name, plain, rewrite, single_use};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::dim::{Dim, product};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{LayerNorm, Op, Reshape};
use crate::ir::ops::pad::PadMode;

/// Moves nodes so that fewer tensors are copied.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(
        graph,
        &[
            ("norm computed after the transpose of its result", norm_before_transpose),
            ("reads its operand before the reshape that joins the normalized axes", norm_of_joined_axes),
            ("computed before the reshape of its operand", elementwise_of_reshape),
        ],
    )
}

/// Computes a norm after the reshapes, rolls and the transpose of its result, if these keep the normalized axes.
fn norm_before_transpose(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::Transpose(transpose), operands)) = plain(graph, id) else { return Ok(None) };
    let mut moved: Vec<Op> = vec![transpose.clone().into()];
    let [mut x] = operands[..] else { return Ok(None) };
    while let Some((op @ (Op::Reshape(_) | Op::Pad(_)), inner)) = plain(graph, x)
        && let [source] = inner[..]
        && single_use(graph, x)
    {
        moved.push(op.clone());
        x = source;
    }
    let Some((Op::LayerNorm(norm), operands)) = plain(graph, x).filter(|_| single_use(graph, x)) else {
        return Ok(None);
    };
    let (norm, shape) = (norm.clone(), graph.tensor(x).shape.clone());
    let normalized = shape.get(norm.axis..).unwrap_or_default();
    let splits = moved.iter().any(|op| matches!(op, Op::Reshape(_)));
    let [source, factors @ ..] = operands.as_slice() else { return Ok(None) };
    let same_factors = factors.iter().all(|f| graph.tensor(*f).rank() <= normalized.len());
    if !splits || !same_factors || !moved.iter().all(|op| keeps_last_axes(op, normalized)) {
        return Ok(None);
    }
    let (mut result, norm_name) = (*source, name(graph, x));
    for op in moved.into_iter().rev() {
        result = graph.add(op, &[result], &name(graph, id))?;
    }
    let Some(axis) = graph.tensor(result).rank().checked_sub(normalized.len()) else { return Ok(None) };
    graph.add(LayerNorm { axis, ..norm }, &[&[result], factors].concat(), &norm_name).map(Some)
}

/// Returns true if a reshape, roll or transpose moves no element along the last axes, which have the given sizes.
fn keeps_last_axes(op: &Op, sizes: &[Dim]) -> bool {
    match op {
        Op::Reshape(reshape) => reshape.shape.ends_with(sizes),
        Op::Transpose(transpose) => {
            let fixed = transpose.perm.iter().enumerate().rev().take_while(|(i, p)| i == *p).count();
            fixed >= sizes.len()
        }
        Op::Pad(pad) => {
            let roll = pad.before.iter().zip(&pad.after).all(|(before, after)| before.add(after).is(0));
            let still = pad.before.iter().rev().take(sizes.len()).all(|size| size.is(0));
            pad.mode == PadMode::Wrap && roll && still
        }
        _ => false,
    }
}

/// Normalizes several axes of a transpose in place of the axis into which a reshape joins them.
fn norm_of_joined_axes(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::LayerNorm(norm), operands)) = plain(graph, id) else { return Ok(None) };
    let norm = norm.clone();
    let [x, factors @ ..] = operands.as_slice() else { return Ok(None) };
    let Some(transposed) = transposed(graph, *x) else { return Ok(None) };
    let shape = graph.tensor(id).shape.clone();
    let (Some((size, leading)), from) = (shape.split_last(), graph.tensor(transposed).shape.clone()) else {
        return Ok(None);
    };
    let Some(joined) = from.strip_prefix(leading).filter(|joined| product(*joined) == *size) else {
        return Ok(None);
    };
    let whole = |f: &NodeId| graph.tensor(*f).shape == [size.clone()];
    if norm.axis != leading.len() || joined.len() < 2 || !factors.iter().all(whole) {
        return Ok(None);
    }
    let name = name(graph, id);
    let mut operands = vec![transposed];
    for factor in factors {
        let factor = graph.add(Reshape { shape: joined.to_vec() }, &[*factor], &name)?;
        operands.push(folded(graph, factor, &name)?);
    }
    let result = graph.add(norm, &operands, &name)?;
    graph.add(Reshape { shape }, &[result], &name).map(Some)
}

/// Computes an elementwise node, with its epilogue, on a transpose in place of a reshape of the transpose, and reshapes the result.
fn elementwise_of_reshape(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    if !matches!(graph.op(id), Op::Elementwise(_)) {
        return Ok(None);
    }
    let (node, operands) = (graph.node(id).clone(), graph.operands(id));
    let shape = graph.tensor(id).shape.clone();
    let copied =
        operands.iter().find_map(|x| transposed(graph, *x).filter(|_| graph.tensor(*x).shape == shape));
    let Some(to) = copied.map(|x| graph.tensor(x).shape.clone()) else { return Ok(None) };
    // Operands that broadcast along all other axes need no reshape.
    let equal = shape.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    let name = node.name;
    let mut reshaped = Vec::with_capacity(operands.len());
    for operand in operands {
        let from = &graph.tensor(operand).shape;
        let source = match plain(graph, operand) {
            Some((Op::Reshape(_), inner)) => inner.first().copied(),
            _ => None,
        };
        reshaped.push(match source.filter(|x| graph.tensor(*x).shape == to) {
            Some(source) if *from == shape => source,
            _ if *from == shape => graph.add(Reshape { shape: to.clone() }, &[operand], &name)?,
            _ if from.len() <= equal => operand,
            _ => return Ok(None),
        });
    }
    let replacement =
        Replacement { op: node.op, arity: node.arity, operands: reshaped, epilogue: node.epilogue };
    let result = graph.add_fused(replacement, &name)?;
    graph.add(Reshape { shape }, &[result], &name).map(Some)
}

/// Returns the transpose whose reshape is the given value, if the transpose follows a reshape and keeps the last axis. None
/// of these nodes has other users.
fn transposed(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let (Op::Reshape(_), outer) = plain(graph, id)? else { return None };
    let [transposed] = outer[..] else { return None };
    let (Op::Transpose(transpose), inner) = plain(graph, transposed)? else { return None };
    let [split] = inner[..] else { return None };
    let keeps_last = transpose.perm.last().is_some_and(|axis| axis + 1 == transpose.perm.len());
    let splits = matches!(plain(graph, split), Some((Op::Reshape(_), _)));
    let unused = [id, transposed, split].iter().all(|x| single_use(graph, *x));
    (keeps_last && splits && unused).then_some(transposed)
}
