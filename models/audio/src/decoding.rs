//! Decoding rules of Whisper: everything that happens with logits and token ids.
//!
//! The rules follow transformers' `WhisperGenerationMixin.generate` for one recording.

mod fallback;
mod languages;
mod rules;
mod sampler;
mod scores;
mod settings;
mod start;
mod window;

pub use fallback::{Quality, TEMPERATURES, Thresholds, Verdict, compression_ratio, token_compression_ratio};
pub use languages::{language_code, language_name};
pub use rules::LogitRules;
pub use sampler::Sampler;
pub use scores::{LogProbabilities, best_token, detect_language, log_softmax, probability};
pub use settings::DecodingSettings;
pub use start::{StartRequest, Task, previous_text};
pub use window::{Window, WindowSegment, WindowSegments, window_segments};
