//! Weights of a [`Resize`] along one axis: the input elements from which each output element is computed, with their weights.

use super::resize::{Coordinates, Filter, NearestRound, Resize};

/// Computation of one output element of a resize along an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// Weighted sum of input elements: pairs of an input index and a weight, sorted by index.
    Taps(Vec<(usize, f64)>),
    /// The output element lies outside the region of `TfCropAndResize` and gets the extrapolation value.
    Extrapolated,
}

impl Resize {
    /// Returns the computation of each output element of a resize along an axis with the given extents.
    pub fn samples(&self, axis: usize, input: usize, output: usize) -> Vec<Sample> {
        let ratio = Ratio::new(self.scales.get(axis).copied().unwrap_or(1.0), input, output);
        let rank = self.sizes.len();
        let roi = |i: usize| self.roi.get(i).copied().map_or(0.0, f64::from);
        let region = (roi(axis), roi(axis.saturating_add(rank)));
        (0..output)
            .map(|y| {
                let x = self.coordinates.source(y as f64, &ratio, region);
                let last = (ratio.input - 1.0).max(0.0);
                if self.coordinates == Coordinates::TfCropAndResize && !(0.0..=last).contains(&x) {
                    return Sample::Extrapolated;
                }
                Sample::Taps(match self.filter {
                    Filter::Nearest(round) => vec![(round.apply(x).clamp(0.0, last) as usize, 1.0)],
                    Filter::Linear => self.taps(x, &ratio, 1.0, |d| 1.0 - d),
                    Filter::Cubic { a } => self.taps(x, &ratio, 2.0, |d| keys(f64::from(a), d)),
                })
            })
            .collect()
    }

    /// Returns the input elements within `reach` of position `x` along an axis, with their filter weights.
    fn taps(&self, x: f64, ratio: &Ratio, reach: f64, weight: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
        let widen = if self.antialias { ratio.scale().min(1.0) } else { 1.0 };
        let last = (ratio.input - 1.0).max(0.0);
        let mut taps: Vec<(usize, f64)> = Vec::new();
        let mut sum = 0.0;
        let mut i = (x - reach / widen).floor() + 1.0;
        while i < x + reach / widen {
            let inside = i.clamp(0.0, last);
            if inside == i || !self.exclude_outside {
                let w = weight((i - x).abs() * widen);
                sum += w;
                match taps.last_mut() {
                    Some((at, total)) if *at == inside as usize => *total += w,
                    _ => taps.push((inside as usize, w)),
                }
            }
            i += 1.0;
        }
        if sum == 0.0 {
            return vec![(x.round().clamp(0.0, last) as usize, 1.0)];
        }
        for (_, w) in &mut taps {
            *w /= sum;
        }
        taps
    }
}

/// Scale of a resize along one axis.
struct Ratio {
    input: f64,
    output: f64,
    /// Scale that the model states; `None` if that scale is the quotient of the extents rounded to f32.
    stated: Option<f64>,
}

impl Ratio {
    fn new(scale: f32, input: usize, output: usize) -> Self {
        let (input, output) = (input as f64, output as f64);
        let rounded = (output / input) as f32 == scale;
        Self { input, output, stated: (!rounded).then_some(f64::from(scale)) }
    }

    fn scale(&self) -> f64 {
        self.stated.unwrap_or(self.output / self.input)
    }

    /// Converts a length along the output axis to a length along the input axis, without the rounding error of an f32
    /// scale if the model's scale is the quotient of the extents.
    fn shrink(&self, length: f64) -> f64 {
        match self.stated {
            Some(scale) => length / scale,
            None => length * self.input / self.output,
        }
    }

    /// Output extent of a resize along an axis, before rounding to an integer.
    fn width(&self) -> f64 {
        self.stated.map_or(self.output, |scale| scale * self.input)
    }
}

impl Coordinates {
    /// Returns the input position that a resize reads for output position `y`. `region` is the start and end of the
    /// cropped range, used by `TfCropAndResize`.
    fn source(self, y: f64, ratio: &Ratio, region: (f64, f64)) -> f64 {
        let half_pixel = ratio.shrink(y + 0.5) - 0.5;
        match self {
            Self::HalfPixel => half_pixel,
            Self::HalfPixelSymmetric => {
                let adjustment = ratio.output / ratio.width();
                ratio.input / 2.0 * (1.0 - adjustment) + half_pixel
            }
            Self::PytorchHalfPixel if ratio.output > 1.0 => half_pixel,
            Self::PytorchHalfPixel => 0.0,
            Self::AlignCorners if ratio.output > 1.0 => y * (ratio.input - 1.0) / (ratio.width() - 1.0),
            Self::AlignCorners => 0.0,
            Self::Asymmetric => ratio.shrink(y),
            Self::TfHalfPixelForNn => ratio.shrink(y + 0.5),
            Self::TfCropAndResize => {
                let (start, end) = region;
                let last = (ratio.input - 1.0).max(0.0);
                if ratio.output > 1.0 {
                    start * last + y * (end - start) * last / (ratio.output - 1.0)
                } else {
                    0.5 * (start + end) * last
                }
            }
        }
    }
}

impl NearestRound {
    fn apply(self, x: f64) -> f64 {
        match self {
            Self::RoundPreferFloor => (x - 0.5).ceil(),
            Self::RoundPreferCeil => (x + 0.5).floor(),
            Self::Floor => x.floor(),
            Self::Ceil => x.ceil(),
        }
    }
}

/// Returns Keys' cubic convolution kernel with coefficient `a` at distance `d`, in elements.
fn keys(a: f64, d: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    } else {
        0.0
    }
}
