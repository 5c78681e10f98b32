//! Completion in slices, so that several conversations can share one model.
//!
//! A slice evaluates a part of the prompt or generates some tokens. Between two slices, the generator can work on other
//! conversations. The slices together give the text of one call.

use std::time::{Duration, Instant};

use drift_runtime::{Draft, Generator, Observer, Report, Request, StopReason};
use drift_text::Stream;

use crate::completion::{Completion, Finish, Listener, TextRequest};
use crate::encoder::PromptEncoder;
use crate::stop::StopFilter;
use crate::{Error, Result};

/// Completion that is generated in slices.
pub struct SlicedCompletion<'a> {
    request: TextRequest,
    stop_tokens: Vec<u32>,
    stream: Stream<'a>,
    filter: StopFilter,
    /// Text that was passed to the listener.
    text: String,
    /// Statistics of all slices.
    report: Report,
}

impl<'a> SlicedCompletion<'a> {
    /// Creates a completion of a prompt. The caller sets the tokens of the generator to the prompt.
    pub fn new(encoder: &'a PromptEncoder, prompt: &[u32], request: TextRequest) -> Self {
        let ends = encoder.tokenizer().ends();
        let report = Report {
            stop_reason: StopReason::MaxTokens,
            prompt_tokens: 0,
            prompt_time: Duration::ZERO,
            tokens: 0,
            decode_time: Duration::ZERO,
            draft_tokens: 0,
            accepted: Vec::new(),
        };
        Self {
            stop_tokens: if request.ignore_end { Vec::new() } else { ends.to_vec() },
            stream: Stream::new(encoder.tokenizer(), prompt),
            filter: StopFilter::new(&request.stop),
            text: String::new(),
            report,
            request,
        }
    }

    /// Evaluates prompt tokens that the KV cache lacks, and generates at most `max_tokens` further tokens. The slice ends early
    /// if [`Listener::pause`] returns true. Returns `None` if the completion continues with the next slice. The conversation
    /// of the generator must be the one of the earlier slices, with their tokens.
    ///
    /// # Errors
    /// As for [`complete`](crate::complete). The completion cannot continue after an error.
    pub fn advance(
        &mut self,
        generator: &mut Generator,
        max_tokens: usize,
        draft: &mut Draft,
        listener: &mut dyn Listener,
    ) -> Result<Option<Completion>> {
        let left = self.request.max_tokens.saturating_sub(self.report.tokens);
        let tokens = Request {
            max_tokens: left.min(max_tokens),
            stop_tokens: self.stop_tokens.clone(),
            sampling: self.request.sampling.clone(),
            logits: self.request.logits,
            generated: self.report.tokens,
        };
        let before = self.report.prompt_tokens;
        let mut writer = Writer { all: self, listener, before, runs: 0, end: None, failed: None };
        let start = Instant::now();
        let slice = generator.generate_observed(&tokens, draft, &mut writer)?;
        let Writer { end, failed, .. } = writer;
        if let Some(error) = failed {
            return Err(error);
        }
        self.add(&slice, start.elapsed());
        let finish = match (end, slice.stop_reason) {
            (Some(End::Paused), _) => None,
            (Some(End::Cancelled), _) => Some(Finish::Cancelled),
            (Some(End::StopString), _) => Some(Finish::EndToken),
            (None, StopReason::StopToken(_)) => Some(Finish::EndToken),
            (None, StopReason::MaxTokens | StopReason::Callback) => None,
        };
        let finish = finish.or((self.report.tokens >= self.request.max_tokens).then_some(Finish::Length));
        finish.map(|finish| self.finish(finish, listener)).transpose()
    }

    /// Adds the statistics of a slice, which took the time `elapsed`.
    fn add(&mut self, slice: &Report, elapsed: Duration) {
        let all = &mut self.report;
        if all.tokens == 0 {
            all.prompt_tokens += slice.prompt_tokens;
            all.prompt_time += if slice.tokens == 0 { elapsed } else { slice.prompt_time };
        } else {
            all.decode_time += slice.prompt_time;
        }
        all.stop_reason = slice.stop_reason;
        all.tokens += slice.tokens;
        all.decode_time += slice.decode_time;
        all.draft_tokens += slice.draft_tokens;
        all.accepted.extend(&slice.accepted);
    }

    /// Passes the rest of the text on, and returns the completion.
    fn finish(&mut self, finish: Finish, listener: &mut dyn Listener) -> Result<Completion> {
        let mut cancelled = finish == Finish::Cancelled;
        if !cancelled && self.filter.found().is_none() {
            let rest = self.stream.rest()?;
            let passed = self.filter.push(&rest);
            cancelled = !self.pass_on(&passed, listener);
            if !cancelled && self.filter.found().is_none() {
                let held = self.filter.finish();
                cancelled = !self.pass_on(&held, listener);
            }
        }
        let finish = match self.filter.found() {
            Some(stop) => Finish::StopString(stop.to_owned()),
            None if cancelled => Finish::Cancelled,
            None => finish,
        };
        let text = std::mem::take(&mut self.text);
        Ok(Completion { text, finish, report: self.report.clone() })
    }

    /// Passes text to the listener. Returns false if the listener cancels the completion.
    fn pass_on(&mut self, text: &str, listener: &mut dyn Listener) -> bool {
        self.text.push_str(text);
        text.is_empty() || listener.text(text)
    }
}

/// Reason why the observer ended a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The listener paused the completion.
    Paused,
    /// The listener cancelled the completion.
    Cancelled,
    /// The text reached a stop string.
    StopString,
}

/// Observer of one slice, which converts tokens to the listener's text.
struct Writer<'s, 'a, 'l> {
    all: &'s mut SlicedCompletion<'a>,
    listener: &'l mut dyn Listener,
    /// Number of prompt tokens that earlier slices evaluated.
    before: usize,
    /// Number of runs of prompt tokens in this slice.
    runs: usize,
    end: Option<End>,
    failed: Option<Error>,
}

impl Writer<'_, '_, '_> {
    /// Passes on the text of a token. Returns the reason to end the slice.
    fn write(&mut self, text: &str) -> Option<End> {
        let passed = self.all.filter.push(text);
        if !self.all.pass_on(&passed, self.listener) {
            return Some(End::Cancelled);
        }
        if self.all.filter.found().is_some() {
            return Some(End::StopString);
        }
        self.listener.pause().then_some(End::Paused)
    }
}

impl Observer for Writer<'_, '_, '_> {
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        // Slices after the first token evaluate no prompt.
        if self.all.report.tokens == 0 {
            if !self.listener.prompt(self.before + read, self.before + total) {
                self.end = Some(End::Cancelled);
            } else if self.runs > 0 && self.listener.pause() {
                self.end = Some(End::Paused);
            }
            self.runs += 1;
        }
        self.end.is_none()
    }

    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool {
        if !self.listener.token(id, logits) {
            self.end = Some(End::Cancelled);
            return false;
        }
        match self.all.stream.push(id) {
            Ok(text) => self.end = self.write(&text),
            Err(error) => self.failed = Some(error.into()),
        }
        self.end.is_none() && self.failed.is_none()
    }
}
