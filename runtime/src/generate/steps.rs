//! One token after the other: the loop that generates.
//!
//! Where the most likely token is wanted, or the device draws, the device keeps the token, and steps are submitted ahead of
//! what the host has read; those behind the text's end are dropped. Where the host draws, it reads the logits of each step.
//! Guesses are checked by one run for several of them, which gives what as many steps would have given.

use super::draft::Draft;
use super::feed::Fed;
use super::pace::Next;
use super::sampling::Sampler;
use super::{Ended, Generator, Report, Request};
use crate::error::{Error, Result};
use crate::session::Ticket;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A text that is being generated.
struct Progress<'a> {
    request: &'a Request,
    /// Gets each token but a stop, and says whether to go on.
    each: &'a mut dyn FnMut(u32) -> bool,
    start: Instant,
    report: Report,
    ended: bool,
}

impl Generator {
    /// Generates tokens behind the text and hands each to `each` as it comes, until there are enough, a stop comes (which
    /// `each` does not get), or `each` says false. All of them are the text's end afterwards.
    ///
    /// # Errors
    /// When there is no text to go on from, the context is full before the end, or the device fails. Tokens that were
    /// handed out are part of the text.
    pub fn generate(
        &mut self,
        request: &Request,
        draft: &mut Draft,
        each: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Report> {
        request.sampling.check()?;
        let last = self.text().len().checked_sub(1).ok_or(Error::EmptyPrompt)?;
        self.face(last + 1);
        let fed = self.conversation().fed.min(last);
        let report = Report {
            ended: Ended::Length,
            prompt_tokens: self.text().len() - fed,
            prompt_time: Duration::ZERO,
            tokens: 0,
            decode_time: Duration::ZERO,
            drafted: 0,
            accepted: Vec::new(),
        };
        let mut progress = Progress { request, each, start: Instant::now(), report, ended: false };
        progress.ended = request.max_tokens == 0;
        let done = match draft {
            Draft::None if request.sampling.is_plain() => self.run_ahead(&mut progress, usize::MAX),
            Draft::None if self.model.samples && request.sampling.fits_device() => {
                self.run_drawn(&mut progress)
            }
            draft => self.run_checked(&mut progress, draft),
        };
        // Steps that ran ahead have fed tokens that the text does not have.
        let length = self.text().len();
        let conversation = self.conversation();
        conversation.fed = conversation.fed.min(length);
        done.map(|()| progress.report)
    }

    /// The most likely token each time, at most so many, with as many steps in flight as there are frames.
    fn run_ahead(&mut self, progress: &mut Progress<'_>, most: usize) -> Result<()> {
        let mut flying: VecDeque<Fed> = VecDeque::with_capacity(self.session.frames());
        let end = progress.report.tokens.saturating_add(most).min(progress.request.max_tokens);
        // The tokens that the text has or that runs in flight will give.
        let mut asked = progress.report.tokens;
        let mut kept_is_written = false;
        while !progress.ended && progress.report.tokens < end {
            if flying.is_empty() {
                flying.push_back(self.feed("next")?);
                (asked, kept_is_written) = (asked + 1, false);
            }
            while flying.len() < self.session.frames()
                && asked < end
                && flying.back().is_some_and(|fed| fed.kept)
            {
                let Some(fed) = self.feed_kept(!kept_is_written)? else { break };
                flying.push_back(fed);
                (asked, kept_is_written) = (asked + 1, true);
            }
            let Some(fed) = flying.pop_front() else { continue };
            let tokens = self.tokens(fed.ticket)?;
            self.take(progress, tokens.get(fed.row).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// Tokens that the device draws, with as many steps in flight as there are frames for: one for the step, one for the
    /// drawing. The host draws the first one, and those that the device leaves to it.
    fn run_drawn(&mut self, progress: &mut Progress<'_>) -> Result<()> {
        let sampling = &progress.request.sampling;
        let mut sampler = Sampler::new(sampling);
        let mut flying: VecDeque<Ticket> = VecDeque::with_capacity(self.session.frames());
        let mut on_host = false;
        while !progress.ended {
            let asked = progress.report.tokens + flying.len();
            let lacks_more = self.conversation().fed + 1 < self.text().len();
            if flying.is_empty() && (lacks_more || on_host) {
                let fed = self.feed("logits")?;
                self.row(fed.ticket, fed.row)?;
                let token = self.draw(&mut sampler, fed.row, asked);
                self.take(progress, token);
                on_host = false;
                continue;
            }
            let room = flying.is_empty() || flying.len() * 2 + 2 <= self.session.frames();
            if room && asked < progress.request.max_tokens {
                match self.feed_drawn(sampling.settings(asked))? {
                    Some(ticket) => {
                        flying.push_back(ticket);
                        continue;
                    }
                    // What follows is as at the start.
                    None => on_host = true,
                }
            }
            let Some(ticket) = flying.pop_front() else { continue };
            match self.drawn(ticket)? {
                Some(token) => self.take(progress, token),
                None => {
                    // What was submitted behind it goes on from no token.
                    (on_host, self.conversation().fed) = (true, self.text().len() - 1);
                    flying.clear();
                }
            }
        }
        Ok(())
    }

    /// The token of an index that a row of the logits that were read last decides.
    fn draw(&self, sampler: &mut Sampler, row: usize, index: usize) -> u32 {
        let logits = self.read_row(row).iter().map(|bytes| f32::from_le_bytes(*bytes));
        sampler.pick(self.text(), logits, index)
    }

    /// Token by token as the host draws them, several at a time where guesses are right and pay.
    fn run_checked(&mut self, progress: &mut Progress<'_>, draft: &mut Draft) -> Result<()> {
        let mut sampler = Sampler::new(&progress.request.sampling);
        self.pace.begin();
        let most = self.model.verify.map_or(1, |verify| verify.chunk.max(2) - 1);
        while !progress.ended {
            let (start, before) = (Instant::now(), progress.report.tokens);
            match self.pace.next(most) {
                Next::Plain(n) if progress.request.sampling.is_plain() => self.run_ahead(progress, n)?,
                Next::Plain(n) => {
                    for _ in 0..n {
                        self.checked(progress, &mut sampler, &[])?;
                    }
                }
                Next::Guess(n) => {
                    let guesses = self.guesses(progress, draft, n)?;
                    let guessing = start.elapsed();
                    let right = self.checked(progress, &mut sampler, &guesses)?;
                    if !guesses.is_empty() {
                        let checking = start.elapsed().saturating_sub(guessing);
                        self.pace.checked((guesses.len(), right), guessing, checking);
                    }
                    continue;
                }
            }
            self.pace.plain(progress.report.tokens - before, start.elapsed());
        }
        Ok(())
    }

    /// Runs the model on the text's last token and some guesses of what follows, and takes what it gives as far as the
    /// guesses are right; how many are.
    fn checked(
        &mut self,
        progress: &mut Progress<'_>,
        sampler: &mut Sampler,
        guesses: &[u32],
    ) -> Result<usize> {
        if progress.ended {
            return Ok(0);
        }
        let plain = progress.request.sampling.is_plain();
        let output = if plain { "next" } else { "logits" };
        let (ticket, first) = if guesses.is_empty() {
            let fed = self.feed(output)?;
            (fed.ticket, fed.row)
        } else {
            (self.check(guesses, output)?, 0)
        };
        let tokens = if plain { self.tokens(ticket)? } else { Vec::new() };
        if !plain {
            self.row(ticket, first)?;
        }
        let mut right = 0;
        for row in first..=first + guesses.len() {
            let token = match plain {
                true => tokens.get(row).copied().unwrap_or_default(),
                false => self.draw(sampler, row, progress.report.tokens),
            };
            self.take(progress, token);
            if progress.ended || guesses.get(right) != Some(&token) {
                break;
            }
            right += 1;
        }
        if !guesses.is_empty() {
            // What the caches hold behind the last right guess is of a text that is not this one.
            let fed = self.text().len() - 1;
            self.conversation().fed = fed;
            progress.report.drafted += guesses.len();
            progress.report.accepted.push(right);
        }
        Ok(right)
    }

    /// At most so many guesses to check in one run behind the text's last token; none where the caches lack more than that.
    fn guesses(&mut self, progress: &Progress<'_>, draft: &mut Draft, most: usize) -> Result<Vec<u32>> {
        let (length, conversation) = (self.text().len(), self.conversation());
        let (fed, turned) = (conversation.fed, conversation.turned);
        // Guesses behind the model's turn are not computed as the tokens before it.
        let before_turn = match self.model.decode.turn.filter(|_| !turned) {
            Some(turn) => (turn + 1).saturating_sub(length),
            None => usize::MAX,
        };
        let left = before_turn.min(progress.request.max_tokens - progress.report.tokens);
        let Some(verify) = self.model.verify.filter(|verify| verify.fits(fed)) else { return Ok(Vec::new()) };
        if fed + 1 != length || left < 2 {
            return Ok(Vec::new());
        }
        let mut guesses = draft.propose(self.text(), most.min(verify.chunk - 1).min(left - 1))?;
        let vocabulary = self.model.vocabulary;
        let known = guesses.iter().take_while(|id| usize::try_from(**id).is_ok_and(|id| id < vocabulary));
        let known = known.count();
        guesses.truncate(known);
        Ok(guesses)
    }

    /// Submits the run for the text's last token and the guesses.
    fn check(&mut self, guesses: &[u32], output: &str) -> Result<Ticket> {
        let past = self.conversation().fed;
        let verify = self.model.verify.unwrap_or(self.model.decode);
        let ids: Vec<i64> = self.text().last().into_iter().chain(guesses).map(|id| i64::from(*id)).collect();
        self.submit(verify, (past, past + 1), &ids, &[output])
    }

    /// Adds a token to the text, and hands it out.
    fn take(&mut self, progress: &mut Progress<'_>, token: u32) {
        self.conversation().text.push(token);
        let Progress { request, each, start, report, ended } = progress;
        report.tokens += 1;
        match report.tokens {
            1 => report.prompt_time = start.elapsed(),
            _ => report.decode_time = start.elapsed().saturating_sub(report.prompt_time),
        }
        report.ended = match request.stops.contains(&token) {
            true => Ended::Stop(token),
            false if !each(token) => Ended::Caller,
            false => Ended::Length,
        };
        *ended = report.ended != Ended::Length || report.tokens >= request.max_tokens;
    }
}
