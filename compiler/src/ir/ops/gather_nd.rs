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

#[cfg(test)]
mod tests {
    use super::GatherNd;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn picks_by_tuple() {
        let x = Array::int(DType::I32, &[2, 2, 2], (0..8).collect());
        let at = Array::int(DType::I64, &[2, 2], vec![0, 1, 1, -2]);
        let y = run(&GatherNd { batch_dims: 0 }, &[&x, &at], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 2][..], &[2, 3, 4, 5][..]));
        let at = Array::int(DType::I64, &[2, 1], vec![1, 0]);
        let y = run(&GatherNd { batch_dims: 1 }, &[&x, &at], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 2][..], &[2, 3, 4, 5][..]));
        let at = Array::int(DType::I64, &[2, 3, 1], vec![1, 0, 1, 0, 0, 0]);
        let y = run(&GatherNd { batch_dims: 1 }, &[&x, &at], &Bindings::new()).unwrap();
        assert_eq!(y.ints().unwrap(), [2, 3, 0, 1, 2, 3, 4, 5, 4, 5, 4, 5]);
        let at = Array::int(DType::I64, &[1, 3], vec![0, 0, 2]);
        assert!(run(&GatherNd { batch_dims: 0 }, &[&x, &at], &Bindings::new()).is_err());
        let none = Array::int(DType::I64, &[0, 1], vec![]);
        assert!(run(&GatherNd { batch_dims: 0 }, &[&x, &none], &Bindings::new()).unwrap().is_empty());
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::of(DType::F32, &[2, 3]);
        let at = |dims: Vec<Dim>| TensorDesc::new(DType::I64, dims);
        let op = |batch_dims| GatherNd { batch_dims };
        assert!(op(0).infer(&[&x, &at(vec![])]).is_err());
        assert!(op(0).infer(&[&x, &at(vec![3usize.into()])]).is_err());
        assert!(op(0).infer(&[&x, &at(vec![0usize.into()])]).is_err());
        assert!(op(0).infer(&[&x, &at(vec![Dim::symbol("n")])]).is_err());
        assert!(op(1).infer(&[&x, &at(vec![1usize.into()])]).is_err());
        assert!(op(1).infer(&[&x, &at(vec![3usize.into(), 1usize.into()])]).is_err());
        assert!(op(usize::MAX).infer(&[&x, &at(vec![1usize.into()])]).is_err());
    }
}
