//! A copy of the first operand with slices (third) at index tuples (second).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::Bindings;
use crate::ir::op::{Combine, Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::ops::gather_nd::{starts, tuple_length};
use crate::ir::ops::scatter_elements::{check_updates, scatter};
use crate::ir::tensor::TensorDesc;

/// A copy of the first operand with slices (third) at index tuples (second).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterNd {
    /// How an update combines with what is there.
    pub combine: Combine,
}

impl Operation for ScatterNd {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices, updates] = exactly(inputs)?;
        check::indices(indices)?;
        let tuple = tuple_length(indices, x.rank())?;
        let mut shape = indices.shape.clone();
        shape.pop();
        shape.extend(x.shape.iter().skip(tuple).cloned());
        check_updates(self.combine, x, updates, &shape)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::concrete(self, inputs, out)?;
        let [x, indices, updates] = inputs else { return Err(OpError::new("three operands are needed")) };
        let tuple = indices.shape.last().copied().unwrap_or(1);
        let starts = starts(&x.shape, indices, 0)?;
        scatter(self.combine, x, &starts, count(&x.shape[tuple..]), updates)
    }
}
