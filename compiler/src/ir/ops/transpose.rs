//! Permutation of axes: `out.shape[i] = x.shape[perm[i]]`.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// Permutation of axes: `out.shape[i] = x.shape[perm[i]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transpose {
    /// Permutation of the axes: axis `i` of the result is axis `perm[i]` of the operand.
    pub perm: Vec<usize>,
}

impl Operation for Transpose {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if sorted.len() != x.rank() || sorted.iter().enumerate().any(|(i, p)| i != *p) {
            return Err(OpError::new(format!("{:?} is not a permutation of the axes of {x}", self.perm)));
        }
        let shape = self.perm.iter().filter_map(|p| x.shape.get(*p).cloned()).collect();
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::View, Exactness::Moves)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::check_arrays(self, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        let strides = strides(&x.shape);
        let steps: Vec<i64> = self.perm.iter().map(|p| strides[*p] as i64).collect();
        movement::strided(x, out, &steps, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::Transpose;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn permutes() {
        let x = Array::int(DType::I32, &[2, 3, 1], (0..6).collect());
        let y = run(&Transpose { perm: vec![1, 2, 0] }, &[&x], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[3, 1, 2][..], &[0, 3, 1, 4, 2, 5][..]));
        let scalar = Array::f32(&[], vec![4.0]);
        assert_eq!(run(&Transpose { perm: vec![] }, &[&scalar], &Bindings::new()).unwrap(), scalar);
    }

    #[test]
    fn other_lists_are_refused() {
        let x = TensorDesc::from_sizes(DType::F32, &[2, 3]);
        for perm in [vec![0], vec![0, 0], vec![0, 2], vec![0, usize::MAX], vec![0, 1, 2]] {
            assert!(Transpose { perm }.infer(&[&x]).is_err());
        }
    }
}
