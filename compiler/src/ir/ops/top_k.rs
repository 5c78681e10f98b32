//! The k largest or smallest elements along an axis in order, or their indices (i64). Of equal elements, the lower
//! index comes first.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// The k largest or smallest elements along an axis in order, or their indices (i64). Of equal elements, the lower
/// index comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopK {
    /// The axis.
    pub axis: usize,
    /// Number of elements that are selected along the axis.
    pub k: usize,
    /// True to select the largest elements, false to select the smallest.
    pub largest: bool,
    /// True if the result holds the indices of the selected elements, false if it holds their values.
    pub indices: bool,
}

impl Operation for TopK {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::numeric(x, "the input")?;
        let k = check::checked_attribute(self.k, "k")?;
        if check::axis(x, self.axis)?.as_known().is_some_and(|n| k > n) {
            return Err(OpError::new(format!("axis {} of {x} has fewer than {k} elements", self.axis)));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = Dim::known(k);
        Ok(TensorDesc::new(if self.indices { DType::I64 } else { x.dtype }, shape))
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
            Ok(match &x.data {
                Data::Float(v) if self.indices => {
                    Data::Int(self.select(&x.shape, v, lanes::float_order, |i, _| i as i64))
                }
                Data::Float(v) => Data::Float(self.select(&x.shape, v, lanes::float_order, |_, v| v)),
                Data::Int(v) => {
                    let order = |a, b| lanes::int_order(x.dtype, a, b);
                    Data::Int(self.select(&x.shape, v, order, |i, v| if self.indices { i as i64 } else { v }))
                }
            })
        })
    }
}

impl TopK {
    /// Selects k elements of each lane, the sequence of elements along the axis. The function `result` gets the index
    /// and the value of a selected element and returns the element of the result.
    fn select<T: Copy + Send + Sync, U: Copy + Default + Send>(
        &self,
        shape: &[usize],
        x: &[T],
        order: impl Fn(T, T) -> Ordering + Sync,
        result: impl Fn(usize, T) -> U + Sync,
    ) -> Vec<U> {
        lanes::map_lanes(x, shape, self.axis, self.k, |lane, selected| {
            let rank = |a: &usize, b: &usize| {
                let order = order(lane[*a], lane[*b]);
                (if self.largest { order.reverse() } else { order }).then(a.cmp(b))
            };
            let mut indices: Vec<usize> = (0..lane.len()).collect();
            if self.k < lane.len() {
                indices.select_nth_unstable_by(self.k, rank);
                indices.truncate(self.k);
            }
            indices.sort_unstable_by(rank);
            for (selected, i) in selected.iter_mut().zip(indices) {
                *selected = result(i, lane[i]);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TopK;
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    fn eval(axis: usize, k: usize, largest: bool, x: &Array) -> (Array, Vec<i64>) {
        let mut out = x.shape.clone();
        out[axis] = k;
        let run = |indices| TopK { axis, k, largest, indices }.eval(&[x], &out, &Bindings::new()).unwrap();
        (run(false), run(true).ints().unwrap().to_vec())
    }

    #[test]
    fn ties_keep_the_lower_index() {
        let x = Array::f32(&[2, 4], vec![1.0, 3.0, 3.0, 2.0, 0.0, -1.0, 0.0, -1.0]);
        let (values, indices) = eval(1, 3, true, &x);
        assert_eq!(values.floats().unwrap(), [3.0, 3.0, 2.0, 0.0, 0.0, -1.0]);
        assert_eq!(indices, [1, 2, 3, 0, 2, 1]);
        let (values, indices) = eval(1, 2, false, &x);
        assert_eq!(values.floats().unwrap(), [1.0, 2.0, -1.0, -1.0]);
        assert_eq!(indices, [0, 3, 1, 3]);
    }

    #[test]
    fn along_an_outer_axis() {
        let x = Array::int(DType::I32, &[3, 2], vec![1, 6, 2, 5, 3, 4]);
        let (values, indices) = eval(0, 2, true, &x);
        assert_eq!(values.data, Data::Int(vec![3, 6, 2, 5]));
        assert_eq!(indices, [2, 0, 1, 1]);
        assert!(eval(0, 0, true, &x).0.is_empty());
    }

    #[test]
    fn refuses() {
        let op = TopK { axis: 0, k: 5, largest: true, indices: false };
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[4])]).is_err());
        let symbolic = TensorDesc::new(DType::F32, vec![Dim::symbol("n")]);
        assert_eq!(op.infer(&[&symbolic]).unwrap().to_string(), "f32[5]");
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[])]).is_err());
    }
}
