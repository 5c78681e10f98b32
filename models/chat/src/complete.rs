//! Completion of a prompt: token ids in, text out, piece by piece.

use drift_runtime::{Draft, Generator, Observer, Report, Request, Sampling, StopReason};
use drift_text::Stream;

use crate::encoder::PromptEncoder;
use crate::stop::StopFilter;
use crate::{Error, Result};

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
    let ends = encoder.tokenizer().ends();
    let tokens = Request {
        max_tokens: request.max_tokens,
        stop_tokens: if request.ignore_end { Vec::new() } else { ends.to_vec() },
        sampling: request.sampling.clone(),
        logits: request.logits,
    };
    generator.set_tokens(prompt)?;
    let mut writer = Writer {
        stream: Stream::new(encoder.tokenizer(), prompt),
        filter: StopFilter::new(&request.stop),
        listener,
        text: String::new(),
        cancelled: false,
        failed: None,
    };
    let report = generator.generate_observed(&tokens, draft, &mut writer)?;
    writer.finish(report)
}

/// Converter of generated tokens to the listener's text.
struct Writer<'a> {
    stream: Stream<'a>,
    filter: StopFilter,
    listener: &'a mut dyn Listener,
    text: String,
    /// True if the listener returned false.
    cancelled: bool,
    failed: Option<Error>,
}

impl Writer<'_> {
    /// Passes text on through the filter. Returns false if the completion ends.
    fn write(&mut self, text: &str) -> bool {
        let text = self.filter.push(text);
        self.pass_on(&text) && self.filter.found().is_none()
    }

    fn pass_on(&mut self, text: &str) -> bool {
        self.text.push_str(text);
        self.cancelled |= !text.is_empty() && !self.listener.text(text);
        !self.cancelled
    }

    /// Passes the rest of the text on, and returns the completion.
    fn finish(mut self, report: Report) -> Result<Completion> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.cancelled && self.filter.found().is_none() {
            let rest = self.stream.rest()?;
            self.write(&rest);
            if self.filter.found().is_none() {
                let held = self.filter.finish();
                self.pass_on(&held);
            }
        }
        let finish = match (self.filter.found(), report.stop_reason) {
            (Some(stop), _) => Finish::StopString(stop.to_owned()),
            (None, StopReason::StopToken(_)) => Finish::EndToken,
            (None, StopReason::MaxTokens) => Finish::Length,
            (None, StopReason::Callback) => Finish::Cancelled,
        };
        Ok(Completion { text: self.text, finish, report })
    }
}

impl Observer for Writer<'_> {
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        self.cancelled |= !self.listener.prompt(read, total);
        !self.cancelled
    }

    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool {
        self.cancelled |= !self.listener.token(id, logits);
        match self.stream.push(id) {
            _ if self.cancelled => false,
            Ok(text) => self.write(&text),
            Err(error) => {
                self.failed = Some(error.into());
                false
            }
        }
    }
}
