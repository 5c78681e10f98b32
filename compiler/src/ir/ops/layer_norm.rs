//! Normalises over the axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`, or with `rms` `x / sqrt(mean(x^2) + epsilon) * scale`.
//!
//! Operands: x, scale and an optional bias; scale and bias broadcast to x.

use serde::{Deserialize, Serialize};

use super::check;
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
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 2..=3)?;
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        check::axis(x, self.axis)?;
        check::broadcasts_to(inputs[1], &x.shape, "the scale")?;
        if let Some(bias) = inputs.get(2) {
            check::broadcasts_to(bias, &x.shape, "the bias")?;
        }
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
