//! A depthwise convolution, an epilogue, and a pointwise convolution, with nothing stored in between.
//!
//! Operands: `x [N, C, spatial..]`, depthwise filters `[C, 1, kernel..]`, pointwise filters `[O, C, 1..]`, those of the
//! epilogue (which broadcast to the depthwise result), and a bias `[O]` where `bias` says so. Result `[N, O, spatial..]`.
//!
//! The operator exists because only a kernel that computes both keeps what lies between them on the chip.

use serde::{Deserialize, Serialize};

use super::check;
use super::conv::Conv;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::Bindings;
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::chained;
use crate::ir::graph::epilogue_type;
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// Operands before those of the epilogue.
pub const FIXED: usize = 3;

/// A depthwise convolution and the pointwise convolution behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeparableConv {
    /// The depthwise convolution, which has no bias but in the epilogue.
    pub depthwise: Conv,
    /// What is applied to its result: `#0` is that result, `@k` operand k of this operator.
    #[serde(rename = "chain")]
    pub epilogue: Vec<EpilogueStep>,
    /// Whether the last operand is the bias of the second convolution.
    pub bias: bool,
}

/// The parts that operands have.
struct Parts<'a, T> {
    depthwise: [&'a T; 2],
    pointwise: &'a T,
    bias: Option<&'a T>,
}

impl SeparableConv {
    /// A pointwise convolution over so many spatial axes.
    pub fn pointwise(axes: usize) -> Conv {
        let (ones, zeros) = (vec![1; axes], vec![0; axes]);
        Conv { strides: ones.clone(), dilations: ones, pads_begin: zeros.clone(), pads_end: zeros, group: 1 }
    }

    fn parts<'a, T>(&self, inputs: &[&'a T]) -> Result<Parts<'a, T>, OpError> {
        let least = FIXED + usize::from(self.bias);
        let [x, depthwise, pointwise, rest @ ..] = inputs else {
            return Err(OpError::new(format!("{least} operands or more are needed, not {}", inputs.len())));
        };
        let bias = match (self.bias, rest.last()) {
            (true, None) => return Err(OpError::new("the bias is missing")),
            (true, last) => last.copied(),
            (false, _) => None,
        };
        Ok(Parts { depthwise: [x, depthwise], pointwise, bias })
    }
}

impl Operation for SeparableConv {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let parts = self.parts(inputs)?;
        let mut between = self.depthwise.infer(&parts.depthwise)?;
        for (i, arg) in self.epilogue.iter().flat_map(|s| &s.args).enumerate() {
            if let Arg::Input(k) = arg {
                let operand = inputs.get(*k as usize).filter(|_| *k as usize >= FIXED);
                let operand =
                    operand.ok_or_else(|| OpError::new("a epilogue step names a missing operand"))?;
                check::broadcasts_to(operand, &between.shape, &format!("argument {i} of the chain"))?;
            }
        }
        between.dtype = epilogue_type(between.dtype, &self.epilogue, inputs)?;
        if !parts.pointwise.shape.iter().skip(2).all(|taps| taps.is(1)) {
            return Err(OpError::new(format!("pointwise filters are needed, not {}", parts.pointwise)));
        }
        let operands: Vec<&TensorDesc> = [&between, parts.pointwise].into_iter().chain(parts.bias).collect();
        Self::pointwise(between.rank().saturating_sub(2)).infer(&operands)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let parts = self.parts(inputs)?;
            let mut shape = out.to_vec();
            if let (Some(channels), [x, _]) = (shape.get_mut(1), parts.depthwise) {
                *channels = x.shape.get(1).copied().unwrap_or(0);
            }
            let between = self.depthwise.eval(&parts.depthwise, &shape, symbols)?;
            let between = chained(between, &self.epilogue, inputs)?;
            let operands: Vec<&Array> = [&between, parts.pointwise].into_iter().chain(parts.bias).collect();
            let pointwise = Self::pointwise(out.len().saturating_sub(2));
            Ok(Data::Float(pointwise.eval(&operands, out, symbols)?.floats()?.to_vec()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Conv, SeparableConv};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::element::{Arg, BinaryFn, Element, EpilogueStep, UnaryFn};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn op(group: usize, bias: bool) -> SeparableConv {
        let depthwise =
            Conv { strides: vec![1], dilations: vec![1], pads_begin: vec![1], pads_end: vec![0], group };
        let add =
            EpilogueStep { element: Element::Binary(BinaryFn::Add), args: vec![Arg::Step(0), Arg::Input(3)] };
        let relu = EpilogueStep { element: Element::Unary(UnaryFn::Relu), args: vec![Arg::Step(1)] };
        SeparableConv { depthwise, epilogue: vec![add, relu], bias }
    }

    #[test]
    fn both_convolutions_and_the_chain() {
        let x = Array::f32(&[1, 2, 3], vec![1.0, 2.0, 3.0, -1.0, 0.0, 1.0]);
        let depthwise = Array::f32(&[2, 1, 2], vec![1.0, 1.0, 2.0, 0.0]);
        let pointwise = Array::f32(&[1, 2, 1], vec![1.0, 10.0]);
        let (shift, bias) = (Array::f32(&[2, 1], vec![-2.0, 1.0]), Array::f32(&[1], vec![0.5]));
        // Depthwise: [1, 3, 5] and [0, -2, 0]; shifted and cut: [0, 1, 3] and [1, 0, 1].
        let y = run(&op(2, true), &[&x, &depthwise, &pointwise, &shift, &bias], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.floats().unwrap()), (&[1, 1, 3][..], &[10.5, 1.5, 13.5][..]));
        let none = Array::f32(&[0, 2, 3], vec![]);
        let y = run(&op(2, false), &[&none, &depthwise, &pointwise, &shift], &Bindings::new()).unwrap();
        assert_eq!(y.shape, [0, 1, 3]);
    }

    #[test]
    fn shapes_and_refusals() {
        let of = |shape: &[usize]| TensorDesc::of(DType::F16, shape);
        let x = TensorDesc::new(DType::F16, vec![Dim::symbol("n"), Dim::known(4), Dim::symbol("w")]);
        let (depthwise, pointwise, shift) = (of(&[4, 1, 2]), of(&[6, 4, 1]), of(&[4, 1]));
        let infer = |group, bias, inputs: &[&TensorDesc]| op(group, bias).infer(inputs);
        let y = infer(4, false, &[&x, &depthwise, &pointwise, &shift]).unwrap();
        assert_eq!(y.to_string(), "f16[n, 6, w]");
        assert!(infer(4, true, &[&x, &depthwise, &pointwise, &shift, &of(&[6])]).is_ok());
        assert!(infer(4, true, &[&x, &depthwise, &pointwise, &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &pointwise]).is_err());
        assert!(infer(4, false, &[&x, &depthwise]).is_err());
        assert!(infer(2, false, &[&x, &depthwise, &pointwise, &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &of(&[6, 4, 2]), &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &of(&[6, 3, 1]), &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &pointwise, &of(&[3, 1])]).is_err());
    }
}
