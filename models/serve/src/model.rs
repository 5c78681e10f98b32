//! Models that a server gets.

use drift_chat::{Embedder, PromptEncoder};
use drift_runtime::Generator;

/// Model to serve.
pub struct Model {
    /// Name of the model in requests.
    pub id: String,
    /// The model on its device.
    pub engine: Engine,
}

/// Model on a device, by the endpoints that it supports.
pub enum Engine {
    /// Language model with its tokenizer, for chats and completions. The number of conversations of its session is the number
    /// of slots.
    Language(Box<Generator>, Box<PromptEncoder>),
    /// Sentence-embedding model.
    Embedding(Box<Embedder>),
}
