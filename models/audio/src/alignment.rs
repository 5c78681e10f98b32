//! Times of tokens and words from cross-attention.
//!
//! ```text
//! weights [heads, tokens, frames] -> normalize over tokens -> median filter over frames -> mean over heads
//!   -> dynamic time warping -> first frame of each token -> words
//! ```

mod warping;
mod words;

pub use warping::{AttentionShape, median_filter, token_frames, warp};
pub use words::{WordSpan, timed_words, word_spans};
