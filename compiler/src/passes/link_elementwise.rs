//! Links elementwise nodes behind the node that produces their input, as its epilogue.
//!
//! ```text
//! %3 = conv %0 %1 %2
//! %4 = unary sigmoid %3                      %4 = conv %0 %1 %2 then sigmoid(#0), mul(#0, #1)
//! %5 = binary mul %3 %4               ->
//! ```
//!
//! A producer absorbs the smallest set of elementwise nodes of its own shape that starts with all its users and
//! has one exit; a single user is the common case, `x * sigmoid(x)` is another. What the set reads from
//! elsewhere becomes an operand of the epilogue, which broadcasts to the producer's shape because the elementwise
//! node already did. No such operand can depend on the producer: every path from it leads through the exit.
//!
//! Where two producers could take the same node, as in `add %conv1 %conv2`, the one further from the graph's inputs
//! does: a residual connection joins the last convolution of its block, not the one that widens the shortcut, which
//! can then be computed first and free what both branches read.
//! Views take no epilogue; they cost nothing as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{Changes, Context};
use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Arg, EpilogueStep, Fusion, Op};

/// Most steps of one epilogue.
const MAX_STEPS: usize = 12;
/// Storage buffers kept for a kernel's own operands and its result.
const OWN_BUFFERS: usize = 4;

/// What linking needs to know about the graph as it was before the pass.
struct Linking {
    /// Place of each node in a topological order, which stays valid: a linked node takes its exit's place.
    position: BTreeMap<NodeId, usize>,
    /// Nodes absorbed so far; they still hang on their operands until the sweep.
    absorbed: BTreeSet<NodeId>,
    /// Storage buffers that one shader may see.
    buffers: usize,
}

/// The elementwise nodes that a producer can absorb, in order; the last is the exit.
struct Cluster {
    members: Vec<NodeId>,
    /// Operands from outside, in order of appearance.
    extras: Vec<NodeId>,
}

/// Links elementwise epilogues.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    let order = by_depth(graph);
    let mut linking = Linking {
        position: order.iter().enumerate().map(|(i, id)| (*id, i)).collect(),
        absorbed: BTreeSet::new(),
        buffers: usize::try_from(context.target.limits.max_storage_buffers).unwrap_or(usize::MAX),
    };
    // The second round takes what a later producer could not.
    for leave_to_later in [true, false] {
        for id in &order {
            let mut producer = *id;
            while !linking.absorbed.contains(&producer)
                && let Some(cluster) = linking.cluster(graph, producer)
                && !(leave_to_later && linking.later_producer(graph, producer, &cluster))
            {
                let Some(exit) = cluster.members.last().copied() else { break };
                for member in &cluster.members {
                    let what = format!("joins `{}`", graph.node(producer).name);
                    changes.note(graph, *member, what);
                }
                link(graph, producer, &cluster)?;
                linking.absorbed.insert(producer);
                linking.absorbed.extend(cluster.members.iter().filter(|m| **m != exit));
                producer = exit;
            }
        }
    }
    Ok(changes)
}

/// A topological order by the longest path from the inputs.
fn by_depth(graph: &Graph) -> Vec<NodeId> {
    let mut order = graph.topological();
    let mut depths: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in &order {
        let above = graph.operands(*id).iter().filter_map(|o| depths.get(o)).max();
        depths.insert(*id, above.map_or(0, |d| d + 1));
    }
    order.sort_by_key(|id| depths.get(id).copied());
    order
}

/// Whether a node can carry an epilogue.
fn takes_chain(graph: &Graph, id: NodeId) -> bool {
    let op = graph.op(id);
    let source = matches!(op, Op::Input(_) | Op::Constant(_) | Op::ShapeValues(_) | Op::Range(_));
    let view =
        matches!(op, Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Expand(_) | Op::Relayout(_));
    !source && !view && op.operation().fusion() != Fusion::Opaque
}

impl Linking {
    /// The users of a value that are still there, in topological order.
    fn users(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        let mut users: Vec<NodeId> =
            graph.users(id).into_iter().filter(|u| !self.absorbed.contains(u)).collect();
        users.sort_by_key(|u| self.position.get(u));
        users
    }

    /// The smallest set that the producer can absorb, if any.
    fn cluster(&self, graph: &Graph, producer: NodeId) -> Option<Cluster> {
        if !takes_chain(graph, producer) || graph.is_output(producer) {
            return None;
        }
        let wanted: Vec<NodeId> = self.users(graph, producer);
        let shape = &graph.tensor(producer).shape;
        let mut members: Vec<NodeId> = Vec::new();
        let mut frontier: BTreeSet<(usize, NodeId)> = BTreeSet::new();
        let mut steps = graph.node(producer).epilogue.len();
        self.extend(&mut frontier, &wanted);
        while let Some((_, user)) = frontier.pop_first() {
            let node = graph.node(user);
            steps += 1 + node.epilogue.len();
            let fits = matches!(node.op, Op::Elementwise(_)) && node.tensor.shape == *shape;
            if !fits || steps > MAX_STEPS {
                return None;
            }
            members.push(user);
            // Everything absorbed so far except this node must be used inside alone: then it is the exit.
            let closed = |id: NodeId| {
                !graph.is_output(id) && self.users(graph, id).iter().all(|u| members.contains(u))
            };
            let inner = members.iter().filter(|m| **m != user);
            if closed(producer) && inner.copied().all(closed) {
                return self.with_extras(graph, producer, members);
            }
            if graph.is_output(user) {
                return None;
            }
            self.extend(&mut frontier, &self.users(graph, user));
        }
        None
    }

    fn extend(&self, frontier: &mut BTreeSet<(usize, NodeId)>, users: &[NodeId]) {
        frontier.extend(users.iter().filter_map(|u| Some((*self.position.get(u)?, *u))));
    }

    /// The cluster with its outside operands, when they leave buffers enough.
    fn with_extras(&self, graph: &Graph, producer: NodeId, members: Vec<NodeId>) -> Option<Cluster> {
        let mut extras: Vec<NodeId> = Vec::new();
        for operand in members.iter().flat_map(|m| graph.operands(*m)) {
            let inside = operand == producer || members.contains(&operand);
            if !inside && !extras.contains(&operand) {
                extras.push(operand);
            }
        }
        let node = graph.node(producer);
        let present = graph.operands(producer).len() - node.arity;
        let kept = (node.arity + 1).max(OWN_BUFFERS);
        let new = extras.iter().filter(|e| reused(graph, producer, **e).is_none()).count();
        let fits = new == 0 || kept.checked_add(present + new)? <= self.buffers;
        fits.then_some(Cluster { members, extras })
    }

    /// Whether an outside operand is itself a producer that can absorb the exit, and comes later.
    fn later_producer(&self, graph: &Graph, producer: NodeId, cluster: &Cluster) -> bool {
        let exit = cluster.members.last();
        let place = |id: &NodeId| self.position.get(id).copied().unwrap_or(0);
        cluster.extras.iter().any(|extra| {
            place(extra) > place(&producer)
                && self.cluster(graph, *extra).is_some_and(|other| {
                    exit.is_some_and(|e| other.members.contains(e)) && !other.extras.is_empty()
                })
        })
    }
}

/// The operand of a producer that an epilogue can read a value from: one of its epilogue's, or an elementwise node's own.
fn reused(graph: &Graph, producer: NodeId, value: NodeId) -> Option<usize> {
    let node = graph.node(producer);
    let first = if matches!(node.op, Op::Elementwise(_)) { 0 } else { node.arity };
    graph.operands(producer).iter().enumerate().skip(first).find(|(_, o)| **o == value).map(|(i, _)| i)
}

/// Turns the exit of a cluster into the producer with the cluster as its epilogue.
fn link(graph: &mut Graph, producer: NodeId, cluster: &Cluster) -> Result<()> {
    let node = graph.node(producer);
    let name = node.name.clone();
    let mut what = Replacement {
        op: node.op.clone(),
        operands: graph.operands(producer),
        arity: node.arity,
        epilogue: node.epilogue.clone(),
    };
    // Where the epilogue finds each value.
    let mut found: BTreeMap<NodeId, Arg> = BTreeMap::new();
    found.insert(producer, step_at(what.epilogue.len()));
    for extra in &cluster.extras {
        let at = reused(graph, producer, *extra).unwrap_or_else(|| {
            what.operands.push(*extra);
            what.operands.len() - 1
        });
        found.insert(*extra, Arg::Input(u32::try_from(at).unwrap_or(u32::MAX)));
    }
    for member in &cluster.members {
        let node = graph.node(*member);
        let Op::Elementwise(elementwise) = &node.op else { continue };
        let operands: Vec<Option<Arg>> =
            graph.operands(*member).iter().map(|o| found.get(o).copied()).collect();
        let own = operands.iter().take(node.arity).copied().collect::<Option<Vec<Arg>>>().unwrap_or_default();
        what.epilogue.push(EpilogueStep { element: elementwise.element, args: own });
        let base = what.epilogue.len();
        let missing = || Error::internal("link-elementwise", "a epilogue names an operand that is not there");
        for step in &node.epilogue {
            what.epilogue.push(step.replaced(|arg| match arg {
                Arg::Step(s) => Ok(step_at(base + s as usize)),
                Arg::Input(k) => operands.get(k as usize).copied().flatten().ok_or_else(missing),
            })?);
        }
        found.insert(*member, step_at(what.epilogue.len()));
    }
    if let Some(exit) = cluster.members.last() {
        graph.set_op(*exit, what)?;
        graph.set_name(*exit, &name);
    }
    Ok(())
}

fn step_at(index: usize) -> Arg {
    Arg::Step(u32::try_from(index).unwrap_or(u32::MAX))
}
