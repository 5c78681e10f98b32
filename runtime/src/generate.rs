//! Text generation with a language model, on token ids.
//!
//! A [`Generator`] runs the functions `prefill_long`, `prefill`, `verify`, `decode` and `sample` of a bundle;
//! docs/ARCHITECTURE.md specifies their inputs and outputs. For each conversation it keeps the token ids and
//! the number of tokens in the KV caches. Tokens can be removed from the end and appended at any time: only
//! tokens that the KV caches lack are evaluated. Tokenization is outside the scope of this crate.

mod draft;
mod draft_schedule;
mod evaluate;
mod model;
mod observer;
mod random;
mod sampling;
mod steps;

pub use draft::{Draft, DraftFunction};
pub use observer::Observer;
pub use sampling::Sampling;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::session::Session;
use draft_schedule::DraftSchedule;
use model::LanguageModel;
use std::path::Path;
use std::time::Duration;

/// A language model and its conversations.
pub struct Generator {
    session: Session,
    model: LanguageModel,
    conversations: Vec<Conversation>,
    current: usize,
    /// Reusable buffer for outputs read from the device.
    read_buffer: Array,
    /// Chooses the number of draft tokens from measured times and the acceptance rate.
    draft_schedule: DraftSchedule,
}

/// Flag in the number of cached tokens that is saved with the states: the KV caches were computed with the long RoPE factors.
const LONG_ROPE_FLAG: u64 = 1 << 63;

/// Tokens of a conversation, and the state of its KV caches.
#[derive(Clone, Debug, Default)]
struct Conversation {
    tokens: Vec<u32>,
    /// Number of tokens in the KV caches. Exceeds the length of `tokens` while decode steps are in flight whose tokens the host
    /// has not read yet.
    cached: usize,
    /// True if the cached tokens were evaluated with the long RoPE factors, for a sequence longer than the RoPE
    /// threshold.
    long_rope: bool,
    /// Runs that computed the KV caches, in the order of their tokens. Entries that end after `cached` are outdated.
    runs: Vec<CachedRun>,
}

/// Run that computed some tokens of the KV caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachedRun {
    /// Name of the function.
    function: &'static str,
    /// Index of the run's first token in the sequence.
    past: usize,
    /// Number of tokens.
    count: usize,
}

/// Parameters of a text generation.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Token ids that stop the generation.
    pub stop_tokens: Vec<u32>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Pass the logits of each token to the observer. The host then reads all logits of each token, which takes longer.
    pub logits: bool,
    /// Number of tokens that earlier calls generated for the same request. The random numbers continue after the numbers of
    /// these tokens, so that a generation in several calls gives the tokens of one call.
    pub generated: usize,
}

/// Reason why generation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model generated this stop token, which is the last token of the sequence.
    StopToken(u32),
    /// `max_tokens` tokens were generated.
    MaxTokens,
    /// The callback or the observer returned false.
    Callback,
}

/// Statistics of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Reason why generation stopped.
    pub stop_reason: StopReason,
    /// Number of prompt tokens that the KV caches lacked, so that the model evaluated them.
    pub prompt_tokens: usize,
    /// Time from the call of [`Generator::generate`] to the first generated token.
    pub prompt_time: Duration,
    /// Number of generated tokens, including a stop token.
    pub tokens: usize,
    /// Time from the first to the last generated token.
    pub decode_time: Duration,
    /// Number of draft tokens over all verify runs.
    pub draft_tokens: usize,
    /// Number of accepted draft tokens of each verify run.
    pub accepted: Vec<usize>,
}

impl Generator {
    /// Creates a generator for a session of a language model's bundle. [`Options::frames`](crate::Options::frames)
    /// limits the number of decode steps in flight. The generator has one list of tokens for each conversation of the
    /// session.
    pub fn new(session: Session) -> Result<Generator> {
        let model = LanguageModel::from_variant(session.variant())?;
        let conversations = vec![Conversation::default(); session.conversations()];
        let read_buffer = Array { dtype: crate::format::HostType::I32, shape: Vec::new(), bytes: Vec::new() };
        let draft_schedule = DraftSchedule::default();
        Ok(Generator { session, model, conversations, current: 0, read_buffer, draft_schedule })
    }

    /// Returns the session of the language model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the number of tokens in the vocabulary. Token ids are below this number.
    pub fn vocabulary_size(&self) -> usize {
        self.model.vocabulary
    }

    /// Context length: the capacity of the KV caches in tokens.
    pub fn context_length(&self) -> usize {
        self.model.context
    }

    /// Selects the conversation that all following calls use.
    pub fn choose_conversation(&mut self, conversation: usize) -> Result<()> {
        self.session.choose_conversation(conversation)?;
        self.current = conversation;
        Ok(())
    }

    /// Returns the token ids of the selected conversation.
    pub fn tokens(&self) -> &[u32] {
        self.conversations.get(self.current).map_or(&[], |conversation| &conversation.tokens)
    }

    /// Appends tokens to the conversation. The next call of [`Generator::generate`] evaluates them.
    ///
    /// # Errors
    /// If a token id is outside the vocabulary, or the conversation would be longer than the context length.
    pub fn append(&mut self, ids: &[u32]) -> Result<()> {
        let vocabulary = self.vocabulary_size();
        let unknown = ids.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= vocabulary));
        if let Some(id) = unknown {
            return Err(Error::NotInVocabulary { id: *id, vocabulary });
        }
        let (context, needed) = (self.context_length(), self.tokens().len() + ids.len());
        if needed > context {
            return Err(Error::ContextFull { needed, context });
        }
        self.conversation().tokens.extend_from_slice(ids);
        Ok(())
    }

    /// Replaces the tokens of the conversation, and returns the number of leading tokens that the KV caches
    /// already have.
    ///
    /// # Errors
    /// As for [`Generator::append`]. After an error, the conversation has only the common prefix of its old
    /// tokens and the new tokens.
    pub fn set_tokens(&mut self, ids: &[u32]) -> Result<usize> {
        let common = self.tokens().iter().zip(ids).take_while(|(a, b)| a == b).count();
        self.truncate(common);
        self.append(ids.get(common..).unwrap_or_default())?;
        self.invalidate_on_rope_switch(ids.len());
        Ok(self.conversation().cached)
    }

    /// Replaces the tokens of the conversation like [`Generator::set_tokens`], but keeps only the cached tokens that an empty
    /// conversation would compute with the same runs. The generated tokens then do not depend on the conversation's earlier
    /// tokens. After [`Generator::set_tokens`] they can, because functions for different numbers of tokens round differently.
    ///
    /// # Errors
    /// As for [`Generator::set_tokens`].
    pub fn set_tokens_exactly(&mut self, ids: &[u32]) -> Result<usize> {
        let common = self.tokens().iter().zip(ids).take_while(|(a, b)| a == b).count();
        let kept = self.equal_runs(common, ids.len());
        self.truncate(kept);
        self.set_tokens(ids)
    }

    /// Returns the number of leading tokens that the KV caches have from the runs that a sequence of `length` tokens needs.
    /// `common` is the number of leading tokens that this sequence shares with the conversation. The last run of the sequence
    /// does not count, because its outputs are needed.
    fn equal_runs(&self, common: usize, length: usize) -> usize {
        let Some(conversation) = self.conversations.get(self.current) else { return 0 };
        let cached = common.min(conversation.cached);
        let mut past = 0;
        for run in &conversation.runs {
            let next = self.model.select_function(past, length - past);
            let next = next.map(|(step, count)| CachedRun { function: step.name, past, count });
            if next != Some(*run) || past + run.count > cached || past + run.count >= length {
                break;
            }
            past += run.count;
        }
        past
    }

    /// Removes all tokens of the conversation from index `length` on.
    pub fn truncate(&mut self, length: usize) {
        let conversation = self.conversation();
        conversation.tokens.truncate(length);
        conversation.cached = conversation.cached.min(conversation.tokens.len());
    }

    /// Saves the conversation to a file: its tokens and KV caches.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        let Conversation { tokens, cached, long_rope, .. } = self.conversation().clone();
        let mut note = (cached as u64 | if long_rope { LONG_ROPE_FLAG } else { 0 }).to_le_bytes().to_vec();
        note.extend(tokens.iter().flat_map(|id| id.to_le_bytes()));
        self.session.save_states(path, &note)
    }

    /// Restores a conversation from a file that was saved with the same bundle and target.
    pub fn restore(&mut self, path: &Path) -> Result<()> {
        *self.conversation() = Conversation::default();
        let note = self.session.restore_states(path)?;
        let invalid = || Error::States {
            path: path.to_owned(),
            reason: "the file of saved states was not saved by `Generator::save`".to_owned(),
        };
        let (cached, ids) = note.split_first_chunk::<8>().ok_or_else(invalid)?;
        let cached = u64::from_le_bytes(*cached);
        let long_rope = cached & LONG_ROPE_FLAG != 0;
        let cached = usize::try_from(cached & !LONG_ROPE_FLAG).map_err(|_| invalid())?;
        let (ids, rest) = ids.as_chunks::<4>();
        let tokens: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        if !rest.is_empty() || cached > tokens.len() {
            return Err(invalid());
        }
        // A full conversation may have one token more than the context: the last one, which was not evaluated.
        let (last, before) =
            tokens.split_last().map_or((None, &[][..]), |(last, before)| (Some(*last), before));
        self.append(before)?;
        let tokens = before.iter().copied().chain(last).collect();
        *self.conversation() = Conversation { tokens, cached, long_rope, runs: Vec::new() };
        Ok(())
    }

    /// Invalidates the KV caches if a sequence of `length` tokens needs other RoPE factors than the cached
    /// tokens had.
    fn invalidate_on_rope_switch(&mut self, length: usize) {
        let long_rope = self.is_long_rope(length);
        let conversation = self.conversation();
        if conversation.long_rope != long_rope {
            (conversation.long_rope, conversation.cached) = (long_rope, 0);
        }
    }

    /// True if a sequence of `length` tokens is longer than the model's RoPE threshold.
    fn is_long_rope(&self, length: usize) -> bool {
        self.model.decode.rope_threshold.is_some_and(|threshold| length > threshold)
    }

    fn conversation(&mut self) -> &mut Conversation {
        // A session has at least one conversation, and `choose_conversation` checks the index.
        &mut self.conversations[self.current]
    }
}
