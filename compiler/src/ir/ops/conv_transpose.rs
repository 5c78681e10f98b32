//! Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
//!
//! Output extent: `(in - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - pads_begin - pads_end`.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Per spatial axis.
    pub strides: Vec<usize>,
    /// Per spatial axis.
    pub dilations: Vec<usize>,
    /// Cropped before, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Cropped after, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Extra extent at the end, per spatial axis.
    pub output_padding: Vec<usize>,
    /// Number of independent channel groups.
    pub group: usize,
}

impl Operation for ConvTranspose {
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
