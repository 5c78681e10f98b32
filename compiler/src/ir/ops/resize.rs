//! Resampling of a tensor to another shape (ONNX Resize with every mode).
//!
//! Every mode is separable. Along one axis, an output element is a weighted sum of a few input elements, and the axes
//! are processed one after another. [`Resize::samples`] returns the weights, so no other code needs to know the modes.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::resize_samples::Sample;
use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Range of the accepted scales of a resize. The width of an antialiasing filter is the reciprocal of the scale, so
/// extreme scales would exhaust memory.
const SCALES: RangeInclusive<f32> = 1e-6..=1e6;

/// Interpolation filter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// The nearest element; fractional positions are rounded by the given rule.
    Nearest(NearestRound),
    /// Linear interpolation along each axis.
    Linear,
    /// Cubic interpolation along each axis.
    Cubic {
        /// Coefficient of Keys' cubic convolution kernel, usually -0.75.
        a: f32,
    },
}

/// Rounding of a fractional position to an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's")]
pub enum NearestRound {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

/// Mapping of output positions to input positions, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's")]
pub enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
}

/// Resampling of a tensor to another shape (ONNX Resize with every mode).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    /// Interpolation filter.
    pub filter: Filter,
    /// Mapping of output positions to input positions.
    pub coordinates: Coordinates,
    /// Scale of each axis as the model states it: the output extent divided by the input extent.
    pub scales: Vec<f32>,
    /// Output shape.
    pub sizes: Vec<Dim>,
    /// Region of the input that `TfCropAndResize` reads: the starts of all axes, then the ends; empty in other modes.
    pub roi: Vec<f32>,
    /// Value of output elements outside the region of `TfCropAndResize`.
    pub extrapolation: f32,
    /// True if the interpolation filter widens when the tensor shrinks.
    pub antialias: bool,
    /// True if filter weights outside the input are dropped and the others renormalized; false if these weights go to
    /// the edge element.
    pub exclude_outside: bool,
}

impl Operation for Resize {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        let rank = x.rank();
        if self.sizes.len() != rank || self.scales.len() != rank {
            return Err(OpError::new(format!(
                "a resize needs one size and one scale per axis of {x}, found {} sizes and {} scales",
                self.sizes.len(),
                self.scales.len()
            )));
        }
        if let Some(scale) = self.scales.iter().find(|s| !SCALES.contains(s)) {
            return Err(OpError::new(format!("scale {scale} is outside 1e-6..1e6")));
        }
        if self.coordinates == Coordinates::TfCropAndResize
            && (self.roi.len() != 2 * rank || self.roi.iter().any(|r| !r.is_finite()))
        {
            return Err(OpError::new(format!("`roi` of a resize must have {} finite numbers", 2 * rank)));
        }
        if self.antialias && matches!(self.filter, Filter::Nearest(_)) {
            return Err(OpError::new("antialiasing is not defined for nearest-neighbor resizing"));
        }
        if let Filter::Cubic { a } = self.filter
            && !a.is_finite()
        {
            return Err(OpError::new("the coefficient of cubic resizing is not finite"));
        }
        for ((d, size), scale) in x.shape.iter().zip(&self.sizes).zip(&self.scales) {
            let refused = match (d.as_known(), size.as_known()) {
                (Some(d), Some(size)) => {
                    // Extents round up or down; cropping changes them freely.
                    let exact = d as f64 * f64::from(*scale);
                    let crop = self.coordinates == Coordinates::TfCropAndResize;
                    let far = (exact - size as f64).abs() > 1.0 + exact * 1e-5;
                    size < 0 || (d == 0 && size != 0) || (far && !crop)
                }
                _ => false,
            };
            if refused {
                return Err(OpError::new(format!(
                    "an extent of {d} scaled by {scale} does not give the output extent {size}"
                )));
            }
        }
        Ok(TensorDesc::new(x.dtype, self.sizes.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.sizes.iter_mut().collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, inputs: &[&TensorDesc]) -> Facts {
        // Slices need unchanged images and channels.
        let keeps_channels = inputs.first().is_some_and(|x| x.shape.get(..2) == self.sizes.get(..2));
        let layout = if keeps_channels { LayoutClass::ImageSlices } else { LayoutClass::RowMajor };
        Facts::new(layout, PrecisionClass::MovesValues, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self { sizes: check::substitute(&self.sizes, symbols), ..self.clone() };
        check::evaluate(&bound, inputs, out, || {
            let x = inputs[0];
            match (&x.data, self.filter) {
                (Data::Float(v), _) => {
                    let values = v.iter().map(|v| f64::from(*v)).collect();
                    let values = self.resample(values, &x.shape, out);
                    Ok(Data::Float(values.into_iter().map(|v| v as f32).collect()))
                }
                (Data::Int(v), Filter::Nearest(_)) if self.coordinates != Coordinates::TfCropAndResize => {
                    Ok(Data::Int(self.resample_nearest(v.clone(), &x.shape, out)))
                }
                (Data::Int(v), _) => {
                    let values = v.iter().map(|v| real(x.dtype, *v)).collect();
                    let values = self.resample(values, &x.shape, out);
                    Ok(Data::Int(values.into_iter().map(|v| integer(x.dtype, v)).collect()))
                }
            }
        })
    }
}

impl Resize {
    /// True if a resize does not change the elements along an axis.
    pub fn is_identity(&self, axis: usize, input: usize, output: usize) -> bool {
        let scale = self.scales.get(axis).copied().unwrap_or(1.0);
        input == output && scale == 1.0 && self.coordinates != Coordinates::TfCropAndResize
    }

    /// Resizes a tensor by weighted sums along one axis after another.
    fn resample(&self, mut x: Vec<f64>, from: &[usize], to: &[usize]) -> Vec<f64> {
        let mut shape = from.to_vec();
        for (axis, output) in to.iter().enumerate() {
            if self.is_identity(axis, shape[axis], *output) {
                continue;
            }
            let samples = self.samples(axis, shape[axis], *output);
            x = lanes::map_lanes(&x, &shape, axis, *output, |lane, result| {
                for (r, sample) in result.iter_mut().zip(&samples) {
                    *r = match sample {
                        Sample::Taps(taps) => taps.iter().map(|(i, w)| lane[*i] * w).sum(),
                        Sample::Extrapolated => f64::from(self.extrapolation),
                    };
                }
            });
            shape[axis] = *output;
        }
        x
    }

    /// Resizes a tensor by selecting the nearest elements along one axis after another, without arithmetic.
    fn resample_nearest(&self, mut x: Vec<i64>, from: &[usize], to: &[usize]) -> Vec<i64> {
        let mut shape = from.to_vec();
        for (axis, output) in to.iter().enumerate() {
            if self.is_identity(axis, shape[axis], *output) {
                continue;
            }
            let samples = self.samples(axis, shape[axis], *output);
            x = lanes::map_lanes(&x, &shape, axis, *output, |lane, result| {
                for (r, sample) in result.iter_mut().zip(&samples) {
                    if let Sample::Taps(taps) = sample {
                        *r = taps.first().map_or(0, |(i, _)| lane[*i]);
                    }
                }
            });
            shape[axis] = *output;
        }
        x
    }
}

/// Converts an integer of a declared type to f64; u64 values are stored as i64.
fn real(dtype: DType, v: i64) -> f64 {
    if dtype == DType::U64 { v as u64 as f64 } else { v as f64 }
}

/// Rounds to the nearest integer of a type, ties to even. Values outside the type's range become its minimum or
/// maximum.
fn integer(dtype: DType, v: f64) -> i64 {
    let v = v.round_ties_even();
    if dtype == DType::U64 {
        return v as u64 as i64;
    }
    let (min, max) = lanes::int_range(dtype);
    (v as i64).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::{Coordinates, Filter, NearestRound, Resize};
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    fn resize(filter: Filter, coordinates: Coordinates, scales: &[f32], sizes: &[usize]) -> Resize {
        Resize {
            filter,
            coordinates,
            scales: scales.to_vec(),
            sizes: sizes.iter().map(|s| Dim::from(*s)).collect(),
            roi: vec![],
            extrapolation: 0.0,
            antialias: false,
            exclude_outside: false,
        }
    }

    fn eval(op: &Resize, x: &Array) -> Array {
        let out: Vec<usize> = op.sizes.iter().map(|s| s.as_known().unwrap() as usize).collect();
        op.eval(&[x], &out, &Bindings::new()).unwrap()
    }

    fn agrees(op: &Resize, x: &Array, expected: &[f32]) {
        let y = eval(op, x);
        assert_eq!(y.len(), expected.len());
        for (y, e) in y.floats().unwrap().iter().zip(expected) {
            assert!((y - e).abs() < 1e-5, "{y} is not {e} in {op:?}");
        }
    }

    fn counted(shape: &[usize]) -> Array {
        Array::f32(shape, (1..=shape.iter().product::<usize>()).map(|v| v as f32).collect())
    }

    #[test]
    fn nearest() {
        let bytes = Array::int(DType::U8, &[2, 2], vec![1, 2, 3, 4]);
        let round = Filter::Nearest(NearestRound::RoundPreferFloor);
        let op = resize(round, Coordinates::HalfPixel, &[2.0, 1.5], &[4, 3]);
        assert_eq!(eval(&op, &bytes).data, Data::Int(vec![1, 1, 2, 1, 1, 2, 3, 3, 4, 3, 3, 4]));
        let nearest = |round, expected: [f32; 6]| {
            let op = resize(Filter::Nearest(round), Coordinates::Asymmetric, &[1.5], &[6]);
            agrees(&op, &counted(&[4]), &expected);
        };
        nearest(NearestRound::Floor, [1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
        nearest(NearestRound::Ceil, [1.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        let ties = |round, expected: [f32; 4]| {
            let op = resize(Filter::Nearest(round), Coordinates::Asymmetric, &[2.0], &[4]);
            agrees(&op, &counted(&[2]), &expected);
        };
        ties(NearestRound::RoundPreferFloor, [1.0, 1.0, 2.0, 2.0]);
        ties(NearestRound::RoundPreferCeil, [1.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn linear() {
        let x = counted(&[4]);
        let linear = |coordinates, scale: f32, expected: &[f32]| {
            agrees(&resize(Filter::Linear, coordinates, &[scale], &[expected.len()]), &x, expected);
        };
        linear(Coordinates::HalfPixel, 2.0, &[1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
        linear(Coordinates::Asymmetric, 2.0, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0]);
        linear(Coordinates::AlignCorners, 1.75, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
        linear(Coordinates::AlignCorners, 0.6, &[1.0, 3.142_857]);
        linear(Coordinates::PytorchHalfPixel, 0.25, &[1.0]);
        linear(Coordinates::HalfPixel, 0.25, &[2.5]);
        let symmetric =
            [1.0, 1.195_652_1, 1.630_434_8, 2.065_217_5, 2.5, 2.934_782_5, 3.369_565_2, 3.804_347_8, 4.0];
        linear(Coordinates::HalfPixelSymmetric, 2.3, &symmetric);
    }

    #[test]
    fn cubic() {
        let x = counted(&[4]);
        let mut op = resize(Filter::Cubic { a: -0.75 }, Coordinates::HalfPixel, &[2.0], &[8]);
        let expected = [
            0.894_531_25,
            1.191_406_2,
            1.667_968_8,
            2.296_875,
            2.703_125,
            3.332_031_2,
            3.808_593_8,
            4.105_469,
        ];
        agrees(&op, &x, &expected);
        op.filter = Filter::Cubic { a: -0.5 };
        op.exclude_outside = true;
        let expected =
            [0.911_764_7, 1.167_883_2, 1.709_923_6, 2.25, 2.75, 3.290_076_3, 3.832_116_8, 4.088_235_4];
        agrees(&op, &x, &expected);
    }

    #[test]
    fn antialias() {
        let mut op = resize(Filter::Linear, Coordinates::HalfPixel, &[0.6, 0.6], &[2, 2]);
        op.antialias = true;
        agrees(&op, &counted(&[4, 4]), &[2.875, 4.5, 9.375, 11.0]);
        let mut op = resize(Filter::Cubic { a: -0.75 }, Coordinates::HalfPixel, &[0.6], &[2]);
        op.antialias = true;
        agrees(&op, &counted(&[4]), &[1.303_613_9, 3.071_430_4]);
    }

    #[test]
    fn crops() {
        let mut op = resize(Filter::Linear, Coordinates::TfCropAndResize, &[0.75, 0.75], &[3, 3]);
        op.roi = vec![0.4, 0.6, 0.6, 0.8];
        agrees(&op, &counted(&[4, 4]), &[7.6, 7.9, 8.2, 8.8, 9.1, 9.4, 10.0, 10.3, 10.6]);
        op.roi = vec![0.4, 0.6, 1.2, 1.7];
        op.extrapolation = 10.0;
        agrees(&op, &counted(&[4, 4]), &[7.6, 10.0, 10.0, 12.4, 10.0, 10.0, 10.0, 10.0, 10.0]);
    }

    /// Checks that a stated scale is replaced by the exact quotient of the extents if rounding that quotient to f32
    /// gives the scale. For example, 1/3 is not exact in f32.
    #[test]
    fn exact_quotients() {
        let floor = Filter::Nearest(NearestRound::Floor);
        let op = resize(floor, Coordinates::HalfPixel, &[1.0 / 3.0], &[3]);
        agrees(&op, &counted(&[9]), &[2.0, 5.0, 8.0]);
    }

    #[test]
    fn integers_round_and_saturate() {
        let x = Array::int(DType::I8, &[4], vec![127, 127, -128, -128]);
        let op = resize(Filter::Cubic { a: -0.75 }, Coordinates::HalfPixel, &[2.0], &[8]);
        assert_eq!(eval(&op, &x).data, Data::Int(vec![127, 127, 127, 69, -70, -128, -128, -128]));
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[4, 4]);
        let good = resize(Filter::Linear, Coordinates::HalfPixel, &[1.0, 2.0], &[4, 8]);
        assert_eq!(good.infer(&[&x]).unwrap().to_string(), "f32[4, 8]");
        let refuse = |change: fn(&mut Resize)| {
            let mut op = good.clone();
            change(&mut op);
            assert!(op.infer(&[&x]).is_err(), "{op:?}");
        };
        refuse(|op| op.scales = vec![1.0]);
        refuse(|op| op.scales = vec![1.0, f32::NAN]);
        refuse(|op| op.scales = vec![1.0, 0.0]);
        refuse(|op| op.scales = vec![1.0, 1e-30]);
        refuse(|op| op.sizes = vec![Dim::known(4), Dim::known(11)]);
        refuse(|op| op.sizes = vec![Dim::known(4), Dim::known(-1)]);
        refuse(|op| op.coordinates = Coordinates::TfCropAndResize);
        refuse(|op| {
            op.antialias = true;
            op.filter = Filter::Nearest(NearestRound::Floor);
        });
        assert!(good.infer(&[&TensorDesc::from_sizes(DType::F32, &[4, 0])]).is_err());
    }
}
