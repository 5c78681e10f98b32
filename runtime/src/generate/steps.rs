//! The generation loop.
//!
//! For greedy decoding and for sampling on the device, the device keeps the next token. Decode steps are submitted
//! before the host has read earlier tokens; steps beyond the end of the generation are discarded. For sampling on the
//! host, the host reads the logits of each step. With draft tokens, one verify run replaces several steps and gives the
//! same tokens.

use super::draft::Draft;
use super::draft_schedule::Action;
use super::evaluate::Evaluated;
use super::observer::{Callback, Observer};
use super::sampling::Sampler;
use super::{Generator, Report, Request, StopReason};
use crate::error::{Error, Result};
use crate::session::Ticket;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// State of a running generation.
struct Progress<'a> {
    request: &'a Request,
    observer: &'a mut dyn Observer,
    start: Instant,
    report: Report,
    done: bool,
}

impl Progress<'_> {
    /// Ends the generation because the observer returned false.
    fn stop_by_observer(&mut self) {
        self.report.stop_reason = StopReason::Callback;
        self.done = true;
    }
}

impl Request {
    /// True if the device selects the most likely token and the host reads only the token.
    fn is_greedy_on_device(&self) -> bool {
        self.sampling.is_greedy() && !self.logits
    }

    /// True if function `sample` can draw the tokens of this request.
    fn is_sampled_on_device(&self) -> bool {
        self.sampling.is_supported_on_device() && !self.logits
    }
}

impl Generator {
    /// Generates tokens and appends them to the conversation. Calls `on_token` with every token except a stop
    /// token. Generation ends after `max_tokens` tokens, at a stop token, or if `on_token` returns false.
    ///
    /// # Errors
    /// If the conversation has no tokens, the context becomes full, or the device fails. Tokens passed to
    /// `on_token` remain in the conversation.
    pub fn generate(
        &mut self,
        request: &Request,
        draft: &mut Draft,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Report> {
        self.generate_observed(request, draft, &mut Callback(on_token))
    }

    /// Generates tokens like [`Generator::generate`], and reports the progress of the prompt, the tokens and, if
    /// [`Request::logits`] is set, their logits to an observer.
    ///
    /// # Errors
    /// As for [`Generator::generate`].
    pub fn generate_observed(
        &mut self,
        request: &Request,
        draft: &mut Draft,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        request.sampling.check()?;
        let last = self.tokens().len().checked_sub(1).ok_or(Error::EmptyPrompt)?;
        self.invalidate_on_rope_switch(last + 1);
        let cached = self.conversation().cached.min(last);
        let report = Report {
            stop_reason: StopReason::MaxTokens,
            prompt_tokens: self.tokens().len() - cached,
            prompt_time: Duration::ZERO,
            tokens: 0,
            decode_time: Duration::ZERO,
            draft_tokens: 0,
            accepted: Vec::new(),
        };
        let mut progress = Progress { request, observer, start: Instant::now(), report, done: false };
        progress.done = request.max_tokens == 0;
        self.read_prompt(&mut progress)?;
        let result = match draft {
            Draft::None if request.is_greedy_on_device() => self.generate_greedy(&mut progress, usize::MAX),
            Draft::None if self.model.has_sample && request.is_sampled_on_device() => {
                self.generate_on_device(&mut progress)
            }
            draft => self.generate_with_drafts(&mut progress, draft),
        };
        // Steps submitted ahead have evaluated tokens that are not part of the conversation.
        let length = self.tokens().len();
        let conversation = self.conversation();
        conversation.cached = conversation.cached.min(length);
        result.map(|()| progress.report)
    }

    /// Evaluates the tokens of the prompt except those of its last run, and reports the progress to the observer.
    fn read_prompt(&mut self, progress: &mut Progress<'_>) -> Result<()> {
        let length = self.tokens().len();
        let total = progress.report.prompt_tokens;
        let conversation = self.conversation();
        conversation.cached = conversation.cached.min(length - 1);
        let mut before = None;
        while !progress.done {
            let left = length - self.conversation().cached;
            if !progress.observer.prompt(total - left, total) {
                progress.report.prompt_tokens = total - left;
                progress.stop_by_observer();
                break;
            }
            let Some(ticket) = self.submit_prompt_run()? else { break };
            // One run is in flight while the next one is submitted, so the reported progress is at most two runs ahead.
            if let Some(before) = before.replace(ticket) {
                self.session.wait(before)?;
            }
        }
        Ok(())
    }

    /// Generates at most `max_tokens` further tokens greedily, with up to one decode step per frame in flight.
    fn generate_greedy(&mut self, progress: &mut Progress<'_>, max_tokens: usize) -> Result<()> {
        let mut in_flight: VecDeque<Evaluated> = VecDeque::with_capacity(self.session.frames());
        let end = progress.report.tokens.saturating_add(max_tokens).min(progress.request.max_tokens);
        // Number of tokens generated or expected from runs in flight.
        let mut expected = progress.report.tokens;
        let mut device_token_written = false;
        while !progress.done && progress.report.tokens < end {
            if in_flight.is_empty() {
                in_flight.push_back(self.evaluate("next")?);
                (expected, device_token_written) = (expected + 1, false);
            }
            while in_flight.len() < self.session.frames()
                && expected < end
                && in_flight.back().is_some_and(|run| run.on_device)
            {
                let Some(run) = self.evaluate_device_token(!device_token_written)? else { break };
                in_flight.push_back(run);
                (expected, device_token_written) = (expected + 1, true);
            }
            let Some(run) = in_flight.pop_front() else { continue };
            let tokens = self.read_next_tokens(run.ticket)?;
            self.accept_token(progress, tokens.get(run.row).copied().unwrap_or_default(), None);
        }
        Ok(())
    }

    /// Generates tokens that are sampled on the device. Each token in flight needs two frames: one for `decode`, one
    /// for `sample`. The host samples the first token, and each token that function `sample` leaves to the host.
    fn generate_on_device(&mut self, progress: &mut Progress<'_>) -> Result<()> {
        let sampling = &progress.request.sampling;
        let mut sampler = Sampler::new(sampling);
        let mut in_flight: VecDeque<Ticket> = VecDeque::with_capacity(self.session.frames());
        let mut on_host = false;
        while !progress.done {
            let expected = progress.report.tokens + in_flight.len();
            let lacks_prompt_tokens = self.conversation().cached + 1 < self.tokens().len();
            if in_flight.is_empty() && (lacks_prompt_tokens || on_host) {
                let run = self.evaluate("logits")?;
                self.read_logits_row(run.ticket, run.row)?;
                let index = progress.request.generated.saturating_add(expected);
                let token = self.sample_on_host(&mut sampler, run.row, index);
                self.accept_token(progress, token, None);
                on_host = false;
                continue;
            }
            let room = in_flight.is_empty() || in_flight.len() * 2 + 2 <= self.session.frames();
            if room && expected < progress.request.max_tokens {
                match self.evaluate_and_sample(
                    sampling.device_settings(progress.request.generated.saturating_add(expected)),
                )? {
                    Some(ticket) => {
                        in_flight.push_back(ticket);
                        continue;
                    }
                    // The context is full or the RoPE threshold is reached; continue as after the prompt.
                    None => on_host = true,
                }
            }
            let Some(ticket) = in_flight.pop_front() else { continue };
            match self.read_sampled_token(ticket)? {
                Some(token) => self.accept_token(progress, token, None),
                None => {
                    // Later steps in flight have no valid input token.
                    (on_host, self.conversation().cached) = (true, self.tokens().len() - 1);
                    in_flight.clear();
                }
            }
        }
        Ok(())
    }

    /// Samples a token from a row of the logits in the read buffer.
    fn sample_on_host(&self, sampler: &mut Sampler, row: usize, index: usize) -> u32 {
        let logits = self.buffered_logits_row(row).iter().map(|bytes| f32::from_le_bytes(*bytes));
        sampler.sample(self.tokens(), logits, index)
    }

    /// Generates tokens with draft tokens, or with sampling on the host.
    fn generate_with_drafts(&mut self, progress: &mut Progress<'_>, draft: &mut Draft) -> Result<()> {
        let mut sampler = Sampler::new(&progress.request.sampling);
        self.draft_schedule.begin();
        let max_draft = self.model.verify.map_or(1, |verify| verify.chunk.max(2) - 1);
        while !progress.done {
            let (start, before) = (Instant::now(), progress.report.tokens);
            match self.draft_schedule.next_action(max_draft) {
                Action::Plain(n) if progress.request.is_greedy_on_device() => {
                    self.generate_greedy(progress, n)?;
                }
                Action::Plain(n) => {
                    for _ in 0..n {
                        self.verify_step(progress, &mut sampler, &[])?;
                    }
                }
                Action::Draft(n) => {
                    let draft_tokens = self.propose_draft(progress, draft, n)?;
                    let draft_time = start.elapsed();
                    let accepted = self.verify_step(progress, &mut sampler, &draft_tokens)?;
                    if !draft_tokens.is_empty() {
                        let verify_time = start.elapsed().saturating_sub(draft_time);
                        self.draft_schedule.record_verify(
                            (draft_tokens.len(), accepted),
                            draft_time,
                            verify_time,
                        );
                    }
                    continue;
                }
            }
            self.draft_schedule.record_plain(progress.report.tokens - before, start.elapsed());
        }
        Ok(())
    }

    /// Evaluates the last token and draft tokens in one run. Appends the resulting tokens up to and including the first
    /// token that differs from its draft token. Returns the number of accepted draft tokens.
    fn verify_step(
        &mut self,
        progress: &mut Progress<'_>,
        sampler: &mut Sampler,
        draft_tokens: &[u32],
    ) -> Result<usize> {
        if progress.done {
            return Ok(0);
        }
        let greedy = progress.request.is_greedy_on_device();
        let output = if greedy { "next" } else { "logits" };
        let (ticket, first) = if draft_tokens.is_empty() {
            let run = self.evaluate(output)?;
            (run.ticket, run.row)
        } else {
            (self.submit_verify(draft_tokens, output)?, 0)
        };
        let tokens = if greedy { self.read_next_tokens(ticket)? } else { Vec::new() };
        if !greedy {
            self.read_logits_row(ticket, first)?;
        }
        let mut accepted = 0;
        for row in first..=first + draft_tokens.len() {
            let token = match greedy {
                true => tokens.get(row).copied().unwrap_or_default(),
                false => {
                    let index = progress.request.generated.saturating_add(progress.report.tokens);
                    self.sample_on_host(sampler, row, index)
                }
            };
            self.accept_token(progress, token, (!greedy).then_some(row));
            if progress.done || draft_tokens.get(accepted) != Some(&token) {
                break;
            }
            accepted += 1;
        }
        if !draft_tokens.is_empty() {
            // Cached tokens after the last accepted draft token belong to another sequence.
            let cached = self.tokens().len() - 1;
            self.conversation().cached = cached;
            progress.report.draft_tokens += draft_tokens.len();
            progress.report.accepted.push(accepted);
        }
        Ok(accepted)
    }

    /// Proposes at most `max_draft` draft tokens. There are none if the KV caches lack more than the last
    /// token.
    fn propose_draft(
        &mut self,
        progress: &Progress<'_>,
        draft: &mut Draft,
        max_draft: usize,
    ) -> Result<Vec<u32>> {
        let (length, conversation) = (self.tokens().len(), self.conversation());
        let (cached, long_rope) = (conversation.cached, conversation.long_rope);
        // Draft tokens beyond the RoPE threshold would be evaluated with other RoPE factors than plain steps
        // use.
        let before_threshold = match self.model.decode.rope_threshold.filter(|_| !long_rope) {
            Some(threshold) => (threshold + 1).saturating_sub(length),
            None => usize::MAX,
        };
        let left = before_threshold.min(progress.request.max_tokens - progress.report.tokens);
        let Some(verify) = self.model.verify.filter(|verify| verify.fits(cached)) else {
            return Ok(Vec::new());
        };
        if cached + 1 != length || left < 2 {
            return Ok(Vec::new());
        }
        let mut draft_tokens = draft.propose(self.tokens(), max_draft.min(verify.chunk - 1).min(left - 1))?;
        let vocabulary = self.model.vocabulary;
        let known =
            draft_tokens.iter().take_while(|id| usize::try_from(**id).is_ok_and(|id| id < vocabulary));
        let known = known.count();
        draft_tokens.truncate(known);
        Ok(draft_tokens)
    }

    /// Submits a verify run for the last token and draft tokens.
    fn submit_verify(&mut self, draft_tokens: &[u32], output: &str) -> Result<Ticket> {
        let past = self.conversation().cached;
        let verify = self.model.verify.unwrap_or(self.model.decode);
        let ids: Vec<i64> =
            self.tokens().last().into_iter().chain(draft_tokens).map(|id| i64::from(*id)).collect();
        self.submit_step(verify, (past, past + 1), &ids, &[output])
    }

    /// Appends a token to the conversation, and passes it to the observer. `row` is the row of the read buffer that holds
    /// the token's logits.
    fn accept_token(&mut self, progress: &mut Progress<'_>, token: u32, row: Option<usize>) {
        self.conversation().tokens.push(token);
        let row = row.filter(|_| progress.request.logits);
        let logits: Option<Vec<f32>> = row.map(|row| {
            self.buffered_logits_row(row).iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        });
        let Progress { request, observer, start, report, done } = progress;
        report.tokens += 1;
        match report.tokens {
            1 => report.prompt_time = start.elapsed(),
            _ => report.decode_time = start.elapsed().saturating_sub(report.prompt_time),
        }
        report.stop_reason = match request.stop_tokens.contains(&token) {
            true => StopReason::StopToken(token),
            false if !observer.token(token, logits.as_deref()) => StopReason::Callback,
            false => StopReason::MaxTokens,
        };
        *done = report.stop_reason != StopReason::MaxTokens || report.tokens >= request.max_tokens;
    }
}
