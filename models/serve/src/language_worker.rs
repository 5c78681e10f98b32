//! Thread of a language model: generates the completions of several requests in turns.
//!
//! Each running request has a slot, which is a conversation of the model's session. In each round, every running request
//! gets one slice: a run of prompt tokens, or some generated tokens. So a long request delays a short one by at most one round.
//! A request that runs alone has no limit on its slice until another request arrives.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use drift_chat::{Completion, Finish, Listener, PromptEncoder, SlicedCompletion};
use drift_runtime::{Draft, Generator};

use crate::api_error::{ApiError, request_fault};
use crate::job::{Event, Generation, Outcome};
use crate::logprobs::TokenLogprobs;
use crate::outbox::Outbox;
use crate::queue::RunningPermit;
use crate::shared::Shared;

/// Maximum number of tokens that a request generates before the next running request has its turn.
const SLICE_TOKENS: usize = 8;
/// Number of earlier tokens that decide the text of a token, such as its leading space.
const CONTEXT_TOKENS: usize = 8;
/// Time between two attempts to send events to clients that do not read, if all running requests wait for them.
const RETRY: Duration = Duration::from_millis(10);

/// Serves the requests of a language model until the server drops their sender.
///
/// # Errors
/// If the device fails. The model is then of no further use.
pub(crate) fn run(
    generator: Generator,
    encoder: &PromptEncoder,
    jobs: &Receiver<Generation>,
    shared: &Shared,
) -> Result<(), drift_chat::Error> {
    let slots = (0..generator.session().conversations()).map(|_| Slot::default()).collect();
    let mut worker = Worker {
        generator,
        encoder,
        jobs,
        shared,
        slots,
        waiting: VecDeque::new(),
        closing: Vec::new(),
        requests: 0,
        is_stuck: false,
    };
    while worker.receive() {
        while let Some(job) = worker.next_job() {
            worker.start(job)?;
        }
        let mut progress = false;
        for slot in 0..worker.slots.len() {
            progress |= worker.slice(slot)?;
        }
        worker.close_finished();
        worker.is_stuck = !progress;
    }
    Ok(())
}

/// State of the thread.
struct Worker<'a> {
    generator: Generator,
    encoder: &'a PromptEncoder,
    jobs: &'a Receiver<Generation>,
    shared: &'a Shared,
    slots: Vec<Slot<'a>>,
    /// Requests that wait for a slot, in the order of their arrival.
    waiting: VecDeque<Generation>,
    /// Ended requests whose last events the client has not read.
    closing: Vec<(Outbox, RunningPermit)>,
    /// Number of started requests.
    requests: u64,
    /// True if no request made progress in the last round.
    is_stuck: bool,
}

/// Conversation of the session.
#[derive(Default)]
struct Slot<'a> {
    running: Option<Running<'a>>,
    /// Number of the request that used the slot last; 0 if there was none.
    last_used: u64,
}

/// Request that has a slot.
struct Running<'a> {
    completion: SlicedCompletion<'a>,
    client: Client<'a>,
}

/// Connection of a running request to its client.
struct Client<'a> {
    shared: &'a Shared,
    encoder: &'a PromptEncoder,
    outbox: Outbox,
    permit: RunningPermit,
    logprobs: Option<usize>,
    /// Tokens since the last event.
    tokens: Vec<TokenLogprobs>,
    /// Last tokens of the prompt and of the completion, at most [`CONTEXT_TOKENS`].
    context: Vec<u32>,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// Time of the last token, or of the request's arrival.
    last: Instant,
    has_token: bool,
    /// True if no other request runs or waits, so that a slice may last until another request arrives.
    alone: bool,
}

impl<'a> Worker<'a> {
    /// Receives requests. Waits for one if there is nothing to do. Returns false if the server ends.
    fn receive(&mut self) -> bool {
        let is_idle = self.waiting.is_empty() && self.closing.is_empty() && self.running() == 0;
        if is_idle {
            match self.jobs.recv() {
                Ok(job) => self.enqueue(job),
                Err(_) => return false,
            }
        } else if self.is_stuck {
            match self.jobs.recv_timeout(RETRY) {
                Ok(job) => self.enqueue(job),
                Err(RecvTimeoutError::Timeout) => {}
                // Requests that still run keep their connections.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(RETRY),
            }
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.enqueue(job);
        }
        // Clients that are gone give their places in the queue free.
        let before = self.waiting.len();
        self.waiting.retain(|job| !job.events.is_closed());
        self.shared.metrics.disconnected.add(before - self.waiting.len());
        true
    }

    fn enqueue(&mut self, job: Generation) {
        self.shared.queue.received();
        self.waiting.push_back(job);
    }

    fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.running.is_some()).count()
    }

    /// Returns the next request if a slot is free.
    fn next_job(&mut self) -> Option<Generation> {
        let is_free = self.running() < self.slots.len();
        if is_free { self.waiting.pop_front() } else { None }
    }

    /// Starts a request in the best free slot.
    fn start(&mut self, job: Generation) -> Result<(), drift_chat::Error> {
        let Generation { prompt, request, logprobs, exact, events, arrived, permit } = job;
        let mut outbox = Outbox::new(events);
        let Some(index) = self.best_slot(&prompt)? else { return Ok(()) };
        self.generator.choose_conversation(index)?;
        let cached = match exact {
            true => self.generator.set_tokens_exactly(&prompt),
            false => self.generator.set_tokens(&prompt),
        };
        let cached_tokens = match cached.map_err(drift_chat::Error::from) {
            Ok(cached) => cached,
            Err(error) => {
                let fault = request_fault(&error).ok_or(error)?;
                outbox.send(Event::Failed(fault));
                return Ok(());
            }
        };
        let metrics = &self.shared.metrics;
        metrics.prompt_tokens.add(prompt.len());
        metrics.cached_tokens.add(cached_tokens);
        self.requests += 1;
        let client = Client {
            shared: self.shared,
            encoder: self.encoder,
            outbox,
            permit: permit.run(),
            logprobs,
            tokens: Vec::new(),
            context: prompt.get(prompt.len().saturating_sub(CONTEXT_TOKENS)..).unwrap_or_default().to_vec(),
            prompt_tokens: prompt.len(),
            cached_tokens,
            last: arrived,
            has_token: false,
            alone: false,
        };
        let completion = SlicedCompletion::new(self.encoder, &prompt, request);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { running: Some(Running { completion, client }), last_used: self.requests };
        }
        Ok(())
    }

    /// Returns the free slot with the longest common prefix of tokens. A slot that shares less than a quarter of the prompt
    /// counts as a slot that shares nothing, and the slot that was not used for the longest time is then used.
    fn best_slot(&mut self, prompt: &[u32]) -> Result<Option<usize>, drift_chat::Error> {
        let mut best = None;
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none()) {
            self.generator.choose_conversation(index)?;
            let common = self.generator.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
            let common = if common.saturating_mul(4) >= prompt.len() { common } else { 0 };
            best = best.max(Some((common, Reverse(slot.last_used), Reverse(index))));
        }
        Ok(best.map(|(_, _, Reverse(index))| index))
    }

    /// Generates the next slice of the request in a slot. Returns false if there is none.
    fn slice(&mut self, index: usize) -> Result<bool, drift_chat::Error> {
        let alone = self.running() == 1 && self.waiting.is_empty();
        let Some(slot) = self.slots.get_mut(index) else { return Ok(false) };
        let Some(running) = &mut slot.running else { return Ok(false) };
        let Running { completion, client } = running;
        if client.has_ended() {
            slot.running = None;
            return Ok(true);
        }
        if !client.outbox.flush() {
            return Ok(false);
        }
        client.alone = alone;
        self.generator.choose_conversation(index)?;
        let tokens = if alone { usize::MAX } else { SLICE_TOKENS };
        let done = match completion.advance(&mut self.generator, tokens, &mut Draft::None, client) {
            Ok(None) => return Ok(true),
            Ok(Some(done)) => Ok(done),
            Err(error) => {
                // The tokens of a failed request are no useful prefix.
                self.generator.truncate(0);
                Err(request_fault(&error).ok_or(error)?)
            }
        };
        if let Some(running) = slot.running.take() {
            self.closing.extend(running.client.end(done));
        }
        Ok(true)
    }

    /// Drops ended requests whose events are sent, and requests whose client does not read for too long.
    fn close_finished(&mut self) {
        let shared = self.shared;
        self.closing.retain_mut(|(outbox, _)| !outbox.flush() && !is_too_slow(outbox, shared));
    }
}

/// True if the server ends, or if a client kept the model waiting for too long.
fn is_too_slow(outbox: &Outbox, shared: &Shared) -> bool {
    let too_slow = outbox.waited() > shared.client_timeout;
    if too_slow {
        shared.metrics.slow.add(1);
    }
    too_slow || shared.is_stopping()
}

impl Client<'_> {
    /// True if the request is cancelled: its client is gone or too slow, or the server ends.
    fn has_ended(&mut self) -> bool {
        if self.outbox.is_closed() {
            self.shared.metrics.disconnected.add(1);
            return true;
        }
        if self.shared.is_stopping() {
            self.outbox.send(Event::Failed(ApiError::unavailable("the server ends")));
            return true;
        }
        is_too_slow(&self.outbox, self.shared)
    }

    /// Sends the end of the completion. Returns the outbox if the client has not read all events.
    fn end(mut self, done: Result<Completion, ApiError>) -> Option<(Outbox, RunningPermit)> {
        match done {
            Ok(Completion { finish: Finish::Cancelled, .. }) => {
                // This counts the reason.
                self.has_ended();
                return None;
            }
            Ok(Completion { finish, report, .. }) => {
                let outcome = Outcome {
                    finish,
                    prompt_tokens: self.prompt_tokens,
                    cached_tokens: self.cached_tokens,
                    tokens: report.tokens,
                };
                let tokens = std::mem::take(&mut self.tokens);
                self.outbox.send(Event::Done(outcome, tokens));
            }
            Err(error) => self.outbox.send(Event::Failed(error)),
        }
        self.outbox.is_blocked().then_some((self.outbox, self.permit))
    }
}

impl Listener for Client<'_> {
    fn prompt(&mut self, _read: usize, _total: usize) -> bool {
        !self.outbox.is_closed() && !self.shared.is_stopping()
    }

    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool {
        let metrics = &self.shared.metrics;
        let latency = self.last.elapsed();
        self.last = Instant::now();
        match std::mem::replace(&mut self.has_token, true) {
            false => metrics.first_token.observe(latency),
            true => metrics.token.observe(latency),
        }
        metrics.generated_tokens.add(1);
        if let (Some(top), Some(logits)) = (self.logprobs, logits) {
            let tokenizer = self.encoder.tokenizer();
            self.tokens.push(TokenLogprobs::new(tokenizer, &self.context, id, logits, top));
            if self.context.len() >= CONTEXT_TOKENS {
                self.context.remove(0);
            }
            self.context.push(id);
        }
        !self.outbox.is_closed() && !self.shared.is_stopping()
    }

    fn pause(&mut self) -> bool {
        let others_wait = match self.alone {
            true => self.shared.queue.has_arrivals(),
            // The number of tokens limits later slices.
            false => !self.has_token,
        };
        others_wait || self.outbox.is_blocked()
    }

    fn text(&mut self, text: &str) -> bool {
        let tokens = std::mem::take(&mut self.tokens);
        self.outbox.send(Event::Text(text.to_owned(), tokens));
        !self.outbox.is_closed()
    }
}
