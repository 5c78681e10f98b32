//! Merges nodes that compute the same value, and constants with the same bytes.
//!
//! ```text
//! %1 = unary sigmoid %0                      %1 = unary sigmoid %0
//! %2 = unary sigmoid %0               ->     %3 = binary add %1 %1
//! %3 = binary add %1 %2
//! ```

use std::collections::BTreeMap;

use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Element, Op};
use crate::ir::tensor::DType;

/// Number of bytes of a constant that are hashed to find candidates for merging. The comparison of candidates reads all
/// bytes.
const SAMPLE: usize = 4096;

/// Hash key of a node. Only nodes with equal keys can be equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Constant(DType, Vec<usize>, [u8; 32]),
    Computed(&'static str, Vec<NodeId>),
}

/// Merges duplicates.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    let mut seen: BTreeMap<Key, Vec<NodeId>> = BTreeMap::new();
    for id in graph.topological() {
        let Some(key) = key(graph, id) else { continue };
        let candidates = seen.entry(key).or_default();
        match candidates.iter().find(|c| equal(graph, **c, id)) {
            Some(same) => {
                changes.note(
                    graph,
                    id,
                    format!("merged with `{}`, which has the same value", graph.node(*same).name),
                );
                graph.replace_uses(id, *same);
            }
            None => candidates.push(id),
        }
    }
    Ok(changes)
}

fn key(graph: &Graph, id: NodeId) -> Option<Key> {
    let node = graph.node(id);
    match &node.op {
        Op::Input(_) | Op::State(_) => None,
        Op::Constant(c) => Some(Key::Constant(c.dtype, c.shape.clone(), *blake3::hash(sample(c)).as_bytes())),
        op => {
            let mut operands = graph.operands(id);
            if let Op::Elementwise(e) = op
                && let Element::Binary(f) = e.element
                && f.is_commutative()
                && node.epilogue.is_empty()
            {
                operands.sort_unstable();
            }
            Some(Key::Computed(op.name(), operands))
        }
    }
}

fn sample(constant: &Constant) -> &[u8] {
    constant.bytes.get(..SAMPLE).unwrap_or(&constant.bytes)
}

/// Returns true if two nodes with equal keys compute the same value.
fn equal(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (graph.node(a), graph.node(b));
    a.op == b.op && a.arity == b.arity && a.epilogue == b.epilogue && a.tensor == b.tensor
}
