//! Broadcast to a shape: axes of size 1 repeat, and leading axes are added.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, equal_sizes, exact_operands};
use crate::ir::tensor::TensorDesc;

/// Broadcast to a shape: axes of size 1 repeat, and leading axes are added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// Shape to which the operand is broadcast.
    pub shape: Vec<Dim>,
}

impl Operation for Expand {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        let fits = |(from, to): (&Dim, &Dim)| from.is(1) || equal_sizes(from, to, "sizes").is_ok();
        let skip = self.shape.len().checked_sub(x.rank());
        let fits = skip.is_some_and(|skip| x.shape.iter().zip(self.shape.iter().skip(skip)).all(fits));
        let result = TensorDesc::new(x.dtype, self.shape.clone());
        if !fits {
            return Err(OpError::new(format!("{x} does not broadcast to {result}")));
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
        check::check_arrays(&Self { shape: check::substitute(&self.shape, symbols) }, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        movement::expand(x, out)
    }
}

#[cfg(test)]
mod tests {
    use super::Expand;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn repeats() {
        let x = Array::i64s(&[1, 2]);
        let op = Expand { shape: vec![Dim::symbol("n"), 2usize.into()] };
        let y = run(&op, &[&x], &Bindings::from([("n".into(), 2)])).unwrap();
        assert_eq!(y.ints().unwrap(), [1, 2, 1, 2]);
        assert!(run(&op, &[&x], &Bindings::from([("n".into(), 0)])).unwrap().is_empty());
    }

    #[test]
    fn refuses_to_shrink() {
        let x = TensorDesc::from_sizes(DType::F32, &[2, 3]);
        for shape in [vec![3i64], vec![1, 3], vec![2, 6]] {
            let shape = shape.into_iter().map(Dim::known).collect();
            assert!(Expand { shape }.infer(&[&x]).is_err());
        }
    }
}
