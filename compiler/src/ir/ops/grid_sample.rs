//! Sampling of an image at the positions of a second operand (ONNX GridSample with every mode).
//!
//! Positions are between -1 and 1 along each spatial axis, and may lie outside. Every mode is separable: a sample is a
//! weighted sum over a few taps along each axis. [`GridSample::taps`] returns the taps of one axis.

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Coefficient of Keys' cubic convolution kernel for cubic sampling.
pub const CUBIC: f32 = -0.75;

/// Interpolation mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleMode {
    /// Selects the nearest element; a position halfway between two elements selects the one with the even index.
    Nearest,
    /// Linear interpolation along each axis.
    Linear,
    /// Cubic interpolation along each axis.
    Cubic,
}

/// Rule that gives the value of samples outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplePadding {
    /// Zero.
    Zeros,
    /// A sample outside the image has the value of the nearest element at the border.
    Border,
    /// A sample outside the image is read from the image, mirrored at its borders repeatedly.
    Reflection,
}

/// Samples `[N, C, spatial..]` at the positions `[N, places.., axes]`; the result is `[N, C, places..]`. The first
/// component of a position belongs to the last spatial axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridSample {
    /// Interpolation mode.
    pub mode: SampleMode,
    /// Rule that gives the value of samples outside the image.
    pub padding: SamplePadding,
    /// True if the positions -1 and 1 are the centers of the first and the last element; false if they are the outer
    /// edges of these elements.
    pub align_corners: bool,
}

impl GridSample {
    /// Number of taps (input elements) of a sample along each axis.
    pub fn count(&self) -> usize {
        match self.mode {
            SampleMode::Nearest => 1,
            SampleMode::Linear => 2,
            SampleMode::Cubic => 4,
        }
    }

    /// Returns the elements along an axis of `size` elements that contribute to the sample at `position`, with their
    /// weights. Taps that are zero by padding are left out. The computation is in f32, as on the device.
    pub fn taps(&self, position: f32, size: usize) -> Vec<(usize, f32)> {
        let last = size as f32 - 1.0;
        let low = if self.align_corners { 0.0 } else { -0.5 };
        let high = last - low;
        let mut x = match self.align_corners {
            true => (position + 1.0) / 2.0 * last,
            false => ((position + 1.0) * size as f32 - 1.0) / 2.0,
        };
        if self.mode == SampleMode::Nearest {
            x = x.round_ties_even();
        }
        if x < low || x > high {
            x = match self.padding {
                SamplePadding::Zeros => x,
                SamplePadding::Border => x.clamp(0.0, last),
                SamplePadding::Reflection => reflect(x, low, high),
            };
        }
        let first = x.floor() - if self.mode == SampleMode::Cubic { 1.0 } else { 0.0 };
        let tap = |k: usize| {
            let element = first + k as f32;
            let away = (x - element).abs();
            let weight = match self.mode {
                SampleMode::Nearest => 1.0,
                SampleMode::Linear => 1.0 - away,
                SampleMode::Cubic => keys(away),
            };
            let element = match self.padding {
                SamplePadding::Zeros => (0.0..=last).contains(&element).then_some(element)?,
                SamplePadding::Border => element,
                SamplePadding::Reflection if element < low || element > high => reflect(element, low, high),
                SamplePadding::Reflection => element,
            };
            Some((element.clamp(0.0, last) as usize, weight))
        };
        (0..self.count()).filter_map(tap).collect()
    }
}

/// Reflects a position outside `low..high` at both ends until it lies inside.
fn reflect(x: f32, low: f32, high: f32) -> f32 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let beyond = if x < low { low - x } else { x - high };
    let times = (beyond / range).floor();
    let rest = (beyond - times * range).clamp(0.0, range);
    // After an even number of whole ranges, the position lies on the side that it came from.
    if (x < low) == (times % 2.0 == 0.0) { low + rest } else { high - rest }
}

/// Returns Keys' cubic convolution kernel at distance `d`, in elements.
fn keys(d: f32) -> f32 {
    if d <= 1.0 {
        ((CUBIC + 2.0) * d - (CUBIC + 3.0)) * d * d + 1.0
    } else {
        ((CUBIC * d - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC
    }
}

impl Operation for GridSample {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x, grid] = check::exact_operands(inputs)?;
        check::float(x, "the image")?;
        check::float(grid, "the grid of positions")?;
        let axes = x.rank().saturating_sub(2);
        if !(1..=3).contains(&axes) {
            return Err(OpError::new(format!("the image must have one to three spatial axes, found {x}")));
        }
        let [batch, places @ .., last] = grid.shape.as_slice() else {
            return Err(OpError::new(format!(
                "the grid must have a batch axis and a position axis, found {grid}"
            )));
        };
        if places.len() != axes || !last.is(axes as i64) {
            return Err(OpError::new(format!(
                "the grid for {x} must have {} axes, the last of size {axes}; found {grid}",
                axes + 2
            )));
        }
        if x.shape.iter().skip(2).any(|size| size.is(0)) && !places.iter().any(|size| size.is(0)) {
            return Err(OpError::new(format!("the image {x} has no element to sample")));
        }
        let batch = check::equal_sizes(&x.shape[0], batch, "the batch sizes of image and grid")?;
        let mut shape = vec![batch, x.shape[1].clone()];
        shape.extend_from_slice(places);
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::ImageSlices, PrecisionClass::Samples, Exactness::Samples)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let [x, grid] = inputs else { return Err(OpError::new("expected two operands")) };
            let (values, positions) = (x.floats()?, grid.floats()?);
            let [batches, channels, sizes @ ..] = x.shape.as_slice() else {
                return Err(OpError::new("the first operand must be an image"));
            };
            let (axes, image, places) = (sizes.len(), count(sizes), count(&out[2..]));
            let mut result = vec![0.0f32; count(out)];
            for n in 0..*batches {
                for place in 0..places {
                    let at = &positions[(n * places + place) * axes..][..axes];
                    // Offsets in an image and their weights, extended axis by axis.
                    let mut taps = vec![(0usize, 1.0f32)];
                    for (size, position) in sizes.iter().zip(at.iter().rev()) {
                        let along = self.taps(*position, *size);
                        let product = taps.iter().flat_map(|(offset, weight)| {
                            along.iter().map(move |(i, w)| (offset * size + i, weight * w))
                        });
                        taps = product.collect();
                    }
                    for c in 0..*channels {
                        let plane = &values[(n * channels + c) * image..][..image];
                        let sum: f32 = taps.iter().map(|(offset, weight)| plane[*offset] * weight).sum();
                        result[(n * channels + c) * places + place] = sum;
                    }
                }
            }
            Ok(Data::Float(result))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{GridSample, SampleMode, SamplePadding};
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::ops::check::run;
    use crate::ir::tensor::{DType, TensorDesc};

    fn line(mode: SampleMode, padding: SamplePadding, align_corners: bool, at: &[f32]) -> Vec<f32> {
        let x = Array::f32(&[1, 1, 4], vec![1.0, 2.0, 3.0, 4.0]);
        let grid = Array::f32(&[1, at.len(), 1], at.to_vec());
        let op = GridSample { mode, padding, align_corners };
        run(&op, &[&x, &grid], &Bindings::new()).unwrap().floats().unwrap().to_vec()
    }

    #[test]
    fn corners_are_edges_or_centers() {
        use SampleMode::Linear;
        use SamplePadding::Zeros;
        assert_eq!(line(Linear, Zeros, true, &[-1.0, 0.0, 1.0]), [1.0, 2.5, 4.0]);
        assert_eq!(line(Linear, Zeros, false, &[-1.0, 0.0, 1.0]), [0.5, 2.5, 2.0]);
        assert_eq!(line(SampleMode::Nearest, Zeros, true, &[0.0, -1.5, 1.1]), [3.0, 0.0, 4.0]);
    }

    #[test]
    fn positions_outside_follow_the_padding() {
        use SampleMode::{Cubic, Linear, Nearest};
        use SamplePadding::{Border, Reflection, Zeros};
        assert_eq!(line(Linear, Border, false, &[-3.0, 9.0, f32::INFINITY]), [1.0, 4.0, 4.0]);
        // Reflected at the outer edges, and at the centers of the outer elements.
        assert_eq!(line(Nearest, Reflection, false, &[-1.25, -1.75, 1.25, 3.25]), [1.0, 2.0, 4.0, 1.0]);
        assert_eq!(line(Linear, Reflection, true, &[2.0, 3.0, 5.0]), [2.5, 1.0, 4.0]);
        assert_eq!(line(Cubic, Zeros, true, &[-9.0]), [0.0]);
    }

    #[test]
    fn an_axis_of_one_element_is_constant() {
        let x = Array::f32(&[1, 1, 1], vec![7.0]);
        let grid = Array::f32(&[1, 2, 1], vec![-4.0, 0.5]);
        for align_corners in [false, true] {
            let op =
                GridSample { mode: SampleMode::Linear, padding: SamplePadding::Reflection, align_corners };
            let y = run(&op, &[&x, &grid], &Bindings::new()).unwrap();
            assert_eq!(y.floats().unwrap(), [7.0, 7.0]);
        }
    }

    #[test]
    fn the_first_component_belongs_to_the_last_axis() {
        let x = Array::f32(&[1, 2, 2, 3], (0..12).map(|v| v as f32).collect());
        let grid = Array::f32(&[1, 1, 1, 2], vec![1.0, -1.0]);
        let op = GridSample { mode: SampleMode::Cubic, padding: SamplePadding::Border, align_corners: true };
        let y = run(&op, &[&x, &grid], &Bindings::new()).unwrap();
        assert_eq!((y.shape.as_slice(), y.floats().unwrap()), (&[1, 2, 1, 1][..], &[2.0, 8.0][..]));
        let none = Array::f32(&[1, 0, 5, 2], Vec::new());
        assert_eq!(run(&op, &[&x, &none], &Bindings::new()).unwrap().shape, [1, 2, 0, 5]);
    }

    #[test]
    fn refuses() {
        let op = GridSample { mode: SampleMode::Linear, padding: SamplePadding::Zeros, align_corners: false };
        let tensor = |shape: &[usize]| TensorDesc::from_sizes(DType::F32, shape);
        assert_eq!(
            op.infer(&[&tensor(&[2, 3, 4, 5]), &tensor(&[2, 6, 7, 2])]).unwrap().to_string(),
            "f32[2, 3, 6, 7]"
        );
        for (x, grid) in [
            (&[2, 3][..], &[2, 2][..]),
            (&[2, 3, 4, 5], &[1, 6, 7, 2]),
            (&[2, 3, 4, 5], &[2, 6, 7, 3]),
            (&[2, 3, 4, 5], &[2, 6, 2]),
            (&[2, 3, 0, 5], &[2, 6, 7, 2]),
            (&[2, 3, 4, 5, 6, 7], &[2, 3, 4, 5, 6, 4]),
        ] {
            assert!(op.infer(&[&tensor(x), &tensor(grid)]).is_err(), "{x:?} at {grid:?}");
        }
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::I32, &[1, 1, 2]), &tensor(&[1, 2, 1])]).is_err());
    }
}
