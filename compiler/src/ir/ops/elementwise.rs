//! An element function over operands that broadcast to the result.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::Element;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::{DType, TensorDesc, broadcast};

/// An element function over operands that broadcast to the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Elementwise {
    /// What is applied.
    pub element: Element,
}

impl Operation for Elementwise {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let types: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        let dtype = self.element.check(&types)?;
        let shapes: Vec<&[Dim]> = inputs.iter().map(|t| t.shape.as_slice()).collect();
        Ok(TensorDesc::new(dtype, broadcast(&shapes)?))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Elementwise
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
