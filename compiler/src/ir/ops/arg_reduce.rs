//! The index of the largest or smallest element along an axis, as i64.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// The index of the largest or smallest element along an axis, as i64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgReduce {
    /// The axis.
    pub axis: usize,
    /// True for the index of the largest element, false for the smallest.
    pub largest: bool,
    /// True for the index of the last of equal elements, false for the first.
    pub last: bool,
    /// True if the result keeps the axis with size 1.
    pub keepdims: bool,
}

impl Operation for ArgReduce {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::numeric(x, "the input")?;
        if check::axis(x, self.axis)?.is(0) {
            return Err(OpError::new(format!("axis {} of {x} is empty", self.axis)));
        }
        let mut shape = x.shape.clone();
        if self.keepdims {
            shape[self.axis] = Dim::known(1);
        } else {
            shape.remove(self.axis);
        }
        Ok(TensorDesc::new(DType::I64, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            Ok(Data::Int(match &x.data {
                // Negation reverses the order and keeps NaN the greatest.
                Data::Float(v) => self.choose(&x.shape, v, |a, b| {
                    if self.largest { lanes::float_order(a, b) } else { lanes::float_order(-a, -b) }
                }),
                Data::Int(v) => self.choose(&x.shape, v, |a, b| {
                    let order = lanes::int_order(x.dtype, a, b);
                    if self.largest { order } else { order.reverse() }
                }),
            }))
        })
    }
}

impl ArgReduce {
    /// Returns, for each position of the other axes, the index along the reduced axis of the element that is greatest by
    /// the comparison `order`.
    fn choose<T: Copy + Send + Sync>(
        &self,
        shape: &[usize],
        x: &[T],
        order: impl Fn(T, T) -> Ordering + Sync,
    ) -> Vec<i64> {
        lanes::map_lanes(x, shape, self.axis, 1, |lane, index| {
            let mut best = 0;
            for (i, v) in lane.iter().enumerate().skip(1) {
                let order = order(*v, lane[best]);
                if order.is_gt() || (self.last && order.is_eq()) {
                    best = i;
                }
            }
            index[0] = best as i64;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ArgReduce;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    fn eval(axis: usize, largest: bool, last: bool, x: &Array, out: &[usize]) -> Vec<i64> {
        let op = ArgReduce { axis, largest, last, keepdims: out.len() == x.shape.len() };
        op.eval(&[x], out, &Bindings::new()).unwrap().ints().unwrap().to_vec()
    }

    #[test]
    fn first_and_last_of_equals() {
        let x = Array::f32(&[2, 3], vec![2.0, 2.0, 1.0, 0.0, 5.0, 0.0]);
        assert_eq!(eval(1, true, false, &x, &[2]), [0, 1]);
        assert_eq!(eval(1, true, true, &x, &[2, 1]), [1, 1]);
        assert_eq!(eval(1, false, false, &x, &[2]), [2, 0]);
        assert_eq!(eval(1, false, true, &x, &[2]), [2, 2]);
        assert_eq!(eval(0, true, false, &x, &[3]), [0, 1, 0]);
    }

    #[test]
    fn special_values() {
        let x = Array::f32(&[3], vec![f32::NEG_INFINITY, f32::NAN, f32::INFINITY]);
        assert_eq!(eval(0, true, false, &x, &[]), [1]);
        assert_eq!(eval(0, false, false, &x, &[]), [1]);
        let x = Array::int(DType::U64, &[2], vec![1, -1]);
        assert_eq!(eval(0, true, false, &x, &[]), [1]);
    }

    #[test]
    fn refuses() {
        let op = ArgReduce { axis: 1, largest: true, last: false, keepdims: false };
        assert_eq!(
            op.infer(&[&TensorDesc::from_sizes(DType::F16, &[2, 3, 4])]).unwrap().to_string(),
            "i64[2, 4]"
        );
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[2])]).is_err());
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[2, 0])]).is_err());
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::Bool, &[2, 2])]).is_err());
    }
}
