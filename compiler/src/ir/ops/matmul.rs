//! Matrix product over the last two axes of operands of rank two or more; leading axes broadcast.
//!
//! `[.., M, K] x [.., K, N] -> [.., M, N]`; a transposed operand has its last two axes swapped before the product.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{TensorDesc, broadcast};

/// Matrix product over the last two axes of operands of rank two or more; leading axes broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatMul {
    /// Whether the first operand is `[.., K, M]`.
    pub trans_a: bool,
    /// Whether the second operand is `[.., N, K]`.
    pub trans_b: bool,
}

impl Operation for MatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let a = check::operands(inputs, 2..=2)?;
        let b = inputs[1];
        check::same_type(inputs)?;
        check::numeric(a, "the first operand")?;
        let ([batch_a @ .., a0, a1], [batch_b @ .., b0, b1]) = (a.shape.as_slice(), b.shape.as_slice())
        else {
            return Err(OpError::new(format!("operands of rank two or more are needed, not {a} and {b}")));
        };
        let (m, ka) = if self.trans_a { (a1, a0) } else { (a0, a1) };
        let (kb, n) = if self.trans_b { (b1, b0) } else { (b0, b1) };
        check::equal(ka, kb, "inner sizes")?;
        let mut shape = broadcast(&[batch_a, batch_b])?;
        shape.extend([m.clone(), n.clone()]);
        Ok(TensorDesc::new(a.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
