//! The order in which nodes are computed.
//!
//! The model's own order is kept unless another needs clearly less memory. The other differs where nodes of one
//! operand are ready at the same time: the one that makes live bytes grow least goes first. A shortcut that narrows
//! its input then comes before the branch beside it, which may overwrite the input afterwards.
//!
//! Where memory is no concern, nodes go by how many others have to be done before them, one after the other: what does not
//! wait for each other runs side by side, and barriers are fewest.

use std::collections::{BTreeMap, BTreeSet};

use super::allocations::lives;
use super::parts::Estimate;
use super::views::is_view;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::shader::problem::{Placement, storage_elements};

/// How many times smaller the largest sum of live sizes must be, in percent of what it was.
const WORTH: u64 = 98;

/// Bytes that are not worth a barrier.
const SMALL: u64 = 4 << 20;

/// Every node after its operands.
pub(super) fn order(graph: &Graph) -> Vec<NodeId> {
    let given = graph.topological();
    let bound = |order: &[NodeId]| Estimate::new(graph, order, &lives(graph, order)).bound();
    let levels = by_level(graph, &given);
    if bound(&levels) <= SMALL {
        return levels;
    }
    let other = siblings_by_growth(graph, &given);
    let wanted = bound(&given).saturating_mul(WORTH) / 100;
    if other != given && bound(&other) <= wanted { other } else { given }
}

/// What scheduling knows about the nodes.
struct Nodes<'g> {
    graph: &'g Graph,
    /// The value whose storage a value lies in: itself, unless it is a view.
    root: BTreeMap<NodeId, NodeId>,
    /// Nodes that have yet to read a value, itself or through views; results of the graph are never done with.
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

    /// Whether the node takes no storage of its own in the arena.
    fn is_free(&self, id: NodeId) -> bool {
        matches!(self.graph.op(id), Op::Input(_) | Op::Constant(_) | Op::State(_) | Op::Update(_))
            || self.is_view(id)
    }

    /// The values that a node reads, through views, without constants.
    fn computed_operands(&self, id: NodeId) -> BTreeSet<NodeId> {
        let roots = self.graph.operands(id).into_iter().filter_map(|o| self.root.get(&o).copied());
        roots.filter(|r| !matches!(self.graph.op(*r), Op::Constant(_))).collect()
    }

    fn bytes(&self, id: NodeId) -> i128 {
        if self.is_free(id) {
            return 0;
        }
        let tensor = self.graph.tensor(id);
        let elements = storage_elements(&tensor.shape, &Placement::of(tensor.layout, &tensor.shape));
        elements.scale(tensor.dtype.on_device().bytes()).range(&self.graph.bounds).1.into()
    }

    /// By how many bytes the live values grow when a node is computed now.
    fn growth(&self, id: NodeId) -> i128 {
        let done = |o: &NodeId| self.readers.get(o).is_some_and(|r| r.len() == 1 && r.contains(&id));
        let freed: i128 = self.computed_operands(id).iter().filter(|o| done(o)).map(|o| self.bytes(*o)).sum();
        self.bytes(id) - freed
    }
}

/// The nodes by the length of the longest epilogue of computed values before them.
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

fn siblings_by_growth(graph: &Graph, given: &[NodeId]) -> Vec<NodeId> {
    let mut nodes = Nodes::new(graph, given);
    let place: BTreeMap<NodeId, usize> = given.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let distinct = |id: NodeId| graph.operands(id).into_iter().collect::<BTreeSet<NodeId>>();
    let mut missing: Vec<usize> = given.iter().map(|id| distinct(*id).len()).collect();
    let mut ready: BTreeSet<usize> = (0..given.len()).filter(|i| missing[*i] == 0).collect();
    let mut order = Vec::with_capacity(given.len());
    // Constants cost nothing, and a node is not ready without its own.
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
