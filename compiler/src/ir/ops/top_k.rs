//! The k largest or smallest elements along an axis in order, or their indices (i64); ties keep the lower index first.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc};

/// The k largest or smallest elements along an axis in order, or their indices (i64); ties keep the lower index first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopK {
    /// The axis.
    pub axis: usize,
    /// How many.
    pub k: usize,
    /// Largest rather than smallest.
    pub largest: bool,
    /// Whether the result is the indices rather than the values.
    pub indices: bool,
}

impl Operation for TopK {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::numeric(x, "the input")?;
        let k = check::small(self.k, "k")?;
        if check::axis(x, self.axis)?.as_known().is_some_and(|n| k > n) {
            return Err(OpError::new(format!("axis {} of {x} has fewer than {k} elements", self.axis)));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = Dim::known(k);
        Ok(TensorDesc::new(if self.indices { DType::I64 } else { x.dtype }, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
