//! A strided slice of a tensor: `out[i] = x[starts + i * steps]` along every axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// A strided slice of a tensor: `out[i] = x[starts + i * steps]` along every axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Index of the slice's first element, per axis.
    pub starts: Vec<Dim>,
    /// Distance between adjacent elements of the slice, per axis; may be negative, never zero.
    pub steps: Vec<i64>,
    /// Number of elements of the slice, per axis.
    pub sizes: Vec<Dim>,
}

impl Slice {
    /// Fails if the slice reads an element that is outside the axis whatever values the symbols have.
    fn check_axis(&self, axis: usize, dim: &Dim) -> Result<(), String> {
        let (start, step, size) = (&self.starts[axis], self.steps[axis], &self.sizes[axis]);
        if step == 0 {
            return Err("the step is 0".into());
        }
        if size.is(0) {
            return Ok(());
        }
        let last = size.plus(-1).scale(step).add(start);
        // A symbolic size may be 0; then no element can be outside.
        let bounds = if size.as_known().is_some() { vec![start, &last] } else { vec![] };
        let outside =
            |at: &Dim| at.as_known().is_some_and(|v| v < 0) || dim.sub(at).as_known().is_some_and(|v| v <= 0);
        if let Some(at) = bounds.into_iter().find(|at| outside(at)) {
            return Err(format!("the slice reads element {at}, which is outside the axis of size {dim}"));
        }
        if matches!(step, 1 | -1) && dim.sub(size).as_known().is_some_and(|v| v < 0) {
            return Err(format!("the slice of {size} elements exceeds the axis of size {dim}"));
        }
        Ok(())
    }
}

impl Operation for Slice {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        let rank = x.rank();
        if self.starts.len() != rank || self.steps.len() != rank || self.sizes.len() != rank {
            return Err(OpError::new(format!(
                "`starts`, `steps` and `sizes` must each have one number per axis of {x}"
            )));
        }
        for (axis, dim) in x.shape.iter().enumerate() {
            self.check_axis(axis, dim).map_err(|why| OpError::new(format!("axis {axis} of {x}: {why}")))?;
        }
        Ok(TensorDesc::new(x.dtype, self.sizes.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.starts.iter_mut().chain(&mut self.sizes).collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::View, Exactness::Moves)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self {
            starts: check::substitute(&self.starts, symbols),
            sizes: check::substitute(&self.sizes, symbols),
            steps: self.steps.clone(),
        };
        check::check_arrays(&bound, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        if count(out) == 0 {
            return Ok(Array::zeros(x.dtype, out));
        }
        let mut base = 0i64;
        let mut steps = Vec::with_capacity(out.len());
        for ((start, step), stride) in bound.starts.iter().zip(&bound.steps).zip(strides(&x.shape)) {
            base += check::eval_dim(start, symbols)? * stride as i64;
            steps.push(step.saturating_mul(stride as i64));
        }
        movement::strided(x, out, &steps, base)
    }
}

#[cfg(test)]
mod tests {
    use super::Slice;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn slice(start: impl Into<Dim>, step: i64, size: impl Into<Dim>) -> Slice {
        Slice { starts: vec![start.into()], steps: vec![step], sizes: vec![size.into()] }
    }

    #[test]
    fn positive_and_negative_steps() {
        let x = Array::i64s(&[0, 1, 2, 3, 4]);
        let ints =
            |op: &Slice| run(op, &[&x], &Bindings::from([("n".into(), 5)])).unwrap().ints().unwrap().to_vec();
        assert_eq!(ints(&slice(1i64, 2, 2i64)), [1, 3]);
        assert_eq!(ints(&slice(4i64, -2, 3i64)), [4, 2, 0]);
        assert_eq!(ints(&slice(5i64, 1, 0i64)), [0i64; 0]);
        let n = Dim::symbol("n");
        assert_eq!(ints(&slice(n.plus(-2), 1, 2i64)), [3, 4]);
        // With one element, the step does not matter.
        assert_eq!(ints(&slice(3i64, i64::MAX, 1i64)), [3]);
        assert_eq!(ints(&slice(3i64, i64::MIN, 1i64)), [3]);
        let two =
            Slice { starts: vec![1i64.into(); 2], steps: vec![-1, 1], sizes: vec![2i64.into(), 1i64.into()] };
        let x = Array::int(DType::I32, &[2, 2], vec![0, 1, 2, 3]);
        assert_eq!(run(&two, &[&x], &Bindings::new()).unwrap().ints().unwrap(), [3, 1]);
    }

    #[test]
    fn refuses_elements_outside() {
        let x = TensorDesc::from_sizes(DType::F32, &[5]);
        let bad = [slice(0i64, 0, 1i64), slice(3i64, 1, 3i64), slice(1i64, -1, 3i64), slice(5i64, 1, 1i64)];
        for op in bad.iter().chain(&[
            slice(-1i64, 1, 1i64),
            slice(0i64, i64::MAX, 3i64),
            slice(0i64, i64::MIN, 2i64),
        ]) {
            assert!(op.infer(&[&x]).is_err(), "{op:?}");
        }
        assert!(slice(0i64, 1, 1i64).infer(&[&TensorDesc::from_sizes(DType::F32, &[5, 5])]).is_err());
        let n = Dim::symbol("n");
        let x = TensorDesc::new(DType::F32, vec![n.clone()]);
        assert!(slice(0i64, 1, n.plus(1)).infer(&[&x]).is_err());
        assert!(slice(n.clone(), 1, 1i64).infer(&[&x]).is_err());
        assert!(slice(n.plus(-1), -1, n).infer(&[&x]).is_ok());
    }
}
