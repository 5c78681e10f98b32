//! Normalises over the axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`, or with `rms` `x / sqrt(mean(x^2) + epsilon) * scale`.
//!
//! Operands: x, scale and an optional bias; scale and bias broadcast to x.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Normalises over the axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`, or with `rms` `x / sqrt(mean(x^2) + epsilon) * scale`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// First normalised axis.
    pub axis: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Root mean square without centring.
    pub rms: bool,
}

impl Operation for LayerNorm {
    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        Err(OpError::new("no shape rule yet"))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
