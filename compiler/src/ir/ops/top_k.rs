//! The k largest or smallest elements along an axis in order, or their indices (i64); ties keep the lower index first.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

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
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
