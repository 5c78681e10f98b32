//! The index of the largest or smallest element along an axis, as i64.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc};

/// The index of the largest or smallest element along an axis, as i64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgReduce {
    /// The axis.
    pub axis: usize,
    /// Largest rather than smallest.
    pub largest: bool,
    /// The last of equal elements rather than the first.
    pub last: bool,
    /// Whether the axis stays with size 1.
    pub keepdims: bool,
}

impl Operation for ArgReduce {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::numeric(x, "the input")?;
        if check::axis(x, self.axis)?.is(0) {
            return Err(OpError::new(format!("axis {} of {x} has no element to choose", self.axis)));
        }
        let mut shape = x.shape.clone();
        if self.keepdims {
            shape[self.axis] = Dim::known(1);
        } else {
            shape.remove(self.axis);
        }
        Ok(TensorDesc::new(DType::I64, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
