//! Tokens that a decoder run starts with.

use super::languages::language_code;
use super::settings::DecodingSettings;
use crate::{Error, Result};

/// Task of a multilingual model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Task {
    /// Writes the text in the language of the recording.
    #[default]
    Transcribe,
    /// Writes the text in English.
    Translate,
}

/// Request of a transcription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartRequest {
    /// Language by code or name. `None`: the model detects the language.
    pub language: Option<String>,
    /// Task.
    pub task: Task,
    /// True if the model writes timestamps.
    pub has_timestamps: bool,
}

impl DecodingSettings {
    /// Returns the code of the language that a request names. Returns `None` if the model must detect the language with
    /// [`super::detect_language`], or has no languages.
    ///
    /// # Errors
    /// If the language is unknown or the model does not support the language or the task.
    pub fn requested_language(&self, request: &StartRequest) -> Result<Option<String>> {
        if self.languages.is_empty() && request.task == Task::Translate {
            return Err(Error::Request(
                "the model does not translate; use a multilingual model, or transcribe".into(),
            ));
        }
        let Some(language) = request.language.as_deref() else { return Ok(None) };
        // Fine-tuned models may have languages that Whisper does not have.
        let lower = language.trim().to_lowercase();
        let code =
            if self.languages.contains_key(&lower) { Some(lower.as_str()) } else { language_code(&lower) };
        match code {
            Some("en") if self.languages.is_empty() => Ok(None),
            _ if self.languages.is_empty() => Err(Error::Request(format!(
                "the model has no language tokens, so the language `{language}` cannot be selected; use a multilingual model, or give no language"
            ))),
            Some(code) if self.languages.contains_key(code) => Ok(Some(code.to_owned())),
            _ => {
                let known: Vec<&str> = self.languages.keys().map(String::as_str).collect();
                Err(Error::Request(format!(
                    "the model does not support the language `{language}`; supported: {}",
                    known.join(", ")
                )))
            }
        }
    }

    /// Returns true if the model must detect the language, because the request names none.
    pub fn detects_language(&self, request: &StartRequest) -> bool {
        request.language.is_none() && !self.languages.is_empty()
    }

    /// Returns the start tokens: start, language, task, `<|notimestamps|>`. The language is the requested or detected code.
    /// Models without language and task tokens start with the start token and their forced tokens.
    ///
    /// # Errors
    /// If the model does not support the language, the task or timestamps.
    pub fn start_tokens(&self, request: &StartRequest, language: Option<&str>) -> Result<Vec<u32>> {
        let mut tokens = vec![self.start];
        if self.languages.is_empty() && self.transcribe.is_none() {
            tokens.extend(&self.forced);
        }
        if let Some(code) = language {
            let id = self.languages.get(code).ok_or_else(|| {
                Error::Request(format!(
                    "the model does not support the language `{code}`; select another one"
                ))
            })?;
            tokens.push(*id);
        }
        let task = match request.task {
            Task::Transcribe => self.transcribe,
            Task::Translate => Some(self.translate.ok_or_else(|| {
                Error::Request("the model does not translate; use a multilingual model, or transcribe".into())
            })?),
        };
        if !self.languages.is_empty() {
            tokens.extend(task);
        }
        if request.has_timestamps {
            let id = self.no_timestamps.ok_or_else(|| {
                Error::Request("the model writes no timestamps; transcribe without timestamps".into())
            })?;
            tokens.pop_if(|last| *last == id);
        } else if let Some(id) = self.no_timestamps
            && tokens.last() != Some(&id)
        {
            tokens.push(id);
        }
        Ok(tokens)
    }

    /// Returns the tokens of a window: the end of the previous text after `<|startofprev|>`, and then the start tokens. The
    /// previous text takes at most half of the context. Models without `<|startofprev|>` get no previous text.
    pub fn prompt_tokens(&self, start_tokens: &[u32], previous_text: &[u32]) -> Vec<u32> {
        let Some(previous) = self.previous.filter(|_| !previous_text.is_empty()) else {
            return start_tokens.to_vec();
        };
        let half = (self.max_positions / 2).saturating_sub(1);
        let cut = previous_text.len().saturating_sub(half);
        let kept = previous_text.get(cut..).unwrap_or_default();
        [&[previous], kept, start_tokens].concat()
    }

    /// Returns the maximum number of tokens that can follow a prompt.
    pub fn max_new_tokens(&self, prompt: &[u32]) -> usize {
        self.max_positions.saturating_sub(prompt.len())
    }
}

/// Returns the previous text for [`DecodingSettings::prompt_tokens`] from the tokens of all segments so far. If a segment
/// ends with two timestamps, the last one is left out.
pub fn previous_text<'a>(
    segments: impl IntoIterator<Item = &'a [u32]>,
    first_timestamp: Option<u32>,
) -> Vec<u32> {
    let is_timestamp = |token: &u32| first_timestamp.is_some_and(|first| *token >= first);
    let mut tokens = Vec::new();
    for segment in segments {
        match segment {
            [kept @ .., _] if segment.len() > 2 && kept.last().is_some_and(is_timestamp) => {
                tokens.extend_from_slice(kept);
            }
            _ => tokens.extend_from_slice(segment),
        }
    }
    tokens
}
