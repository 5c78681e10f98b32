//! Softmax or log-softmax along one axis.

use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Softmax or log-softmax along one axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
    /// True if the result is the logarithm of the softmax.
    pub log: bool,
}

impl Operation for Softmax {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        check::float(x, "the input")?;
        check::axis(x, self.axis)?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            let apply = |lane: &[f32], result: &mut [f32]| softmax(lane, self.log, result);
            Ok(Data::Float(lanes::map_lanes(x.floats()?, &x.shape, self.axis, x.shape[self.axis], apply)))
        })
    }
}

/// Computes the softmax of a lane, which is the sequence of elements along the axis. The computation is numerically
/// stable, because every exponent is at most 0.
pub(crate) fn softmax(x: &[f32], log: bool, result: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (r, x) in result.iter_mut().zip(x) {
        *r = libm::expf(x - max);
    }
    let sum: f64 = result.iter().map(|r| f64::from(*r)).sum();
    if log {
        let log_sum = libm::log(sum);
        for (r, x) in result.iter_mut().zip(x) {
            *r = (f64::from(x - max) - log_sum) as f32;
        }
    } else {
        for r in result {
            *r = (f64::from(*r) / sum) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Softmax;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn along_each_axis() {
        let x = Array::f32(&[2, 2], vec![0.0, libm::logf(1.0), libm::logf(3.0), 1000.0]);
        let rows = Softmax { axis: 1, log: false }.eval(&[&x], &[2, 2], &Bindings::new()).unwrap();
        assert_eq!(rows.floats().unwrap(), [0.5, 0.5, 0.0, 1.0]);
        let columns = Softmax { axis: 0, log: false }.eval(&[&x], &[2, 2], &Bindings::new()).unwrap();
        let c = columns.floats().unwrap();
        assert!((c[0] - 0.25).abs() < 1e-6 && (c[2] - 0.75).abs() < 1e-6);
        assert_eq!((c[1], c[3]), (0.0, 1.0));
    }

    #[test]
    fn logarithm_far_from_the_maximum() {
        let x = Array::f32(&[3], vec![0.0, -200.0, f32::NEG_INFINITY]);
        let y = Softmax { axis: 0, log: true }.eval(&[&x], &[3], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [0.0, -200.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn refuses() {
        let softmax = Softmax { axis: 1, log: false };
        assert!(softmax.infer(&[&TensorDesc::from_sizes(DType::F32, &[4])]).is_err());
        assert!(softmax.infer(&[&TensorDesc::from_sizes(DType::I32, &[4, 4])]).is_err());
        let empty = softmax.eval(&[&Array::f32(&[2, 0], vec![])], &[2, 0], &Bindings::new());
        assert!(empty.unwrap().is_empty());
    }
}
