//! Scales, zero points and quantized values: `real = (quantized - zero point) * scale`.

use super::settings::Activations;

/// Minimum scale. Two scales multiplied are a normal f32.
const MIN_SCALE: f32 = 1e-12;
/// Maximum magnitude of a quantized bias. Half of the range of i32 stays free for the sums of a matmul or convolution.
const MAX_BIAS: f32 = (1u32 << 30) as f32;

/// Scale and zero point of one tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    pub(super) scale: f32,
    pub(super) zero: u8,
}

/// Returns the scale and the zero point of activations with a range that contains zero. Zero has an exact quantized
/// value.
pub(super) fn activation_scale((low, high): (f32, f32), activations: Activations) -> Scale {
    match activations {
        Activations::U8 => {
            let scale = usable(((f64::from(high) - f64::from(low)) / 255.0) as f32);
            let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
            Scale { scale, zero: zero as u8 }
        }
        Activations::I8 => Scale { scale: usable(high.max(-low) / 127.0), zero: 0 },
    }
}

/// Returns a scale that is a normal number. The scale of a tensor of zeros is 1.
fn usable(scale: f32) -> f32 {
    if scale == 0.0 { 1.0 } else { scale.max(MIN_SCALE) }
}

/// Quantizes values of activations to bytes.
pub(super) fn quantize_activations(values: &[f32], at: Scale, activations: Activations) -> Vec<u8> {
    let quantized = |v: &f32| (v / at.scale).round_ties_even() + f32::from(at.zero);
    match activations {
        Activations::U8 => values.iter().map(|v| quantized(v).clamp(0.0, 255.0) as u8).collect(),
        Activations::I8 => values.iter().map(|v| (quantized(v).clamp(-127.0, 127.0) as i8) as u8).collect(),
    }
}

/// Weights that are quantized to -127 to 127, with one scale for each index of an axis or one scale for all.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuantizedWeights {
    /// Quantized values, as bytes of i8.
    pub(super) values: Vec<u8>,
    pub(super) scales: Vec<f32>,
}

/// Returns the number of elements of one index of an axis, and the number of indices: element i has the index
/// `i / inner % channels`. Without an axis there is one index.
fn channels(shape: &[usize], axis: Option<usize>) -> (usize, usize) {
    let Some(axis) = axis else { return (1, 1) };
    let inner = shape.iter().skip(axis + 1).product::<usize>().max(1);
    (inner, shape.get(axis).copied().unwrap_or(1).max(1))
}

/// Quantizes weights. The scales are at least `minima`, one for each channel.
pub(super) fn quantize_weights(
    values: &[f32],
    shape: &[usize],
    axis: Option<usize>,
    minima: &[f32],
) -> QuantizedWeights {
    let (inner, channels) = channels(shape, axis);
    let channel = |i: usize| i / inner % channels;
    let mut largest = vec![0f32; channels];
    for (i, v) in values.iter().enumerate() {
        if let Some(m) = largest.get_mut(channel(i)) {
            *m = m.max(v.abs());
        }
    }
    let minimum = |c: usize| minima.get(c).copied().unwrap_or(0.0);
    let scales: Vec<f32> =
        largest.iter().enumerate().map(|(c, m)| usable((m / 127.0).max(minimum(c)))).collect();
    let quantized = |(i, v): (usize, &f32)| {
        let scale = scales.get(channel(i)).copied().unwrap_or(1.0);
        ((v / scale).round_ties_even().clamp(-127.0, 127.0) as i8) as u8
    };
    QuantizedWeights { values: values.iter().enumerate().map(quantized).collect(), scales }
}

/// Returns the smallest scales of `channels` weight channels with which a bias fits i32. Element c of the bias belongs to
/// channel `c % channels`.
pub(super) fn minimum_weight_scales(bias: &[f32], input_scale: f32, channels: usize) -> Vec<f32> {
    let mut minima = vec![0f32; channels.max(1)];
    for (c, b) in bias.iter().enumerate() {
        if let Some(minimum) = minima.get_mut(c % channels.max(1)) {
            *minimum = minimum.max(b.abs() / input_scale / MAX_BIAS);
        }
    }
    minima
}

/// Quantizes a bias with the scales of its sums. Element c has the scale `c % scales.len()`.
pub(super) fn quantize_bias(bias: &[f32], scales: &[f32]) -> Vec<i32> {
    let scale = |c: usize| scales.get(c % scales.len().max(1)).copied().unwrap_or(1.0);
    let quantized = |(c, b): (usize, &f32)| (f64::from(*b) / f64::from(scale(c))).round_ties_even() as i32;
    bias.iter().enumerate().map(quantized).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        Scale, activation_scale, minimum_weight_scales, quantize_activations, quantize_bias, quantize_weights,
    };
    use crate::import::onnx::quantize_static::settings::Activations;

    #[test]
    fn zero_is_exact_and_the_range_is_used() {
        let scale = activation_scale((-1.0, 3.0), Activations::U8);
        assert_eq!(scale.zero, 64);
        assert_eq!(quantize_activations(&[-1.1, 0.0, 3.0, 9.0], scale, Activations::U8), [0, 64, 255, 255]);
        let scale = activation_scale((-1.0, 3.0), Activations::I8);
        assert_eq!(quantize_activations(&[-9.0, 0.0, 3.0], scale, Activations::I8), [129, 0, 127]);
        assert_eq!(activation_scale((0.0, 0.0), Activations::U8), Scale { scale: 1.0, zero: 0 });
        assert!(activation_scale((0.0, f32::MIN_POSITIVE), Activations::U8).scale >= 1e-12);
        assert!(activation_scale((f32::MIN, f32::MAX), Activations::U8).scale.is_finite());
    }

    #[test]
    fn weights_have_a_scale_for_each_channel() {
        let values = [127.0, -1.0, 0.0, 0.0, 254.0, -254.0];
        let found = quantize_weights(&values, &[3, 2], Some(0), &[]);
        assert_eq!((found.scales, found.values), (vec![1.0, 1.0, 2.0], vec![127, 255, 0, 0, 127, 129]));
        let found = quantize_weights(&values, &[3, 2], Some(1), &[4.0, 0.0]);
        assert_eq!(found.scales, [4.0, 2.0]);
        let found = quantize_weights(&values, &[3, 2], None, &[]);
        assert_eq!(found.scales, [2.0]);
    }

    #[test]
    fn a_bias_fits_its_integers() {
        let minima = minimum_weight_scales(&[1e9, 0.0, -1.0, 0.0], 1e-3, 2);
        assert!(minima[0] > 900.0 && minima[1] == 0.0, "{minima:?}");
        assert_eq!(quantize_bias(&[1.0, -1.0, 3.0], &[0.5, 0.25]), [2, -4, 6]);
        assert_eq!(quantize_bias(&[1e30], &[1.0]), [i32::MAX]);
    }
}
