//! Recognizes softmax and log-softmax that a model spells out.
//!
//! ```text
//! %1 = reduce max %0
//! %2 = sub %0 %1
//! %3 = exp %2
//! %4 = reduce sum %3
//! %5 = div %3 %4                             ->      %5 = softmax %0
//! ```
//!
//! The subtraction of the maximum is optional: it only prevents overflow.

use super::matching::{binary_of, both_orders, name, plain, rewrite, unary_of};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Op, Softmax, UnaryFn};
use crate::ir::ops::reduce::ReduceKind;

/// Recognizes softmax.
pub fn run(graph: &mut Graph, _context: &Context<'_>) -> Result<Changes> {
    rewrite(graph, &[("recognized as softmax", softmax), ("recognized as log-softmax", log_softmax)])
}

/// Returns the axis and operand of a reduction along one axis with `keepdims`.
fn reduction(graph: &Graph, id: NodeId, kind: ReduceKind) -> Option<(usize, NodeId)> {
    let (Op::Reduce(reduce), operands) = plain(graph, id)? else { return None };
    match reduce.axes.as_slice() {
        [axis] if reduce.kind == kind && reduce.keepdims => Some((*axis, *operands.first()?)),
        _ => None,
    }
}

fn softmax(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let quotient = binary_of(graph, id, BinaryFn::Div);
    let product = both_orders(graph, id, BinaryFn::Mul)
        .into_iter()
        .find_map(|(e, r)| Some((e, unary_of(graph, r, UnaryFn::Reciprocal)?)));
    let found = quotient.or(product).and_then(|(exp, sum)| {
        let (axis, summed) = reduction(graph, sum, ReduceKind::Sum)?;
        let arg = unary_of(graph, exp, UnaryFn::Exp).filter(|_| summed == exp)?;
        Some((axis, without_maximum(graph, arg, axis)))
    });
    let Some((axis, x)) = found else { return Ok(None) };
    graph.add(Softmax { axis, log: false }, &[x], &name(graph, id)).map(Some)
}

/// Returns `x` if a value is computed as `x - max(x)`, with the maximum along the axis; otherwise returns the value itself.
fn without_maximum(graph: &Graph, id: NodeId, axis: usize) -> NodeId {
    let x = binary_of(graph, id, BinaryFn::Sub).and_then(|(x, max)| {
        let (along, reduced) = reduction(graph, max, ReduceKind::Max)?;
        (along == axis && reduced == x).then_some(x)
    });
    x.unwrap_or(id)
}

fn log_softmax(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let log = unary_of(graph, id, UnaryFn::Log).and_then(|p| match plain(graph, p)? {
        (Op::Softmax(Softmax { axis, log: false }), operands) => Some((*axis, *operands.first()?)),
        _ => None,
    });
    let difference = || {
        let (x, sum) = binary_of(graph, id, BinaryFn::Sub)?;
        let direct = reduction(graph, sum, ReduceKind::LogSumExp).filter(|(_, reduced)| *reduced == x);
        let spelled = || {
            let (axis, exp) = reduction(graph, unary_of(graph, sum, UnaryFn::Log)?, ReduceKind::Sum)?;
            (unary_of(graph, exp, UnaryFn::Exp)? == x).then_some((axis, x))
        };
        let (axis, _) = direct.or_else(spelled)?;
        Some((axis, without_maximum(graph, x, axis)))
    };
    let Some((axis, x)) = log.or_else(difference) else { return Ok(None) };
    graph.add(Softmax { axis, log: true }, &[x], &name(graph, id)).map(Some)
}
