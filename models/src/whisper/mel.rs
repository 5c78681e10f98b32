//! Mel filters: triangular filters whose distances follow human hearing.

use serde_json::Value;

/// Sample rate of Whisper in Hz.
pub(super) const SAMPLE_RATE: usize = 16000;
/// Highest frequency of the filters in Hz.
const MAX_FREQUENCY: f64 = 8000.0;
/// Frequency in Hz up to which the Slaney scale is linear.
const LOG_START: f64 = 1000.0;
/// Mel number of [`LOG_START`].
const LOG_START_MEL: f64 = 15.0;

/// Computes the Slaney mel filters of transformers' `WhisperFeatureExtractor`, of shape `[bins, mels]`.
pub(super) fn slaney(bins: usize, mels: usize) -> Vec<f64> {
    let top = mel_from_hertz(MAX_FREQUENCY);
    let corners: Vec<f64> =
        (0..mels + 2).map(|i| hertz_from_mel(top * i as f64 / (mels + 1) as f64)).collect();
    let step = (SAMPLE_RATE / 2) as f64 / (bins - 1) as f64;
    let mut filters = Vec::with_capacity(bins * mels);
    for bin in 0..bins {
        let frequency = step * bin as f64;
        filters.extend(corners.windows(3).map(|corner| match corner {
            &[low, middle, high] => {
                let rising = (frequency - low) / (middle - low);
                let falling = (high - frequency) / (high - middle);
                rising.min(falling).max(0.0) * 2.0 / (high - low)
            }
            _ => 0.0,
        }));
    }
    filters
}

fn mel_from_hertz(frequency: f64) -> f64 {
    if frequency < LOG_START {
        return 3.0 * frequency / 200.0;
    }
    LOG_START_MEL + libm::log(frequency / LOG_START) * 27.0 / libm::log(6.4)
}

fn hertz_from_mel(mel: f64) -> f64 {
    if mel < LOG_START_MEL {
        return 200.0 * mel / 3.0;
    }
    LOG_START * libm::exp(libm::log(6.4) / 27.0 * (mel - LOG_START_MEL))
}

/// Reads the setting `mel_filters`, which has the shape `[mels, bins]` (older versions of transformers) or `[bins, mels]`.
/// Returns filters of shape `[bins, mels]`, or `None` if the setting has another shape.
pub(super) fn parse(value: &Value, bins: usize, mels: usize) -> Option<Vec<f64>> {
    let rows: Vec<Vec<f64>> = value
        .as_array()?
        .iter()
        .map(|row| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>())
        .collect::<Option<_>>()?;
    let has_width = |width: usize| rows.iter().all(|row| row.len() == width);
    if rows.len() == bins && has_width(mels) {
        return Some(rows.concat());
    }
    if rows.len() != mels || !has_width(bins) {
        return None;
    }
    Some((0..bins).flat_map(|bin| rows.iter().filter_map(move |row| row.get(bin).copied())).collect())
}
