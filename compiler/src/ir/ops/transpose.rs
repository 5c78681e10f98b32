//! Axes permuted: `out.shape[i] = x.shape[perm[i]]`.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, strides};
use crate::ir::dim::Bindings;
use crate::ir::movement;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::tensor::TensorDesc;

/// Axes permuted: `out.shape[i] = x.shape[perm[i]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transpose {
    /// A permutation of the axes.
    pub perm: Vec<usize>,
}

impl Operation for Transpose {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if sorted.len() != x.rank() || sorted.iter().enumerate().any(|(i, p)| i != *p) {
            return Err(OpError::new(format!("{:?} does not permute the axes of {x}", self.perm)));
        }
        let shape = self.perm.iter().filter_map(|p| x.shape.get(*p).cloned()).collect();
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::concrete(self, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("one operand is needed")) };
        let strides = strides(&x.shape);
        let steps: Vec<i64> = self.perm.iter().map(|p| strides[*p] as i64).collect();
        movement::strided(x, out, &steps, 0)
    }
}
