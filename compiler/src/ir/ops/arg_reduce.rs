//! The index of the largest or smallest element along an axis, as i64.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

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
