//! Memory of alternatives: bytes of their values, and the maximum of their scratch memory.

use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::Op;
use crate::plan::estimate::operand;
use crate::plan::views::is_view;
use crate::target::TargetProfile;

/// Maximum scratch memory of an alternative: `TRAFFIC_MULTIPLE` times the largest memory traffic of any node, the size
/// of the last-level cache, or the bytes of all constants divided by [`CONSTANTS_DIVISOR`], whichever is largest. An
/// alternative above this maximum is not used, however fast it is. The operands and the result of a node are in memory
/// together, so the largest traffic is a lower bound of the memory without alternatives.
const TRAFFIC_MULTIPLE: i64 = 2;
const CONSTANTS_DIVISOR: i64 = 16;

/// Returns the maximum scratch memory of an alternative to a node of a graph, in bytes.
pub(super) fn max_bytes(graph: &Graph, order: &[NodeId], target: &TargetProfile) -> i64 {
    let max_traffic = order.iter().map(|id| traffic_bytes(graph, *id)).max().unwrap_or(0);
    let cache = i64::try_from(target.machine.last_level_cache).unwrap_or(i64::MAX);
    let constants = order.iter().filter(|id| graph.constant(**id).is_some());
    let constants = constants.map(|id| operand(graph, *id).bytes(&graph.bounds));
    let of_constants = constants.fold(0, i64::saturating_add) / CONSTANTS_DIVISOR;
    max_traffic.saturating_mul(TRAFFIC_MULTIPLE).max(cache).max(of_constants)
}

/// Returns the bytes of a node's result; 0 for constants and views.
pub(super) fn value_bytes(graph: &Graph, id: NodeId) -> i64 {
    let node = graph.node(id);
    let view = is_view(&node.op) && node.epilogue.is_empty();
    let free = view || matches!(node.op, Op::Constant(_));
    if free { 0 } else { operand(graph, id).bytes(&graph.bounds) }
}

/// Returns the bytes that a node reads and writes. Constants and views count as 0 bytes.
fn traffic_bytes(graph: &Graph, id: NodeId) -> i64 {
    let operands = graph.operands(id).into_iter().map(|o| value_bytes(graph, o));
    operands.fold(value_bytes(graph, id), i64::saturating_add)
}
