//! Text from ids as they come.
//!
//! A token is not a text by itself: characters are cut into several tokens, and decoders treat the first token of a text
//! in a way of its own. So what is new is what a longer decoding has after a shorter one, both from a token on whose
//! text is known, and nothing is given out while the end may be part of a character.

use crate::{Result, Tokenizer};

/// Ids whose text has not been given out may be at most so many: no character has more bytes than that.
const PENDING: usize = 16;

/// A text that grows.
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Where decoding starts.
    first: usize,
    /// Up to where text was given out.
    given: usize,
}

impl<'a> Stream<'a> {
    /// A text that begins with what `prompt` ends with, none of which is given out.
    pub fn new(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        let kept = prompt.len().saturating_sub(PENDING);
        let ids = prompt.get(kept..).unwrap_or_default().to_vec();
        Self { tokenizer, given: ids.len(), first: 0, ids }
    }

    /// Adds an id, and returns the text that is certain by now; it may be empty.
    ///
    /// # Errors
    /// When the tokenizer cannot decode.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.rest()?;
        let unfinished = text.ends_with('\u{fffd}') && self.ids.len() - self.given < PENDING;
        if text.is_empty() || unfinished {
            return Ok(String::new());
        }
        self.first = self.given;
        self.given = self.ids.len();
        if self.first > 4 * PENDING {
            self.ids.drain(..self.first);
            self.given -= self.first;
            self.first = 0;
        }
        Ok(text)
    }

    /// What is left at the end; characters that were never completed become U+FFFD.
    ///
    /// # Errors
    /// When the tokenizer cannot decode.
    pub fn finish(self) -> Result<String> {
        self.rest()
    }

    /// The text of the ids that was not given out.
    fn rest(&self) -> Result<String> {
        let before = self.tokenizer.decode(self.ids.get(self.first..self.given).unwrap_or_default())?;
        let all = self.tokenizer.decode(self.ids.get(self.first..).unwrap_or_default())?;
        Ok(all.strip_prefix(&before).unwrap_or_default().to_owned())
    }
}
