//! Slices of the first operand that index tuples select (ONNX GatherND). The last axis of the second operand holds the tuples.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, equal_sizes, exact_operands};
use crate::ir::tensor::TensorDesc;

/// Slices of the first operand that index tuples select (ONNX GatherND). The last axis of the second operand holds the tuples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherNd {
    /// Number of leading batch axes of both operands.
    pub batch_dims: usize,
}

impl Operation for GatherNd {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices] = exact_operands(inputs)?;
        check::indices(indices)?;
        let tuple = tuple_length(indices, x.rank().saturating_sub(self.batch_dims))?;
        if indices.rank() <= self.batch_dims {
            return Err(OpError::new(format!(
                "indices {indices} must have more axes than the {} batch axes",
                self.batch_dims
            )));
        }
        let mut shape = Vec::with_capacity(indices.rank() + x.rank());
        for (a, b) in x.shape.iter().zip(&indices.shape).take(self.batch_dims) {
            shape.push(equal_sizes(a, b, "batch axes")?);
        }
        let tuple_axes = indices.rank() - 1 - self.batch_dims;
        shape.extend(indices.shape.iter().skip(self.batch_dims).take(tuple_axes).cloned());
        shape.extend(x.shape.iter().skip(self.batch_dims + tuple).cloned());
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let [x, indices] = inputs else { return Err(OpError::new("expected two operands")) };
        let tuple = indices.shape.last().copied().unwrap_or(1);
        let starts = starts(&x.shape, indices, self.batch_dims)?;
        movement::copy_chunks(x, out, &starts, count(&x.shape[self.batch_dims + tuple..]))
    }
}

/// Returns the length of the index tuples, which is the size of the last axis of `indices`. The length must be known
/// and at most `rank`, the number of axes that a tuple can index.
pub(super) fn tuple_length(indices: &TensorDesc, rank: usize) -> Result<usize, OpError> {
    let Some(last) = indices.shape.last() else {
        return Err(OpError::new("the indices need at least one axis, which holds the index tuples"));
    };
    let known = last.as_known().and_then(|n| usize::try_from(n).ok());
    known.filter(|n| (1..=rank).contains(n)).ok_or_else(|| {
        OpError::new(format!("index tuples have length {last}, but can index only {rank} axes"))
    })
}

/// Returns, for each index tuple, the offset in elements of the slice that it selects from a tensor of the given shape.
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
    for (at, tuple_values) in values.chunks_exact(tuple).enumerate() {
        let mut offset = at / per_batch * batch_stride;
        for ((index, size), stride) in
            tuple_values.iter().zip(&shape[batch_dims..]).zip(&strides[batch_dims..])
        {
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
    fn selects_by_tuple() {
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
        let x = TensorDesc::from_sizes(DType::F32, &[2, 3]);
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
