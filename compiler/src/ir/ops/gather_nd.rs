//! Slices picked by index tuples along the last axis of the second operand (ONNX GatherND).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Slices picked by index tuples along the last axis of the second operand (ONNX GatherND).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherNd {
    /// Leading axes shared by both operands.
    pub batch_dims: usize,
}

impl Operation for GatherNd {
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
