//! Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv {
    /// Per spatial axis.
    pub strides: Vec<usize>,
    /// Per spatial axis.
    pub dilations: Vec<usize>,
    /// Zeros before, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Zeros after, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Number of independent channel groups.
    pub group: usize,
}

impl Operation for Conv {
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
