//! Guesses of what a text goes on with, which `verify` checks several at a time.

use super::{Generator, Request};
use crate::error::{Error, Result};

/// Where guesses come from.
#[derive(Default)]
pub enum Draft {
    /// There are none: one token at a time.
    #[default]
    None,
    /// What followed the last time the text had the same few tokens.
    NGram,
    /// What another model of the same vocabulary, a smaller one, takes for most likely.
    Model(Box<Generator>),
    /// What a function of one's own guesses of a text, at most so many ids.
    Function(Box<Guess>),
}

/// At most so many guesses of what follows a text; ids outside of the vocabulary and those behind them count as none.
pub type Guess = dyn FnMut(&[u32], usize) -> Result<Vec<u32>> + Send;

/// How many tokens must be the same before the guess, at most and at least.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

impl Draft {
    /// At most `n` guesses of what follows a text, fewer or none where there is nothing to go by.
    pub(super) fn propose(&mut self, text: &[u32], n: usize) -> Result<Vec<u32>> {
        match self {
            _ if n == 0 => Ok(Vec::new()),
            Draft::None => Ok(Vec::new()),
            Draft::NGram => Ok(repeated(text, n).to_vec()),
            Draft::Model(model) => match guesses(model, text, n) {
                // A draft of a shorter context, or one that knows fewer tokens, has nothing to say.
                Err(Error::ContextFull { .. } | Error::NotInVocabulary { .. }) => Ok(Vec::new()),
                guessed => guessed,
            },
            Draft::Function(guess) => {
                let mut guessed = guess(text, n)?;
                guessed.truncate(n);
                Ok(guessed)
            }
        }
    }
}

fn guesses(model: &mut Generator, text: &[u32], n: usize) -> Result<Vec<u32>> {
    model.set_text(text)?;
    let mut ids = Vec::with_capacity(n);
    let request = Request { max_tokens: n, ..Request::default() };
    model.generate(&request, &mut Draft::None, &mut |id| {
        ids.push(id);
        true
    })?;
    Ok(ids)
}

/// What followed the last occurrence of the text's last tokens, as many of them as possible.
fn repeated(text: &[u32], n: usize) -> &[u32] {
    for length in (SHORTEST..=LONGEST).rev() {
        let Some(split) = text.len().checked_sub(length) else { continue };
        let last = text.get(split..).unwrap_or_default();
        // The last occurrence before the end itself.
        let found = text.windows(length).take(split).rposition(|window| window == last);
        if let Some(at) = found {
            let follows = text.get(at + length..).unwrap_or_default();
            return follows.get(..n).unwrap_or(follows);
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn what_came_before_comes_again() {
        assert_eq!(repeated(&[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        assert_eq!(repeated(&[1, 2, 3, 4, 9, 1, 2], 9), [3, 4, 9, 1, 2]);
        // The longest match counts, and of equal ones the last.
        assert_eq!(repeated(&[7, 1, 2, 5, 1, 2, 6, 7, 1, 2], 1), [5]);
        assert_eq!(repeated(&[1, 2, 5, 1, 2, 6, 1, 2], 1), [6]);
        // A run of one token goes on.
        assert_eq!(repeated(&[8, 8, 8], 4), [8]);
        assert_eq!(repeated(&[1, 2, 3, 4], 4), [0u32; 0]);
        assert_eq!(repeated(&[], 4), [0u32; 0]);
        assert_eq!(repeated(&[1, 1], 4), [0u32; 0]);
    }
}
