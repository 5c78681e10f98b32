//! A sequence of integers `start, start + step, ...`. The operator has no operands.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::{DType, TensorDesc};

/// A sequence of integers `start, start + step, ...`. The operator has no operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Element type of the range, an integer type.
    pub dtype: DType,
    /// First element.
    pub start: Dim,
    /// Difference between adjacent elements of the range.
    pub step: i64,
    /// Number of elements.
    pub length: Dim,
}

impl Operation for Range {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [] = exact_operands(inputs)?;
        if !self.dtype.is_integer() {
            return Err(OpError::new(format!(
                "a range must have an integer type, not {}",
                self.dtype.name()
            )));
        }
        if self.step == 0 {
            return Err(OpError::new("the step of a range must not be 0"));
        }
        Ok(TensorDesc::new(self.dtype, vec![self.length.clone()]))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        vec![&mut self.start, &mut self.length]
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let length = Dim::known(check::eval_dim(&self.length, symbols)?);
        check::check_arrays(&Self { length, ..self.clone() }, inputs, out)?;
        let start = check::eval_dim(&self.start, symbols)?;
        let at = |i: usize| start.wrapping_add((i as i64).wrapping_mul(self.step));
        Ok(Array::int(self.dtype, out, (0..count(out)).map(at).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::Range;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::DType;

    #[test]
    fn counts() {
        let n = Dim::symbol("n");
        let mut op = Range { dtype: DType::I32, start: n.clone(), step: -2, length: n.floor_div(2) };
        let y = run(&op, &[], &Bindings::from([("n".into(), 7)])).unwrap();
        assert_eq!(y.ints().unwrap(), [7, 5, 3]);
        assert!(run(&op, &[], &Bindings::new()).is_err());
        op.step = 0;
        assert!(op.infer(&[]).is_err());
        op = Range { dtype: DType::Bool, step: 1, ..op };
        assert!(op.infer(&[]).is_err());
    }
}
