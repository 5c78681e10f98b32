//! Quantization noise: the difference between a quantized and a float tensor.

use crate::ir::array::Array;

/// Sums of squares from which the signal-to-noise ratio is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Noise {
    /// Sum of the squares of the float values.
    pub signal: f64,
    /// Sum of the squares of the differences from the float values.
    pub noise: f64,
}

impl Noise {
    /// Adds the values of a tensor. Elements that only one array has are ignored.
    pub(super) fn add(&mut self, float: &[f32], quantized: &Array) {
        let Ok(values) = quantized.floats() else { return };
        for (a, b) in float.iter().zip(values) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            self.signal += a * a;
            self.noise += (a - b) * (a - b);
        }
    }

    /// Signal-to-noise ratio in decibels; infinity without noise.
    pub fn decibels(&self) -> f64 {
        if self.noise == 0.0 {
            return f64::INFINITY;
        }
        10.0 * libm::log10(self.signal / self.noise)
    }
}

/// Noise of the output of a quantized operator on the samples.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorNoise {
    /// Name of the node, or of its first output if it has no name. `Settings::leave` accepts it.
    pub node: String,
    /// Name of the ONNX operator.
    pub operator: String,
    /// True for an operator with weights.
    pub has_weights: bool,
    /// Noise if only this operator is quantized, with its inputs and its output.
    pub alone: Noise,
    /// Noise in the quantized model, with the noise of all operators before it.
    pub model: Noise,
}

/// Maximum number of operators that [`worth_leaving`] names.
const MAX_NAMED: usize = 5;
/// Signal-to-noise ratio in decibels from which on an operator is never worth leaving in float.
const GOOD_DECIBELS: f64 = 20.0;

/// Returns the operators whose own noise is largest: the worst first, at most five, and none with a signal-to-noise ratio
/// of 20 dB or more.
pub fn worth_leaving(operators: &[OperatorNoise]) -> Vec<&OperatorNoise> {
    let mut noisy: Vec<&OperatorNoise> =
        operators.iter().filter(|o| o.alone.decibels() < GOOD_DECIBELS).collect();
    noisy.sort_by(|a, b| a.alone.decibels().total_cmp(&b.alone.decibels()));
    noisy.truncate(MAX_NAMED);
    noisy
}

#[cfg(test)]
mod tests {
    use super::{Noise, OperatorNoise, worth_leaving};
    use crate::ir::array::Array;

    #[test]
    fn decibels_compare_signal_and_noise() {
        let mut noise = Noise::default();
        noise.add(&[10.0, 0.0], &Array::f32(&[2], vec![9.0, 0.0]));
        assert!((noise.decibels() - 20.0).abs() < 1e-9);
        assert_eq!(Noise::default().decibels(), f64::INFINITY);
    }

    #[test]
    fn the_noisiest_operators_are_named_first() {
        let operator = |node: &str, noise: f64| OperatorNoise {
            node: node.into(),
            operator: "Conv".into(),
            has_weights: true,
            alone: Noise { signal: 1.0, noise },
            model: Noise { signal: 1.0, noise },
        };
        let all = [operator("good", 1e-4), operator("bad", 0.05), operator("worst", 0.5)];
        let named: Vec<&str> = worth_leaving(&all).iter().map(|o| o.node.as_str()).collect();
        assert_eq!(named, ["worst", "bad"]);
    }
}
