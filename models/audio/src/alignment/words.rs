//! Words of a text, as spans of its tokens.

use std::ops::Range;

use drift_text::Tokenizer;

use crate::transcript::Word;
use crate::{Error, Result};

/// Seconds of a frame of the encoder.
const FRAME_SECONDS: f64 = 0.02;

/// Languages that are written without spaces between words.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
/// Punctuation that belongs to the following word.
const PREPENDED: &str = "\"'“¡¿([{-";
/// Punctuation that belongs to the previous word.
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
/// Punctuation that begins a word of its own.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Character that stands for an incomplete character.
const REPLACEMENT: char = '\u{fffd}';

/// Word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordSpan {
    /// Text of the word, with leading space and punctuation.
    pub text: String,
    /// Indices of the tokens of the word.
    pub tokens: Range<usize>,
}

/// Groups text tokens into words, as transformers' `_combine_tokens_into_words`. The tokens must not have timestamps or
/// other special tokens. The language is a code such as `en`.
///
/// # Errors
/// If the tokenizer cannot decode the tokens.
pub fn word_spans(tokens: &[u32], tokenizer: &Tokenizer, language: Option<&str>) -> Result<Vec<WordSpan>> {
    let mut words = split_at_characters(tokens, tokenizer)?;
    if !language.is_some_and(|code| WITHOUT_SPACES.contains(&code)) {
        words = join_to_words(words);
    }
    Ok(append_punctuation(prepend_punctuation(words)))
}

/// Returns the words of a segment with their times. `frames` has the result of [`super::token_frames`] from the first token
/// of the segment on; a word ends where the token after it begins. Tokens from the id `first_special` on, such as
/// timestamps, give no text. `window_start` is the start of the window in seconds.
///
/// # Errors
/// If there are fewer frames than tokens, or the tokenizer cannot decode the tokens.
pub fn timed_words(
    tokens: &[u32],
    frames: &[usize],
    window_start: f64,
    first_special: u32,
    tokenizer: &Tokenizer,
    language: Option<&str>,
) -> Result<Vec<Word>> {
    let Some(last) = frames.last().filter(|_| frames.len() >= tokens.len()) else {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        return Err(Error::Request(format!(
            "{} frames do not cover {} tokens; pass the frame of every token",
            frames.len(),
            tokens.len()
        )));
    };
    let (places, text): (Vec<usize>, Vec<u32>) =
        tokens.iter().copied().enumerate().filter(|(_, token)| *token < first_special).unzip();
    let seconds = |place: usize| window_start + *frames.get(place).unwrap_or(last) as f64 * FRAME_SECONDS;
    let timed = |word: WordSpan| {
        let first = places.get(word.tokens.start).copied().unwrap_or(0);
        let end =
            word.tokens.end.checked_sub(1).and_then(|index| places.get(index)).map_or(0, |place| place + 1);
        Word { start: seconds(first), end: seconds(end), text: word.text }
    };
    Ok(word_spans(&text, tokenizer, language)?.into_iter().map(timed).collect())
}

/// Splits tokens where they decode to whole characters.
fn split_at_characters(tokens: &[u32], tokenizer: &Tokenizer) -> Result<Vec<WordSpan>> {
    let whole: Vec<char> = tokenizer.decode(tokens)?.chars().collect();
    let mut words = Vec::new();
    let mut first = 0;
    let mut offset = 0;
    for end in 1..=tokens.len() {
        let text = tokenizer.decode(tokens.get(first..end).unwrap_or_default())?;
        // A replacement character that the whole text has too is no incomplete character.
        let is_complete = match text.chars().position(|c| c == REPLACEMENT) {
            None => true,
            Some(index) => whole.get(offset + index).is_none_or(|c| *c == REPLACEMENT),
        };
        if is_complete {
            offset += text.chars().count();
            words.push(WordSpan { text, tokens: first..end });
            first = end;
        }
    }
    Ok(words)
}

/// Joins tokens that continue a word.
fn join_to_words(tokens: Vec<WordSpan>) -> Vec<WordSpan> {
    let mut words: Vec<WordSpan> = Vec::new();
    for token in tokens {
        let begins = token.text.starts_with(' ') || PUNCTUATION.contains(token.text.trim());
        match words.last_mut() {
            Some(word) if !begins => join(word, &token),
            _ => words.push(token),
        }
    }
    words
}

/// Joins opening punctuation after a space with the following word.
fn prepend_punctuation(words: Vec<WordSpan>) -> Vec<WordSpan> {
    let mut joined: Vec<WordSpan> = Vec::new();
    for mut word in words.into_iter().rev() {
        match joined.last_mut() {
            Some(following) if word.text.starts_with(' ') && PREPENDED.contains(word.text.trim()) => {
                join(&mut word, following);
                *following = word;
            }
            _ => joined.push(word),
        }
    }
    joined.reverse();
    joined
}

/// Joins closing punctuation with the previous word.
fn append_punctuation(words: Vec<WordSpan>) -> Vec<WordSpan> {
    let mut joined: Vec<WordSpan> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(previous) if !previous.text.ends_with(' ') && APPENDED.contains(word.text.as_str()) => {
                join(previous, &word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn join(word: &mut WordSpan, next: &WordSpan) {
    word.text.push_str(&next.text);
    word.tokens.end = next.tokens.end;
}
