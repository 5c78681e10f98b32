//! Operands joined along an axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check;
use crate::ir::tensor::TensorDesc;

/// Operands joined along an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Operation for Concat {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [first, rest @ ..] = inputs else {
            return Err(OpError::new("nothing to concatenate"));
        };
        check::axis(first, self.axis)?;
        if inputs.len() > usize::from(u16::MAX) {
            return Err(OpError::new(format!("{} operands are too many", inputs.len())));
        }
        let mut result = TensorDesc::new(first.dtype, first.shape.clone());
        for x in rest {
            if x.dtype != first.dtype || x.rank() != first.rank() {
                return Err(OpError::new(format!("{first} and {x} differ in type or rank")));
            }
            for (axis, (a, b)) in result.shape.iter_mut().zip(&x.shape).enumerate() {
                *a = if axis == self.axis {
                    a.add(b)
                } else {
                    check::equal(a, b, "sizes beside the axis")
                        .map_err(|why| OpError::new(format!("{first} and {x} at axis {axis}: {why}")))?
                };
            }
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
