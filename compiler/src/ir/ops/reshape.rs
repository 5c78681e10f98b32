//! The same elements in row-major order under another shape.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{equal, exactly};
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

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
