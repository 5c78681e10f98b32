//! Caches that go in and out of a graph become states that stay on the device.
//!
//! ```text
//! %1 = input past [1, 2, past, 32]                    %1 = state past [1, 4096, 2, 32]
//! %3 = concat %1 %2 {"axis":2}                        %3 = update %1 transpose(%2) {"axis":1,"start":"past"}
//! output present %3                          ->       %4 = transpose(slice(%3, past + n)), in the place of the concat
//! ```
//!
//! It is no pass: a pass keeps what a graph takes and gives, and this takes inputs and outputs away. Positions become the
//! first axis of a state, so that what is appended lies in one piece.

use crate::error::Result;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, State, Update};

use super::{Entry, PAST};

/// A cache that a graph takes and gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// What it held, an input.
    past: NodeId,
    /// What is added.
    new: NodeId,
    /// Both.
    present: NodeId,
    /// The axis of positions.
    axis: usize,
}

/// The cache of an input: its only use is to have something appended, and the result is an output.
pub fn find(graph: &Graph, past: NodeId) -> Option<Cache> {
    let users = graph.users(past);
    let [present] = users.as_slice() else { return None };
    let node = graph.node(*present);
    let Op::Concat(concat) = &node.op else { return None };
    let operands = graph.operands(*present);
    let [first, new] = operands.as_slice() else { return None };
    let axis = concat.axis;
    let rest = |id: NodeId| {
        let shape = &graph.tensor(id).shape;
        shape.iter().enumerate().all(|(i, d)| i == axis || d.as_known().is_some())
    };
    let batch = axis > 0 && graph.tensor(past).shape.first().is_some_and(|d| d.is(1));
    (*first == past
        && *new != past
        && node.epilogue.is_empty()
        && batch
        && rest(past)
        && graph.is_output(*present))
    .then_some(Cache { past, new: *new, present: *present, axis })
}

/// Keeps a cache in a state that has the input's name.
///
/// # Errors
/// When the state does not fit.
pub fn keep(graph: &mut Graph, cache: Cache, entry: &Entry) -> Result<()> {
    let Cache { past, new, present, axis } = cache;
    let name = graph.node(past).name.clone();
    let mut g = Builder::new(graph, &name);
    // The axis of positions goes behind the first.
    let rank = g.tensor(past).rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.remove(axis);
    perm.insert(1, axis);
    let mut back = vec![0; rank];
    for (to, from) in perm.iter().enumerate() {
        if let Some(place) = back.get_mut(*from) {
            *place = to;
        }
    }
    let sizes = g.tensor(past).shape.clone();
    let size = |from: &usize| match *from == axis {
        true => entry.context,
        false => sizes.get(*from).and_then(Dim::as_known).unwrap_or(0),
    };
    let shape = perm.iter().map(|from| usize::try_from(size(from)).unwrap_or(0)).collect();
    let state = g.add(State { name: name.clone(), dtype: g.tensor(past).dtype, shape }, &[])?;
    let new = g.transpose(new, perm)?;
    let held = g.add(Update { axis: 1, start: Dim::symbol(PAST) }, &[state, new])?;
    let seen = g.slice(held, 1, Dim::known(0), entry.keys())?;
    let seen = g.transpose(seen, back)?;
    graph.replace_uses(present, seen);
    graph.add_store(&name, held);
    graph.remove_input(past);
    Ok(())
}
