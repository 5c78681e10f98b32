//! What the passes share: looking at nodes without epilogues, and replacing one value by an equal one.
//!
//! Passes run before anything is fused look only at nodes with an empty epilogue, so a chained node never matches.

use super::Changes;
use crate::error::Result;
use crate::ir::array::Array;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Constant, Element, Elementwise, Op, UnaryFn};
use crate::ir::tensor::DType;

/// Rounds after which a pass stops looking for more work; an epilogue of that depth does not occur.
const MAX_ROUNDS: usize = 64;

/// A rewrite of one node: the value that may replace it, if any.
pub(super) type Rule = fn(&mut Graph, NodeId) -> Result<Option<NodeId>>;

/// Applies named rules to every node until none matches.
pub(super) fn rewrite(graph: &mut Graph, rules: &[(&str, Rule)]) -> Result<Changes> {
    let mut changes = Changes::default();
    for _ in 0..MAX_ROUNDS {
        let before = changes.count;
        for id in graph.topological() {
            if graph.use_count(id) == 0 {
                continue;
            }
            for (what, rule) in rules {
                if let Some(new) = rule(graph, id)?
                    && substitute(graph, id, new)
                {
                    changes.note(graph, id, *what);
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

/// Makes every use of `old` a use of `new`, when both have the same type and shape.
pub(super) fn substitute(graph: &mut Graph, old: NodeId, new: NodeId) -> bool {
    if old == new || !alike(graph, old, new) {
        return false;
    }
    graph.replace_uses(old, new);
    true
}

/// Whether two values have the same type and shape.
pub(super) fn alike(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (graph.tensor(a), graph.tensor(b));
    a.dtype == b.dtype && a.shape == b.shape
}

/// Whether the value has one user and is no result of the graph.
pub(super) fn single_use(graph: &Graph, id: NodeId) -> bool {
    graph.users(id).len() == 1 && !graph.is_output(id)
}

/// The operator of a node without an epilogue, with its operands.
pub(super) fn plain(graph: &Graph, id: NodeId) -> Option<(&Op, Vec<NodeId>)> {
    let node = graph.node(id);
    node.epilogue.is_empty().then(|| (&node.op, graph.operands(id)))
}

/// The only operand of a node without an epilogue.
pub(super) fn only_operand(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let (_, operands) = plain(graph, id)?;
    match operands.as_slice() {
        [x] => Some(*x),
        _ => None,
    }
}

/// The element function of an elementwise node without an epilogue, with its operands.
pub(super) fn elementwise(graph: &Graph, id: NodeId) -> Option<(Element, Vec<NodeId>)> {
    match plain(graph, id)? {
        (Op::Elementwise(e), operands) => Some((e.element, operands)),
        _ => None,
    }
}

/// The function and operand of a unary node.
pub(super) fn unary(graph: &Graph, id: NodeId) -> Option<(UnaryFn, NodeId)> {
    match elementwise(graph, id)? {
        (Element::Unary(f), operands) => Some((f, *operands.first()?)),
        _ => None,
    }
}

/// The operand of a unary node with the given function.
pub(super) fn unary_of(graph: &Graph, id: NodeId, f: UnaryFn) -> Option<NodeId> {
    unary(graph, id).filter(|(g, _)| *g == f).map(|(_, x)| x)
}

/// The function and operands of a binary node.
pub(super) fn binary(graph: &Graph, id: NodeId) -> Option<(BinaryFn, NodeId, NodeId)> {
    match elementwise(graph, id)? {
        (Element::Binary(f), operands) => match operands.as_slice() {
            [a, b] => Some((f, *a, *b)),
            _ => None,
        },
        _ => None,
    }
}

/// The operands of a binary node with the given function.
pub(super) fn binary_of(graph: &Graph, id: NodeId, f: BinaryFn) -> Option<(NodeId, NodeId)> {
    binary(graph, id).filter(|(g, ..)| *g == f).map(|(_, a, b)| (a, b))
}

/// The operands of a commutative binary node, in both orders.
pub(super) fn both_orders(graph: &Graph, id: NodeId, f: BinaryFn) -> Vec<(NodeId, NodeId)> {
    binary_of(graph, id, f).map_or_else(Vec::new, |(a, b)| vec![(a, b), (b, a)])
}

/// `(scale, shift, x)` of a node `x * scale + shift`.
pub(super) fn affine(graph: &Graph, id: NodeId) -> Option<(f32, f32, NodeId)> {
    match unary(graph, id)? {
        (UnaryFn::Affine { scale, shift }, x) => Some((scale, shift, x)),
        _ => None,
    }
}

/// The value that every element of a constant has.
pub(super) fn splat(graph: &Graph, id: NodeId) -> Option<f64> {
    let constant = graph.constant(id)?;
    let stored = constant.stored.plain()?;
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

/// The elements of a float constant.
pub(super) fn floats(graph: &Graph, id: NodeId) -> Option<(Vec<usize>, Vec<f32>)> {
    let constant = graph.constant(id).filter(|c| c.dtype.is_float())?;
    let array = constant.to_array().ok()?;
    Some((array.shape.clone(), array.to_floats()))
}

/// Adds a float constant.
pub(super) fn add_floats(
    graph: &mut Graph,
    dtype: DType,
    shape: &[usize],
    values: Vec<f32>,
    name: &str,
) -> Result<NodeId> {
    graph.add_constant(Constant::from_array(&Array::float(dtype, shape, values)), name)
}

/// Adds a unary node.
pub(super) fn add_unary(graph: &mut Graph, f: UnaryFn, x: NodeId, name: &str) -> Result<NodeId> {
    graph.add(Elementwise { element: Element::Unary(f) }, &[x], name)
}

/// Adds `x * scale + shift`, or nothing for the identity.
pub(super) fn add_affine(graph: &mut Graph, scale: f32, shift: f32, x: NodeId, name: &str) -> Result<NodeId> {
    if scale == 1.0 && shift == 0.0 {
        return Ok(x);
    }
    add_unary(graph, UnaryFn::Affine { scale, shift }, x, name)
}

/// Adds a binary node.
pub(super) fn add_binary(graph: &mut Graph, f: BinaryFn, a: NodeId, b: NodeId, name: &str) -> Result<NodeId> {
    graph.add(Elementwise { element: Element::Binary(f) }, &[a, b], name)
}

/// The name of a node, to give to the nodes that replace it.
pub(super) fn name(graph: &Graph, id: NodeId) -> String {
    graph.node(id).name.clone()
}

/// A node as a product `coefficient * factors`, where the nodes in `whole` are not taken apart.
pub(super) fn factors(graph: &Graph, id: NodeId, whole: &[NodeId]) -> (f64, Vec<NodeId>) {
    let mut coefficient = 1.0;
    let mut found = Vec::new();
    let mut stack = vec![id];
    while let Some(next) = stack.pop() {
        let scaled = affine(graph, next).filter(|(_, shift, _)| *shift == 0.0);
        let product = binary_of(graph, next, BinaryFn::Mul);
        match (scaled, product) {
            _ if whole.contains(&next) || found.len() + stack.len() >= MAX_FACTORS => found.push(next),
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

/// Factors after which a product is not taken apart any further.
const MAX_FACTORS: usize = 8;

/// Whether two numbers agree to the digits that models write constants with.
pub(super) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * a.abs().max(b.abs())
}
