//! Text in, text out: completions, chats and embeddings with a bundle.
//!
//! ```text
//! messages -> PromptEncoder -> ids -> drift_runtime::Generator -> ids -> drift_text::Stream -> StopFilter -> text
//! ```
//!
//! The command line, the server and the C interface use this crate. It adds the tokenizer and the chat template that a bundle
//! carries to the runtime's [`Generator`](drift_runtime::Generator), which knows only token ids.

mod chat;
mod complete;
mod completion;
mod embed;
mod encoder;
mod sliced;
mod stop;
mod transcript;

pub use chat::Chat;
pub use complete::{Completion, Finish, Listener, TextRequest, complete};
pub use embed::Embedder;
pub use encoder::PromptEncoder;
pub use sliced::SlicedCompletion;

use std::path::PathBuf;

/// Result type of the functions of `drift-chat`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of generating or embedding text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle, the device or the request is at fault.
    #[error(transparent)]
    Runtime(#[from] drift_runtime::Error),
    /// The tokenizer or the chat template is at fault.
    #[error(transparent)]
    Text(#[from] drift_text::Error),
    /// The bundle carries no `tokenizer.json`.
    #[error("the model has no tokenizer, so it cannot read a text")]
    NoTokenizer,
    /// The bundle carries no chat template.
    #[error("the model has no chat template: it completes texts and answers no questions")]
    NoChatTemplate,
    /// The chat template writes nothing for the conversation.
    #[error("the chat template returns no text for this conversation")]
    EmptyConversation,
    /// The conversation has no answer that could be generated again.
    #[error("the conversation has no answer yet")]
    NoAnswer,
    /// The tokenizer knows more tokens than the model.
    #[error(
        "tokenizer.json encodes a part of the text as the id {id}, but the model's vocabulary has {vocabulary} tokens"
    )]
    OutsideVocabulary {
        /// Token id of the part.
        id: u32,
        /// Number of tokens in the model's vocabulary.
        vocabulary: usize,
    },
    /// A file of a saved conversation cannot be read or written.
    #[error("{}: {reason}", path.display())]
    Transcript {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The bundle does not compute embeddings of texts.
    #[error("the model computes no embeddings of texts: {reason}")]
    NotAnEmbedder {
        /// Reason.
        reason: String,
    },
    /// A text has more tokens than the model reads.
    #[error("the text has {given} tokens, but the model was compiled for {max}")]
    TooLong {
        /// Number of tokens of the text.
        given: usize,
        /// Maximum number of tokens.
        max: usize,
    },
}

impl Error {
    /// Advice for the user, in terms of the program `driftc`.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Error::Text(error) => error.help(),
            // The runtime's errors compute their advice.
            Error::Runtime(_) | Error::NoAnswer => None,
            Error::Transcript { .. } => Some("check the path, its permissions and the content of the file"),
            Error::NoTokenizer => {
                Some("compile the model again with tokenizer.json in its folder, or use token ids")
            }
            Error::NoChatTemplate => Some("use `driftc generate` without --chat"),
            Error::EmptyConversation => Some(
                "use `driftc generate` without --chat, or compile the model with another chat_template.jinja",
            ),
            Error::OutsideVocabulary { .. } => {
                Some("compile the model with its own tokenizer, or remove that part of the text")
            }
            Error::NotAnEmbedder { .. } => {
                Some("compile a sentence-embedding model from its Hugging Face folder")
            }
            Error::TooLong { .. } => {
                Some("split the text, or compile the model for longer texts: --dim seq=1..N")
            }
        }
    }
}
