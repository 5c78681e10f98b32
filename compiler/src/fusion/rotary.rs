//! Products that rotate the pairs of their columns.
//!
//! ```text
//! %4 = matmul %2 %3                                   %4 = fused-matmul %2 %3 %cos %sin {rotary}
//! %5 = reshape %4 [1, m, heads, 2, half]       ->     %9 = reshape %4
//! %6 = slice %5, reversed along the pairs
//! %9 = %5 * %cos + %6 * %sin * (-1, 1)
//! ```

use super::{STAGE, fused, known};
use crate::decompose::put_beside;
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Constant, Elementwise, FusedMatMul, Op, Reshape, Slice};
use crate::ir::ops::fused_matmul::Rotary;
use crate::ir::tensor::Layout;
use crate::passes::Changes;
use crate::plan::estimate::Costs;

/// What an elementwise node rotates.
struct Rotation {
    /// The product.
    product: NodeId,
    rotary: Rotary,
    /// Cosines and sines.
    angles: [NodeId; 2],
}

/// Lets a product rotate its columns, if an elementwise node does that and there is a kernel for it.
pub(super) fn rotated(
    graph: &mut Graph,
    id: NodeId,
    costs: &mut Costs<'_>,
    changes: &mut Changes,
) -> Result<()> {
    let Some(Rotation { product, rotary, angles }) = rotation(graph, id) else { return Ok(()) };
    let Some(what) = with_rotary(graph, product, rotary, angles) else { return Ok(()) };
    let beside = put_beside(graph, product, what, STAGE)?;
    if !known(graph, costs, beside) {
        return Ok(());
    }
    let (shape, name) = (graph.tensor(id).shape.clone(), graph.node(id).name.clone());
    let seen = graph.add(Reshape { shape }, &[beside], &name)?;
    graph.replace_uses(id, seen);
    changes.note(graph, beside, "rotates its columns by itself");
    Ok(())
}

/// The product with its columns rotated.
fn with_rotary(graph: &Graph, product: NodeId, rotary: Rotary, angles: [NodeId; 2]) -> Option<Replacement> {
    let node = graph.node(product);
    let operands = graph.operands(product);
    let fused = fused(&node.op).filter(|fused| fused.rotary.is_none())?;
    let matrices = operands.get(1..=fused.matrices())?;
    let constants = matrices.iter().all(|matrix| graph.constant(*matrix).is_some());
    if !constants || fused.product.trans_a || !node.epilogue.is_empty() || operands.len() != node.arity {
        return None;
    }
    let operands = [operands.as_slice(), &angles].concat();
    let arity = operands.len();
    let op = FusedMatMul { rotary: Some(rotary), ..fused };
    Some(Replacement { op: op.into(), operands, arity, epilogue: Vec::new() })
}

/// What a node rotates, where it is `pairs * cos + reversed pairs * sin * (-1, 1)`.
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
    let (&[product], &[from]) = (seen.as_slice(), viewed.as_slice()) else { return None };
    let whole = &graph.tensor(pairs).shape;
    let axis = reversed_axis(slice, whole)?;
    let alone =
        graph.use_count(pairs) == 2 && graph.use_count(reversed) == 1 && graph.use_count(product) == 1;
    let plain = [id, product].iter().all(|id| graph.tensor(*id).layout == Layout::RowMajor)
        && graph.tensor(id).dtype == graph.tensor(product).dtype
        && [pairs, reversed].iter().all(|view| graph.node(*view).epilogue.is_empty());
    if !rotates
        || from != pairs
        || !matches!(graph.op(pairs), Op::Reshape(_))
        || !alone
        || !plain
        || !turns(graph.constant(signs)?, whole.len() - axis)?
    {
        return None;
    }
    // [.., rows, heads, 2, half] or [.., rows, heads, half, 2], of a product [.., rows, heads * 2 * half].
    let columns = graph.tensor(product).shape.last()?;
    let [.., rows, heads, third, fourth] = whole.as_slice() else { return None };
    let interleaved = axis + 1 == whole.len();
    let half = usize::try_from((if interleaved { third } else { fourth }).as_known()?).ok()?;
    let of_heads = axis + 2 >= whole.len() && heads.scale(2).mul(&Dim::from(half)) == *columns;
    let of_rows = graph.tensor(product).shape.iter().rev().nth(1) == Some(rows);
    (of_heads && of_rows).then_some(Rotation {
        product,
        rotary: Rotary { half, interleaved },
        angles: [cos, sin],
    })
}

/// The axis of two elements along which a slice is its operand in reverse.
fn reversed_axis(slice: &Slice, whole: &[Dim]) -> Option<usize> {
    let axis = slice.steps.iter().position(|step| *step == -1)?;
    let same =
        |i: usize| slice.steps.get(i) == Some(&1) && slice.starts.get(i).is_some_and(|start| start.is(0));
    let others = (0..whole.len()).filter(|i| *i != axis).all(same);
    let two = whole.get(axis).is_some_and(|size| size.is(2)) && slice.starts.get(axis)?.is(1);
    (others && two && slice.sizes == whole).then_some(axis)
}

/// Whether a constant is -1 and 1 along the axis that is so many from the end.
fn turns(signs: &Constant, from_end: usize) -> Option<bool> {
    let signs = signs.to_array().ok()?;
    let place = signs.shape.len().checked_sub(from_end)?;
    Some(signs.shape.get(place) == Some(&2) && signs.to_floats() == [-1.0, 1.0])
}
