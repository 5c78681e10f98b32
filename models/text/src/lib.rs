//! Text on either side of a language model: ids of a text, a conversation as one text, and text from ids as they come.
//!
//! ```text
//! messages -> ChatTemplate -> text -> Tokenizer -> ids -> model -> ids -> Stream -> text
//! ```
//!
//! Everything is read from the files of a Hugging Face folder, which travel with a bundle: `tokenizer.json`,
//! `tokenizer_config.json` and `chat_template.jinja`.

mod chat;
mod clock;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use clock::Clock;
pub use stream::Stream;
pub use tokenizer::Tokenizer;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is malformed.
    #[error("{file}: {reason}")]
    File {
        /// Its name.
        file: &'static str,
        /// Why.
        reason: String,
    },
    /// A text or ids cannot be converted.
    #[error("{0}")]
    Text(String),
    /// A chat template refused a conversation, or failed on it.
    #[error("the chat template: {0}")]
    Template(String),
}

/// The result of every fallible function.
pub type Result<T> = std::result::Result<T, Error>;
