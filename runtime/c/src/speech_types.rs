//! Types of the functions for speech recognition.

use std::ffi::c_char;

/// Handle of a transcriber: a speech recognition model on a device. The id 0 stands for no transcriber.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transcriber {
    pub id: u64,
}

/// Handle of a transcription of one recording. The id 0 stands for no transcription.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transcription {
    pub id: u64,
}

/// Task of a transcription.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeechTask {
    /// Writes the text in the language of the recording.
    Transcribe = 0,
    /// Writes the text in English.
    Translate = 1,
}

/// Times in a transcript.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// Times of segments if the model writes timestamps, else one segment for each window.
    Default = 0,
    /// One segment for each window.
    None = 1,
    /// Times of segments, as the model writes them.
    Segment = 2,
    /// Times of segments and words.
    Word = 3,
}

/// Request of a transcription. All fields may be zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TranscriptionRequest {
    /// Language by code or English name, such as `de` or `german`. Null: the model detects the language in the first
    /// window.
    pub language: *const c_char,
    /// Text before the recording, which shows the model names and style: UTF-8 without a zero byte at the end, or null.
    pub prompt: *const c_char,
    /// Byte size of the prompt.
    pub prompt_size: usize,
    /// Seed of the random numbers at temperatures above 0. Equal seeds give equal texts.
    pub seed: u64,
    /// Task: a drift_SpeechTask.
    pub task: u32,
    /// Times in the transcript: a drift_Timestamps.
    pub timestamps: u32,
    /// The only temperature that windows are decoded with; 0 selects the most likely tokens. Ignored if `has_temperature`
    /// is 0.
    pub temperature: f32,
    /// If 0, windows are decoded at temperature 0. A window with bad text is decoded again at 0.2, 0.4 and so on up to 1.
    pub has_temperature: u8,
    /// If not 0, each window is decoded without the text of the previous window.
    pub no_previous_text: u8,
}

/// State of a transcription. The string is valid until the next call of drift_transcription_next or
/// drift_transcription_close.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TranscriptionState {
    /// Code of the language, requested or detected in the first window. Null if the language is not known yet, or if the
    /// model has no languages.
    pub language: *const c_char,
    /// Number of segments of the last window. A window without speech has none.
    pub segment_count: usize,
    /// Number of warnings about damaged or missing data in the recording; drift_transcription_note returns them.
    pub note_count: usize,
    /// Number of seconds of the recording that were transcribed.
    pub seconds_done: f64,
    /// Length of the recording in seconds. 0 if `has_seconds` is 0.
    pub seconds: f64,
    /// If 0, the length is not known, because the file does not state it and was not read to its end.
    pub has_seconds: u8,
    /// If not 0, the recording has no more windows.
    pub ended: u8,
}

/// Segment of a transcript. The pointers are valid until the next call of drift_transcription_next or
/// drift_transcription_close.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text, usually with a leading space. Empty if the model has no tokenizer.
    pub text: *const c_char,
    /// Token ids, with timestamps.
    pub tokens: *const u32,
    /// Number of token ids.
    pub token_count: usize,
    /// Number of words; drift_transcription_word returns them. 0 without times of words.
    pub word_count: usize,
}

/// Word of a segment. The string is valid until the next call of drift_transcription_next or drift_transcription_close.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Text, usually with a leading space.
    pub text: *const c_char,
}
