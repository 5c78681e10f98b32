//! Tokenizers, chat templates and streaming text output for language models.
//!
//! ```text
//! messages -> ChatTemplate -> text -> Tokenizer -> ids -> model -> ids -> Stream -> text
//! ```
//!
//! All settings of tokenizers and templates come from files of a Hugging Face folder, which a bundle carries: `tokenizer.json`,
//! `tokenizer_config.json` and `chat_template.jinja`.

mod chat;
mod clock;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use clock::Clock;
pub use stream::Stream;
pub use tokenizer::Tokenizer;

/// Error of reading tokenizer files, converting text, or rendering a chat template.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A tokenizer or template file is malformed.
    #[error("{file}: {reason}")]
    File {
        /// Name of the malformed file.
        file: &'static str,
        /// Reason.
        reason: String,
    },
    /// A text cannot be converted to token ids, or token ids to a text.
    #[error("{0}")]
    Text(String),
    /// A chat template rejected a conversation or failed.
    #[error("the chat template: {0}")]
    Template(String),
}

impl Error {
    /// Advice for the user, in terms of the program `driftc`.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::File { .. } => Some("download this file of the model again, then compile the model again"),
            Error::Template(_) => Some(
                "use only roles that the template supports, or `driftc generate` without --chat and --system; to fix the template itself, edit it in the model's folder and compile the model again",
            ),
            Error::Text(_) => None,
        }
    }
}

/// Result type of the functions of `drift-text`.
pub type Result<T> = std::result::Result<T, Error>;
