//! Evaluates nodes whose operands are all constants, with the CPU reference.
//!
//! ```text
//! %1 = transpose {"perm": [1, 0]} %0         ->      %1 = constant f32[32, 64]
//! ```
//!
//! A result that is much larger than its operands is not folded (an expanded scalar, a mask made of two ranges): bytes
//! in the bundle cost more than a small kernel. Sizes that depend on symbols are not folded either. A constant that is
//! transposed, reshaped or cast between float types keeps its stored bytes; only their description changes.

use super::{Changes, Context};
use crate::error::Result;
use crate::ir::array::{Array, count};
use crate::ir::dim::Bindings;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Constant, Element, Elementwise, Op};

/// Maximum bytes of a result that is folded to a constant whatever the size of its operands (1 MiB).
const SMALL: usize = 1 << 20;
/// Maximum bytes of an `expand` that is folded to a constant. Larger ones stay, because operators broadcast their
/// operands anyway.
const SMALL_EXPANDED: usize = 1 << 12;
/// Maximum bytes of a folded result of more than `SMALL` bytes, as a multiple of the bytes of its operands; 4 allows a
/// conversion of i8 to f32.
const GROWTH: usize = 4;

/// Folds constants.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    for id in graph.topological() {
        if let Some(constant) = fold(graph, id) {
            let name = graph.node(id).name.clone();
            let folded = graph.add_constant(constant, &name)?;
            changes.note(graph, id, format!("{} of constants folded to a constant", graph.op(id).name()));
            graph.replace_uses(id, folded);
        }
    }
    Ok(changes)
}

/// Returns a node's value as a new constant, if it is constant and small enough to store; otherwise the node itself.
pub(super) fn folded(graph: &mut Graph, id: NodeId, name: &str) -> Result<NodeId> {
    match fold(graph, id) {
        Some(constant) => graph.add_constant(constant, name),
        None => Ok(id),
    }
}

/// Returns the value of a node as a constant, if it is constant and small enough to store.
fn fold(graph: &Graph, id: NodeId) -> Option<Constant> {
    let node = graph.node(id);
    if matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::State(_)) || !node.epilogue.is_empty() {
        return None;
    }
    let shape = node.tensor.known_shape()?;
    let constants: Vec<&Constant> =
        graph.operands(id).into_iter().map(|o| graph.constant(o)).collect::<Option<_>>()?;
    let bytes = count(&shape).checked_mul(node.tensor.dtype.bytes())?;
    let operand_bytes = constants.iter().fold(0usize, |n, c| n.saturating_add(c.bytes.len()));
    let small = if matches!(node.op, Op::Expand(_)) { SMALL_EXPANDED } else { SMALL };
    if bytes > small && bytes / GROWTH > operand_bytes {
        return None;
    }
    let same_bytes = match (&node.op, &*constants) {
        (Op::Elementwise(Elementwise { element: Element::Cast(to) }), [constant]) => constant.cast(*to),
        (Op::Transpose(transpose), [constant]) => constant.transposed(&transpose.perm),
        (Op::Reshape(_), [constant, ..]) => constant.reshaped(&shape),
        _ => None,
    };
    if same_bytes.is_some() {
        return same_bytes;
    }
    let arrays: Vec<Array> = constants.into_iter().map(Constant::to_array).collect::<Result<_, _>>().ok()?;
    let operands: Vec<&Array> = arrays.iter().collect();
    // An operator whose payload contains a symbol cannot be evaluated here and is not folded.
    let result = node.op.operation().eval(&operands, &shape, &Bindings::new()).ok()?;
    (result.dtype == node.tensor.dtype && result.shape == shape).then(|| Constant::from_array(&result))
}
