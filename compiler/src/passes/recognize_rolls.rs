//! Recognizes rolls: rotations of a tensor along one or several axes.
//!
//! ```text
//! %1 = slice %0 {"starts": [3, 0], "sizes": [5, 8]}
//! %2 = slice %0 {"starts": [0, 0], "sizes": [3, 8]}
//! %3 = concat %1 %2 {"axis": 0}              ->    %3 = pad %0 {"mode": "wrap", "before": [5, 0], "after": [-5, 0]}
//! ```
//!
//! A pad in wrap mode is a roll if the numbers of elements that it adds before an axis and crops at its end are equal. A roll
//! of a roll is one roll by the sum of both shifts, so a roll along several axes takes one dispatch.

use super::matching::{name, plain, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Pad, Slice};
use crate::ir::ops::pad::PadMode;

/// Recognizes rolls.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(
        graph,
        &[("recognized as a roll", roll), ("merged with the roll that computes its operand", merge)],
    )
}

/// Replaces the concatenation of the end and the start of a tensor by a roll.
fn roll(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((Op::Concat(concat), operands)) = plain(graph, id) else { return Ok(None) };
    let axis = concat.axis;
    let [end, start] = operands.as_slice() else { return Ok(None) };
    let (Some((x, end)), Some((y, start))) = (part(graph, *end, axis), part(graph, *start, axis)) else {
        return Ok(None);
    };
    let shift = end.sizes[axis].clone();
    let whole = start.starts[axis].is(0)
        && start.sizes[axis] == end.starts[axis]
        && graph.tensor(x).shape[axis] == start.sizes[axis].add(&shift);
    if x != y || !whole {
        return Ok(None);
    }
    let zeros = || vec![Dim::known(0); graph.tensor(x).rank()];
    let (mut before, mut after) = (zeros(), zeros());
    after[axis] = shift.scale(-1);
    before[axis] = shift;
    let pad = Pad { mode: PadMode::Wrap, before, after, value: 0.0 };
    graph.add(pad, &[x], &name(graph, id)).map(Some)
}

/// Returns a slice and its operand if the slice takes adjacent elements of `axis` and all elements of the other axes.
fn part(graph: &Graph, id: NodeId, axis: usize) -> Option<(NodeId, &Slice)> {
    let (Op::Slice(slice), operands) = plain(graph, id)? else { return None };
    let x = *operands.first()?;
    let shape = &graph.tensor(x).shape;
    let whole = |i: usize| slice.starts[i].is(0) && slice.sizes[i] == shape[i];
    let adjacent = slice.steps.iter().all(|step| *step == 1);
    (adjacent && (0..shape.len()).all(|i| i == axis || whole(i))).then_some((x, slice))
}

/// Replaces a roll of a roll by one roll.
fn merge(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((outer, rolled)) = rolled_by(graph, id) else { return Ok(None) };
    let Some((inner, x)) = rolled_by(graph, rolled) else { return Ok(None) };
    let sum = |a: &[Dim], b: &[Dim]| a.iter().zip(b).map(|(a, b)| a.add(b)).collect::<Vec<Dim>>();
    let (before, after) = (sum(&outer.before, &inner.before), sum(&outer.after, &inner.after));
    graph.add(Pad { before, after, ..outer.clone() }, &[x], &name(graph, id)).map(Some)
}

/// Returns the pad and its operand if a node is a roll.
fn rolled_by(graph: &Graph, id: NodeId) -> Option<(&Pad, NodeId)> {
    let (Op::Pad(pad), operands) = plain(graph, id)? else { return None };
    let turns = pad.before.iter().zip(&pad.after).all(|(before, after)| before.add(after).is(0));
    (pad.mode == PadMode::Wrap && turns).then_some((pad, *operands.first()?))
}
