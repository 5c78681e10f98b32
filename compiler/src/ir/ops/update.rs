//! A tensor with some positions along an axis replaced, like XLA's `DynamicUpdateSlice`.
//!
//! An update of a state copies nothing: the plan writes the positions in place.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// A copy of `whole` with `out[start..start + n] = part` along an axis, where `n` is the size of `part`
/// along that axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The axis.
    pub axis: usize,
    /// First replaced position.
    pub start: Dim,
}

impl Operation for Update {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [whole, part] = exact_operands(inputs)?;
        check::same_type(&[whole, part])?;
        check::axis(whole, self.axis)?;
        if whole.rank() != part.rank() {
            return Err(OpError::new(format!("the tensor {whole} and its update {part} differ in rank")));
        }
        for (axis, (a, b)) in whole.shape.iter().zip(&part.shape).enumerate() {
            if axis != self.axis {
                check::equal_sizes(
                    a,
                    b,
                    "the sizes of the tensor and its update along an axis that is not updated",
                )?;
                continue;
            }
            let left = a.sub(&self.start).sub(b);
            let outside = |at: &Dim| at.as_known().is_some_and(|at| at < 0);
            if outside(&self.start) || outside(&left) {
                return Err(OpError::new(format!(
                    "an update of {b} positions from position {} on is not within the axis of size {a}",
                    self.start
                )));
            }
        }
        Ok(TensorDesc::new(whole.dtype, whole.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        vec![&mut self.start]
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Update, Exactness::Updates)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        fn go<T: Copy>(whole: &mut [T], part: &[T], [run, from, length]: [usize; 3]) -> Result<(), OpError> {
            if run == 0 || length == 0 {
                return Ok(());
            }
            for (to, part) in whole.chunks_mut(run).zip(part.chunks(length)) {
                let to = to.get_mut(from..from + part.len());
                to.ok_or_else(|| OpError::new("the positions to update are outside the tensor"))?
                    .copy_from_slice(part);
            }
            Ok(())
        }
        let start = check::eval_dim(&self.start, symbols)?;
        let bound = Self { axis: self.axis, start: Dim::known(start) };
        check::check_arrays(&bound, inputs, out)?;
        let [whole, part] = inputs else { return Err(OpError::new("expected two operands")) };
        let inner = count(out.get(self.axis + 1..).unwrap_or_default());
        let size = |x: &Array| x.shape.get(self.axis).copied().unwrap_or(0) * inner;
        let start = usize::try_from(start).map_err(|e| OpError::new(e.to_string()))?;
        let runs = [size(whole), start * inner, size(part)];
        let mut result = (*whole).clone();
        match (&mut result.data, &part.data) {
            (Data::Float(to), Data::Float(from)) => go(to, from, runs)?,
            (Data::Int(to), Data::Int(from)) => go(to, from, runs)?,
            _ => return Err(OpError::new("the operands have different types")),
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::Update;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn replaces_positions_of_an_axis() {
        let whole = Array::f32(&[2, 3, 2], (0..12).map(|i| i as f32).collect());
        let part = Array::f32(&[2, 1, 2], vec![-1.0, -2.0, -3.0, -4.0]);
        let op = Update { axis: 1, start: Dim::symbol("past") };
        let symbols = Bindings::from([("past".into(), 2)]);
        let y = op.eval(&[&whole, &part], &[2, 3, 2], &symbols).unwrap();
        assert_eq!(y.floats().unwrap(), [0., 1., 2., 3., -1., -2., 6., 7., 8., 9., -3., -4.]);
        let late = Bindings::from([("past".into(), 3)]);
        assert!(op.eval(&[&whole, &part], &[2, 3, 2], &late).is_err());
        let none = Array::f32(&[2, 0, 2], vec![]);
        assert_eq!(
            run(&Update { axis: 1, start: Dim::known(3) }, &[&whole, &none], &Bindings::new()),
            Ok(whole)
        );
    }

    #[test]
    fn positions_out_of_range_are_refused() {
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F32, shape);
        let op = |start: i64| Update { axis: 1, start: Dim::known(start) };
        assert_eq!(op(2).infer(&[&tensor(&[2, 4]), &tensor(&[2, 2])]).unwrap(), tensor(&[2, 4]));
        for (start, whole, part) in [(3, [2, 4], [2, 2]), (-1, [2, 4], [2, 2]), (0, [2, 4], [1, 2])] {
            assert!(op(start).infer(&[&tensor(&whole), &tensor(&part)]).is_err());
        }
        assert!(op(0).infer(&[&tensor(&[2, 4]), &tensor(&[2])]).is_err());
        assert!(op(0).infer(&[&tensor(&[2, 4]), &TensorDesc::from_sizes(DType::I64, &[2, 2])]).is_err());
    }
}
