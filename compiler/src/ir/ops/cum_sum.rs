//! Cumulative sums along an axis.

use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Cumulative sums along an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CumSum {
    /// The axis.
    pub axis: usize,
    /// True if cumulative sum `i` does not include element `i`.
    pub exclusive: bool,
    /// True if the cumulative sums run from the end of the axis to its start.
    pub reverse: bool,
}

impl Operation for CumSum {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::numeric(x, "the input")?;
        check::axis(x, self.axis)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Sums)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            let n = x.shape[self.axis];
            Ok(match &x.data {
                Data::Float(v) => Data::Float(lanes::map_lanes(v, &x.shape, self.axis, n, |lane, sums| {
                    self.run(lane, sums, 0.0f64, |a, b| a + f64::from(b), |a| a as f32);
                })),
                Data::Int(v) => Data::Int(lanes::map_lanes(v, &x.shape, self.axis, n, |lane, sums| {
                    self.run(lane, sums, 0, i64::wrapping_add, |a| a);
                })),
            })
        })
    }
}

impl CumSum {
    /// Computes the cumulative sums of one lane, which is the sequence of elements along the axis.
    fn run<T: Copy, S: Copy>(
        &self,
        lane: &[T],
        sums: &mut [T],
        zero: S,
        add: impl Fn(S, T) -> S,
        store: impl Fn(S) -> T,
    ) {
        let mut sum = zero;
        for i in 0..lane.len() {
            let i = if self.reverse { lane.len() - 1 - i } else { i };
            let next = add(sum, lane[i]);
            sums[i] = store(if self.exclusive { sum } else { next });
            sum = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CumSum;
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::tensor::DType;

    fn eval(axis: usize, exclusive: bool, reverse: bool, x: &Array) -> Array {
        CumSum { axis, exclusive, reverse }.eval(&[x], &x.shape, &Bindings::new()).unwrap()
    }

    #[test]
    fn every_direction() {
        let x = Array::f32(&[3], vec![1.0, 2.0, 3.0]);
        assert_eq!(eval(0, false, false, &x).floats().unwrap(), [1.0, 3.0, 6.0]);
        assert_eq!(eval(0, true, false, &x).floats().unwrap(), [0.0, 1.0, 3.0]);
        assert_eq!(eval(0, false, true, &x).floats().unwrap(), [6.0, 5.0, 3.0]);
        assert_eq!(eval(0, true, true, &x).floats().unwrap(), [5.0, 3.0, 0.0]);
    }

    #[test]
    fn integers_wrap_along_an_outer_axis() {
        let x = Array::int(DType::U8, &[2, 2], vec![200, 1, 100, 2]);
        assert_eq!(eval(0, false, false, &x).data, Data::Int(vec![200, 1, 44, 3]));
        assert!(eval(1, false, false, &Array::f32(&[2, 0], vec![])).is_empty());
    }
}
