//! The same elements in row-major order under another shape.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, equal, exactly};
use crate::ir::tensor::{MAX_RANK, TensorDesc};

/// The same elements in row-major order under another shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reshape {
    /// The shape.
    pub shape: Vec<Dim>,
}

impl Operation for Reshape {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        if self.shape.len() > MAX_RANK {
            return Err(OpError::new(format!("rank {} exceeds {MAX_RANK}", self.shape.len())));
        }
        let result = TensorDesc::new(x.dtype, self.shape.clone());
        if equal(&x.elements(), &result.elements(), "element counts").is_err() {
            return Err(OpError::new(format!("{x} does not have as many elements as {result}")));
        }
        Ok(result)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self { shape: check::substitute(&self.shape, symbols) };
        check::concrete(&bound, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("one operand is needed")) };
        Ok(Array { shape: out.to_vec(), ..(*x).clone() })
    }
}
