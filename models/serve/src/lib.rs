//! HTTP server for bundles, with the interface of the OpenAI API.
//!
//! ```text
//! TCP -> hyper -> access checks -> endpoint -> queue -> thread of the model -> events -> JSON or SSE
//! ```
//!
//! One thread runs all connections. Each model has its own thread, which owns the model on the device. The thread of a
//! language model generates several completions in slices; each completion has its own conversation, called slot. All bytes
//! from the network are untrusted.

mod access;
mod api_error;
mod chat_endpoint;
mod completion_endpoint;
mod connection;
mod embedding_endpoint;
mod embedding_worker;
mod fields;
mod generation;
mod job;
mod language_worker;
mod listen;
mod logprobs;
mod metrics;
mod outbox;
mod parameters;
mod queue;
mod random;
mod router;
mod server;
mod sse;
mod status_endpoints;
mod write_timeout;

use std::net::SocketAddr;
use std::time::Duration;

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
    Language(Box<Generator>, PromptEncoder),
    /// Sentence-embedding model.
    Embedding(Box<Embedder>),
}

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name or address of the interface to listen on.
    pub host: String,
    /// TCP port; 0 lets the system choose a free port.
    pub port: u16,
    /// Maximum number of requests of a model that wait for a slot.
    pub queue: usize,
    /// Maximum bytes of a request body.
    pub max_body: usize,
    /// Maximum number of generated tokens of a request. `None` means that only the context length is the limit.
    pub max_tokens: Option<usize>,
    /// Key that requests must carry.
    pub api_key: Option<String>,
    /// Origin of web pages that may use the server, or `*` for all.
    pub cors: Option<String>,
    /// Maximum time that a client may take to send a header or a body, or to read pending output.
    pub client_timeout: Duration,
    /// Maximum time to finish running requests at shutdown.
    pub grace: Duration,
    /// Maximum number of open connections.
    pub connections: usize,
}

/// Error of starting the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be resolved or is in use.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Address and port.
        address: String,
        /// Reason.
        reason: String,
    },
    /// The operating system refused a thread, a signal handler or another resource.
    #[error("cannot start the server: {0}")]
    Start(#[from] std::io::Error),
    /// A second signal ended the server before all requests were finished.
    #[error("a second signal ended the server before all requests were finished")]
    Interrupted,
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
}

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Serves models until the process receives SIGINT or SIGTERM. Then stops accepting requests, finishes the running ones
/// for at most the grace time, and returns. A second signal ends the process. Calls `ready` with the address once the server
/// accepts connections.
///
/// # Errors
/// If the server cannot start.
pub fn serve(models: Vec<Model>, settings: Settings, ready: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    listen::serve(models, settings, ready)
}
