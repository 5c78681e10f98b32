//! Lowers Softmax, LogSoftmax and Hardmax.

use super::lowering::{Call, Lowered, OpEntry, op};
use crate::ir::dim::{Dim, product};
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::op::{ArgReduce, Range, Softmax};
use crate::ir::tensor::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("Softmax", 1, |c| along_axis(c, |c, x, axis| c.add(Softmax { axis, log: false }, &[x]))),
    op("LogSoftmax", 1, |c| along_axis(c, |c, x, axis| c.add(Softmax { axis, log: true }, &[x]))),
    op("Hardmax", 1, |c| along_axis(c, hardmax)),
];

/// Applies Softmax, LogSoftmax or Hardmax to operand 0.
fn along_axis(call: &mut Call<'_>, f: fn(&mut Call<'_>, NodeId, usize) -> Lowered<NodeId>) -> Lowered {
    let (x, opset) = (call.node(0)?, call.opset);
    Ok(apply(call, x, opset, f)?.into())
}

/// Applies a function along the attribute `axis` of `x`. Before opset 13 the axes from `axis` on are flattened to one.
fn apply(
    call: &mut Call<'_>,
    x: NodeId,
    opset: i64,
    f: fn(&mut Call<'_>, NodeId, usize) -> Lowered<NodeId>,
) -> Lowered<NodeId> {
    let rank = call.rank(x);
    if opset >= 13 {
        let axis = call.axis(-1, rank)?;
        return f(call, x, axis);
    }
    let axis = call.axis(1, rank)?;
    if axis + 1 == rank {
        return f(call, x, axis);
    }
    let shape = call.shape(x);
    let flat = call.b.reshape(x, vec![product(&shape[..axis]), product(&shape[axis..])])?;
    let result = f(call, flat, 1)?;
    Ok(call.b.reshape(result, shape)?)
}

/// Computes the softmax of `x` along the attribute `axis`, as the operator Softmax of the given opset.
pub(super) fn softmax(call: &mut Call<'_>, x: NodeId, opset: i64) -> Lowered<NodeId> {
    apply(call, x, opset, |c, x, axis| c.add(Softmax { axis, log: false }, &[x]))
}

/// Computes Hardmax: 1 at the first largest element along an axis, 0 elsewhere.
fn hardmax(call: &mut Call<'_>, x: NodeId, axis: usize) -> Lowered<NodeId> {
    let (shape, dtype) = (call.shape(x), call.dtype(x));
    let best = call.add(ArgReduce { axis, largest: true, last: false, keepdims: true }, &[x])?;
    let length = shape[axis].clone();
    let positions =
        call.add(Range { dtype: DType::I64, start: Dim::known(0), step: 1, length: length.clone() }, &[])?;
    let mut along = vec![Dim::known(1); shape.len()];
    along[axis] = length;
    let positions = call.b.reshape(positions, along)?;
    let is_best = call.b.binary(BinaryFn::Equal, positions, best)?;
    Ok(call.b.cast(is_best, dtype)?)
}
