//! Change of a tensor's shape. The elements keep their row-major order.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, equal_sizes, exact_operands};
use crate::ir::tensor::{MAX_RANK, TensorDesc};

/// Change of a tensor's shape. The elements keep their row-major order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reshape {
    /// New shape of the tensor.
    pub shape: Vec<Dim>,
}

impl Operation for Reshape {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        if self.shape.len() > MAX_RANK {
            return Err(OpError::new(format!("rank {} exceeds {MAX_RANK}", self.shape.len())));
        }
        let result = TensorDesc::new(x.dtype, self.shape.clone());
        if equal_sizes(&x.elements(), &result.elements(), "element counts").is_err() {
            return Err(OpError::new(format!("{x} and {result} have different numbers of elements")));
        }
        Ok(result)
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.shape.iter_mut().collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::View, Exactness::Moves)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self { shape: check::substitute(&self.shape, symbols) };
        check::check_arrays(&bound, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        Ok(Array { shape: out.to_vec(), ..(*x).clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::Reshape;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn keeps_the_elements() {
        let x = Array::i64s(&[1, 2, 3, 4, 5, 6]);
        let n = Dim::symbol("n");
        let op = Reshape { shape: vec![n.clone(), 3usize.into()] };
        let y = run(&op, &[&x], &Bindings::from([("n".into(), 2)])).unwrap();
        assert_eq!((y.shape.as_slice(), y.ints().unwrap()), (&[2, 3][..], x.ints().unwrap()));
        assert!(run(&op, &[&x], &Bindings::from([("n".into(), 3)])).is_err());
        assert!(run(&op, &[&x], &Bindings::new()).is_err());
    }

    #[test]
    fn counts_must_agree() {
        let n = Dim::symbol("n");
        let x = TensorDesc::new(DType::F32, vec![n.clone(), 6usize.into()]);
        let to = |shape: Vec<Dim>| Reshape { shape }.infer(&[&x]);
        assert_eq!(to(vec![n.scale(2), 3usize.into()]).unwrap().to_string(), "f32[2*n, 3]");
        assert!(to(vec![n.scale(6).plus(1)]).is_err());
        // The symbol may be 2, so the shapes may match.
        assert!(to(vec![12usize.into()]).is_ok());
        assert!(to(vec![n.clone(); 100]).is_err());
    }
}
