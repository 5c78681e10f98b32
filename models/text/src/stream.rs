//! Streaming text output from token ids.
//!
//! A single token has no text of its own: a character may span several tokens, and decoders treat the first token of a
//! text specially. So the new text is the difference between decoding some earlier tokens with and without the new
//! ones. Text is held back while its end may be an incomplete character.

use crate::{Result, Tokenizer};

/// Maximum ids whose text is held back. No character has more bytes than this.
const PENDING: usize = 16;

/// Text that grows with each token.
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Index of the first decoded id.
    first: usize,
    /// Number of ids whose text was returned.
    returned: usize,
}

impl<'a> Stream<'a> {
    /// Starts after a prompt. The text of the prompt is not returned.
    pub fn new(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        let start = prompt.len().saturating_sub(PENDING);
        let ids = prompt.get(start..).unwrap_or_default().to_vec();
        Self { tokenizer, returned: ids.len(), first: 0, ids }
    }

    /// Adds an id and returns the text that is final now. It may be empty.
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

    /// Returns the remaining text. Incomplete characters become U+FFFD.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn finish(self) -> Result<String> {
        self.pending_text()
    }

    /// Text of the ids that was not returned yet.
    fn pending_text(&self) -> Result<String> {
        let before = self.tokenizer.decode(self.ids.get(self.first..self.returned).unwrap_or_default())?;
        let all = self.tokenizer.decode(self.ids.get(self.first..).unwrap_or_default())?;
        Ok(all.strip_prefix(&before).unwrap_or_default().to_owned())
    }
}
