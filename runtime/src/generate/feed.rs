//! Ids into the caches, and logits and tokens out of them.

use super::Generator;
use super::model::{SAMPLE, TokenFunction};
use crate::array::ArrayRef;
use crate::error::{Error, Result};
use crate::format::HostType;
use crate::session::Ticket;

/// A run whose last id that counts is the text's last one.
#[derive(Clone, Copy)]
pub(super) struct Fed {
    pub(super) ticket: Ticket,
    /// The row of its outputs that belongs to that id.
    pub(super) row: usize,
    /// Whether the device keeps the next token for a further step.
    pub(super) kept: bool,
}

/// The id that stands for the token that the device keeps.
const KEPT: i64 = -1;

impl Generator {
    /// Submits runs for all of the text that the caches lack, at least for its last token. The last run gives `output`.
    pub(super) fn feed(&mut self, output: &str) -> Result<Fed> {
        let length = self.text().len();
        let last = length.checked_sub(1).ok_or(Error::EmptyPrompt)?;
        self.face(length);
        let conversation = self.conversation();
        conversation.fed = conversation.fed.min(last);
        loop {
            let past = self.conversation().fed;
            let full = || Error::ContextFull { needed: length, context: self.model.context };
            let (step, count) = self.model.step(past, length - past).ok_or_else(full)?;
            let ids: Vec<i64> = self.text().iter().skip(past).take(count).map(|id| i64::from(*id)).collect();
            let is_last = past + count == length;
            let outputs = [output];
            let ticket = self.submit(step, (past, length), &ids, if is_last { &outputs } else { &[] })?;
            self.conversation().fed = past + count;
            if is_last {
                let row = if step.rows { count - 1 } else { 0 };
                return Ok(Fed { ticket, row, kept: !step.rows });
            }
        }
    }

    /// Submits a step from the token that the device keeps; none where the context is full, or the step is the first one
    /// behind the model's turn.
    pub(super) fn feed_kept(&mut self, write: bool) -> Result<Option<Fed>> {
        let ids: &[i64] = if write { &[KEPT] } else { &[] };
        self.feed_one(ids, &["next"])
    }

    /// The same from an id, or that of the run before where none is given.
    fn feed_one(&mut self, ids: &[i64], outputs: &[&str]) -> Result<Option<Fed>> {
        let (decode, past) = (self.model.decode, self.conversation().fed);
        if !decode.fits(past) || self.conversation().turned != self.is_turned(past + 1) {
            return Ok(None);
        }
        let ticket = self.submit(decode, (past, past + 1), ids, outputs)?;
        self.conversation().fed = past + 1;
        Ok(Some(Fed { ticket, row: 0, kept: true }))
    }

    /// Submits a step and the drawing of the token behind it: from the text's last token where that is all that the caches
    /// lack, else from the one that was drawn last on the device. None as for [`Generator::feed_kept`].
    pub(super) fn feed_drawn(&mut self, settings: [f32; 4]) -> Result<Option<Ticket>> {
        let last = self.text().get(self.conversations.get(self.current).map_or(0, |c| c.fed));
        let id = last.map_or(KEPT, |id| i64::from(*id));
        let Some(fed) = self.feed_one(&[id], &[])? else { return Ok(None) };
        let logits = self.session.device_output_of(fed.ticket, "logits")?;
        self.session.feed(SAMPLE, "logits", &logits)?;
        let bytes = settings.map(f32::to_le_bytes);
        let array = ArrayRef { dtype: HostType::F32, shape: &[4], bytes: bytes.as_flattened() };
        self.session.write_input(SAMPLE, "settings", array)?;
        self.session.submit(SAMPLE, &["next"]).map(Some)
    }

    /// Waits for a token that was drawn on the device; none where the host is to draw it.
    pub(super) fn drawn(&mut self, ticket: Ticket) -> Result<Option<u32>> {
        self.session.collect(ticket, "next", &mut self.read)?;
        match self.read.to_f64().first() {
            Some(-1.0) => Ok(None),
            _ => Ok(self.ids()?.first().copied()),
        }
    }

    /// Submits a run with the given ids, or those of the run before where none are given, behind `past` tokens of a text
    /// of `length`.
    pub(super) fn submit(
        &mut self,
        step: TokenFunction,
        (past, length): (usize, usize),
        ids: &[i64],
        outputs: &[&str],
    ) -> Result<Ticket> {
        if !ids.is_empty() {
            // Whatever is known of the padding, it is an id.
            let padded = ids.iter().copied().chain(std::iter::repeat(0)).take(step.chunk);
            let bytes: Vec<u8> = match step.ids {
                HostType::I64 => padded.flat_map(i64::to_le_bytes).collect(),
                _ => padded.flat_map(|id| i32::try_from(id).unwrap_or(i32::MAX).to_le_bytes()).collect(),
            };
            let array = ArrayRef { dtype: step.ids, shape: &[1, step.chunk], bytes: &bytes };
            self.session.write_input(step.name, "ids", array)?;
        }
        let symbols = [
            ("past", Some(past)),
            ("count", step.counts.then_some(ids.len())),
            ("length", step.turn.map(|turn| turn.max(length))),
        ];
        for (name, value) in symbols {
            if let Some(value) = value {
                self.session.set_symbol(step.name, name, i64::try_from(value).unwrap_or(i64::MAX))?;
            }
        }
        self.session.submit(step.name, outputs)
    }

    /// Waits for a run, and returns the tokens that it gave, one for each row.
    pub(super) fn tokens(&mut self, ticket: Ticket) -> Result<Vec<u32>> {
        self.session.collect(ticket, "next", &mut self.read)?;
        self.ids()
    }

    /// The ids that were read last.
    fn ids(&self) -> Result<Vec<u32>> {
        let vocabulary = self.model.vocabulary;
        let wrong = || Error::NotALanguageModel {
            reason: format!("a token outside of its vocabulary of {vocabulary} came out of it"),
        };
        let token = |id: f64| match id >= 0.0 && (id as usize) < vocabulary {
            true => Ok(id as u32),
            false => Err(wrong()),
        };
        self.read.to_f64().into_iter().map(token).collect()
    }

    /// Waits for a run, and returns the logits of a row.
    pub(super) fn row(&mut self, ticket: Ticket, row: usize) -> Result<&[[u8; 4]]> {
        self.session.collect(ticket, "logits", &mut self.read)?;
        Ok(self.read_row(row))
    }

    /// A row of the logits that were read last.
    pub(super) fn read_row(&self, row: usize) -> &[[u8; 4]] {
        let start = row.saturating_mul(self.model.vocabulary);
        let logits = self.read.bytes.as_chunks::<4>().0;
        logits.get(start..start.saturating_add(self.model.vocabulary)).unwrap_or_default()
    }

    /// Makes the text what is given, and hands out the logits behind each of its tokens, in order. The caches hold all of
    /// it afterwards.
    ///
    /// # Errors
    /// As those of [`Generator::append`], and those that `each` returns.
    pub fn logits(&mut self, ids: &[u32], each: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        self.shorten(0);
        self.append(ids)?;
        self.face(ids.len());
        let mut logits = Vec::with_capacity(self.model.vocabulary);
        let (mut past, length) = (0, ids.len());
        while past < length {
            let verify = self.model.verify.filter(|verify| verify.fits(past));
            let step = verify.unwrap_or(self.model.decode);
            let count = step.chunk.min(length - past);
            let part: Vec<i64> = ids.iter().skip(past).take(count).map(|id| i64::from(*id)).collect();
            let ticket = self.submit(step, (past, length), &part, &["logits"])?;
            for row in 0..count {
                let found = if row == 0 { self.row(ticket, row)? } else { self.read_row(row) };
                logits.clear();
                logits.extend(found.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                each(&logits)?;
            }
            past += count;
            self.conversation().fed = past;
        }
        Ok(())
    }
}
