//! Matrix product over the last two axes of operands of rank two or more; leading axes broadcast.
//!
//! `[.., M, K] x [.., K, N] -> [.., M, N]`; a transposed operand has its last two axes swapped before the product.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Matrix product over the last two axes of operands of rank two or more; leading axes broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatMul {
    /// Whether the first operand is `[.., K, M]`.
    pub trans_a: bool,
    /// Whether the second operand is `[.., N, K]`.
    pub trans_b: bool,
}

impl Operation for MatMul {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
