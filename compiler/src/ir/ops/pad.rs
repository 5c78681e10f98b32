//! Padding of a tensor before and after each axis.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::{Array, strides};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::movement;
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::TensorDesc;

/// Source of the elements that padding adds: a constant, or elements of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PadMode {
    /// A constant.
    Constant,
    /// Padding mirrors the tensor, without repeating the edge element.
    Reflect,
    /// Padding repeats the edge element.
    Edge,
    /// Padding repeats the tensor periodically: padding before it comes from its end, padding after it from its start.
    Wrap,
}

/// Padding of a tensor before and after each axis. In constant mode and in wrap mode, a negative number crops the
/// tensor. In wrap mode, padding may repeat cropped elements: padding of 1 before and -1 after rotates the tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Source of the elements that padding adds: a constant, or elements of the tensor.
    pub mode: PadMode,
    /// Number of elements that are added before the tensor, per axis.
    pub before: Vec<Dim>,
    /// Number of elements that are added after the tensor, per axis.
    pub after: Vec<Dim>,
    /// Value of the elements that padding adds in constant mode.
    #[serde(with = "crate::ir::element::float_or_text")]
    pub value: f64,
}

impl Operation for Pad {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        if self.before.len() != x.rank() || self.after.len() != x.rank() {
            return Err(OpError::new(format!(
                "`before` and `after` must each have one number per axis of {x}"
            )));
        }
        let mut shape = Vec::with_capacity(x.rank());
        for ((dim, before), after) in x.shape.iter().zip(&self.before).zip(&self.after) {
            let added = before.add(after);
            if self.mode != PadMode::Constant && dim.is(0) && !added.is(0) {
                return Err(OpError::new(format!(
                    "the tensor {x} is empty, so only constant padding is possible"
                )));
            }
            let least = [before, after].into_iter().filter_map(Dim::as_known).min();
            if matches!(self.mode, PadMode::Reflect | PadMode::Edge) && least.is_some_and(|n| n < 0) {
                return Err(OpError::new(
                    "negative padding is only possible in constant mode and in wrap mode",
                ));
            }
            shape.push(dim.add(&added));
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.before.iter_mut().chain(&mut self.after).collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        let keeps_channels = self.before.iter().zip(&self.after).take(2).all(|(b, a)| b.is(0) && a.is(0));
        let layout = if keeps_channels { LayoutClass::ImageSlices } else { LayoutClass::RowMajor };
        Facts::new(layout, PrecisionClass::MovesValues, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let [before, after] = [&self.before, &self.after].map(|list| check::substitute(list, symbols));
        let bound = Self { before, after, ..self.clone() };
        check::check_arrays(&bound, inputs, out)?;
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        let mut axes = Vec::with_capacity(out.len());
        for (((size, before), stride), to) in
            x.shape.iter().zip(&bound.before).zip(strides(&x.shape)).zip(out)
        {
            let before = check::eval_dim(before, symbols)?;
            let source = |i: usize| Some(source(self.mode, i as i64 - before, *size)? * stride);
            axes.push((0..*to).map(source).collect());
        }
        movement::gather_or(x, out, &movement::combine_offsets(&axes), self.value)
    }
}

/// Returns the index of the tensor's element at position `at` of an axis of `size` elements. Positions outside the axis
/// are padding: `None` stands for the padding value, and reflection and wrapping repeat periodically, as in numpy.
pub fn source(mode: PadMode, at: i64, size: usize) -> Option<usize> {
    let n = i64::try_from(size).ok()?;
    let inside = if (0..n).contains(&at) {
        at
    } else {
        match mode {
            PadMode::Constant => return None,
            PadMode::Edge => at.clamp(0, n.checked_sub(1)?.max(0)),
            PadMode::Wrap => at.checked_rem_euclid(n)?,
            PadMode::Reflect if n == 1 => 0,
            PadMode::Reflect => {
                let period = 2 * (n - 1);
                let phase = at.checked_rem_euclid(period)?;
                phase.min(period - phase)
            }
        }
    };
    usize::try_from(inside).ok()
}

#[cfg(test)]
mod tests {
    use super::{Pad, PadMode};
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn pad(mode: PadMode, before: i64, after: i64) -> Pad {
        Pad { mode, before: vec![before.into()], after: vec![after.into()], value: 9.0 }
    }

    #[test]
    fn symbolic_padding_and_cropping() {
        // Pad to a multiple of four, and crop one element at the start.
        let (n, x) = (Dim::symbol("n"), Array::i64s(&[1, 2, 3, 4, 5]));
        let after = n.ceil_div(4).scale(4).sub(&n);
        let op = Pad { before: vec![Dim::known(-1)], after: vec![after], ..pad(PadMode::Constant, 0, 0) };
        let y = run(&op, &[&x], &Bindings::from([("n".into(), 5)])).unwrap();
        assert_eq!(y.ints().unwrap(), [2, 3, 4, 5, 9, 9, 9]);
        assert!(run(&op, &[&x], &Bindings::new()).is_err());
        assert!(pad(PadMode::Edge, -1, 2).infer(&[&TensorDesc::from_sizes(DType::F32, &[4])]).is_err());
    }

    #[test]
    fn every_mode() {
        let x = Array::i64s(&[1, 2, 3]);
        for (mode, expected) in [
            (PadMode::Constant, [9, 9, 9, 9, 9, 1, 2, 3, 9]),
            (PadMode::Reflect, [2, 1, 2, 3, 2, 1, 2, 3, 2]),
            (PadMode::Edge, [1, 1, 1, 1, 1, 1, 2, 3, 3]),
            (PadMode::Wrap, [2, 3, 1, 2, 3, 1, 2, 3, 1]),
        ] {
            let y = run(&pad(mode, 5, 1), &[&x], &Bindings::new()).unwrap();
            assert_eq!(y.ints().unwrap(), expected, "{mode:?}");
        }
        let one = run(&pad(PadMode::Reflect, 1, 1), &[&Array::i64s(&[7])], &Bindings::new()).unwrap();
        assert_eq!(one.ints().unwrap(), [7, 7, 7]);
    }

    #[test]
    fn rolls() {
        let x = Array::i64s(&[1, 2, 3, 4]);
        for (before, expected) in [(-1, [2, 3, 4, 1]), (1, [4, 1, 2, 3]), (-6, [3, 4, 1, 2])] {
            let y = run(&pad(PadMode::Wrap, before, -before), &[&x], &Bindings::new()).unwrap();
            assert_eq!(y.ints().unwrap(), expected);
        }
    }

    #[test]
    fn several_axes() {
        let [before, after] = [[1i64, 0], [0, 1]].map(|l| l.map(Dim::from).to_vec());
        let op = Pad { mode: PadMode::Constant, before, after, value: f64::NEG_INFINITY };
        let y = run(&op, &[&Array::f32(&[1, 1], vec![2.0])], &Bindings::new()).unwrap();
        let low = f32::NEG_INFINITY;
        assert_eq!((y.shape.as_slice(), y.floats().unwrap()), (&[2, 2][..], &[low, low, 2.0, low][..]));
    }

    #[test]
    fn refuses() {
        let empty = TensorDesc::from_sizes(DType::F32, &[0]);
        assert!(pad(PadMode::Edge, 1, 0).infer(&[&empty]).is_err());
        assert!(pad(PadMode::Constant, 1, 0).infer(&[&empty]).is_ok());
        assert!(pad(PadMode::Constant, 1, 0).infer(&[&TensorDesc::from_sizes(DType::F32, &[1, 1])]).is_err());
        let huge = pad(PadMode::Constant, i64::MAX, i64::MAX).infer(&[&empty]).unwrap();
        assert!(huge.check(&Default::default()).is_err());
    }
}
