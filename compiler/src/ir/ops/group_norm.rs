//! Normalises `x [N, C, spatial..]` over groups of channels and all spatial axes, then `* scale [C] + bias [C]`.
//!
//! With `groups == C` it is instance normalisation.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Normalises `x [N, C, spatial..]` over groups of channels and all spatial axes, then `* scale [C] + bias [C]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupNorm {
    /// Number of channel groups.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

impl Operation for GroupNorm {
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
