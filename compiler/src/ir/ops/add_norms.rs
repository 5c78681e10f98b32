//! The sum of two RMSNorms along the last axis.
//!
//! Operands: a, scale of a, b, scale of b. a and b have one shape; scales broadcast to it.
//!
//! With an epilogue that adds a residual, the operator computes `rms_norm(a) + (rms_norm(b) + residual)` in one
//! dispatch, without a barrier between the norms and without storing the inner sum.

use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::rms_norm;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// The sum of two RMSNorms along the last axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddNorms {
    /// Epsilon of both RMSNorms.
    pub epsilons: [f32; 2],
}

impl Operation for AddNorms {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [a, scale_a, b, scale_b] = check::exact_operands(inputs)?;
        for (x, scale) in [(a, scale_a), (b, scale_b)] {
            check::float(x, "a normalized operand")?;
            check::float(scale, "the scale")?;
            check::broadcasts_to(scale, &x.shape, "the scale")?;
        }
        if a.shape != b.shape || a.shape.is_empty() {
            return Err(OpError::new(format!(
                "operands {a} and {b} must have the same shape, of rank 1 or more"
            )));
        }
        Ok(TensorDesc::new(a.dtype, a.shape.clone()))
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

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let [a, scale_a, b, scale_b] = *inputs else {
                return Err(OpError::new("expected four operands"));
            };
            let [first, second] = self.epsilons;
            let (a, b) = (rms_norm(a, scale_a, first, symbols)?, rms_norm(b, scale_b, second, symbols)?);
            Ok(Data::Float(a.floats()?.iter().zip(b.floats()?).map(|(a, b)| a + b).collect()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AddNorms;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn both_are_normalized() {
        let op = AddNorms { epsilons: [0.0, 3.0] };
        let a = Array::f32(&[2, 2], vec![3.0, -3.0, 0.5, 0.5]);
        let b = Array::f32(&[2, 2], vec![1.0, 1.0, -1.0, 1.0]);
        let (scale_a, scale_b) = (Array::f32(&[2], vec![1.0, 2.0]), Array::f32(&[2, 1], vec![8.0, 4.0]));
        let y = run(&op, &[&a, &scale_a, &b, &scale_b], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [5.0, 2.0, -1.0, 4.0]);
    }

    #[test]
    fn sizes_of_one_and_zero() {
        let op = AddNorms { epsilons: [0.0, 0.0] };
        let row = |values: Vec<f32>| Array::f32(&[values.len(), 1], values);
        let one = Array::f32(&[], vec![2.0]);
        let y = run(&op, &[&row(vec![-3.0]), &one, &row(vec![5.0]), &one], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [0.0]);
        let y = run(&op, &[&row(vec![]), &one, &row(vec![]), &one], &Bindings::new()).unwrap();
        assert_eq!(y.shape, [0, 1]);
    }

    #[test]
    fn refuses() {
        let op = AddNorms { epsilons: [1e-5; 2] };
        let tensor = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        let (x, scale) = (tensor(DType::F16, &[2, 4]), tensor(DType::F32, &[4]));
        assert_eq!(op.infer(&[&x, &scale, &tensor(DType::F32, &[2, 4]), &scale]).unwrap(), x);
        assert!(op.infer(&[&x, &scale, &x]).is_err());
        assert!(op.infer(&[&x, &scale, &tensor(DType::F16, &[1, 4]), &scale]).is_err());
        assert!(op.infer(&[&x, &tensor(DType::F32, &[3]), &x, &scale]).is_err());
        assert!(op.infer(&[&x, &scale, &tensor(DType::I32, &[2, 4]), &scale]).is_err());
        assert!(op.infer(&[&scale, &scale, &tensor(DType::F32, &[]), &scale]).is_err());
    }
}
