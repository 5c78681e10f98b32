//! Histogram of a tensor's values with bounded memory: the bins grow by powers of two.

use super::settings::Method;
use crate::error::OpError;

/// Number of bins on each side of zero.
pub(super) const HALF: usize = 4096;

/// Minimum, maximum and distribution of values.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    /// Smallest value; infinity if there are none.
    pub(super) low: f32,
    /// Largest value; minus infinity if there are none.
    pub(super) high: f32,
    /// Magnitude at the outer edge of the last bin: a power of two; 0 if all values are zero.
    pub(super) limit: f64,
    /// Number of values that are zero.
    pub(super) zeros: u64,
    /// Numbers of values in bins of equal width from `-limit` to `limit`. Empty if only the range is collected.
    pub(super) bins: Vec<u64>,
}

impl Histogram {
    /// Returns an empty histogram with what a method needs.
    pub(super) fn new(method: Method) -> Self {
        let bins = match method {
            Method::MinMax => Vec::new(),
            Method::Percentile | Method::Entropy => vec![0; 2 * HALF],
        };
        Self { low: f32::INFINITY, high: f32::NEG_INFINITY, limit: 0.0, zeros: 0, bins }
    }

    /// Adds values.
    ///
    /// # Errors
    /// If a value is infinite or not a number.
    pub(super) fn add(&mut self, values: &[f32]) -> Result<(), OpError> {
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(OpError::new(format!("a value is {value}")));
        }
        for v in values {
            (self.low, self.high) = (self.low.min(*v), self.high.max(*v));
        }
        if self.bins.is_empty() {
            return Ok(());
        }
        self.zeros += values.iter().filter(|v| **v == 0.0).count() as u64;
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        self.grow(f64::from(largest));
        let per_unit = if self.limit > 0.0 { HALF as f64 / self.limit } else { 0.0 };
        for v in values {
            // Positive values up to `limit` and negative values from `-limit` have bins.
            let bin = (f64::from(*v) * per_unit).floor() + HALF as f64;
            if let Some(count) = self.bins.get_mut((bin.max(0.0) as usize).min(2 * HALF - 1)) {
                *count += 1;
            }
        }
        Ok(())
    }

    /// Doubles the width of the bins until they contain a magnitude.
    fn grow(&mut self, magnitude: f64) {
        if magnitude == 0.0 || magnitude <= self.limit {
            return;
        }
        if self.limit == 0.0 {
            // All values so far are zero, and bin `HALF` counts them. It starts at zero for every width.
            self.limit = 1.0;
            while self.limit / 2.0 >= magnitude {
                self.limit /= 2.0;
            }
        }
        while self.limit < magnitude {
            self.limit *= 2.0;
            if self.bins.iter().any(|count| *count > 0) {
                self.bins = merged_pairs(&self.bins);
            }
        }
    }

    /// Number of values.
    pub(super) fn total(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// Returns the lower edge of a bin.
    pub(super) fn edge(&self, bin: usize) -> f64 {
        (bin as f64 - HALF as f64) * (self.limit / HALF as f64)
    }
}

/// Returns the bins with twice the width. Bins of one sign stay on their side of zero.
fn merged_pairs(bins: &[u64]) -> Vec<u64> {
    let mut merged = vec![0; bins.len()];
    let (pairs, _) = bins.as_chunks::<2>();
    for (pair, sum) in pairs.iter().zip(merged.iter_mut().skip(bins.len() / 4)) {
        *sum = pair.iter().sum();
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{HALF, Histogram};
    use crate::import::onnx::quantize_static::settings::Method;

    #[test]
    fn bins_grow_with_the_values_and_keep_every_count() {
        let mut h = Histogram::new(Method::Percentile);
        h.add(&[0.0, 0.0]).unwrap();
        assert_eq!((h.limit, h.bins[HALF]), (0.0, 2));
        h.add(&[0.3, -0.1]).unwrap();
        assert_eq!(h.limit, 0.5);
        h.add(&[-3.0, 4.0]).unwrap();
        assert_eq!((h.limit, h.total(), h.low, h.high), (4.0, 6, -3.0, 4.0));
        assert_eq!((h.bins[HALF], h.bins[HALF / 4], h.bins[2 * HALF - 1]), (2, 1, 1));
        assert_eq!(h.bins[HALF + (0.3 / 4.0 * HALF as f32) as usize], 1);
        assert_eq!(h.edge(HALF / 4), -3.0);
    }

    #[test]
    fn values_that_are_no_numbers_are_refused() {
        for method in [Method::MinMax, Method::Entropy] {
            for bad in [f32::NAN, f32::INFINITY] {
                assert!(Histogram::new(method).add(&[1.0, bad]).is_err());
            }
        }
    }
}
