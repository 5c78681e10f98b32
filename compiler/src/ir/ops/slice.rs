//! `out[i] = x[starts + i * steps]` per axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, count, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::tensor::TensorDesc;

/// `out[i] = x[starts + i * steps]` per axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// First element, per axis.
    pub starts: Vec<Dim>,
    /// Step, per axis; may be negative, never zero.
    pub steps: Vec<i64>,
    /// Elements kept, per axis.
    pub sizes: Vec<Dim>,
}

impl Slice {
    /// Fails when an element is outside the axis whatever the symbols are.
    fn check_axis(&self, axis: usize, dim: &Dim) -> Result<(), String> {
        let (start, step, size) = (&self.starts[axis], self.steps[axis], &self.sizes[axis]);
        if step == 0 {
            return Err("the step is 0".into());
        }
        if size.is(0) {
            return Ok(());
        }
        let last = size.plus(-1).scale(step).add(start);
        // A symbolic size may be 0, which leaves no element to be outside.
        let ends = if size.as_known().is_some() { vec![start, &last] } else { vec![] };
        let outside =
            |at: &Dim| at.as_known().is_some_and(|v| v < 0) || dim.sub(at).as_known().is_some_and(|v| v <= 0);
        if let Some(at) = ends.into_iter().find(|at| outside(at)) {
            return Err(format!("element {at} is outside its size {dim}"));
        }
        if step.abs() == 1 && dim.sub(size).as_known().is_some_and(|v| v < 0) {
            return Err(format!("{size} elements are more than its size {dim}"));
        }
        Ok(())
    }
}

impl Operation for Slice {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        let rank = x.rank();
        if self.starts.len() != rank || self.steps.len() != rank || self.sizes.len() != rank {
            return Err(OpError::new(format!("a start, a step and a size are needed per axis of {x}")));
        }
        for (axis, dim) in x.shape.iter().enumerate() {
            self.check_axis(axis, dim).map_err(|why| OpError::new(format!("axis {axis} of {x}: {why}")))?;
        }
        Ok(TensorDesc::new(x.dtype, self.sizes.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self {
            starts: check::substitute(&self.starts, symbols),
            sizes: check::substitute(&self.sizes, symbols),
            steps: self.steps.clone(),
        };
        check::concrete(&bound, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("one operand is needed")) };
        if count(out) == 0 {
            return Ok(Array::zeros(x.dtype, out));
        }
        let mut base = 0i64;
        let mut steps = Vec::with_capacity(out.len());
        for ((start, step), stride) in bound.starts.iter().zip(&bound.steps).zip(strides(&x.shape)) {
            base += check::bound(start, symbols)? * stride as i64;
            steps.push(step.saturating_mul(stride as i64));
        }
        movement::strided(x, out, &steps, base)
    }
}
