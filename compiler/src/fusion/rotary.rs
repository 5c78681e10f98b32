//! Fuses rotary position embeddings (RoPE) into the matmuls before them.
//!
//! ```text
//! %4 = matmul %2 %3                                   %4 = fused-matmul %2 %3 %cos %sin {rotary}
//! %5 = reshape %4 [1, m, heads, 2, half]       ->     %9 = reshape %4
//! %6 = slice %5, reversed along the pairs
//! %9 = %5 * %cos + %6 * %sin * (-1, 1)
//! ```

use super::{STAGE, as_fused, has_kernel};
use crate::decompose::add_equivalent;
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Elementwise, FusedMatMul, Op, Reshape, Slice};
use crate::ir::ops::fused_matmul::Rotary;
use crate::ir::tensor::Layout;
use crate::pass::Changes;
use crate::plan::estimate::Costs;

/// A rotary embedding of a matmul's result.
struct Rotation {
    /// The matmul.
    matmul: NodeId,
    rotary: Rotary,
    /// Cosines and sines.
    angles: [NodeId; 2],
}

/// Fuses a rotary embedding (RoPE) into the matmul whose result it rotates, if `id` is the last node of the embedding
/// and one kernel can compute the matmul and the embedding.
pub(super) fn fuse_rotary(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
) -> Result<()> {
    let Some(Rotation { matmul, rotary, angles }) = rotation(graph, id) else { return Ok(()) };
    let Some(what) = with_rotary(graph, matmul, rotary, angles) else { return Ok(()) };
    let fused = add_equivalent(graph, matmul, what, STAGE)?;
    if !has_kernel(graph, costs, fused) {
        return Ok(());
    }
    let (shape, name) = (graph.tensor(id).shape.clone(), graph.node(id).name.clone());
    let view = graph.add(Reshape { shape }, &[fused], &name)?;
    graph.replace_uses(id, view);
    changes.note(graph, fused, "matmul fused with the rotary embedding (RoPE) of its result");
    Ok(())
}

/// Returns a matmul with a rotary embedding fused into it. Returns `None` if the embedding cannot be fused.
fn with_rotary(graph: &Graph, matmul: NodeId, rotary: Rotary, angles: [NodeId; 2]) -> Option<Replacement> {
    let node = graph.node(matmul);
    let operands = graph.operands(matmul);
    let fused = as_fused(&node.op).filter(|fused| fused.rotary.is_none())?;
    let matrices = operands.get(1..=fused.matrices())?;
    let constants = matrices.iter().all(|matrix| graph.constant(*matrix).is_some());
    if !constants || fused.matmul.trans_a || !node.epilogue.is_empty() || operands.len() != node.arity {
        return None;
    }
    let operands = [operands.as_slice(), &angles].concat();
    let arity = operands.len();
    let op = FusedMatMul { rotary: Some(rotary), ..fused };
    Some(Replacement { op: op.into(), operands, arity, epilogue: Vec::new() })
}

/// Returns the rotary embedding whose last node is `id`: `pairs * cos + reversed pairs * sin * (-1, 1)`. Returns `None`
/// for other nodes.
fn rotation(graph: &Graph, id: NodeId) -> Option<Rotation> {
    let node = graph.node(id);
    let binary = |element: &Element, f: BinaryFn| *element == Element::Binary(f);
    let Op::Elementwise(Elementwise { element }) = &node.op else { return None };
    let [sine, signed, sum] = node.epilogue.as_slice() else { return None };
    let is = |step: &EpilogueStep, f, args: [Arg; 2]| binary(&step.element, f) && step.args == args;
    let rotates = binary(element, BinaryFn::Mul)
        && is(sine, BinaryFn::Mul, [Arg::Input(2), Arg::Input(3)])
        && is(signed, BinaryFn::Mul, [Arg::Step(1), Arg::Input(4)])
        && is(sum, BinaryFn::Add, [Arg::Step(0), Arg::Step(2)]);
    let [pairs, cos, reversed, sin, signs] = *graph.operands(id).as_slice() else { return None };
    let Op::Slice(slice) = graph.op(reversed) else { return None };
    let (seen, viewed) = (graph.operands(pairs), graph.operands(reversed));
    let (&[matmul], &[from]) = (seen.as_slice(), viewed.as_slice()) else { return None };
    let whole = &graph.tensor(pairs).shape;
    let axis = reversed_axis(slice, whole)?;
    let alone = graph.use_count(pairs) == 2 && graph.use_count(reversed) == 1 && graph.use_count(matmul) == 1;
    let plain = [id, matmul].iter().all(|id| graph.tensor(*id).layout == Layout::RowMajor)
        && graph.tensor(id).dtype == graph.tensor(matmul).dtype
        && [pairs, reversed].iter().all(|view| graph.node(*view).epilogue.is_empty());
    if !rotates
        || from != pairs
        || !matches!(graph.op(pairs), Op::Reshape(_))
        || !alone
        || !plain
        || !is_negated_first(graph.constant(signs)?, whole.len() - axis)?
    {
        return None;
    }
    // [.., rows, heads, 2, half] or [.., rows, heads, half, 2], a view of the matmul's [.., rows, heads * 2 * half].
    let columns = graph.tensor(matmul).shape.last()?;
    let [.., rows, heads, third, fourth] = whole.as_slice() else { return None };
    let interleaved = axis + 1 == whole.len();
    let half = usize::try_from((if interleaved { third } else { fourth }).as_known()?).ok()?;
    let heads_match = axis + 2 >= whole.len() && heads.scale(2).mul(&Dim::from(half)) == *columns;
    let rows_match = graph.tensor(matmul).shape.iter().rev().nth(1) == Some(rows);
    (heads_match && rows_match).then_some(Rotation {
        matmul,
        rotary: Rotary { half, interleaved },
        angles: [cos, sin],
    })
}

/// Returns the axis of size 2 that a slice reverses. Returns `None` if the slice does anything else.
fn reversed_axis(slice: &Slice, whole: &[Dim]) -> Option<usize> {
    let axis = slice.steps.iter().position(|step| *step == -1)?;
    let same =
        |i: usize| slice.steps.get(i) == Some(&1) && slice.starts.get(i).is_some_and(|start| start.is(0));
    let others = (0..whole.len()).filter(|i| *i != axis).all(same);
    let two = whole.get(axis).is_some_and(|size| size.is(2)) && slice.starts.get(axis)?.is(1);
    (others && two && slice.sizes == whole).then_some(axis)
}

/// True if a constant has the elements `[-1, 1]` along one axis and size 1 along all other axes. `from_end` is the
/// number of axes from that axis to the last one, both included. Returns `None` if the constant has too few axes.
fn is_negated_first(signs: &Constant, from_end: usize) -> Option<bool> {
    let signs = signs.to_array().ok()?;
    let place = signs.shape.len().checked_sub(from_end)?;
    Some(signs.shape.get(place) == Some(&2) && signs.to_floats() == [-1.0, 1.0])
}
