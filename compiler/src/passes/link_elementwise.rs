//! Fuses elementwise nodes into the epilogue of the node that produces their input.
//!
//! ```text
//! %3 = conv %0 %1 %2
//! %4 = unary sigmoid %3                      %4 = conv %0 %1 %2 then sigmoid(#0), mul(#0, #1)
//! %5 = binary mul %3 %4               ->
//! ```
//!
//! A producer absorbs the smallest set of elementwise nodes of its own shape that contains all its users and has one
//! exit. A single user is the common case; `x * sigmoid(x)` is another. Values that the set reads from elsewhere become
//! operands of the epilogue. They broadcast to the producer's shape, because the elementwise node already did. No such
//! operand can depend on the producer, because every path from the producer leads through the exit.
//!
//! If two producers could absorb the same node, as in `add %conv1 %conv2`, the one further from the graph's inputs
//! absorbs it. So a residual add joins the last convolution of its block, not the convolution on the shortcut. The
//! shortcut can then be computed first, which frees the memory that both branches read.
//! Views take no epilogue: they cost nothing.
//!
//! 8-bit integers are dequantized where they are read, so that memory holds 8 bits. First, every elementwise user of a
//! dequantized value gets its own `dequantize`. A producer of 8-bit integers absorbs no `dequantize` without the nodes
//! that use it, and a set of nodes that reads a dequantized value from elsewhere includes its `dequantize`:
//!
//! ```text
//! %3 = conv %0 %1 then .. (cast #4 {"to":"u8"})
//! %4 = conv %3 %2 then .. (cast #4 {"to":"u8"})     %4 = conv %3 %2 | %3 then .. (cast #4 {"to":"u8"})
//! %5 = cast %3 {"to":"f32"}                    ->       (cast #5 {"to":"f32"}) (dequantize #6 {..})
//! %6 = dequantize %5 {..}                               (cast @2 {"to":"f32"}) (dequantize #8 {..})
//! %7 = cast %4 {"to":"f32"}                             (add #7 #9)
//! %8 = dequantize %7 {..}
//! %9 = add %8 %6
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::matching::elementwise;
use super::{Changes, Context};
use crate::error::{Error, Result};
use crate::ir::graph::{Graph, NodeId, Replacement};
use crate::ir::op::{Arg, Element, Elementwise, EpilogueStep, Fusion, Op, UnaryFn};

/// Maximum number of steps (elementwise functions) of one epilogue, without casts.
const MAX_STEPS: usize = 12;
/// Number of storage buffers that are reserved for a kernel's own operands and result.
const RESERVED_BUFFERS: usize = 4;

/// State of the pass that fuses elementwise nodes into epilogues.
struct Linking {
    /// Position of each node in a topological order. The order stays valid: a node with a fused cluster takes the
    /// position of the cluster's last node, the exit.
    position: BTreeMap<NodeId, usize>,
    /// Elementwise nodes fused so far. They keep their operands until dead nodes are swept.
    absorbed: BTreeSet<NodeId>,
    /// Maximum number of storage buffers of one shader on the target.
    buffers: usize,
}

/// The elementwise nodes that a producer can absorb, in topological order; the last node is the exit.
struct Cluster {
    members: Vec<NodeId>,
    /// Operands that the elementwise nodes read from outside the cluster, in order of appearance.
    extras: Vec<NodeId>,
}

/// Fuses elementwise epilogues.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    copy_dequantizations(graph)?;
    let order = by_depth(graph);
    let mut linking = Linking {
        position: order.iter().enumerate().map(|(i, id)| (*id, i)).collect(),
        absorbed: BTreeSet::new(),
        buffers: usize::try_from(context.target.limits.max_storage_buffers).unwrap_or(usize::MAX),
    };
    // The second round absorbs nodes that were left to a later producer, which could not absorb them.
    for leave_to_later in [true, false] {
        for id in &order {
            let mut producer = *id;
            while !linking.absorbed.contains(&producer)
                && let Some(cluster) = linking.cluster(graph, producer)
                && !(leave_to_later && linking.later_producer(graph, producer, &cluster))
            {
                let Some(exit) = cluster.members.last().copied() else { break };
                for member in &cluster.members {
                    let note = format!("fused into `{}`", graph.node(producer).name);
                    changes.note(graph, *member, note);
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

/// True if an elementwise function counts as a step of an epilogue. Casts cost nothing.
fn counts(element: Element) -> bool {
    !matches!(element, Element::Cast(_))
}

/// Returns the number of steps that an elementwise node adds to an epilogue.
fn functions(graph: &Graph, id: NodeId) -> usize {
    let node = graph.node(id);
    let first = matches!(&node.op, Op::Elementwise(e) if counts(e.element));
    usize::from(first) + node.epilogue.iter().filter(|step| counts(step.element)).count()
}

fn is_8_bit(graph: &Graph, id: NodeId) -> bool {
    graph.tensor(id).dtype.on_device().is_8_bit()
}

/// True if a node computes 8-bit integers, or only casts them.
fn reads_integers(graph: &Graph, id: NodeId) -> bool {
    let cast = elementwise(graph, id).filter(|(element, _)| matches!(element, Element::Cast(_)));
    is_8_bit(graph, id) || cast.is_some_and(|(_, operands)| operands.iter().all(|x| is_8_bit(graph, *x)))
}

/// A value that is dequantized from 8-bit integers by a cast to a float and the function `dequantize`.
struct Dequantization {
    integers: NodeId,
    cast: NodeId,
    /// The two functions, in order.
    elements: [Element; 2],
}

impl Dequantization {
    /// Returns how a value is dequantized; `None` if it is another value.
    fn new(graph: &Graph, id: NodeId) -> Option<Self> {
        let (dequantize, operands) = elementwise(graph, id)?;
        let cast = *operands.first()?;
        let (to_float, operands) = elementwise(graph, cast)?;
        let integers = *operands.first()?;
        let elements = [to_float, dequantize];
        let fits = matches!(elements, [Element::Cast(_), Element::Unary(UnaryFn::Dequantize { .. })]);
        (fits && is_8_bit(graph, integers)).then_some(Self { integers, cast, elements })
    }
}

/// Gives each elementwise user of a dequantized value its own dequantization, if the value has several users.
fn copy_dequantizations(graph: &mut Graph) -> Result<()> {
    for id in graph.topological() {
        let Some(Dequantization { integers, elements, .. }) = Dequantization::new(graph, id) else {
            continue;
        };
        let (name, shape) = (graph.node(id).name.clone(), graph.tensor(id).shape.clone());
        let copies = |user: &NodeId| {
            matches!(graph.op(*user), Op::Elementwise(_)) && graph.tensor(*user).shape == shape
        };
        let (mut copying, others): (Vec<NodeId>, Vec<NodeId>) = graph.users(id).into_iter().partition(copies);
        if others.is_empty() && !graph.is_output(id) && !copying.is_empty() {
            copying.remove(0);
        }
        for user in copying {
            let mut copy = integers;
            for element in elements {
                copy = graph.add(Elementwise { element }, &[copy], &name)?;
            }
            graph.replace_operand(user, id, copy);
        }
    }
    Ok(())
}

/// Returns a topological order, sorted by the longest path from the inputs.
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

/// Returns true if a node can have an epilogue.
fn takes_epilogue(graph: &Graph, id: NodeId) -> bool {
    let op = graph.op(id);
    let source = matches!(op, Op::Input(_) | Op::Constant(_) | Op::ShapeValues(_) | Op::Range(_));
    let view =
        matches!(op, Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Expand(_) | Op::Relayout(_));
    !source && !view && op.operation().fusion() != Fusion::Opaque
}

impl Linking {
    /// Returns the users of a value that are not fused yet, in topological order.
    fn users(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        let mut users: Vec<NodeId> =
            graph.users(id).into_iter().filter(|u| !self.absorbed.contains(u)).collect();
        users.sort_by_key(|u| self.position.get(u));
        users
    }

    /// Returns the smallest cluster of elementwise nodes that the producer can absorb as its epilogue.
    fn cluster(&self, graph: &Graph, producer: NodeId) -> Option<Cluster> {
        if !takes_epilogue(graph, producer) || graph.is_output(producer) {
            return None;
        }
        let wanted: Vec<NodeId> = self.users(graph, producer);
        let shape = &graph.tensor(producer).shape;
        let mut members: Vec<NodeId> = Vec::new();
        let mut frontier: BTreeSet<(usize, NodeId)> = BTreeSet::new();
        let mut steps = graph.node(producer).epilogue.iter().filter(|step| counts(step.element)).count();
        self.extend(&mut frontier, &wanted);
        while let Some((_, user)) = frontier.pop_first() {
            let node = graph.node(user);
            steps += functions(graph, user);
            let fusible = matches!(node.op, Op::Elementwise(_)) && node.tensor.shape == *shape;
            if !fusible || steps > MAX_STEPS {
                return None;
            }
            let added = self.dequantizations(graph, user, producer, &members);
            steps += added.iter().map(|id| functions(graph, *id)).sum::<usize>();
            if steps > MAX_STEPS {
                return None;
            }
            members.extend(added);
            members.push(user);
            if self.leaves_integers(graph, producer, user) {
                self.extend(&mut frontier, &self.users(graph, user));
                continue;
            }
            // If all other members have users only inside the cluster, this node is the exit.
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

    /// Returns the nodes of the dequantizations that `user` reads from outside the cluster.
    fn dequantizations(
        &self,
        graph: &Graph,
        user: NodeId,
        producer: NodeId,
        members: &[NodeId],
    ) -> Vec<NodeId> {
        let mut added = Vec::new();
        for operand in graph.operands(user) {
            let outside = operand != producer && !members.contains(&operand) && !added.contains(&operand);
            let Some(found) = Dequantization::new(graph, operand).filter(|_| outside) else { continue };
            let nodes = [found.cast, operand];
            let only_here = |id: &NodeId| graph.use_count(*id) == 1 && !self.absorbed.contains(id);
            if nodes.iter().all(only_here) && !graph.is_output(operand) {
                added.extend(nodes.into_iter().filter(|n| *n != producer && !members.contains(n)));
            }
        }
        added
    }

    /// True if a producer of 8-bit integers, or a cast of them, must not end its epilogue with the float `exit`, because the nodes that use
    /// `exit` can dequantize the integers themselves.
    fn leaves_integers(&self, graph: &Graph, producer: NodeId, exit: NodeId) -> bool {
        let users = self.users(graph, exit);
        let tensor = graph.tensor(exit);
        let dequantizes = |user: &NodeId| {
            matches!(graph.op(*user), Op::Elementwise(_)) && graph.tensor(*user).shape == tensor.shape
        };
        reads_integers(graph, producer)
            && tensor.dtype.is_float()
            && !graph.is_output(exit)
            && !users.is_empty()
            && users.iter().all(dequantizes)
    }

    fn extend(&self, frontier: &mut BTreeSet<(usize, NodeId)>, users: &[NodeId]) {
        frontier.extend(users.iter().filter_map(|u| Some((*self.position.get(u)?, *u))));
    }

    /// Returns the cluster with its operands from outside, if the shader has enough storage buffers for them.
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
        let kept = (node.arity + 1).max(RESERVED_BUFFERS);
        let new = extras.iter().filter(|e| reused(graph, producer, **e).is_none()).count();
        let enough = new == 0 || kept.checked_add(present + new)? <= self.buffers;
        enough.then_some(Cluster { members, extras })
    }

    /// Returns true if the cluster reads a value whose node comes later than the producer and can itself absorb the
    /// exit (last node) of the cluster.
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

/// Returns the index of the producer's operand that is `value`, if there is one. The epilogue then reads this operand
/// instead of a further one.
fn reused(graph: &Graph, producer: NodeId, value: NodeId) -> Option<usize> {
    let node = graph.node(producer);
    let first = if matches!(node.op, Op::Elementwise(_)) { 0 } else { node.arity };
    graph.operands(producer).iter().enumerate().skip(first).find(|(_, o)| **o == value).map(|(i, _)| i)
}

/// Replaces the exit (last node) of a cluster of elementwise nodes by the producer with the cluster as its epilogue.
fn link(graph: &mut Graph, producer: NodeId, cluster: &Cluster) -> Result<()> {
    let node = graph.node(producer);
    let name = node.name.clone();
    let mut replacement = Replacement {
        op: node.op.clone(),
        operands: graph.operands(producer),
        arity: node.arity,
        epilogue: node.epilogue.clone(),
    };
    // Epilogue argument of each value.
    let mut found: BTreeMap<NodeId, Arg> = BTreeMap::new();
    found.insert(producer, step_at(replacement.epilogue.len()));
    for extra in &cluster.extras {
        let at = reused(graph, producer, *extra).unwrap_or_else(|| {
            replacement.operands.push(*extra);
            replacement.operands.len() - 1
        });
        found.insert(*extra, Arg::Input(u32::try_from(at).unwrap_or(u32::MAX)));
    }
    for member in &cluster.members {
        let node = graph.node(*member);
        let Op::Elementwise(elementwise) = &node.op else { continue };
        let operands: Vec<Option<Arg>> =
            graph.operands(*member).iter().map(|o| found.get(o).copied()).collect();
        let args =
            operands.iter().take(node.arity).copied().collect::<Option<Vec<Arg>>>().unwrap_or_default();
        replacement.epilogue.push(EpilogueStep { element: elementwise.element, args });
        let base = replacement.epilogue.len();
        let missing =
            || Error::internal("link-elementwise", "an epilogue step names an operand that does not exist");
        for step in &node.epilogue {
            replacement.epilogue.push(step.map_args(|arg| match arg {
                Arg::Step(s) => Ok(step_at(base + s as usize)),
                Arg::Input(k) => operands.get(k as usize).copied().flatten().ok_or_else(missing),
            })?);
        }
        found.insert(*member, step_at(replacement.epilogue.len()));
    }
    if let Some(exit) = cluster.members.last() {
        graph.set_op(*exit, replacement)?;
        graph.set_name(*exit, &name);
    }
    Ok(())
}

fn step_at(index: usize) -> Arg {
    Arg::Step(u32::try_from(index).unwrap_or(u32::MAX))
}
