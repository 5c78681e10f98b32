//! `out[i] = x[starts + i * steps]` per axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// `out[i] = x[starts + i * steps]` per axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// First element, per axis.
    pub starts: Vec<Dim>,
    /// Step, per axis; may be negative, never zero.
    pub steps: Vec<i64>,
    /// Elements kept, per axis.
    pub sizes: Vec<Dim>,
}

impl Operation for Slice {
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
