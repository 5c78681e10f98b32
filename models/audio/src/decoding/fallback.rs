//! Quality of a decoded window, and the decision to decode it again at a higher temperature.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Temperatures that a window is decoded with, one after another, until its quality is good.
pub const TEMPERATURES: [f32; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

/// Temperatures from this one on give no previous text for the next window.
const PREVIOUS_TEXT_LIMIT: f32 = 0.5;

/// Quality of a decoded window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Length of the text divided by its compressed length. Repetitions give high ratios.
    pub compression_ratio: f32,
    /// Mean logarithm of the probabilities of the tokens, from [`super::LogProbabilities`].
    pub log_probability: f32,
    /// Probability that the window has no speech.
    pub no_speech_probability: f32,
}

/// Thresholds of the quality. `None` turns a threshold off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Windows with a higher compression ratio are decoded again.
    pub compression_ratio: Option<f32>,
    /// Windows with a lower mean log probability are decoded again.
    pub log_probability: Option<f32>,
    /// Windows with a low log probability and a higher probability of no speech are skipped.
    pub no_speech: Option<f32>,
}

impl Default for Thresholds {
    /// Thresholds of OpenAI's Whisper, for [`compression_ratio`] of the text.
    fn default() -> Self {
        Self { compression_ratio: Some(2.4), log_probability: Some(-1.0), no_speech: Some(0.6) }
    }
}

/// Decision about a decoded window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The text is good.
    Accept,
    /// Decode the window again at the next temperature. After the last temperature, use the text.
    Retry,
    /// The window has no speech: drop the text and go to the next window.
    Skip,
}

impl Thresholds {
    /// Decides about a window.
    pub fn verdict(&self, quality: &Quality) -> Verdict {
        let is_unlikely = self.log_probability.is_some_and(|limit| quality.log_probability < limit);
        if is_unlikely && self.no_speech.is_some_and(|limit| quality.no_speech_probability > limit) {
            return Verdict::Skip;
        }
        let repeats = self.compression_ratio.is_some_and(|limit| quality.compression_ratio > limit);
        if is_unlikely || repeats { Verdict::Retry } else { Verdict::Accept }
    }

    /// Returns true if text at this temperature can be the previous text of the next window.
    pub fn keeps_previous_text(temperature: f32) -> bool {
        temperature < PREVIOUS_TEXT_LIMIT
    }
}

/// Returns the length of a text divided by its compressed length, as OpenAI's Whisper does.
pub fn compression_ratio(text: &str) -> f32 {
    ratio(text.as_bytes())
}

/// Returns the length of the bytes of token ids divided by their compressed length, as transformers does.
pub fn token_compression_ratio(tokens: &[u32], vocabulary: usize) -> f32 {
    let bits = libm::log2(vocabulary.max(1) as f64);
    let length = ((bits / 8.0) as usize + 1).min(4);
    let bytes: Vec<u8> =
        tokens.iter().flat_map(|token| token.to_le_bytes().into_iter().take(length)).collect();
    ratio(&bytes)
}

fn ratio(bytes: &[u8]) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    match encoder.write_all(bytes).and_then(|()| encoder.finish()) {
        Ok(compressed) => bytes.len() as f32 / compressed.len().max(1) as f32,
        Err(_) => 0.0,
    }
}
