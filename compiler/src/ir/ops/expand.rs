//! Broadcast to a shape; sizes of 1 repeat, leading axes appear.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Broadcast to a shape; sizes of 1 repeat, leading axes appear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// The result's shape.
    pub shape: Vec<Dim>,
}

impl Operation for Expand {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
