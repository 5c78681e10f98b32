//! Computes matmuls and convolutions of 8-bit integers in floats, on targets without integer dot instructions.
//!
//! ```text
//! %2 = conv %0 %1 {"zero_point":3}  : i32    ->    %3 = cast %0 {"to":"f32"}
//!                                                  %4 = affine %3 {"scale":1.0,"shift":-3.0}
//!                                                  %5 = conv %4 %float_1 {}
//!                                                  %2 = cast %5 {"to":"i32"}
//! ```
//!
//! Floats hold integers up to 2^24 exactly. A node is rewritten only if its weights are constant and no sum can be
//! larger, so the result does not change. Depthwise convolutions have kernels that do the same without copies.

use super::matching::{name, plain, rewrite};
use super::{Changes, Context};
use crate::error::Result;
use crate::ir::builder::Builder;
use crate::ir::element::UnaryFn;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Conv, MatMul, Op};
use crate::ir::tensor::DType;

/// Magnitude from which f32 does not represent every integer.
const INEXACT: i64 = 1 << 24;

/// Rewrites matmuls and convolutions of integers.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    if context.target.features.int_dot_product {
        return Ok(Changes::default());
    }
    rewrite(graph, &[("computed with floats: the target has no integer dot instructions", widen)])
}

fn widen(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Some((op, operands)) = plain(graph, id) else { return Ok(None) };
    let (op, zero_point) = match op {
        Op::Conv(conv) if conv.group == 1 => {
            (Op::Conv(Conv { zero_point: 0, ..conv.clone() }), conv.zero_point)
        }
        Op::MatMul(_) => (op.clone(), 0),
        _ => return Ok(None),
    };
    let [x, w] = operands.as_slice() else { return Ok(None) };
    let inputs = graph.tensor(*x).dtype;
    let exact =
        largest_sum(graph, &op, *w).is_some_and(|sum| sum * largest_input(inputs, zero_point) < INEXACT);
    if graph.tensor(id).dtype != DType::I32 || !exact {
        return Ok(None);
    }
    let name = name(graph, id);
    let mut g = Builder::new(graph, &name);
    let mut first = g.cast(*x, DType::F32)?;
    if zero_point != 0 {
        first = g.unary(UnaryFn::Affine { scale: 1.0, shift: -zero_point as f32 }, first)?;
    }
    let second = g.cast(*w, DType::F32)?;
    let sums = g.add(op, &[first, second])?;
    g.cast(sums, DType::I32).map(Some)
}

/// Returns the largest magnitude of an 8-bit integer minus its zero point.
fn largest_input(dtype: DType, zero_point: i64) -> i64 {
    let (low, high) = if dtype.is_unsigned() { (0, 255) } else { (-128, 127) };
    (high - zero_point).abs().max((low - zero_point).abs())
}

/// Returns the largest sum of the magnitudes of the weights that a result element depends on. Returns `None` if the
/// weights are not constant.
fn largest_sum(graph: &Graph, op: &Op, weights: NodeId) -> Option<i64> {
    let array = graph.constant(weights)?.to_array().ok()?;
    let values = array.ints().ok()?;
    let sum = |column: &mut dyn Iterator<Item = &i64>| column.map(|v| v.abs()).sum::<i64>();
    match (op, array.shape.as_slice()) {
        (Op::MatMul(MatMul { trans_b: false, .. }), [.., rows, columns]) => {
            let matrices = values.chunks((rows * columns).max(1));
            let columns = matrices.flat_map(|matrix| {
                (0..*columns).map(move |n| sum(&mut matrix.iter().skip(n).step_by((*columns).max(1))))
            });
            columns.max()
        }
        (Op::MatMul(_), [.., row]) => values.chunks((*row).max(1)).map(|row| sum(&mut row.iter())).max(),
        (_, [outputs, ..]) => {
            let filter = (values.len() / (*outputs).max(1)).max(1);
            values.chunks(filter).map(|filter| sum(&mut filter.iter())).max()
        }
        _ => None,
    }
}
