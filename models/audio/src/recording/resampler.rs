//! Conversion of sample rates by band-limited interpolation: a sinc function with a Kaiser window.
//!
//! The crate `rubato` delays by a fraction of an output sample for most rates, and its sums depend on the vector instructions of
//! the processor. Here sample 0 keeps its time, and equal recordings give equal samples on every processor.

use std::f64::consts::PI;

/// Zero crossings of the sinc function on each side.
const CROSSINGS: f64 = 48.0;
/// Shape of the Kaiser window: about 90 dB of attenuation.
const KAISER_BETA: f64 = 9.0;
/// Cutoff as a fraction of the lower of the two Nyquist frequencies.
const CUTOFF: f64 = 0.945;
/// Maximum number of phases in the table. Phases between two rows of the table are interpolated.
const MAX_PHASES: usize = 512;

/// Converts a stream of samples from one rate to another. Sample 0 of the output has the time of sample 0 of the input.
pub(super) struct Resampler {
    /// Rates divided by their greatest common divisor.
    from: usize,
    to: usize,
    /// Number of input samples on each side of an output sample.
    half: usize,
    phases: usize,
    /// Coefficients of shape `[phases + 1, 2 * half]`.
    table: Vec<f32>,
    /// Input samples that later output samples need.
    buffer: Vec<f32>,
    /// Position of the next output sample in the buffer: whole samples, and a remainder in units of `1 / to`.
    position: usize,
    remainder: usize,
    /// Input and output samples so far.
    taken: usize,
    made: usize,
}

impl Resampler {
    /// Creates a resampler for two rates in Hz above 0.
    pub(super) fn new(from: usize, to: usize) -> Self {
        let divisor = greatest_common_divisor(from, to).max(1);
        let (from, to) = (from / divisor, to / divisor);
        let scale = CUTOFF * (to as f64 / from as f64).min(1.0);
        let half = (CROSSINGS / scale).ceil() as usize;
        let phases = to.min(MAX_PHASES);
        let table = (0..=phases).flat_map(|p| row(p as f64 / phases as f64, half, scale)).collect();
        let buffer = vec![0.0; half - 1];
        Self { from, to, half, phases, table, buffer, position: 0, remainder: 0, taken: 0, made: 0 }
    }

    /// Converts samples and appends the output samples that they complete.
    pub(super) fn push(&mut self, input: &[f32], output: &mut Vec<f32>) {
        self.buffer.extend_from_slice(input);
        self.taken += input.len();
        self.convert(output, usize::MAX);
    }

    /// Appends the output samples at the end of the stream.
    pub(super) fn finish(&mut self, output: &mut Vec<f32>) {
        self.buffer.extend(std::iter::repeat_n(0.0, self.half));
        // The output lasts as long as the input, rounded up to whole samples.
        let total = (self.taken as u128 * self.to as u128).div_ceil(self.from as u128);
        self.convert(output, usize::try_from(total).unwrap_or(usize::MAX));
    }

    fn convert(&mut self, output: &mut Vec<f32>, total: usize) {
        let taps = 2 * self.half;
        while self.made < total {
            let Some(samples) = self.buffer.get(self.position..self.position + taps) else { break };
            let phase = self.remainder * self.phases;
            let (index, fraction) = (phase / self.to, (phase % self.to) as f32 / self.to as f32);
            let mut rows = self.table.chunks_exact(taps).skip(index);
            let value = rows.next().map_or(0.0, |row| dot(row, samples));
            let next =
                if fraction == 0.0 { value } else { rows.next().map_or(value, |row| dot(row, samples)) };
            output.push(value + (next - value) * fraction);
            self.made += 1;
            self.remainder += self.from;
            self.position += self.remainder / self.to;
            self.remainder %= self.to;
        }
        let used = self.position.min(self.buffer.len());
        self.buffer.drain(..used);
        self.position -= used;
    }
}

/// Returns the coefficients for an output sample that lies a fraction of a sample after the middle of the row. Their sum
/// is 1.
fn row(fraction: f64, half: usize, scale: f64) -> Vec<f32> {
    let values: Vec<f64> = (0..2 * half)
        .map(|tap| {
            let distance = tap as f64 - (half - 1) as f64 - fraction;
            let edge = distance / half as f64;
            sinc(distance * scale) * bessel(KAISER_BETA * (1.0 - edge * edge).max(0.0).sqrt())
        })
        .collect();
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|value| (value / sum) as f32).collect()
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { libm::sin(PI * x) / (PI * x) }
}

/// Modified Bessel function of the first kind and order 0.
fn bessel(x: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..60 {
        let factor = x / (2.0 * f64::from(k));
        term *= factor * factor;
        sum += term;
    }
    sum
}

/// Dot product in eight lanes, which the compiler can vectorize.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += x * y;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f32>() + rest
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{PI, Resampler};

    fn sine(rate: usize, frequency: f64, seconds: f64) -> Vec<f32> {
        let count = (rate as f64 * seconds) as usize;
        (0..count).map(|i| libm::sin(2.0 * PI * frequency * i as f64 / rate as f64) as f32).collect()
    }

    fn resample(from: usize, to: usize, input: &[f32], block: usize) -> Vec<f32> {
        let mut resampler = Resampler::new(from, to);
        let mut output = Vec::new();
        for block in input.chunks(block) {
            resampler.push(block, &mut output);
        }
        resampler.finish(&mut output);
        output
    }

    #[test]
    fn sines_keep_frequency_phase_and_amplitude() {
        for rate in [8000, 11025, 16001, 22050, 32000, 44100, 47999, 48000, 96000, 192_000] {
            let frequency = if rate < 16000 { 1000.0 } else { 3000.0 };
            let output = resample(rate, 16000, &sine(rate, frequency, 0.2), 777);
            let expected = sine(16000, frequency, 0.2);
            assert!(output.len().abs_diff(expected.len()) <= 1, "{rate} Hz: {} samples", output.len());
            let middle = 300..expected.len() - 300;
            let error = middle.map(|i| (output[i] - expected[i]).abs()).fold(0.0, f32::max);
            assert!(error < 1e-4, "{rate} Hz: error {error}");
        }
    }

    #[test]
    fn frequencies_above_the_new_nyquist_frequency_vanish() {
        let output = resample(48000, 16000, &sine(48000, 9000.0, 0.2), 1000);
        let peak = output[300..2900].iter().fold(0.0_f32, |peak, v| peak.max(v.abs()));
        assert!(peak < 1e-3, "{peak}");
    }

    #[test]
    fn the_size_of_blocks_does_not_matter() {
        let input = sine(44100, 500.0, 0.1);
        let whole = resample(44100, 16000, &input, input.len());
        assert_eq!(resample(44100, 16000, &input, 1), whole);
        assert_eq!(resample(44100, 16000, &input, 100), whole);
        assert_eq!(whole.len(), 1600);
    }
}
