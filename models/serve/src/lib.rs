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
mod error;
mod fields;
mod format;
mod generation;
mod job;
mod language_worker;
mod listen;
mod logprobs;
mod metrics;
mod model;
mod outbox;
mod parameters;
mod queue;
mod random;
mod router;
mod server;
mod settings;
mod shared;
mod sse;
mod status_endpoints;
mod write_timeout;

pub use error::{Error, Result};
pub use listen::serve;
pub use model::{Engine, Model};
pub use settings::Settings;
