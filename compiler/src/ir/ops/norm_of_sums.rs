//! LayerNorm or RMSNorm of sums: adds tensors, applies elementwise steps to the sum, and normalizes the result.
//!
//! Operands in order: the terms, in one tensor `[S, ..]`; the norm's scale; with `bias` the norm's bias; then the operands
//! of the steps. In the steps, `#0` is the sum of the S terms, and `@k` is operand k of the node. Scale, bias and the
//! operands of the steps broadcast to the shape of the sum.
//!
//! The operator exists because one kernel can add the partial sums of a matmul that is split along K, add a bias and a
//! residual, and normalize the rows, without storing the sum.

use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::LayerNorm;
use super::reduce::Reduce;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::apply_epilogue;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// LayerNorm or RMSNorm of sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormOfSums {
    /// Norm of the sum.
    pub norm: LayerNorm,
    /// True if the norm has a bias.
    pub bias: bool,
    /// Elementwise steps that are applied to the sum before it is normalized.
    pub steps: Vec<EpilogueStep>,
}

impl NormOfSums {
    /// Number of operands before the operands of the steps: the terms, the scale and the bias.
    pub fn first_step_operand(&self) -> usize {
        if self.bias { 3 } else { 2 }
    }

    /// Checks that every step uses only earlier steps and operands of steps.
    fn check_steps(&self, operands: usize) -> Result<(), OpError> {
        let known = self.first_step_operand()..operands;
        for (i, step) in self.steps.iter().enumerate() {
            let fits = step.args.iter().all(|arg| match *arg {
                Arg::Step(s) => s as usize <= i,
                Arg::Input(k) => known.contains(&(k as usize)),
            });
            if !fits {
                return Err(OpError::new(format!(
                    "step {} must use only earlier steps and operands from {} on",
                    i + 1,
                    known.start
                )));
            }
        }
        Ok(())
    }
}

impl Operation for NormOfSums {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [terms, others @ ..] = inputs else { return Err(OpError::new("expected terms")) };
        if inputs.len() < self.first_step_operand() {
            return Err(OpError::new(format!(
                "expected {} operands or more, found {}",
                self.first_step_operand(),
                inputs.len()
            )));
        }
        check::float(terms, "the terms")?;
        if terms.shape.first().and_then(Dim::as_known).is_none_or(|count| count < 1) {
            return Err(OpError::new(format!("{terms} must have a known number of terms")));
        }
        let sum = Reduce::sum_of_terms().infer(&[terms])?;
        check::axis(&sum, self.norm.axis)?;
        for operand in others {
            check::broadcasts_to(operand, &sum.shape, "the operand")?;
        }
        for operand in &inputs[1..self.first_step_operand()] {
            check::float(operand, "the scale or bias")?;
        }
        self.check_steps(inputs.len())?;
        Ok(sum)
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
        check::check_arrays(self, inputs, out)?;
        let sum = Reduce::sum_of_terms().eval(inputs.get(..1).unwrap_or_default(), out, symbols)?;
        let dtype = sum.dtype;
        let sum = apply_epilogue(sum, &self.steps, inputs)?;
        if sum.shape != out || !sum.dtype.is_float() {
            return Err(OpError::new("the steps do not return floats of the sum's shape"));
        }
        let as_sum = |x: &Array| Array { dtype: sum.dtype, ..x.clone() };
        let scale = inputs.get(1).ok_or_else(|| OpError::new("a scale is missing"))?;
        let scale = as_sum(scale);
        let bias = inputs.get(2).filter(|_| self.bias).map(|bias| as_sum(bias));
        let operands: Vec<&Array> = [&sum, &scale].into_iter().chain(&bias).collect();
        Ok(Array { dtype, ..self.norm.eval(&operands, out, symbols)? })
    }
}

#[cfg(test)]
mod tests {
    use super::NormOfSums;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::layer_norm::LayerNorm;
    use crate::ir::tensor::{DType, TensorDesc};

    /// Returns a norm of sums to which operand `residual` is added.
    fn op(bias: bool, residual: u32) -> NormOfSums {
        let args = vec![Arg::Step(0), Arg::Input(residual)];
        let add = EpilogueStep { element: Element::Binary(BinaryFn::Add), args };
        NormOfSums { norm: LayerNorm { axis: 1, epsilon: 0.0, rms: false }, bias, steps: vec![add] }
    }

    #[test]
    fn terms_and_residual_are_added_and_normalized() {
        let terms = Array::f32(&[2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let (scale, bias) = (Array::f32(&[2], vec![1.0, 2.0]), Array::f32(&[2], vec![10.0, 20.0]));
        let residual = Array::f32(&[1, 2], vec![-4.0, -2.0]);
        // The sum is 0 and 4: -1 and 1 after the norm.
        let y = run(&op(true, 3), &[&terms, &scale, &bias, &residual], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.floats().unwrap()), ([1, 2].as_slice(), [9.0, 22.0].as_slice()));
        let y = run(&op(false, 2), &[&terms, &scale, &residual], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [-1.0, 2.0]);
    }

    #[test]
    fn sizes_of_one_and_zero() {
        let scale = Array::f32(&[], vec![1.0]);
        let rows = |rows: usize| Array::f32(&[1, rows, 1], vec![5.0; rows]);
        let y = run(&op(false, 2), &[&rows(2), &scale, &scale], &Bindings::new());
        assert!(y.unwrap().floats().unwrap().iter().all(|v| v.is_nan()), "an epsilon of 0");
        let y = run(&op(false, 2), &[&rows(0), &scale, &scale], &Bindings::new()).unwrap();
        assert_eq!(y.shape, [0, 1]);
    }

    #[test]
    fn refusals() {
        let tensor = |dtype, shape: &[usize]| TensorDesc::from_sizes(dtype, shape);
        let terms = tensor(DType::F32, &[3, 5, 4]);
        let (scale, residual) = (tensor(DType::F16, &[4]), tensor(DType::F16, &[5, 4]));
        assert_eq!(op(false, 2).infer(&[&terms, &scale, &residual]).unwrap().to_string(), "f32[5, 4]");
        let unknown = TensorDesc::new(DType::F32, vec![Dim::symbol("s"), Dim::known(5), Dim::known(4)]);
        for (op, inputs) in [
            (op(false, 3), [&terms, &scale, &residual]),
            (op(false, 1), [&terms, &scale, &residual]),
            (op(true, 3), [&terms, &scale, &residual]),
            (op(false, 2), [&terms, &tensor(DType::I32, &[4]), &residual]),
            (op(false, 2), [&terms, &tensor(DType::F16, &[5]), &residual]),
            (op(false, 2), [&terms, &scale, &tensor(DType::F16, &[3, 5, 4])]),
            (op(false, 2), [&tensor(DType::I32, &[3, 5, 4]), &scale, &residual]),
            (op(false, 2), [&tensor(DType::F32, &[3, 4]), &scale, &scale]),
            (op(false, 2), [&unknown, &scale, &residual]),
        ] {
            assert!(op.infer(&inputs).is_err(), "{inputs:?}");
        }
        assert!(op(false, 2).infer(&[&terms]).is_err());
    }
}
