//! LayerNorm over the axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`; with `rms` RMSNorm:
//! `x / sqrt(mean(x^2) + epsilon) * scale`.
//!
//! Operands: x, scale and an optional bias; scale and bias broadcast to x.

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSlice, ParallelSliceMut};
use serde::{Deserialize, Serialize};

use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// LayerNorm over the axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`; with `rms` RMSNorm:
/// `x / sqrt(mean(x^2) + epsilon) * scale`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// First normalized axis.
    pub axis: usize,
    /// Epsilon, which is added to the variance.
    pub epsilon: f32,
    /// True for RMSNorm, which does not subtract the mean.
    pub rms: bool,
}

impl Operation for LayerNorm {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 2..=3)?;
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        check::axis(x, self.axis)?;
        check::broadcasts_to(inputs[1], &x.shape, "the scale")?;
        if let Some(bias) = inputs.get(2) {
            check::broadcasts_to(bias, &x.shape, "the bias")?;
        }
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
            let (lead, tail) = x.shape.split_at(self.axis);
            let scale = BroadcastRows::new(inputs[1], lead, tail)?;
            let bias = inputs.get(2).map(|b| BroadcastRows::new(b, lead, tail)).transpose()?;
            let n = count(tail);
            let mut y = vec![0.0; x.len()];
            y.par_chunks_mut(n).zip(x.floats()?.par_chunks(n)).enumerate().for_each(|(row, (y, x))| {
                let (mean, factor) = mean_and_rstd(x, self.epsilon, self.rms);
                for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                    let normal = (f64::from(*x) - mean) * factor;
                    let shift = bias.as_ref().map_or(0.0, |b| b.at(row, i));
                    *y = (normal * f64::from(scale.at(row, i)) + f64::from(shift)) as f32;
                }
            });
            Ok(Data::Float(y))
        })
    }
}

/// Computes an RMSNorm along the last axis, with a scale of any float type; for operators with a fused norm.
///
/// # Errors
/// If the types or shapes of `x` and `scale` do not suit [`LayerNorm::eval`](Operation::eval).
pub(crate) fn rms_norm(x: &Array, scale: &Array, epsilon: f32, symbols: &Bindings) -> Result<Array, OpError> {
    let norm = LayerNorm { axis: x.shape.len().saturating_sub(1), epsilon, rms: true };
    let scale = Array { dtype: x.dtype, ..scale.clone() };
    norm.eval(&[x, &scale], &x.shape, symbols)
}

/// Returns the mean of a row and the reciprocal of the row's standard deviation. For RMSNorm the mean is taken as 0.
pub(crate) fn mean_and_rstd(x: &[f32], epsilon: f32, rms: bool) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = if rms { 0.0 } else { x.iter().map(|v| f64::from(*v)).sum::<f64>() / n };
    let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + f64::from(epsilon)).sqrt())
}

/// Scale or bias of a norm, broadcast to the normalized rows.
struct BroadcastRows<'a> {
    values: &'a [f32],
    rows: Vec<usize>,
    elements: Vec<usize>,
}

impl<'a> BroadcastRows<'a> {
    fn new(x: &'a Array, lead: &[usize], tail: &[usize]) -> Result<Self, OpError> {
        let shape = [lead, tail].concat();
        let (lead_steps, tail_steps) = {
            let steps = lanes::broadcast_strides(&x.shape, &shape);
            let (a, b) = steps.split_at(lead.len());
            (a.to_vec(), b.to_vec())
        };
        Ok(Self {
            values: x.floats()?,
            rows: lanes::strided_offsets(lead, &lead_steps).collect(),
            elements: lanes::strided_offsets(tail, &tail_steps).collect(),
        })
    }

    fn at(&self, row: usize, element: usize) -> f32 {
        self.values[self.rows[row] + self.elements[element]]
    }
}

#[cfg(test)]
mod tests {
    use super::LayerNorm;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn centered_and_root_mean_square() {
        let x = Array::f32(&[2, 2], vec![1.0, 3.0, -2.0, 2.0]);
        let scale = Array::f32(&[2], vec![1.0, 10.0]);
        let bias = Array::f32(&[2, 1], vec![0.5, 0.25]);
        let norm = LayerNorm { axis: 1, epsilon: 0.0, rms: false };
        let y = norm.eval(&[&x, &scale, &bias], &[2, 2], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [-0.5, 10.5, -0.75, 10.25]);
        let norm = LayerNorm { axis: 1, epsilon: 0.0, rms: true };
        let x = Array::f32(&[1, 4], vec![1.0, 1.0, -1.0, 1.0]);
        let y = norm.eval(&[&x, &Array::f32(&[], vec![2.0])], &[1, 4], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [2.0, 2.0, -2.0, 2.0]);
    }

    #[test]
    fn over_several_axes() {
        let x = Array::f32(&[1, 2, 2], vec![0.0, 0.0, 4.0, 4.0]);
        let scale = Array::f32(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let norm = LayerNorm { axis: 1, epsilon: 0.0, rms: false };
        let y = norm.eval(&[&x, &scale], &[1, 2, 2], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [-1.0, -2.0, 3.0, 4.0]);
    }

    #[test]
    fn refuses() {
        let norm = LayerNorm { axis: 1, epsilon: 1e-5, rms: false };
        let x = TensorDesc::from_sizes(DType::F16, &[2, 4]);
        assert_eq!(norm.infer(&[&x, &TensorDesc::from_sizes(DType::F32, &[4])]).unwrap(), x);
        assert!(norm.infer(&[&x, &TensorDesc::from_sizes(DType::F32, &[3])]).is_err());
        assert!(norm.infer(&[&x, &TensorDesc::from_sizes(DType::F32, &[3, 2, 4])]).is_err());
        let row = TensorDesc::from_sizes(DType::F16, &[1, 4]);
        assert!(norm.infer(&[&row, &TensorDesc::from_sizes(DType::F32, &[2, 4])]).is_err());
        let outside = LayerNorm { axis: 2, epsilon: 1e-5, rms: false };
        assert!(outside.infer(&[&x, &TensorDesc::from_sizes(DType::F32, &[4])]).is_err());
    }
}
