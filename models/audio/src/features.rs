//! Log-mel features of Whisper, the input of the encoder.

mod mel;

use std::f64::consts::PI;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};
use serde_json::{Map, Value};

use crate::{Error, Result};

const FILE: &str = "preprocessor_config.json";

/// Lowest mel energy. Lower energies count as this energy.
const ENERGY_FLOOR: f64 = 1e-10;
/// Maximum distance in decades below the largest energy of a window. Lower energies are raised to this distance.
const DYNAMIC_RANGE: f64 = 8.0;

/// Computes log-mel features like transformers' `WhisperFeatureExtractor`.
pub struct WhisperFeatures {
    mels: usize,
    fft_size: usize,
    hop: usize,
    sample_rate: usize,
    samples: usize,
    padding: f32,
    /// Mel filters of shape `[fft_size / 2 + 1, mels]`.
    filters: Vec<f64>,
    window: Vec<f64>,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl WhisperFeatures {
    /// Reads `preprocessor_config.json`. Missing settings have the values of Whisper: 80 mels, an FFT of 400 samples, a hop
    /// of 160 samples, and windows of 30 seconds at 16 kHz.
    ///
    /// # Errors
    /// If the file is malformed, or a setting is not supported.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let config: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|e| Error::File { file: FILE, reason: e.to_string() })?;
        let mels = count(&config, "feature_size", 80, 1, 1024)?;
        let fft_size = count(&config, "n_fft", 400, 4, 65536)?;
        let hop = count(&config, "hop_length", 160, 1, fft_size)?;
        let sample_rate = count(&config, "sampling_rate", 16000, 1000, 768_000)?;
        let seconds = count(&config, "chunk_length", 30, 1, 3600)?;
        number(&config, "dither", 0.0, |value| value == 0.0, "0, no dither")?;
        let padding = number(&config, "padding_value", 0.0, f64::is_finite, "finite numbers")? as f32;
        let samples = seconds * sample_rate;
        if samples <= fft_size {
            let supported = format!("windows longer than the FFT of {fft_size} samples");
            return Err(setting(&config, "chunk_length", &supported));
        }
        let bins = fft_size / 2 + 1;
        let filters = match config.get("mel_filters").filter(|value| !value.is_null()) {
            Some(value) => mel::parse(value, bins, mels).ok_or_else(|| {
                let supported = format!("{bins} rows of {mels} numbers, or {mels} rows of {bins} numbers");
                setting(&config, "mel_filters", &supported)
            })?,
            None => mel::slaney(bins, mels, sample_rate),
        };
        let window =
            (0..fft_size).map(|i| 0.5 - 0.5 * libm::cos(2.0 * PI * i as f64 / fft_size as f64)).collect();
        let fft = RealFftPlanner::new().plan_fft_forward(fft_size);
        Ok(Self { mels, fft_size, hop, sample_rate, samples, padding, filters, window, fft })
    }

    /// Returns the number of mel bands.
    pub fn mels(&self) -> usize {
        self.mels
    }

    /// Returns the number of frames of a window: 3000 for 30 seconds.
    pub fn frames(&self) -> usize {
        self.samples / self.hop
    }

    /// Returns the number of samples of a window: 480000 for 30 seconds at 16 kHz.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the number of samples between the starts of two frames.
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// Returns the sample rate in Hz.
    pub fn sample_rate(&self) -> usize {
        self.sample_rate
    }

    /// Returns the size of the FFT in samples.
    pub fn fft_size(&self) -> usize {
        self.fft_size
    }

    /// Returns the mel filters, a matrix of shape `[fft_size / 2 + 1, mels]` in row-major order.
    pub fn filters(&self) -> &[f64] {
        &self.filters
    }

    /// Computes the features of one window, of shape `[mels, frames]` in row-major order. Shorter inputs are padded with
    /// silence to [`Self::samples`]; samples beyond that number are ignored.
    pub fn log_mel(&self, samples: &[f32]) -> Vec<f32> {
        let padded = self.padded(samples);
        let frames = self.frames();
        let bins = self.fft_size / 2 + 1;
        let mut input = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut logs = vec![0.0_f64; self.mels * frames];
        let mut energies = vec![0.0_f64; self.mels];
        for (frame, values) in padded.windows(self.fft_size).step_by(self.hop).take(frames).enumerate() {
            for ((sample, window), out) in values.iter().zip(&self.window).zip(&mut input) {
                *out = f64::from(*sample) * window;
            }
            // The lengths agree, so the transform cannot fail.
            let transformed = self.fft.process_with_scratch(&mut input, &mut spectrum, &mut scratch);
            debug_assert!(transformed.is_ok());
            energies.fill(0.0);
            for (value, filter) in spectrum.iter().take(bins).zip(self.filters.chunks_exact(self.mels)) {
                let power = value.norm_sqr();
                for (energy, weight) in energies.iter_mut().zip(filter) {
                    *energy += power * weight;
                }
            }
            for (row, energy) in logs.chunks_exact_mut(frames).zip(&energies) {
                if let Some(log) = row.get_mut(frame) {
                    *log = libm::log10(energy.max(ENERGY_FLOOR));
                }
            }
        }
        let floor = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max) - DYNAMIC_RANGE;
        logs.into_iter().map(|log| ((log.max(floor) + 4.0) / 4.0) as f32).collect()
    }

    /// Returns the samples of a window, padded to full length and then reflected by half an FFT at both ends. Samples that
    /// are infinite or NaN become 0.
    fn padded(&self, samples: &[f32]) -> Vec<f32> {
        let finite = samples.iter().map(|s| if s.is_finite() { *s } else { 0.0 });
        let whole: Vec<f32> = finite.chain(std::iter::repeat(self.padding)).take(self.samples).collect();
        let half = self.fft_size / 2;
        let before = whole.iter().skip(1).take(half).rev();
        let after = whole.iter().rev().skip(1).take(half);
        before.chain(&whole).chain(after).copied().collect()
    }
}

/// Returns the error for an unsupported setting.
fn setting(config: &Map<String, Value>, name: &str, supported: &str) -> Error {
    let value = config.get(name).map_or_else(|| "missing".to_owned(), Value::to_string);
    let value = if value.len() > 100 { "a value of another shape".to_owned() } else { value };
    Error::Setting { file: FILE, setting: name.into(), value, supported: supported.into() }
}

/// Reads a setting that is a whole number.
fn count(config: &Map<String, Value>, name: &str, default: usize, low: usize, high: usize) -> Result<usize> {
    let Some(value) = config.get(name).filter(|value| !value.is_null()) else { return Ok(default) };
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    number
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| setting(config, name, &format!("whole numbers from {low} to {high}")))
}

/// Reads a setting that is a number.
fn number(
    config: &Map<String, Value>,
    name: &str,
    default: f64,
    is_valid: fn(f64) -> bool,
    supported: &str,
) -> Result<f64> {
    let Some(value) = config.get(name).filter(|value| !value.is_null()) else { return Ok(default) };
    value.as_f64().filter(|n| is_valid(*n)).ok_or_else(|| setting(config, name, supported))
}
