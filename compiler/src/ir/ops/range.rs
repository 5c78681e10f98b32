//! The integers `start, start + step, ...` (no operand).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc};

/// The integers `start, start + step, ...` (no operand).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// An integer type.
    pub dtype: DType,
    /// First element.
    pub start: Dim,
    /// Difference of neighbours.
    pub step: i64,
    /// Number of elements.
    pub length: Dim,
}

impl Operation for Range {
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
