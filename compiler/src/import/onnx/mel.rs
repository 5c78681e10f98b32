//! Lowers MelWeightMatrix to a constant.

use super::lowering::{Call, Lowered, OpEntry, op};
use super::refused::Refused;
use super::tensors;
use crate::ir::array::Array;

pub(super) const OPS: &[OpEntry] = &[op("MelWeightMatrix", 17, mel_weight_matrix)];

/// Maximum number of elements of the matrix, which is computed at compile time.
const MAX_ELEMENTS: usize = 1 << 22;

/// Operands of MelWeightMatrix.
struct Filters {
    /// Number of mel bins: the columns of the matrix.
    count: usize,
    /// Number of bins of a one-sided spectrum: the rows of the matrix.
    bins: usize,
    length: i64,
    sample_rate: i64,
    low_hertz: f64,
    high_hertz: f64,
}

fn mel_weight_matrix(call: &mut Call<'_>) -> Lowered {
    let size = |call: &Call<'_>, index: usize, name: &str| {
        let value = call.known_scalar(index, name)?.unwrap_or(0);
        if value > 0 {
            Ok(value)
        } else {
            Err(Refused::new(format!("{name} is {value}; it must be positive")))
        }
    };
    let hertz = |call: &Call<'_>, index: usize, name: &str| {
        let values = call.known_floats(index, name)?.unwrap_or_default();
        match values.as_slice() {
            [value] if *value >= 0.0 => Ok(f64::from(*value)),
            _ => Err(Refused::new(format!("{name} is {values:?}; one number of 0 or more is needed"))),
        }
    };
    let (count, length) = (size(call, 0, "num_mel_bins")?, size(call, 1, "dft_length")?);
    let usable = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    let filters = Filters {
        count: usable(count),
        bins: usable(length / 2).saturating_add(1),
        length,
        sample_rate: size(call, 2, "sample_rate")?,
        low_hertz: hertz(call, 3, "lower_edge_hertz")?,
        high_hertz: hertz(call, 4, "upper_edge_hertz")?,
    };
    if filters.count.saturating_mul(filters.bins) > MAX_ELEMENTS {
        return Err(Refused::new(format!(
            "the matrix has {} x {count} elements; at most {MAX_ELEMENTS} are supported",
            filters.bins
        )));
    }
    let number = call.attributes.int("output_datatype", 1)?;
    let dtype = tensors::dtype(i32::try_from(number).unwrap_or(-1))?;
    let matrix = Array::f32(&[filters.bins, filters.count], filters.matrix()?).cast(dtype);
    Ok(call.b.constant(&matrix)?.into())
}

impl Filters {
    /// Returns the bin of the spectrum at each of the `count + 2` frequencies that are evenly spaced on the mel scale.
    fn edges(&self) -> Lowered<Vec<usize>> {
        let mel = |hertz: f64| 2595.0 * libm::log1p(hertz / 700.0) / std::f64::consts::LN_10;
        let (low, high) = (mel(self.low_hertz), mel(self.high_hertz));
        let step = (high - low) / (self.count + 2) as f64;
        let edge = |i: usize| {
            let mel = i as f64 * step + low;
            let hertz = 700.0 * libm::expm1(mel / 2595.0 * std::f64::consts::LN_10);
            let bin = ((self.length + 1) as f64 * hertz / self.sample_rate as f64).floor();
            if bin >= 0.0 && bin < self.bins as f64 {
                return Ok(bin as usize);
            }
            Err(Refused::new(format!(
                "a filter ends at bin {bin}, but the spectrum has {} bins; lower upper_edge_hertz",
                self.bins
            )))
        };
        (0..self.count + 2).map(edge).collect()
    }

    /// Returns the triangular filters as a matrix `[bins, count]`.
    fn matrix(&self) -> Lowered<Vec<f32>> {
        let mut values = vec![0.0f32; self.bins * self.count];
        for (i, edges) in self.edges()?.windows(3).enumerate() {
            let [left, center, right] = [edges[0], edges[1], edges[2]];
            let mut put = |row: usize, value: f64| values[row * self.count + i] = value as f32;
            if left >= center {
                put(center, 1.0);
            } else {
                for row in left..=center {
                    put(row, (row - left) as f64 / (center - left) as f64);
                }
            }
            for row in center..right {
                put(row, (right - row) as f64 / (right - center) as f64);
            }
        }
        Ok(values)
    }
}
