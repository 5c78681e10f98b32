//! Speech recognition with Whisper models.
//!
//! ```text
//! file -> Recording -> samples at 16 kHz -> windows of 30 seconds -> functions `features` and `encode`
//! generation_config.json -> DecodingSettings -> start tokens -> functions `verify`, `prefill`, `decode`
//! logits -> LogitRules -> token ids -> window_segments -> Segment -> Transcript
//! function `align` -> token_frames -> timed_words -> Word
//! ```
//!
//! [`Transcriber`] does all of it with a bundle on a device. All settings come from files of a Hugging Face folder, which a
//! bundle carries. The results agree with transformers.

mod alignment;
mod decoder;
mod decoding;
mod error;
mod model;
mod recording;
mod request;
mod transcriber;
mod transcript;
mod transcription;
mod windows;

pub use alignment::{AttentionShape, WordSpan, median_filter, timed_words, token_frames, warp, word_spans};
pub use decoding::{
    DecodingSettings, LogProbabilities, LogitRules, Quality, Sampler, StartRequest, TEMPERATURES, Task,
    Thresholds, Verdict, Window, WindowSegment, WindowSegments, best_token, compression_ratio,
    detect_language, language_code, language_name, log_softmax, previous_text, probability,
    token_compression_ratio, window_segments,
};
pub use error::{Error, RecordingFault, Result};
pub use recording::{Recording, SAMPLE_RATE};
pub use request::{Audio, Timestamps, TranscriptionRequest};
pub use transcriber::{SegmentListener, Transcriber};
pub use transcript::{Segment, Transcript, TranscriptFormat, Word};
pub use transcription::Transcription;
