//! Completion of a prompt: token ids in, text out, piece by piece.

use drift_runtime::{Draft, Generator, Report, Sampling};

use crate::Result;
use crate::encoder::PromptEncoder;
use crate::sliced::SlicedCompletion;

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

    /// True if the present slice of a [`SlicedCompletion`] should end. Called after each token, and after each run of prompt
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

/// Generates the text that follows a prompt. The KV cache of the common prefix with the generator's earlier tokens is kept.
///
/// # Errors
/// If the prompt is empty or does not fit the context, the tokenizer fails, or the device fails. Text that was passed to the
/// listener before the error remains valid.
pub fn complete(
    generator: &mut Generator,
    encoder: &PromptEncoder,
    prompt: &[u32],
    request: &TextRequest,
    draft: &mut Draft,
    listener: &mut dyn Listener,
) -> Result<Completion> {
    generator.set_tokens(prompt)?;
    let mut sliced = SlicedCompletion::new(encoder, prompt, request.clone());
    loop {
        if let Some(done) = sliced.advance(generator, usize::MAX, draft, listener)? {
            return Ok(done);
        }
    }
}
