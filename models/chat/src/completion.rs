//! Parameters, result and receiver of a completion.

use drift_runtime::{Report, Sampling};

/// Parameters of a completion.
#[derive(Clone, Debug, Default)]
pub struct TextRequest {
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Texts that end the completion. They are not part of its text.
    pub stop: Vec<String>,
    /// Go on at the model's end tokens, and generate until another limit ends the completion.
    pub ignore_end: bool,
    /// Pass the logits of each token to [`Listener::token`]. Reading them from the device takes time.
    pub logits: bool,
}

/// Reason why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model generated an end token.
    EndToken,
    /// The text reached this stop string.
    StopString(String),
    /// The maximum number of tokens was generated.
    Length,
    /// The listener returned false.
    Cancelled,
}

/// A completed text.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Generated text, without the stop string.
    pub text: String,
    /// Reason why the completion ended.
    pub finish: Finish,
    /// Statistics of the generation.
    pub report: Report,
}

/// Receiver of a completion while it is generated.
pub trait Listener {
    /// Receives the progress of the prompt: `read` of `total` tokens that the KV cache lacked are computed. Returns false to
    /// cancel the completion.
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        let _ = (read, total);
        true
    }

    /// Receives a generated token before its text, except an end token. `logits` has one logit for each token of the
    /// vocabulary if [`TextRequest::logits`] is set. Returns false to cancel the completion.
    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool {
        let _ = (id, logits);
        true
    }

    /// True if the present slice of a [`SlicedCompletion`](crate::SlicedCompletion) should end. Called after each token, and after each run of prompt
    /// tokens except the last one.
    fn pause(&mut self) -> bool {
        false
    }

    /// Receives text that later tokens cannot change, never empty. Returns false to cancel the completion.
    fn text(&mut self, text: &str) -> bool;
}

impl<F: FnMut(&str) -> bool> Listener for F {
    fn text(&mut self, text: &str) -> bool {
        self(text)
    }
}
