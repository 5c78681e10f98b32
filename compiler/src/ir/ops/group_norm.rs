//! Normalises `x [N, C, spatial..]` over groups of channels and all spatial axes, then `* scale [C] + bias [C]`.
//!
//! With `groups == C` it is instance normalisation.

use serde::{Deserialize, Serialize};

use super::check;
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
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 3..=3)?;
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        let [_, channels, ..] = x.shape.as_slice() else {
            return Err(OpError::new(format!("an input of rank two or more is needed, not {x}")));
        };
        let groups = check::small(self.groups, "groups")?;
        if groups == 0 {
            return Err(OpError::new("groups must not be 0"));
        }
        if channels.as_known().is_some_and(|c| c % groups != 0) {
            return Err(OpError::new(format!("{channels} channels do not divide into {groups} groups")));
        }
        check::vector(inputs[1], channels, "the scale")?;
        check::vector(inputs[2], channels, "the bias")?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
