//! One element per index (ONNX GatherElements): `out[i][j] = x[index[i][j]][j]` for axis 0.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, strides, unravel};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// One element per index (ONNX GatherElements): `out[i][j] = x[index[i][j]][j]` for axis 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherElements {
    /// The axis.
    pub axis: usize,
}

impl Operation for GatherElements {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices] = exact_operands(inputs)?;
        check::indices(indices)?;
        check_inside(x, indices, self.axis)?;
        Ok(TensorDesc::new(x.dtype, indices.shape.clone()))
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
        movement::gather(x, out, &offsets(&x.shape, indices, self.axis)?)
    }
}

/// Checks that the axis exists, that the tensor of indices has the rank of the tensor `x`, and that it is not larger
/// than `x` along the other axes.
pub(super) fn check_inside(x: &TensorDesc, indices: &TensorDesc, axis: usize) -> Result<(), OpError> {
    check::axis(x, axis)?;
    if indices.rank() != x.rank() {
        return Err(OpError::new(format!("indices {indices} and tensor {x} differ in rank")));
    }
    for (at, (i, d)) in indices.shape.iter().zip(&x.shape).enumerate() {
        if at != axis && d.sub(i).as_known().is_some_and(|room| room < 0) {
            return Err(OpError::new(format!(
                "axis {at} of the indices {indices} is larger than that axis of {x}"
            )));
        }
    }
    Ok(())
}

/// Returns, for each index, the offset in elements of the element that it selects from a tensor of the given shape.
pub(super) fn offsets(shape: &[usize], indices: &Array, axis: usize) -> Result<Vec<usize>, OpError> {
    let strides = strides(shape);
    let mut coords = vec![0usize; shape.len()];
    let mut all = Vec::with_capacity(indices.len());
    for (flat, index) in indices.ints()?.iter().enumerate() {
        unravel(flat, &indices.shape, &mut coords);
        coords[axis] = movement::normalize_index(*index, shape[axis])?;
        all.push(coords.iter().zip(&strides).map(|(c, s)| c * s).sum());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::GatherElements;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn selects_elements() {
        let x = Array::int(DType::I32, &[3, 3], (1..10).collect());
        let at = Array::int(DType::I64, &[2, 3], vec![1, 2, 0, 2, 0, -3]);
        let y = run(&GatherElements { axis: 0 }, &[&x, &at], &Bindings::new()).unwrap();
        assert_eq!(y.ints().unwrap(), [4, 8, 3, 7, 2, 3]);
        let at = Array::int(DType::I64, &[1, 1], vec![3]);
        assert!(run(&GatherElements { axis: 0 }, &[&x, &at], &Bindings::new()).is_err());
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[2, 2]);
        let at = |shape: &[usize]| TensorDesc::from_sizes(DType::I64, shape);
        assert!(GatherElements { axis: 0 }.infer(&[&x, &at(&[5, 1])]).is_ok());
        assert!(GatherElements { axis: 0 }.infer(&[&x, &at(&[1, 3])]).is_err());
        assert!(GatherElements { axis: 0 }.infer(&[&x, &at(&[2])]).is_err());
        assert!(GatherElements { axis: 2 }.infer(&[&x, &at(&[2, 2])]).is_err());
    }
}
