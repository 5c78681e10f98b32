//! Softmax or log-softmax along one axis.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Softmax or log-softmax along one axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
    /// Whether the logarithm is returned.
    pub log: bool,
}

impl Operation for Softmax {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::float(x, "the input")?;
        check::axis(x, self.axis)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
