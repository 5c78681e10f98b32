//! Turns KV caches that are inputs and outputs of a graph into states that stay on the device.
//!
//! ```text
//! %1 = input past [1, 2, past, 32]                    %1 = state past [1, 4096, 2, 32]
//! %3 = concat %1 %2 {"axis":2}                        %3 = update %1 transpose(%2) {"axis":1,"start":"past"}
//! output present %3                          ->       %4 = transpose(slice(%3, past + n)), replaces the concat
//! ```
//!
//! This is not a pass, because a pass keeps the inputs and outputs of a graph, and this rewrite removes some. Positions
//! become the second axis of a state, after the batch, so that new rows are contiguous.

use crate::error::Result;
use crate::ir::builder::Builder;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, State, Update};

/// A KV cache that is an input and an output of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Input node: the cache before a run.
    past: NodeId,
    /// Node with the rows (keys or values of new tokens) that the run adds.
    new: NodeId,
    /// Output node: the cache after a run.
    present: NodeId,
    /// Axis of positions.
    axis: usize,
}

/// Sizes of a KV cache along its axis of positions.
#[derive(Debug, Clone)]
pub struct CacheSizes {
    /// Number of positions that the state holds.
    pub context: i64,
    /// Number of positions before a run.
    pub past: Dim,
    /// Number of positions after a run.
    pub keys: Dim,
}

impl Cache {
    /// Output node: the cache after a run.
    pub fn present(&self) -> NodeId {
        self.present
    }

    /// Number of positions that a run adds.
    pub fn added(&self, graph: &Graph) -> Dim {
        graph.tensor(self.new).shape.get(self.axis).cloned().unwrap_or(Dim::known(0))
    }
}

/// Returns the order of axes in which a state is stored, with the axis `axis` in second place, and the order that undoes it.
/// Rows of such a state are contiguous. A first axis stays in its place.
pub(crate) fn state_order(rank: usize, axis: usize) -> (Vec<usize>, Vec<usize>) {
    let mut perm: Vec<usize> = (0..rank).collect();
    if axis > 1 && axis < rank {
        perm.remove(axis);
        perm.insert(1, axis);
    }
    let mut back = vec![0; rank];
    for (to, from) in perm.iter().enumerate() {
        if let Some(place) = back.get_mut(*from) {
            *place = to;
        }
    }
    (perm, back)
}

/// Returns the KV cache that an input belongs to. Returns `None` unless the input's only use is a concatenation that is
/// an output.
pub fn find_cache(graph: &Graph, past: NodeId) -> Option<Cache> {
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

/// Replaces a KV cache that is an input and an output by the state `name`. Removes the input.
///
/// # Errors
/// If the state has an invalid shape.
pub fn make_state(graph: &mut Graph, name: &str, cache: Cache, sizes: &CacheSizes) -> Result<()> {
    let Cache { past, new, present, axis } = cache;
    let mut g = Builder::new(graph, name);
    let (perm, back) = state_order(g.tensor(past).rank(), axis);
    let shape = g.tensor(past).shape.clone();
    let size = |from: &usize| match *from == axis {
        true => sizes.context,
        false => shape.get(*from).and_then(Dim::as_known).unwrap_or(0),
    };
    let shape = perm.iter().map(|from| usize::try_from(size(from)).unwrap_or(0)).collect();
    let state = g.add(State { name: name.to_string(), dtype: g.tensor(past).dtype, shape }, &[])?;
    let new = g.transpose(new, perm)?;
    let updated = g.add(Update { axis: 1, start: sizes.past.clone() }, &[state, new])?;
    let filled = g.slice(updated, 1, Dim::known(0), sizes.keys.clone())?;
    let filled = g.transpose(filled, back)?;
    graph.replace_uses(present, filled);
    graph.add_store(name, updated);
    graph.remove_input(past);
    Ok(())
}
