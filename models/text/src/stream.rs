//! Streaming text output from token ids.
//!
//! A single token cannot be decoded alone: a character may span several tokens, and decoders treat the first token of a text
//! specially. So the stream decodes some earlier tokens with and without the new tokens, and the difference is the new text.
//! Text is held back while its end may be an incomplete character.

use crate::{Result, Tokenizer};

/// Maximum number of token ids whose text is held back. It is enough for every character, even if each token is one byte.
const PENDING: usize = 16;

/// Text of a growing sequence of token ids, returned piece by piece.
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Index of the first token id that is still decoded, as context for later ids.
    first: usize,
    /// Number of token ids whose text was already returned.
    returned: usize,
}

impl<'a> Stream<'a> {
    /// Creates a stream that starts after a prompt. The stream does not return the text of the prompt.
    pub fn new(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        let start = prompt.len().saturating_sub(PENDING);
        let ids = prompt.get(start..).unwrap_or_default().to_vec();
        Self { tokenizer, returned: ids.len(), first: 0, ids }
    }

    /// Adds a token id and returns the new text that later ids cannot change. The text may be empty.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.pending_text()?;
        let unfinished = text.ends_with('\u{fffd}') && self.ids.len() - self.returned < PENDING;
        if text.is_empty() || unfinished {
            return Ok(String::new());
        }
        self.first = self.returned;
        self.returned = self.ids.len();
        if self.first > 4 * PENDING {
            self.ids.drain(..self.first);
            self.returned -= self.first;
            self.first = 0;
        }
        Ok(text)
    }

    /// Ends the stream and returns the text that was held back. Incomplete characters become U+FFFD.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn finish(mut self) -> Result<String> {
        self.rest()
    }

    /// Returns the text that was held back. Incomplete characters become U+FFFD. Later tokens start a new text.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn rest(&mut self) -> Result<String> {
        let text = self.pending_text()?;
        (self.first, self.returned) = (self.returned, self.ids.len());
        Ok(text)
    }

    /// Decodes the text that was not returned yet.
    fn pending_text(&self) -> Result<String> {
        let before = self.tokenizer.decode(self.ids.get(self.first..self.returned).unwrap_or_default())?;
        let all = self.tokenizer.decode(self.ids.get(self.first..).unwrap_or_default())?;
        Ok(all.strip_prefix(&before).unwrap_or_default().to_owned())
    }
}
