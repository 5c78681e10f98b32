//! Slices of the first operand along an axis, selected by the indices in the second operand. Negative indices count
//! from the end.
//!
//! The device clamps an index out of range; the CPU reference returns an error.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// Slices of the first operand along an axis, selected by the indices in the second operand. Negative indices count
/// from the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gather {
    /// The axis.
    pub axis: usize,
}

impl Operation for Gather {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, indices] = exact_operands(inputs)?;
        check::axis(x, self.axis)?;
        check::indices(indices)?;
        let mut shape = x.shape.clone();
        shape.splice(self.axis..=self.axis, indices.shape.iter().cloned());
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::LooksUp, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let [x, indices] = inputs else { return Err(OpError::new("expected two operands")) };
        let size = x.shape[self.axis];
        let inner = count(&x.shape[self.axis + 1..]);
        let indices: Result<Vec<usize>, OpError> =
            indices.ints()?.iter().map(|i| movement::normalize_index(*i, size)).collect();
        let indices = indices?;
        let outer = count(&x.shape[..self.axis]);
        let starts: Vec<usize> =
            (0..outer).flat_map(|o| indices.iter().map(move |i| (o * size + i) * inner)).collect();
        movement::copy_chunks(x, out, &starts, inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Gather;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn selects_slices() {
        let x = Array::int(DType::I32, &[2, 3], (0..6).collect());
        let at = Array::int(DType::I64, &[1, 2], vec![2, -3]);
        let y = run(&Gather { axis: 1 }, &[&x, &at], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 1, 2][..], &[2, 0, 5, 3][..]));
        let row =
            run(&Gather { axis: 0 }, &[&x, &Array::int(DType::I32, &[], vec![1])], &Bindings::new()).unwrap();
        assert_eq!((row.shape.as_slice(), row.ints().unwrap()), (&[3][..], &[3, 4, 5][..]));
        assert!(run(&Gather { axis: 0 }, &[&x, &Array::i64s(&[2])], &Bindings::new()).is_err());
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[2]);
        assert!(Gather { axis: 1 }.infer(&[&x, &TensorDesc::from_sizes(DType::I64, &[])]).is_err());
        assert!(Gather { axis: 0 }.infer(&[&x, &x]).is_err());
        assert!(Gather { axis: 0 }.infer(&[&x]).is_err());
    }
}
