//! Helpers of the passes: matching nodes without an epilogue, adding nodes, and replacing one value by another.
//!
//! The helpers match only nodes with an empty epilogue, so a node with fused operators never matches a pattern.

use super::Changes;
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Constant, Element, Elementwise, Op, UnaryFn};
use crate::ir::tensor::DType;

/// Maximum rounds of a rewrite; each round applies every rule to every node.
const MAX_ROUNDS: usize = 64;

/// A rewrite rule. Returns the value that may replace the node, or `None` if the rule does not match.
pub(super) type Rule = fn(&mut Graph, NodeId) -> Result<Option<NodeId>>;

/// Applies rules to every node until none matches. Each rule comes with the note for the nodes that it rewrites.
pub(super) fn rewrite(graph: &mut Graph, rules: &[(&str, Rule)]) -> Result<Changes> {
    let mut changes = Changes::default();
    for _ in 0..MAX_ROUNDS {
        let before = changes.count;
        for id in graph.topological() {
            if graph.use_count(id) == 0 {
                continue;
            }
            for (note, rule) in rules {
                if let Some(new) = rule(graph, id)?
                    && substitute(graph, id, new)
                {
                    changes.note(graph, id, *note);
                    break;
                }
            }
        }
        graph.sweep();
        if changes.count == before {
            break;
        }
    }
    Ok(changes)
}

/// Replaces all uses of `old` by `new` if both have the same type and shape. Returns true if the uses were replaced.
pub(super) fn substitute(graph: &mut Graph, old: NodeId, new: NodeId) -> bool {
    if old == new || !same_type_and_shape(graph, old, new) {
        return false;
    }
    graph.replace_uses(old, new);
    true
}

/// Returns true if two values have the same type and shape.
pub(super) fn same_type_and_shape(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (graph.tensor(a), graph.tensor(b));
    a.dtype == b.dtype && a.shape == b.shape
}

/// Returns true if the value has exactly one user and is not an output of the graph.
pub(super) fn single_use(graph: &Graph, id: NodeId) -> bool {
    graph.users(id).len() == 1 && !graph.is_output(id)
}

/// Returns the operator and operands of a node without an epilogue.
pub(super) fn plain(graph: &Graph, id: NodeId) -> Option<(&Op, Vec<NodeId>)> {
    let node = graph.node(id);
    node.epilogue.is_empty().then(|| (&node.op, graph.operands(id)))
}

/// Returns the operand of a node without an epilogue that has exactly one operand.
pub(super) fn only_operand(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let (_, operands) = plain(graph, id)?;
    match operands.as_slice() {
        [x] => Some(*x),
        _ => None,
    }
}

/// Returns the function and operands of an elementwise node without an epilogue.
pub(super) fn elementwise(graph: &Graph, id: NodeId) -> Option<(Element, Vec<NodeId>)> {
    match plain(graph, id)? {
        (Op::Elementwise(e), operands) => Some((e.element, operands)),
        _ => None,
    }
}

/// Returns the function and operand of a unary elementwise node without an epilogue.
pub(super) fn unary(graph: &Graph, id: NodeId) -> Option<(UnaryFn, NodeId)> {
    match elementwise(graph, id)? {
        (Element::Unary(f), operands) => Some((f, *operands.first()?)),
        _ => None,
    }
}

/// Returns the operand of a unary elementwise node with the given function and without an epilogue.
pub(super) fn unary_of(graph: &Graph, id: NodeId, f: UnaryFn) -> Option<NodeId> {
    unary(graph, id).filter(|(g, _)| *g == f).map(|(_, x)| x)
}

/// Returns the function and operands of a binary elementwise node without an epilogue.
pub(super) fn binary(graph: &Graph, id: NodeId) -> Option<(BinaryFn, NodeId, NodeId)> {
    match elementwise(graph, id)? {
        (Element::Binary(f), operands) => match operands.as_slice() {
            [a, b] => Some((f, *a, *b)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the operands of a binary elementwise node with the given function and without an epilogue.
pub(super) fn binary_of(graph: &Graph, id: NodeId, f: BinaryFn) -> Option<(NodeId, NodeId)> {
    binary(graph, id).filter(|(g, ..)| *g == f).map(|(_, a, b)| (a, b))
}

/// Returns the operands of a commutative binary elementwise node in both orders.
pub(super) fn both_orders(graph: &Graph, id: NodeId, f: BinaryFn) -> Vec<(NodeId, NodeId)> {
    binary_of(graph, id, f).map_or_else(Vec::new, |(a, b)| vec![(a, b), (b, a)])
}

/// Returns `(scale, shift, x)` of a node that computes `x * scale + shift`; `None` for other nodes.
pub(super) fn affine(graph: &Graph, id: NodeId) -> Option<(f32, f32, NodeId)> {
    match unary(graph, id)? {
        (UnaryFn::Affine { scale, shift }, x) => Some((scale, shift, x)),
        _ => None,
    }
}

/// Returns the common value of a constant whose elements are all equal.
pub(super) fn splat(graph: &Graph, id: NodeId) -> Option<f64> {
    let constant = graph.constant(id)?;
    let stored = constant.encoding.plain_dtype()?;
    let width = stored.bytes();
    let first = constant.bytes.get(..width)?;
    if !constant.bytes.chunks_exact(width).all(|c| c == first) {
        return None;
    }
    let one = Array::from_bytes(stored, &[], first).ok()?;
    let one = if stored == constant.dtype { one } else { one.cast(constant.dtype) };
    match one.ints() {
        Ok(v) => v.first().map(|v| *v as f64),
        Err(_) => one.floats().ok()?.first().map(|v| f64::from(*v)),
    }
}

/// Returns the shape and elements of a float constant.
pub(super) fn floats(graph: &Graph, id: NodeId) -> Option<(Vec<usize>, Vec<f32>)> {
    let constant = graph.constant(id).filter(|c| c.dtype.is_float())?;
    let array = constant.to_array().ok()?;
    Some((array.shape.clone(), array.to_floats()))
}

/// Adds a float constant to the graph.
pub(super) fn add_floats(
    graph: &mut Graph,
    dtype: DType,
    shape: &[usize],
    values: Vec<f32>,
    name: &str,
) -> Result<NodeId> {
    graph.add_constant(Constant::from_array(&Array::float(dtype, shape, values)), name)
}

/// Adds a unary elementwise node to the graph.
pub(super) fn add_unary(graph: &mut Graph, f: UnaryFn, x: NodeId, name: &str) -> Result<NodeId> {
    graph.add(Elementwise { element: Element::Unary(f) }, &[x], name)
}

/// Adds a node that computes `x * scale + shift`. Returns `x` itself if scale and shift change nothing.
pub(super) fn add_affine(graph: &mut Graph, scale: f32, shift: f32, x: NodeId, name: &str) -> Result<NodeId> {
    if scale == 1.0 && shift == 0.0 {
        return Ok(x);
    }
    add_unary(graph, UnaryFn::Affine { scale, shift }, x, name)
}

/// Adds a binary elementwise node to the graph.
pub(super) fn add_binary(graph: &mut Graph, f: BinaryFn, a: NodeId, b: NodeId, name: &str) -> Result<NodeId> {
    graph.add(Elementwise { element: Element::Binary(f) }, &[a, b], name)
}

/// Returns the name of a node, for the nodes that replace it.
pub(super) fn name(graph: &Graph, id: NodeId) -> String {
    graph.node(id).name.clone()
}

/// Splits the product that a node computes into `coefficient * factors`. Nodes in `atomic` are not split.
pub(super) fn factors(graph: &Graph, id: NodeId, atomic: &[NodeId]) -> (f64, Vec<NodeId>) {
    let mut coefficient = 1.0;
    let mut found = Vec::new();
    let mut stack = vec![id];
    while let Some(next) = stack.pop() {
        let scaled = affine(graph, next).filter(|(_, shift, _)| *shift == 0.0);
        let product = binary_of(graph, next, BinaryFn::Mul);
        match (scaled, product) {
            _ if atomic.contains(&next) || found.len() + stack.len() >= MAX_FACTORS => found.push(next),
            (Some((scale, _, x)), _) => {
                coefficient *= f64::from(scale);
                stack.push(x);
            }
            (_, Some((a, b))) => stack.extend([a, b]),
            _ => found.push(next),
        }
    }
    (coefficient, found)
}

/// Maximum number of factors of a product; longer products are not split further.
const MAX_FACTORS: usize = 8;

/// Returns true if two numbers agree to 4 digits, the precision with which models write constants.
pub(super) fn nearly_equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * a.abs().max(b.abs())
}
