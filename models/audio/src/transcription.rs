//! State of a transcription between two windows.

use crate::windows::Windows;
use crate::{Audio, LogitRules, Sampler, StartRequest, Thresholds};

/// Seconds of a frame of the features.
pub(crate) const FRAME_SECONDS: f64 = 0.01;

/// Transcription of one recording, from [`Transcriber::start`](crate::Transcriber::start).
pub struct Transcription {
    pub(crate) audio: Audio,
    pub(crate) windows: Windows,
    pub(crate) start: StartRequest,
    pub(crate) rules: LogitRules,
    /// True if words get times.
    pub(crate) times_words: bool,
    pub(crate) keeps_previous_text: bool,
    pub(crate) temperatures: Vec<f32>,
    pub(crate) thresholds: Thresholds,
    pub(crate) sampler: Sampler,
    /// Code of the language: requested or detected.
    pub(crate) language: Option<String>,
    /// First frame of the next window.
    pub(crate) position: usize,
    /// Largest logarithm of an energy of the whole recording, or minus infinity for recordings of one window.
    pub(crate) largest: f32,
    /// Tokens of the text before the next window.
    pub(crate) previous: Vec<u32>,
}

impl Transcription {
    /// Code of the language: requested, or detected in the first window. `None` for models without languages.
    pub fn language(&self) -> Option<&str> {
        self.language.as_deref()
    }

    /// Number of seconds that were transcribed.
    pub fn seconds_done(&self) -> f64 {
        let done = self.position as f64 * FRAME_SECONDS;
        self.seconds().map_or(done, |all| done.min(all))
    }

    /// Length of the recording in seconds. `None` if the file does not state it and the end was not read.
    pub fn seconds(&self) -> Option<f64> {
        self.windows.seconds()
    }

    /// Returns warnings about damaged or missing data in the recording, for the user.
    pub fn notes(&self) -> Vec<String> {
        self.windows.notes()
    }
}
