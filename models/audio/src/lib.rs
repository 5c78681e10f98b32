//! Host side of speech recognition with Whisper models.
//!
//! ```text
//! file -> Recording -> samples at 16 kHz -> WhisperFeatures -> log-mel features -> encoder
//! generation_config.json -> DecodingSettings -> start tokens -> decoder
//! decoder -> logits -> LogitRules -> token ids -> window_segments -> Segment -> Transcript
//! cross-attention -> token_frames -> timed_words -> Word
//! ```
//!
//! All settings come from files of a Hugging Face folder, which a bundle carries. The results agree with transformers. This
//! crate runs no model: every function takes samples, logits, token ids or attention weights.

mod alignment;
mod decoding;
mod error;
mod features;
mod recording;
mod transcript;

pub use alignment::{AttentionShape, WordSpan, median_filter, timed_words, token_frames, warp, word_spans};
pub use decoding::{
    DecodingSettings, LogProbabilities, LogitRules, Quality, Sampler, StartRequest, TEMPERATURES, Task,
    Thresholds, Verdict, Window, WindowSegment, WindowSegments, best_token, compression_ratio,
    detect_language, language_code, language_name, log_softmax, previous_text, probability,
    token_compression_ratio, window_segments,
};
pub use error::{Error, RecordingFault, Result};
pub use features::WhisperFeatures;
pub use recording::{Recording, SAMPLE_RATE};
pub use transcript::{Segment, Transcript, TranscriptFormat, Word};
