//! A copy of the first operand with updates (third) at indices (second) along an axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Combine, Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::ops::gather_elements::check_inside;
use crate::ir::tensor::{DType, TensorDesc};

/// A copy of the first operand with updates (third) at indices (second) along an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterElements {
    /// The axis.
    pub axis: usize,
    /// How an update combines with what is there.
    pub combine: Combine,
}

impl Operation for ScatterElements {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices, updates] = exactly(inputs)?;
        check::indices(indices)?;
        check_inside(x, indices, self.axis)?;
        check_updates(self.combine, x, updates, &indices.shape)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}

/// Fails unless the updates have the tensor's type and the given shape, and the type can be combined.
pub(super) fn check_updates(
    combine: Combine,
    x: &TensorDesc,
    updates: &TensorDesc,
    shape: &[Dim],
) -> Result<(), OpError> {
    let same = shape.len() == updates.rank()
        && shape.iter().zip(&updates.shape).all(|(a, b)| check::equal(a, b, "sizes").is_ok());
    if updates.dtype != x.dtype || !same {
        let needed = TensorDesc::new(x.dtype, shape.to_vec());
        return Err(OpError::new(format!("updates must be {needed}, not {updates}")));
    }
    if combine != Combine::Replace && x.dtype == DType::Bool {
        return Err(OpError::new("bool updates can only replace"));
    }
    Ok(())
}
