//! Scales and zero points as operands of quantized operators.

use super::lowering::{Call, Lowered};
use super::quantization::is_zero;
use super::refused::Refused;
use crate::ir::array::Array;
use crate::ir::element::BinaryFn;
use crate::ir::graph::NodeId;
use crate::ir::tensor::DType;

/// Reshapes a value with one element to a scalar; returns other values as they are.
pub(super) fn as_scalar(call: &mut Call<'_>, x: NodeId) -> Lowered<NodeId> {
    if !call.shape(x).iter().all(|d| d.is(1)) {
        return Ok(x);
    }
    match call.constant(x) {
        Some(array) => Ok(call.b.constant(&Array { shape: Vec::new(), ..array })?),
        None => Ok(call.b.reshape(x, Vec::new())?),
    }
}

/// Converts a quantized tensor to i32 and subtracts its zero point.
pub(super) fn subtract_zero_point(call: &mut Call<'_>, x: NodeId, zero: Option<NodeId>) -> Lowered<NodeId> {
    let x = call.b.cast(x, DType::I32)?;
    match zero {
        Some(zero) => {
            let zero = call.b.cast(zero, DType::I32)?;
            Ok(call.b.binary(BinaryFn::Sub, x, zero)?)
        }
        None => Ok(x),
    }
}

/// Fails unless a zero point has the type of its quantized tensor.
pub(super) fn check_zero(call: &Call<'_>, zero: NodeId, quantized: DType) -> Lowered<()> {
    let dtype = call.dtype(zero);
    if dtype == quantized {
        return Ok(());
    }
    Err(Refused::new(format!(
        "the zero point has type {}, but the quantized tensor has type {}",
        dtype.name(),
        quantized.name()
    )))
}

/// Returns operand `index` as the zero point of a tensor of type `quantized`; `None` if it is absent or known to be
/// zero.
pub(super) fn zero_point(call: &mut Call<'_>, index: usize, quantized: DType) -> Lowered<Option<NodeId>> {
    let zero = call.optional(index)?;
    if let Some(zero) = zero {
        check_zero(call, zero, quantized)?;
    }
    nonzero(call, zero)
}

/// Returns a zero point, as a scalar if it is one number; `None` if it is absent or known to be zero.
pub(super) fn nonzero(call: &mut Call<'_>, zero: Option<NodeId>) -> Lowered<Option<NodeId>> {
    if is_zero(call.b.graph, zero) {
        return Ok(None);
    }
    zero.map(|z| as_scalar(call, z)).transpose()
}
