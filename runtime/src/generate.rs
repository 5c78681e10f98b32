//! Text from a language model, on token ids: `prompt -> chunks -> caches -> next token, and again`.
//!
//! A [`Generator`] runs the functions `prefill_long`, `prefill`, `verify` and `decode` of a bundle (docs/ARCHITECTURE.md
//! says what they take and give) and keeps, for each conversation, the ids of its text and how many of them the caches hold. A text
//! may be shortened and extended at will: only what the caches lack is computed. Text in letters is no business of this
//! crate.

mod draft;
mod feed;
mod model;
mod pace;
mod random;
mod sampling;
mod steps;

pub use draft::{Draft, Guess};
pub use sampling::Sampling;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::session::Session;
use model::Model;
use pace::Pace;
use std::path::Path;
use std::time::Duration;

/// A language model with the conversations it holds.
pub struct Generator {
    session: Session,
    model: Model,
    conversations: Vec<Conversation>,
    current: usize,
    /// What was last read from the device.
    read: Array,
    /// What is known of guesses.
    pace: Pace,
}

/// The bit of a saved number of tokens that says that they are behind the model's turn.
const TURNED: u64 = 1 << 63;

/// A text, and how far the caches go.
#[derive(Clone, Debug, Default)]
struct Conversation {
    text: Vec<u32>,
    /// So many tokens are in the caches; where steps run ahead, more than the text has so far.
    fed: usize,
    /// Whether they are as in a text that is longer than those before the model's turn.
    turned: bool,
}

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The most tokens.
    pub max_tokens: usize,
    /// Ids that end the text.
    pub stops: Vec<u32>,
    pub sampling: Sampling,
}

/// Why there is no further token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model gave this id, which is the text's last one.
    Stop(u32),
    /// There are as many tokens as were asked for.
    Length,
    /// The caller wanted no more.
    Caller,
}

/// What generating took and gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub ended: Ended,
    /// Tokens of the prompt that the caches lacked.
    pub prompt_tokens: usize,
    /// From the call until the first token was there.
    pub prompt_time: Duration,
    /// Tokens that were generated, a stop among them.
    pub tokens: usize,
    /// From the first token until the last one.
    pub decode_time: Duration,
    /// How many guesses were made, over all runs that checked some.
    pub drafted: usize,
    /// For each run that checked guesses, how many of them were right.
    pub accepted: Vec<usize>,
}

impl Generator {
    /// Takes a session that was loaded with a language model's bundle. It runs as many steps ahead as the session has
    /// frames, and holds as many conversations as the session does.
    pub fn new(session: Session) -> Result<Generator> {
        let model = Model::of(session.variant())?;
        let conversations = vec![Conversation::default(); session.conversations()];
        let read = Array { dtype: crate::format::HostType::I32, shape: Vec::new(), bytes: Vec::new() };
        let pace = Pace::default();
        Ok(Generator { session, model, conversations, current: 0, read, pace })
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Number of tokens that the model knows; ids are below it.
    pub fn vocabulary(&self) -> usize {
        self.model.vocabulary
    }

    /// Number of tokens that the caches hold.
    pub fn context(&self) -> usize {
        self.model.context
    }

    /// Lets all that follows belong to this conversation, until another one is chosen.
    pub fn choose(&mut self, conversation: usize) -> Result<()> {
        self.session.choose_conversation(conversation)?;
        self.current = conversation;
        Ok(())
    }

    /// The conversation's text so far.
    pub fn text(&self) -> &[u32] {
        self.conversations.get(self.current).map_or(&[], |conversation| &conversation.text)
    }

    /// Adds ids to the text; they are computed when tokens are generated.
    ///
    /// # Errors
    /// When an id is outside of the vocabulary, or the context does not hold the text.
    pub fn append(&mut self, ids: &[u32]) -> Result<()> {
        let vocabulary = self.vocabulary();
        let unknown = ids.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= vocabulary));
        if let Some(id) = unknown {
            return Err(Error::NotInVocabulary { id: *id, vocabulary });
        }
        let (context, needed) = (self.context(), self.text().len() + ids.len());
        if needed > context {
            return Err(Error::ContextFull { needed, context });
        }
        self.conversation().text.extend_from_slice(ids);
        Ok(())
    }

    /// Makes the text what is given, and returns how many tokens of its beginning the caches hold already.
    ///
    /// # Errors
    /// As those of [`Generator::append`]; the text is then the part that both have in common.
    pub fn set_text(&mut self, ids: &[u32]) -> Result<usize> {
        let common = self.text().iter().zip(ids).take_while(|(a, b)| a == b).count();
        self.shorten(common);
        self.append(ids.get(common..).unwrap_or_default())?;
        self.face(ids.len());
        Ok(self.conversation().fed)
    }

    /// Keeps the first tokens of the text.
    pub fn shorten(&mut self, length: usize) {
        let conversation = self.conversation();
        conversation.text.truncate(length);
        conversation.fed = conversation.fed.min(conversation.text.len());
    }

    /// Writes the conversation to a file: its text and what the caches hold of it.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        let Conversation { text, fed, turned } = self.conversation().clone();
        let mut note = (fed as u64 | if turned { TURNED } else { 0 }).to_le_bytes().to_vec();
        note.extend(text.iter().flat_map(|id| id.to_le_bytes()));
        self.session.save_states(path, &note)
    }

    /// Makes the conversation one that was saved with the same bundle and target.
    pub fn restore(&mut self, path: &Path) -> Result<()> {
        *self.conversation() = Conversation::default();
        let note = self.session.restore_states(path)?;
        let wrong = || Error::States {
            path: path.to_owned(),
            reason: "states that were not saved with a text".to_owned(),
        };
        let (fed, ids) = note.split_first_chunk::<8>().ok_or_else(wrong)?;
        let fed = u64::from_le_bytes(*fed);
        let turned = fed & TURNED != 0;
        let fed = usize::try_from(fed & !TURNED).map_err(|_| wrong())?;
        let (ids, rest) = ids.as_chunks::<4>();
        let text: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        if !rest.is_empty() || fed > text.len() {
            return Err(wrong());
        }
        // A text may have one token more than the context: the last one, which was not fed.
        let (last, before) =
            text.split_last().map_or((None, &[][..]), |(last, before)| (Some(*last), before));
        self.append(before)?;
        *self.conversation() =
            Conversation { text: before.iter().copied().chain(last).collect(), fed, turned };
        Ok(())
    }

    /// Forgets what the caches hold where it is of a text on the other side of the model's turn than one of `length`.
    fn face(&mut self, length: usize) {
        let turned = self.is_turned(length);
        let conversation = self.conversation();
        if conversation.turned != turned {
            (conversation.turned, conversation.fed) = (turned, 0);
        }
    }

    /// Whether a text of `length` is behind the model's turn.
    fn is_turned(&self, length: usize) -> bool {
        self.model.decode.turn.is_some_and(|turn| length > turn)
    }

    fn conversation(&mut self) -> &mut Conversation {
        // There is at least one, and choosing checks that there are as many as the session has.
        &mut self.conversations[self.current]
    }
}
