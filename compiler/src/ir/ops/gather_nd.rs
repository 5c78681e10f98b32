//! Slices picked by index tuples along the last axis of the second operand (ONNX GatherND).

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count, strides};
use crate::ir::dim::Bindings;
use crate::ir::movement;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, equal, exactly};
use crate::ir::tensor::TensorDesc;

/// Slices picked by index tuples along the last axis of the second operand (ONNX GatherND).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherNd {
    /// Leading axes shared by both operands.
    pub batch_dims: usize,
}

impl Operation for GatherNd {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices] = exactly(inputs)?;
        check::indices(indices)?;
        let tuple = tuple_length(indices, x.rank().saturating_sub(self.batch_dims))?;
        if indices.rank() <= self.batch_dims {
            return Err(OpError::new(format!("{indices} has no {} batch axes", self.batch_dims)));
        }
        let mut shape = Vec::with_capacity(indices.rank() + x.rank());
        for (a, b) in x.shape.iter().zip(&indices.shape).take(self.batch_dims) {
            shape.push(equal(a, b, "batch axes")?);
        }
        let picks = indices.rank() - 1 - self.batch_dims;
        shape.extend(indices.shape.iter().skip(self.batch_dims).take(picks).cloned());
        shape.extend(x.shape.iter().skip(self.batch_dims + tuple).cloned());
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::concrete(self, inputs, out)?;
        let [x, indices] = inputs else { return Err(OpError::new("two operands are needed")) };
        let tuple = indices.shape.last().copied().unwrap_or(1);
        let starts = starts(&x.shape, indices, self.batch_dims)?;
        movement::copy_chunks(x, out, &starts, count(&x.shape[self.batch_dims + tuple..]))
    }
}

/// The length of the index tuples along the last axis; it must be known, and at most the rank they index.
pub(super) fn tuple_length(indices: &TensorDesc, rank: usize) -> Result<usize, OpError> {
    let Some(last) = indices.shape.last() else {
        return Err(OpError::new("index tuples need at least one axis"));
    };
    let known = last.as_known().and_then(|n| usize::try_from(n).ok());
    known
        .filter(|n| (1..=rank).contains(n))
        .ok_or_else(|| OpError::new(format!("index tuples of length {last} do not fit {rank} indexed axes")))
}

/// For each index tuple, the offset of the slice it names in a tensor of the given shape.
pub(super) fn starts(shape: &[usize], indices: &Array, batch_dims: usize) -> Result<Vec<usize>, OpError> {
    let tuple = indices.shape.last().copied().unwrap_or(1);
    let values = indices.ints()?;
    if tuple == 0 || values.is_empty() {
        return Ok(Vec::new());
    }
    let strides = strides(shape);
    let batch: usize = count(&shape[..batch_dims]);
    let batch_stride = count(&shape[batch_dims..]);
    let per_batch = (values.len() / tuple).checked_div(batch).unwrap_or(0).max(1);
    let mut all = Vec::with_capacity(values.len() / tuple);
    for (at, picked) in values.chunks_exact(tuple).enumerate() {
        let mut offset = at / per_batch * batch_stride;
        for ((index, size), stride) in picked.iter().zip(&shape[batch_dims..]).zip(&strides[batch_dims..]) {
            offset += movement::normalize_index(*index, *size)? * stride;
        }
        all.push(offset);
    }
    Ok(all)
}
