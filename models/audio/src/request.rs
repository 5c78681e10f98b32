//! Recording and request of a transcription.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Task, Thresholds};

/// Recording to transcribe.
#[derive(Debug, Clone)]
pub enum Audio {
    /// Audio file. It is read in blocks, so memory does not grow with its length.
    File(PathBuf),
    /// Mono samples at 16 kHz.
    Samples(Arc<[f32]>),
}

/// Times in a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamps {
    /// One segment for each window.
    None,
    /// Times of segments, as the model writes them.
    Segments,
    /// Also the times of words, from the cross-attention.
    Words,
}

/// Request of a transcription.
#[derive(Debug, Clone)]
pub struct TranscriptionRequest {
    /// Language by code or name. `None`: the model detects the language in the first window.
    pub language: Option<String>,
    /// Task.
    pub task: Task,
    /// Times in the transcript. `None`: times of segments, if the model writes any.
    pub timestamps: Option<Timestamps>,
    /// Text before the recording, which shows the model names and style.
    pub prompt: Option<String>,
    /// True if the text of the previous window is the prompt of the next one.
    pub keeps_previous_text: bool,
    /// Temperatures that a window is decoded with, one after another, until its quality is good. Temperature 0 selects the most
    /// likely tokens. Models without a tokenizer use only the first one, because the quality is a property of the text.
    pub temperatures: Vec<f32>,
    /// Thresholds of the quality.
    pub thresholds: Thresholds,
    /// Seed of the random numbers at temperatures above 0.
    pub seed: u64,
}

impl Default for TranscriptionRequest {
    /// Returns the settings of OpenAI's Whisper.
    fn default() -> Self {
        Self {
            language: None,
            task: Task::Transcribe,
            timestamps: None,
            prompt: None,
            keeps_previous_text: true,
            temperatures: crate::TEMPERATURES.to_vec(),
            thresholds: Thresholds::default(),
            seed: 0,
        }
    }
}
