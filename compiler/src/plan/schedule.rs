//! Order in which nodes are computed.
//!
//! If memory is small, nodes are ordered by level: by the longest path of computed values before them. Nodes that do
//! not depend on each other then run concurrently, with the fewest barriers.
//!
//! Otherwise the model's own order is kept, unless another one needs clearly less memory. The other order differs where
//! several users of one operand are ready: the one that increases live bytes least goes first. For example, a shortcut
//! that narrows its input is computed before the parallel branch, which may then overwrite the input.

use std::collections::{BTreeMap, BTreeSet};

use super::allocations::last_uses;
use super::concat_in_place::LiveMemory;
use super::params::Params;
use super::views::is_view;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::shader::problem::{Placement, storage_elements};

/// Returns all nodes in the order of computation, each after its operands.
pub(super) fn order(graph: &Graph, params: &Params) -> Vec<NodeId> {
    let given = graph.topological();
    let bound = |order: &[NodeId]| LiveMemory::new(graph, order, &last_uses(graph, order)).bound();
    let levels = by_level(graph, &given);
    if bound(&levels) <= params.small_peak_bytes as u64 {
        return levels;
    }
    let other = siblings_by_growth(graph, &given);
    let wanted = bound(&given).saturating_mul(params.reordered_max_peak_percent as u64) / 100;
    if other != given && bound(&other) <= wanted { other } else { given }
}

/// Facts about the nodes of a graph that decide the order of computation.
struct Nodes<'g> {
    graph: &'g Graph,
    /// For each value, the value whose storage it uses: for a view, the value that it shows; for others, the value itself.
    root: BTreeMap<NodeId, NodeId>,
    /// For each value, the unscheduled nodes that read it, directly or through views. An output of the graph is its own reader,
    /// so it always has one.
    readers: BTreeMap<NodeId, BTreeSet<NodeId>>,
}

impl<'g> Nodes<'g> {
    fn new(graph: &'g Graph, order: &[NodeId]) -> Self {
        let mut out = Self { graph, root: BTreeMap::new(), readers: BTreeMap::new() };
        for id in order {
            let operands = graph.operands(*id);
            let root = operands.first().filter(|_| out.is_view(*id)).and_then(|o| out.root.get(o)).copied();
            let root = root.unwrap_or(*id);
            out.root.insert(*id, root);
            if graph.is_output(*id) {
                out.readers.entry(root).or_default().insert(root);
            }
            if root == *id {
                for operand in out.computed_operands(*id) {
                    out.readers.entry(operand).or_default().insert(*id);
                }
            }
        }
        out
    }

    fn is_view(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        is_view(&node.op) && node.epilogue.is_empty()
    }

    /// True if the result of a node needs no allocation in the arena.
    fn is_free(&self, id: NodeId) -> bool {
        matches!(self.graph.op(id), Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_))
            || self.is_view(id)
    }

    /// Returns the values that a node reads. A view counts as the value whose storage it uses; constants are left out.
    fn computed_operands(&self, id: NodeId) -> BTreeSet<NodeId> {
        let roots = self.graph.operands(id).into_iter().filter_map(|o| self.root.get(&o).copied());
        roots.filter(|r| !matches!(self.graph.op(*r), Op::Constant(_))).collect()
    }

    fn bytes(&self, id: NodeId) -> i128 {
        if self.is_free(id) {
            return 0;
        }
        let tensor = self.graph.tensor(id);
        let elements = storage_elements(&tensor.shape, &Placement::from_layout(tensor.layout, &tensor.shape));
        elements.scale(tensor.dtype.on_device().bytes()).range(&self.graph.bounds).1.into()
    }

    /// Increase of live bytes if a node is computed next; negative if memory becomes free.
    fn growth(&self, id: NodeId) -> i128 {
        let done = |o: &NodeId| self.readers.get(o).is_some_and(|r| r.len() == 1 && r.contains(&id));
        let freed: i128 = self.computed_operands(id).iter().filter(|o| done(o)).map(|o| self.bytes(*o)).sum();
        self.bytes(id) - freed
    }
}

/// Orders nodes by level: the length of the longest path of computed values before them.
fn by_level(graph: &Graph, given: &[NodeId]) -> Vec<NodeId> {
    let nodes = Nodes::new(graph, given);
    let mut levels: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in given {
        let before = graph.operands(*id).iter().filter_map(|o| levels.get(o)).max().copied().unwrap_or(0);
        levels.insert(*id, before + usize::from(!nodes.is_free(*id)));
    }
    let mut order = given.to_vec();
    order.sort_by_key(|id| levels.get(id).copied().unwrap_or(0));
    order
}

/// Keeps the given order, except that among ready users of one operand the one with the least growth of live bytes goes
/// first.
fn siblings_by_growth(graph: &Graph, given: &[NodeId]) -> Vec<NodeId> {
    let mut nodes = Nodes::new(graph, given);
    let place: BTreeMap<NodeId, usize> = given.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let distinct = |id: NodeId| graph.operands(id).into_iter().collect::<BTreeSet<NodeId>>();
    let mut missing: Vec<usize> = given.iter().map(|id| distinct(*id).len()).collect();
    let mut ready: BTreeSet<usize> = (0..given.len()).filter(|i| missing[*i] == 0).collect();
    let mut order = Vec::with_capacity(given.len());
    // Constants and inputs go first: they need no memory, and their users are not ready without them.
    let source = |p: &usize| matches!(graph.op(given[*p]), Op::Input(_) | Op::Constant(_) | Op::State(_));
    while let Some(first) = ready.iter().copied().find(source).or_else(|| ready.first().copied()) {
        let operands = nodes.computed_operands(given[first]);
        let mut next = first;
        if !nodes.is_free(given[first]) {
            let related = operands
                .iter()
                .filter_map(|o| nodes.readers.get(o))
                .flatten()
                .filter_map(|reader| place.get(reader))
                .copied()
                .filter(|p| ready.contains(p) && !nodes.is_free(given[*p]));
            let candidates: BTreeSet<usize> = related.chain([first]).collect();
            let least = candidates.into_iter().min_by_key(|p| (nodes.growth(given[*p]), *p));
            next = least.unwrap_or(first);
        }
        ready.remove(&next);
        let id = given[next];
        order.push(id);
        for operand in nodes.computed_operands(id) {
            if let Some(readers) =
                nodes.readers.get_mut(&operand).filter(|_| nodes.root.get(&id) == Some(&id))
            {
                readers.remove(&id);
            }
        }
        for user in graph.users(id) {
            if let Some(p) = place.get(&user)
                && let Some(count) = missing.get_mut(*p)
            {
                *count -= 1;
                if *count == 0 {
                    ready.insert(*p);
                }
            }
        }
    }
    order
}
