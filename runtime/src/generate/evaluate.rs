//! Evaluates tokens: writes ids, submits runs that extend the KV caches, and reads logits and tokens.

use super::model::{SAMPLE, TokenFunction};
use super::{CachedRun, Generator};
use crate::array::ArrayRef;
use crate::error::{Error, Result};
use crate::format::HostType;
use crate::session::Ticket;

/// A submitted run of a function that evaluates the last token of the sequence.
#[derive(Clone, Copy)]
pub(super) struct Evaluated {
    pub(super) ticket: Ticket,
    /// Index of the row of the run's outputs that belongs to the last token of the sequence.
    pub(super) row: usize,
    /// True if the device also keeps the next token, in the state `token`, so that a further decode step can read it
    /// there.
    pub(super) on_device: bool,
}

/// Id in input `ids` that stands for the token that the device keeps in the state `token`.
const DEVICE_TOKEN: i64 = -1;

impl Generator {
    /// Submits runs for all tokens of the conversation that the KV caches lack, and always for the last token. The last
    /// run copies `output` to the host.
    pub(super) fn evaluate(&mut self, output: &str) -> Result<Evaluated> {
        let length = self.tokens().len();
        let last = length.checked_sub(1).ok_or(Error::EmptyPrompt)?;
        self.invalidate_on_rope_switch(length);
        let conversation = self.conversation();
        conversation.cached = conversation.cached.min(last);
        loop {
            let past = self.conversation().cached;
            let full = || Error::ContextFull { needed: length, context: self.model.context };
            let (step, count) = self.model.select_function(past, length - past).ok_or_else(full)?;
            let ids: Vec<i64> =
                self.tokens().iter().skip(past).take(count).map(|id| i64::from(*id)).collect();
            let is_last = past + count == length;
            let outputs = [output];
            let ticket =
                self.submit_step(step, (past, length), &ids, if is_last { &outputs } else { &[] })?;
            self.conversation().cached = past + count;
            if is_last {
                let row = if step.row_per_token { count - 1 } else { 0 };
                return Ok(Evaluated { ticket, row, on_device: !step.row_per_token });
            }
        }
    }

    /// Submits one run of prompt tokens that the KV caches lack, and returns its ticket. Submits nothing and returns `None`
    /// if one run evaluates all of them, so that [`Generator::evaluate`] submits it.
    pub(super) fn submit_prompt_run(&mut self) -> Result<Option<Ticket>> {
        let (length, past) = (self.tokens().len(), self.conversation().cached);
        let Some((step, count)) = self.model.select_function(past, length - past) else { return Ok(None) };
        if past + count >= length {
            return Ok(None);
        }
        let ids: Vec<i64> = self.tokens().iter().skip(past).take(count).map(|id| i64::from(*id)).collect();
        let ticket = self.submit_step(step, (past, length), &ids, &[])?;
        self.conversation().cached = past + count;
        Ok(Some(ticket))
    }

    /// Submits a decode step for the token that the device keeps. Returns `None` if the context is full, or if the step
    /// is the first step beyond the RoPE threshold. Writes [`DEVICE_TOKEN`] to input `ids` only if `write` is true.
    pub(super) fn evaluate_device_token(&mut self, write: bool) -> Result<Option<Evaluated>> {
        let ids: &[i64] = if write { &[DEVICE_TOKEN] } else { &[] };
        self.evaluate_one(ids, &["next"])
    }

    /// Submits a decode step for one token id, or for the current value of input `ids` if the list `ids` is empty.
    fn evaluate_one(&mut self, ids: &[i64], outputs: &[&str]) -> Result<Option<Evaluated>> {
        let (decode, past) = (self.model.decode, self.conversation().cached);
        if !decode.fits(past) || self.conversation().long_rope != self.is_long_rope(past + 1) {
            return Ok(None);
        }
        let ticket = self.submit_step(decode, (past, past + 1), ids, outputs)?;
        self.conversation().cached = past + 1;
        Ok(Some(Evaluated { ticket, row: 0, on_device: true }))
    }

    /// Submits a decode step and the sampling of the next token on the device. The step evaluates the last token of the
    /// sequence if it is the only token that the KV caches lack, else the token sampled last on the device. Returns
    /// `None` in the cases in which [`Generator::evaluate_device_token`] does.
    pub(super) fn evaluate_and_sample(&mut self, settings: [f32; 4]) -> Result<Option<Ticket>> {
        let last = self
            .tokens()
            .get(self.conversations.get(self.current).map_or(0, |conversation| conversation.cached));
        let id = last.map_or(DEVICE_TOKEN, |id| i64::from(*id));
        let Some(run) = self.evaluate_one(&[id], &[])? else { return Ok(None) };
        let logits = self.session.device_output_of(run.ticket, "logits")?;
        self.session.feed(SAMPLE, "logits", &logits)?;
        let bytes = settings.map(f32::to_le_bytes);
        let array = ArrayRef { dtype: HostType::F32, shape: &[4], bytes: bytes.as_flattened() };
        self.session.write_input(SAMPLE, "settings", array)?;
        self.session.submit(SAMPLE, &["next"]).map(Some)
    }

    /// Waits for a run of function `sample`, and returns the token that it sampled on the device. Returns `None` if the
    /// host must sample the token instead.
    pub(super) fn read_sampled_token(&mut self, ticket: Ticket) -> Result<Option<u32>> {
        self.session.collect(ticket, "next", &mut self.read_buffer)?;
        match self.read_buffer.to_f64().first() {
            Some(-1.0) => Ok(None),
            _ => Ok(self.buffered_ids()?.first().copied()),
        }
    }

    /// Submits a run of function `step` on a sequence of `length` tokens, of which the first `past` are in the KV cache.
    /// If the list `ids` is empty, the input `ids` keeps its value.
    pub(super) fn submit_step(
        &mut self,
        step: TokenFunction,
        (past, length): (usize, usize),
        ids: &[i64],
        outputs: &[&str],
    ) -> Result<Ticket> {
        if !ids.is_empty() {
            // Padding must be a valid id.
            let padded = ids.iter().copied().chain(std::iter::repeat(0)).take(step.chunk);
            let bytes: Vec<u8> = match step.ids_type {
                HostType::I64 => padded.flat_map(i64::to_le_bytes).collect(),
                _ => padded.flat_map(|id| i32::try_from(id).unwrap_or(i32::MAX).to_le_bytes()).collect(),
            };
            let array = ArrayRef { dtype: step.ids_type, shape: &[1, step.chunk], bytes: &bytes };
            self.session.write_input(step.name, "ids", array)?;
        }
        let symbols = [
            ("past", Some(past)),
            ("count", step.has_count.then_some(ids.len())),
            ("length", step.rope_threshold.map(|threshold| threshold.max(length))),
        ];
        for (name, value) in symbols {
            if let Some(value) = value {
                self.session.set_symbol(step.name, name, i64::try_from(value).unwrap_or(i64::MAX))?;
            }
        }
        let ticket = self.session.submit(step.name, outputs)?;
        let count = length.saturating_sub(past).min(step.chunk);
        let runs = &mut self.conversation().runs;
        let earlier = runs.iter().rposition(|run| run.past + run.count <= past).map_or(0, |last| last + 1);
        runs.truncate(earlier);
        runs.push(CachedRun { function: step.name, past, count });
        Ok(ticket)
    }

    /// Waits for a run, and returns the token ids of its output `next`, one per row.
    pub(super) fn read_next_tokens(&mut self, ticket: Ticket) -> Result<Vec<u32>> {
        self.session.collect(ticket, "next", &mut self.read_buffer)?;
        self.buffered_ids()
    }

    /// Returns the token ids in the read buffer, or an error if an id is outside the model's vocabulary.
    fn buffered_ids(&self) -> Result<Vec<u32>> {
        let vocabulary = self.model.vocabulary;
        let invalid = || Error::NotALanguageModel {
            reason: format!("the model generated a token id outside its vocabulary of {vocabulary} tokens"),
        };
        let token = |id: f64| match id >= 0.0 && (id as usize) < vocabulary {
            true => Ok(id as u32),
            false => Err(invalid()),
        };
        self.read_buffer.to_f64().into_iter().map(token).collect()
    }

    /// Waits for a run, and returns one row of its logits.
    pub(super) fn read_logits_row(&mut self, ticket: Ticket, row: usize) -> Result<&[[u8; 4]]> {
        self.session.collect(ticket, "logits", &mut self.read_buffer)?;
        Ok(self.buffered_logits_row(row))
    }

    /// Returns a row of the logits in the read buffer.
    pub(super) fn buffered_logits_row(&self, row: usize) -> &[[u8; 4]] {
        let start = row.saturating_mul(self.model.vocabulary);
        let logits = self.read_buffer.bytes.as_chunks::<4>().0;
        logits.get(start..start.saturating_add(self.model.vocabulary)).unwrap_or_default()
    }

    /// Replaces the tokens of the conversation, and calls `each` with the logits after every token, in order.
    /// Afterwards the KV caches have all tokens.
    ///
    /// # Errors
    /// As for [`Generator::append`], and errors that `each` returns.
    pub fn logits(&mut self, ids: &[u32], each: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        self.truncate(0);
        self.append(ids)?;
        self.invalidate_on_rope_switch(ids.len());
        let mut logits = Vec::with_capacity(self.model.vocabulary);
        let (mut past, length) = (0, ids.len());
        while past < length {
            let verify = self.model.verify.filter(|verify| verify.fits(past));
            let step = verify.unwrap_or(self.model.decode);
            let count = step.chunk.min(length - past);
            let chunk: Vec<i64> = ids.iter().skip(past).take(count).map(|id| i64::from(*id)).collect();
            let ticket = self.submit_step(step, (past, length), &chunk, &["logits"])?;
            for row in 0..count {
                let found =
                    if row == 0 { self.read_logits_row(ticket, row)? } else { self.buffered_logits_row(row) };
                logits.clear();
                logits.extend(found.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                each(&logits)?;
            }
            past += count;
            self.conversation().cached = past;
        }
        Ok(())
    }

    /// Like [`Generator::logits`], but the function `prefill` computes the logits after each token, as it does for a prompt
    /// that ends with this token. Each token needs a run of `prefill`, so this is slow. Bundles whose prefill is quantized
    /// further than `decode` and `verify` have other logits here.
    ///
    /// # Errors
    /// As for [`Generator::logits`], and if the bundle has no function `prefill` that accepts padding.
    pub fn prefill_logits(&mut self, ids: &[u32], each: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let lacking = || Error::NotALanguageModel {
            reason: "the bundle has no function `prefill` with symbol `count`".to_owned(),
        };
        let prefill = self.model.prefill.filter(|step| step.has_count).ok_or_else(lacking)?;
        self.truncate(0);
        self.append(ids)?;
        self.invalidate_on_rope_switch(ids.len());
        let mut logits = Vec::with_capacity(self.model.vocabulary);
        for position in 0..ids.len() {
            let past = prefill.chunk_start(position);
            let tokens: Vec<i64> =
                ids.iter().take(position + 1).skip(past).map(|id| i64::from(*id)).collect();
            let ticket = self.submit_step(prefill, (past, ids.len()), &tokens, &["logits"])?;
            let found = self.read_logits_row(ticket, 0)?;
            logits.clear();
            logits.extend(found.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            each(&logits)?;
            self.conversation().cached = position + 1;
        }
        Ok(())
    }
}
