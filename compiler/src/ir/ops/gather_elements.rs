//! One element per index: `out[i][j] = x[index[i][j]][j]` for axis 0.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::tensor::TensorDesc;

/// One element per index: `out[i][j] = x[index[i][j]][j]` for axis 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherElements {
    /// The axis.
    pub axis: usize,
}

impl Operation for GatherElements {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices] = exactly(inputs)?;
        check::indices(indices)?;
        check_inside(x, indices, self.axis)?;
        Ok(TensorDesc::new(x.dtype, indices.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}

/// Fails unless the axis exists, the ranks agree and the indices' other sizes are at most the tensor's.
pub(super) fn check_inside(x: &TensorDesc, indices: &TensorDesc, axis: usize) -> Result<(), OpError> {
    check::axis(x, axis)?;
    if indices.rank() != x.rank() {
        return Err(OpError::new(format!("indices {indices} and tensor {x} differ in rank")));
    }
    for (at, (i, d)) in indices.shape.iter().zip(&x.shape).enumerate() {
        if at != axis && d.sub(i).as_known().is_some_and(|room| room < 0) {
            return Err(OpError::new(format!("indices {indices} exceed {x} at axis {at}")));
        }
    }
    Ok(())
}
