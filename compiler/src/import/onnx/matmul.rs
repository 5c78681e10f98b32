//! Matrix multiplication operators.

use super::elementwise::typed_binary;
use super::lowering::{Call, Lowered, OpEntry, microsoft, op};
use super::refused::Refused;
use crate::ir::dim::Dim;
use crate::ir::element::{BinaryFn, UnaryFn};
use crate::ir::graph::NodeId;
use crate::ir::op::MatMul;

pub(super) const OPS: &[OpEntry] = &[
    op("MatMul", 1, matmul),
    op("Gemm", 1, gemm),
    microsoft("FusedMatMul", fused_matmul),
    microsoft("TransposeMatMul", fused_matmul),
];

fn matmul(call: &mut Call<'_>) -> Lowered {
    let (a, b) = (call.node(0)?, call.node(1)?);
    Ok(numpy_matmul(call, a, b)?.into())
}

/// Adds a matmul to the graph with the rules of ONNX and NumPy: a vector operand gets an axis of size 1, which the
/// result drops.
pub(super) fn numpy_matmul(call: &mut Call<'_>, a: NodeId, b: NodeId) -> Lowered<NodeId> {
    let (left, right) = (call.shape(a), call.shape(b));
    let (mut matrix_a, mut matrix_b) = (a, b);
    if let [n] = left.as_slice() {
        matrix_a = call.b.reshape(a, vec![Dim::known(1), n.clone()])?;
    }
    if let [n] = right.as_slice() {
        matrix_b = call.b.reshape(b, vec![n.clone(), Dim::known(1)])?;
    }
    let result = call.b.matmul(matrix_a, matrix_b)?;
    let mut shape = call.shape(result);
    let rank = shape.len();
    if right.len() == 1 {
        shape.remove(rank - 1);
    }
    if left.len() == 1 {
        shape.remove(rank - 2);
    }
    Ok(call.b.reshape(result, shape)?)
}

fn gemm(call: &mut Call<'_>) -> Lowered {
    let (a, b) = (call.node(0)?, call.node(1)?);
    let trans_a = call.attributes.flag("transA", false)?;
    let trans_b = call.attributes.flag("transB", false)?;
    let alpha = call.attributes.float("alpha", 1.0)?;
    let beta = call.attributes.float("beta", 1.0)?;
    if call.opset < 7 {
        call.attributes.ignore(&["broadcast"]);
    }
    if call.rank(a) != 2 || call.rank(b) != 2 {
        return Err(Refused::new("operands 0 and 1 must have rank 2"));
    }
    let matmul = call.add(MatMul { trans_a, trans_b }, &[a, b])?;
    let mut result = scaled(call, matmul, alpha)?;
    if let Some(c) = call.optional(2)? {
        let c = scaled(call, c, beta)?;
        result = typed_binary(call, BinaryFn::Add, result, c)?;
    }
    Ok(result.into())
}

/// Multiplies a value by a number.
pub(super) fn scaled(call: &mut Call<'_>, x: NodeId, scale: f32) -> Lowered<NodeId> {
    if scale == 1.0 {
        return Ok(x);
    }
    if !call.dtype(x).is_float() {
        return Err(Refused::new(
            "attributes `alpha` and `beta` other than 1 are not supported for integers",
        ));
    }
    Ok(call.b.unary(UnaryFn::Affine { scale, shift: 0.0 }, x)?)
}

fn fused_matmul(call: &mut Call<'_>) -> Lowered {
    let (mut a, mut b) = (call.node(0)?, call.node(1)?);
    let trans_a = call.attributes.flag("transA", false)? && call.rank(a) > 1;
    let trans_b = call.attributes.flag("transB", false)? && call.rank(b) > 1;
    let alpha = call.attributes.float("alpha", 1.0)?;
    if call.attributes.flag("transBatchA", false)? {
        a = batch_transposed(call, a)?;
    }
    if call.attributes.flag("transBatchB", false)? {
        b = batch_transposed(call, b)?;
    }
    let result = if call.rank(a) > 1 && call.rank(b) > 1 {
        call.add(MatMul { trans_a, trans_b }, &[a, b])?
    } else {
        numpy_matmul(call, a, b)?
    };
    Ok(scaled(call, result, alpha)?.into())
}

/// Moves the first axis of a matmul's operand to the place after the batch axes: `[m, b0, .., k]` becomes `[b0, .., m, k]`.
fn batch_transposed(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    let rank = call.rank(x);
    if rank < 3 {
        return Ok(x);
    }
    let mut perm: Vec<usize> = (1..rank - 1).collect();
    perm.extend([0, rank - 1]);
    Ok(call.b.transpose(x, perm)?)
}
