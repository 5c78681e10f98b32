//! Draft tokens for speculative decoding. Function `verify` checks several draft tokens in one run.

use super::{Generator, Request};
use crate::error::{Error, Result};

/// Source of draft tokens.
#[derive(Default)]
pub enum Draft {
    /// No draft tokens: each decode step generates one token.
    #[default]
    None,
    /// Prompt lookup: the tokens that followed the last earlier occurrence of the n-gram at the end of the sequence.
    NGram,
    /// Greedy tokens of a smaller model with the same vocabulary.
    Model(Box<Generator>),
    /// A caller-supplied function.
    Function(Box<DraftFunction>),
}

/// Function that proposes draft tokens. Its arguments are the token ids of the sequence so far and the maximum number
/// of draft tokens. In its result, the first id outside the vocabulary and all ids after it are ignored.
pub type DraftFunction = dyn FnMut(&[u32], usize) -> Result<Vec<u32>> + Send;

/// Maximum and minimum number of tokens in the n-gram at the end of the sequence that prompt lookup searches for.
const MAX_NGRAM: usize = 4;
const MIN_NGRAM: usize = 2;

impl Draft {
    /// Returns at most `n` draft tokens that continue the sequence `tokens`; none if the source of draft tokens
    /// proposes none.
    pub(super) fn propose(&mut self, tokens: &[u32], n: usize) -> Result<Vec<u32>> {
        match self {
            _ if n == 0 => Ok(Vec::new()),
            Draft::None => Ok(Vec::new()),
            Draft::NGram => Ok(ngram_continuation(tokens, n).to_vec()),
            Draft::Model(model) => match draft_with_model(model, tokens, n) {
                // A draft model with a shorter context or a smaller vocabulary proposes nothing.
                Err(Error::ContextFull { .. } | Error::NotInVocabulary { .. }) => Ok(Vec::new()),
                draft => draft,
            },
            Draft::Function(function) => {
                let mut draft = function(tokens, n)?;
                draft.truncate(n);
                Ok(draft)
            }
        }
    }
}

fn draft_with_model(model: &mut Generator, tokens: &[u32], n: usize) -> Result<Vec<u32>> {
    model.set_tokens(tokens)?;
    let mut ids = Vec::with_capacity(n);
    let request = Request { max_tokens: n, ..Request::default() };
    model.generate(&request, &mut Draft::None, &mut |id| {
        ids.push(id);
        true
    })?;
    Ok(ids)
}

/// Returns at most `n` tokens that followed the last earlier occurrence of the n-gram at the end of the sequence. Tries
/// long n-grams before short ones.
fn ngram_continuation(tokens: &[u32], n: usize) -> &[u32] {
    for length in (MIN_NGRAM..=MAX_NGRAM).rev() {
        let Some(split) = tokens.len().checked_sub(length) else { continue };
        let last = tokens.get(split..).unwrap_or_default();
        // Excludes the final n-gram itself.
        let found = tokens.windows(length).take(split).rposition(|window| window == last);
        if let Some(at) = found {
            let follows = tokens.get(at + length..).unwrap_or_default();
            return follows.get(..n).unwrap_or(follows);
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::ngram_continuation;

    #[test]
    fn continues_the_last_equal_ngram() {
        assert_eq!(ngram_continuation(&[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        assert_eq!(ngram_continuation(&[1, 2, 3, 4, 9, 1, 2], 9), [3, 4, 9, 1, 2]);
        // The longest match is preferred, then the last of equal matches.
        assert_eq!(ngram_continuation(&[7, 1, 2, 5, 1, 2, 6, 7, 1, 2], 1), [5]);
        assert_eq!(ngram_continuation(&[1, 2, 5, 1, 2, 6, 1, 2], 1), [6]);
        // Repeats of one token continue.
        assert_eq!(ngram_continuation(&[8, 8, 8], 4), [8]);
        assert_eq!(ngram_continuation(&[1, 2, 3, 4], 4), [0u32; 0]);
        assert_eq!(ngram_continuation(&[], 4), [0u32; 0]);
        assert_eq!(ngram_continuation(&[1, 1], 4), [0u32; 0]);
    }
}
