//! Quantized range of a tensor from the histogram of its values.

use super::histogram::{HALF, Histogram};
use super::settings::Method;

/// Fraction of the values that [`Method::Percentile`] keeps.
const KEPT: f64 = 0.9999;
/// Maximum number of bins of magnitudes that [`Method::Entropy`] uses.
const ENTROPY_BINS: usize = 2048;
/// Number of quantized magnitudes of [`Method::Entropy`].
const LEVELS: usize = 128;

/// Returns the range that a method selects. The range contains zero.
pub(super) fn select_range(histogram: &Histogram, method: Method) -> (f32, f32) {
    let (low, high) = (histogram.low.min(0.0), histogram.high.max(0.0));
    if histogram.limit == 0.0 {
        return (low, high);
    }
    match method {
        Method::MinMax => (low, high),
        Method::Percentile => {
            let (from, to) = percentile(histogram);
            (low.max(from).min(0.0), high.min(to).max(0.0))
        }
        Method::Entropy => {
            let magnitude = entropy_threshold(histogram) as f32;
            (low.max(-magnitude), high.min(magnitude))
        }
    }
}

/// Returns the edges of the bins between which the fraction [`KEPT`] of the values lies.
fn percentile(histogram: &Histogram) -> (f32, f32) {
    let cut = histogram.total() as f64 * (1.0 - KEPT) / 2.0;
    let outside = |counts: &mut dyn Iterator<Item = &u64>| {
        let mut sum = 0;
        counts
            .take_while(|count| {
                sum += **count;
                (sum as f64) <= cut
            })
            .count()
    };
    let below = outside(&mut histogram.bins.iter());
    let above = outside(&mut histogram.bins.iter().rev());
    let end = histogram.bins.len().saturating_sub(above);
    (histogram.edge(below) as f32, histogram.edge(end) as f32)
}

/// Returns the magnitude at which clipping and rounding change the distribution of the magnitudes least.
fn entropy_threshold(histogram: &Histogram) -> f64 {
    let (negative, positive) = histogram.bins.split_at(HALF);
    let mut magnitudes: Vec<u64> = positive.iter().zip(negative.iter().rev()).map(|(a, b)| a + b).collect();
    // Zero has an exact quantized value, so zeros are no part of the distribution.
    if let Some(first) = magnitudes.first_mut() {
        *first = first.saturating_sub(histogram.zeros);
    }
    let per_bin = HALF / ENTROPY_BINS;
    let mut bins: Vec<u64> = magnitudes.chunks(per_bin).map(|pair| pair.iter().sum()).collect();
    let used = bins.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    bins.truncate(used);
    let width = histogram.limit / ENTROPY_BINS as f64;
    let mut best = (f64::INFINITY, used);
    let mut outliers: u64 = bins.iter().skip(LEVELS).sum();
    for kept in LEVELS..=used {
        let inside = bins.get(..kept).unwrap_or_default();
        let divergence = divergence(inside, outliers);
        if divergence < best.0 {
            best = (divergence, kept);
        }
        outliers -= bins.get(kept).copied().unwrap_or(0);
    }
    best.1 as f64 * width
}

/// Returns the Kullback-Leibler divergence of the quantized distribution from the distribution of the magnitudes. The
/// last of the bins `inside` also counts the outliers, which are clipped.
fn divergence(inside: &[u64], outliers: u64) -> f64 {
    let total = inside.iter().sum::<u64>();
    let (before, after) = ((total + outliers) as f64, total as f64);
    if total == 0 {
        return f64::INFINITY;
    }
    let mut sum = 0.0;
    for level in 0..LEVELS {
        let (start, end) = (level * inside.len() / LEVELS, (level + 1) * inside.len() / LEVELS);
        let group = inside.get(start..end).unwrap_or_default();
        let clipped = if level + 1 == LEVELS { outliers } else { 0 };
        let filled = group.iter().filter(|count| **count > 0).count();
        if filled == 0 {
            if clipped > 0 {
                // The quantized distribution has no value here; one value keeps the divergence finite.
                let p = clipped as f64 / before;
                sum += p * libm::log(p * after);
            }
            continue;
        }
        let q = group.iter().sum::<u64>() as f64 / filled as f64 / after;
        for (i, count) in group.iter().enumerate() {
            let count = if i + 1 == group.len() { count + clipped } else { *count };
            if count > 0 {
                let p = count as f64 / before;
                sum += p * libm::log(p / q);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::select_range;
    use crate::import::onnx::quantize_static::histogram::Histogram;
    use crate::import::onnx::quantize_static::settings::Method;

    /// Values of a bell curve between -3 and 3, and outliers.
    fn histogram(method: Method, outliers: &[f32]) -> Histogram {
        let mut h = Histogram::new(method);
        let bell = |i: i32| {
            let x = (f64::from(i) / 3000.0).clamp(-3.0, 3.0);
            vec![x as f32; (200.0 * libm::exp(-x * x / 2.0)) as usize + 1]
        };
        h.add(&(-9000..=9000).step_by(7).flat_map(bell).collect::<Vec<f32>>()).unwrap();
        h.add(outliers).unwrap();
        h
    }

    #[test]
    fn outliers_count_only_for_the_extremes() {
        let range = |method| select_range(&histogram(method, &[12.0, -8.0]), method);
        assert_eq!(range(Method::MinMax), (-8.0, 12.0));
        for method in [Method::Percentile, Method::Entropy] {
            let (low, high) = range(method);
            assert!((-3.3..=-2.0).contains(&low) && (2.0..=3.3).contains(&high), "{method:?}: {low}..{high}");
        }
    }

    #[test]
    fn ranges_contain_zero() {
        for method in [Method::MinMax, Method::Percentile, Method::Entropy] {
            let mut h = Histogram::new(method);
            assert_eq!(select_range(&h, method), (0.0, 0.0));
            h.add(&[0.0; 9]).unwrap();
            assert_eq!(select_range(&h, method), (0.0, 0.0));
            h.add(&[5.0, 6.0]).unwrap();
            let (low, high) = select_range(&h, method);
            assert!(low == 0.0 && (5.0..=6.0).contains(&high), "{method:?}: {low}..{high}");
        }
    }
}
