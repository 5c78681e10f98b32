//! A matrix product with what stands beside it in a transformer: the normalisation of its rows before it, and a second
//! product of the same rows that joins it element by element.
//!
//! Operands: `x [.., M, K]`, a matrix, with `join` a second matrix of the same shape, and with `epsilon` a scale `[K]`. Rows
//! are normalised by their root mean square and scaled; the result is `#0 = x * matrix`, or what `join` makes of it and of
//! `@2 = x * second matrix`.
//!
//! The operator exists because a kernel that streams constants computes all of it in one dispatch, with nothing stored in
//! between.

use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::LayerNorm;
use super::matmul::MatMul;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::Bindings;
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::chained;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// The place of the second matrix among the operands, by which `join` names the product with it.
pub const SECOND: u32 = 2;

/// A matrix product, the normalisation before it and a second product that joins it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedMatMul {
    /// Which operands are transposed.
    pub product: MatMul,
    /// Added to the mean of squares of a row; rows are taken as they are where there is none.
    pub epsilon: Option<f32>,
    /// What makes one value of both products; empty where there is one matrix.
    pub join: Vec<EpilogueStep>,
}

/// The parts that operands have.
struct Parts<'a, T> {
    x: &'a T,
    matrix: &'a T,
    second: Option<&'a T>,
    scale: Option<&'a T>,
}

impl FusedMatMul {
    /// Matrices that rows are multiplied with.
    pub fn matrices(&self) -> usize {
        if self.join.is_empty() { 1 } else { 2 }
    }

    /// The place of the scale among the operands.
    pub fn scale(&self) -> Option<usize> {
        self.epsilon.map(|_| 1 + self.matrices())
    }

    fn parts<'a, T>(&self, inputs: &[&'a T]) -> Result<Parts<'a, T>, OpError> {
        let wanted = 1 + self.matrices() + usize::from(self.epsilon.is_some());
        let missing = || OpError::new(format!("{wanted} operands are needed, not {}", inputs.len()));
        let [x, matrix, rest @ ..] = inputs else { return Err(missing()) };
        if inputs.len() != wanted {
            return Err(missing());
        }
        let second = (!self.join.is_empty()).then(|| rest.first().copied()).flatten();
        let scale = self.epsilon.and_then(|_| rest.last().copied());
        Ok(Parts { x, matrix, second, scale })
    }

    fn norm(&self, rank: usize) -> LayerNorm {
        LayerNorm { axis: rank.saturating_sub(1), epsilon: self.epsilon.unwrap_or(0.0), rms: true }
    }
}

impl Operation for FusedMatMul {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let parts = self.parts(inputs)?;
        check::float(parts.x, "the first operand")?;
        if self.product.trans_a {
            return Err(OpError::new("rows that lie along columns are not normalised"));
        }
        if let Some(scale) = parts.scale {
            check::broadcasts_to(scale, &parts.x.shape, "the scale")?;
        }
        let result = self.product.infer(&[parts.x, parts.matrix])?;
        if let Some(second) = parts.second {
            let joined = self.product.infer(&[parts.x, second])?;
            if joined.shape != result.shape {
                return Err(OpError::new(format!("products {result} and {joined} do not join")));
            }
        }
        let steps = self.join.iter().enumerate();
        for (i, arg) in steps.flat_map(|(i, step)| step.args.iter().map(move |arg| (i, arg))) {
            let known = match *arg {
                Arg::Step(s) => s as usize <= i,
                Arg::Input(k) => k == SECOND,
            };
            if !known {
                return Err(OpError::new(format!("step {} names neither product", i + 1)));
            }
        }
        Ok(result)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let parts = self.parts(inputs)?;
            let x = match parts.scale {
                Some(scale) => {
                    let scale = Array { dtype: parts.x.dtype, ..scale.clone() };
                    self.norm(parts.x.shape.len()).eval(&[parts.x, &scale], &parts.x.shape, symbols)?
                }
                None => parts.x.clone(),
            };
            let first = self.product.eval(&[&x, parts.matrix], out, symbols)?;
            let joined = match parts.second {
                Some(second) => {
                    let second = self.product.eval(&[&x, second], out, symbols)?;
                    chained(first, &self.join, &[&x, parts.matrix, &second])?
                }
                None => first,
            };
            Ok(Data::Float(joined.floats()?.to_vec()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::FusedMatMul;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::ops::matmul::MatMul;
    use crate::ir::tensor::{DType, TensorDesc};

    fn op(epsilon: Option<f32>, second: bool) -> FusedMatMul {
        let relu = EpilogueStep { element: Element::Unary(UnaryFn::Relu), args: vec![Arg::Step(0)] };
        let mul =
            EpilogueStep { element: Element::Binary(BinaryFn::Mul), args: vec![Arg::Step(1), Arg::Input(2)] };
        let join = if second { vec![relu, mul] } else { Vec::new() };
        FusedMatMul { product: MatMul { trans_a: false, trans_b: true }, epsilon, join }
    }

    #[test]
    fn rows_are_normalised_and_products_joined() {
        let x = Array::f32(&[2, 2], vec![3.0, 4.0, 0.0, -2.0]);
        let (b, c) = (Array::f32(&[1, 2], vec![1.0, 1.0]), Array::f32(&[1, 2], vec![10.0, 0.0]));
        let scale = Array::f32(&[2], vec![5.0, 10.0]);
        let root = 12.5f32.sqrt();
        let y = run(&op(Some(0.0), true), &[&x, &b, &c, &scale], &Bindings::new()).unwrap();
        // Rows are [15, 40] / root and [0, -20] / sqrt(2).
        let want = (55.0 / root) * (150.0 / root);
        assert!((y.floats().unwrap()[0] - want).abs() < 1e-3, "{:?}", y.floats());
        assert_eq!(y.floats().unwrap()[1], 0.0);
        let y = run(&op(None, false), &[&x, &b], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [7.0, -2.0]);
    }

    #[test]
    fn refusals() {
        let of = |shape: &[usize]| TensorDesc::of(DType::F16, shape);
        let (x, b, scale) = (of(&[3, 4]), of(&[6, 4]), of(&[4]));
        let infer = |epsilon, second, inputs: &[&TensorDesc]| op(epsilon, second).infer(inputs);
        assert_eq!(infer(Some(1e-5), true, &[&x, &b, &b, &scale]).unwrap().to_string(), "f16[3, 6]");
        assert!(infer(Some(1e-5), true, &[&x, &b, &scale]).is_err());
        assert!(infer(None, true, &[&x, &b, &of(&[5, 4])]).is_err());
        assert!(infer(Some(1e-5), false, &[&x, &b, &of(&[6])]).is_err());
        assert!(infer(None, false, &[&x, &b, &b]).is_err());
    }
}
