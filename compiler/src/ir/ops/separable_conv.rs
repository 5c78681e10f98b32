//! A depthwise convolution, its epilogue, and a pointwise convolution, fused.
//!
//! Operands: `x [N, C, spatial..]`, depthwise filters `[C, 1, kernel..]`, pointwise filters `[O, C, 1..]`, operands of
//! the epilogue (which broadcast to the depthwise result), and with `bias` a bias `[O]`. The result is `[N, O,
//! spatial..]`.
//!
//! The operator exists because one kernel for both convolutions keeps the depthwise result on the chip.

use serde::{Deserialize, Serialize};

use super::check;
use super::conv::Conv;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::eval::apply_epilogue;
use crate::ir::graph::epilogue_type;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Index of the first operand of a separable convolution that belongs to the epilogue.
pub const FIRST_EPILOGUE_OPERAND: usize = 3;

/// A depthwise convolution followed by a pointwise convolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeparableConv {
    /// The depthwise convolution, without its bias, which the epilogue adds.
    pub depthwise: Conv,
    /// Epilogue of the depthwise convolution: `#0` is its result, `@k` is operand k of this operator.
    pub epilogue: Vec<EpilogueStep>,
    /// True if the last operand is the bias of the pointwise convolution.
    pub bias: bool,
}

/// Operands by role.
struct Operands<'a, T> {
    depthwise: [&'a T; 2],
    pointwise: &'a T,
    bias: Option<&'a T>,
}

impl SeparableConv {
    /// Returns the attributes of a pointwise convolution over `axes` spatial axes.
    pub fn pointwise(axes: usize) -> Conv {
        let (ones, zeros) = (vec![1; axes], vec![0; axes]);
        Conv {
            strides: ones.clone(),
            dilations: ones,
            pads_begin: zeros.clone(),
            pads_end: zeros,
            group: 1,
            zero_point: 0,
        }
    }

    fn operands<'a, T>(&self, inputs: &[&'a T]) -> Result<Operands<'a, T>, OpError> {
        let min = FIRST_EPILOGUE_OPERAND + usize::from(self.bias);
        let [x, depthwise, pointwise, rest @ ..] = inputs else {
            return Err(OpError::new(format!("expected at least {min} operands, found {}", inputs.len())));
        };
        let bias = match (self.bias, rest.last()) {
            (true, None) => return Err(OpError::new("the bias is missing")),
            (true, last) => last.copied(),
            (false, _) => None,
        };
        Ok(Operands { depthwise: [x, depthwise], pointwise, bias })
    }
}

impl Operation for SeparableConv {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let operands = self.operands(inputs)?;
        let mut intermediate = self.depthwise.infer(&operands.depthwise)?;
        for (i, arg) in self.epilogue.iter().flat_map(|s| &s.args).enumerate() {
            if let Arg::Input(k) = arg {
                let operand = inputs.get(*k as usize).filter(|_| *k as usize >= FIRST_EPILOGUE_OPERAND);
                let operand = operand.ok_or_else(|| {
                    OpError::new("a step of the depthwise epilogue reads an operand that does not exist")
                })?;
                check::broadcasts_to(operand, &intermediate.shape, &format!("argument {i} of the epilogue"))?;
            }
        }
        intermediate.dtype = epilogue_type(intermediate.dtype, &self.epilogue, inputs)?;
        if !operands.pointwise.shape.iter().skip(2).all(|taps| taps.is(1)) {
            let reason =
                format!("the pointwise filters must have extents of 1, found {}", operands.pointwise);
            return Err(OpError::new(reason));
        }
        let inputs: Vec<&TensorDesc> =
            [&intermediate, operands.pointwise].into_iter().chain(operands.bias).collect();
        Self::pointwise(intermediate.rank().saturating_sub(2)).infer(&inputs)
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::Convolution, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let operands = self.operands(inputs)?;
            let mut shape = out.to_vec();
            if let (Some(channels), [x, _]) = (shape.get_mut(1), operands.depthwise) {
                *channels = x.shape.get(1).copied().unwrap_or(0);
            }
            let intermediate = self.depthwise.eval(&operands.depthwise, &shape, symbols)?;
            let intermediate = apply_epilogue(intermediate, &self.epilogue, inputs)?;
            let inputs: Vec<&Array> =
                [&intermediate, operands.pointwise].into_iter().chain(operands.bias).collect();
            let pointwise = Self::pointwise(out.len().saturating_sub(2));
            Ok(Data::Float(pointwise.eval(&inputs, out, symbols)?.floats()?.to_vec()))
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
        let depthwise = Conv {
            strides: vec![1],
            dilations: vec![1],
            pads_begin: vec![1],
            pads_end: vec![0],
            group,
            zero_point: 0,
        };
        let add =
            EpilogueStep { element: Element::Binary(BinaryFn::Add), args: vec![Arg::Step(0), Arg::Input(3)] };
        let relu = EpilogueStep { element: Element::Unary(UnaryFn::Relu), args: vec![Arg::Step(1)] };
        SeparableConv { depthwise, epilogue: vec![add, relu], bias }
    }

    #[test]
    fn convolutions_and_epilogue() {
        let x = Array::f32(&[1, 2, 3], vec![1.0, 2.0, 3.0, -1.0, 0.0, 1.0]);
        let depthwise = Array::f32(&[2, 1, 2], vec![1.0, 1.0, 2.0, 0.0]);
        let pointwise = Array::f32(&[1, 2, 1], vec![1.0, 10.0]);
        let (shift, bias) = (Array::f32(&[2, 1], vec![-2.0, 1.0]), Array::f32(&[1], vec![0.5]));
        // Depthwise: [1, 3, 5] and [0, -2, 0]; after add and relu: [0, 1, 3] and [1, 0, 1].
        let y = run(&op(2, true), &[&x, &depthwise, &pointwise, &shift, &bias], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.floats().unwrap()), (&[1, 1, 3][..], &[10.5, 1.5, 13.5][..]));
        let none = Array::f32(&[0, 2, 3], vec![]);
        let y = run(&op(2, false), &[&none, &depthwise, &pointwise, &shift], &Bindings::new()).unwrap();
        assert_eq!(y.shape, [0, 1, 3]);
    }

    #[test]
    fn shapes_and_refusals() {
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F16, shape);
        let x = TensorDesc::new(DType::F16, vec![Dim::symbol("n"), Dim::known(4), Dim::symbol("w")]);
        let (depthwise, pointwise, shift) = (tensor(&[4, 1, 2]), tensor(&[6, 4, 1]), tensor(&[4, 1]));
        let infer = |group, bias, inputs: &[&TensorDesc]| op(group, bias).infer(inputs);
        let y = infer(4, false, &[&x, &depthwise, &pointwise, &shift]).unwrap();
        assert_eq!(y.to_string(), "f16[n, 6, w]");
        assert!(infer(4, true, &[&x, &depthwise, &pointwise, &shift, &tensor(&[6])]).is_ok());
        assert!(infer(4, true, &[&x, &depthwise, &pointwise, &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &pointwise]).is_err());
        assert!(infer(4, false, &[&x, &depthwise]).is_err());
        assert!(infer(2, false, &[&x, &depthwise, &pointwise, &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &tensor(&[6, 4, 2]), &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &tensor(&[6, 3, 1]), &shift]).is_err());
        assert!(infer(4, false, &[&x, &depthwise, &pointwise, &tensor(&[3, 1])]).is_err());
    }
}
