//! Requests to the thread of a model, and its answers.

use std::time::Instant;

use drift_chat::{Finish, TextRequest};
use tokio::sync::{mpsc, oneshot};

use crate::api_error::{ApiError, ApiResult};
use crate::logprobs::TokenLogprobs;
use crate::queue::Permit;

/// Maximum number of events of a request that wait for the client. More events stay with the thread of the model, which then
/// generates nothing for this request.
pub(crate) const MAX_EVENTS: usize = 32;

/// Request for a completion.
pub(crate) struct Generation {
    /// Token ids of the prompt.
    pub(crate) prompt: Vec<u32>,
    /// Parameters of the completion.
    pub(crate) request: TextRequest,
    /// Number of alternatives with logarithms of probabilities. `None` requests no logarithms.
    pub(crate) logprobs: Option<usize>,
    /// True if the text must not depend on earlier requests.
    pub(crate) exact: bool,
    /// Receiver of the completion. The thread cancels the completion when the receiver is dropped.
    pub(crate) events: mpsc::Sender<Event>,
    /// Time of the request.
    pub(crate) arrived: Instant,
    /// Place of the request in the queue and in a slot.
    pub(crate) permit: Permit,
}

/// Part of a completion.
#[derive(Debug)]
pub(crate) enum Event {
    /// Text, and the tokens since the last event if logarithms of probabilities are requested.
    Text(String, Vec<TokenLogprobs>),
    /// End of the completion, with the tokens since the last event.
    Done(Outcome, Vec<TokenLogprobs>),
    /// The completion failed.
    Failed(ApiError),
}

/// End of a completion.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Reason why the completion ended.
    pub(crate) finish: Finish,
    /// Number of tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    /// Number of leading tokens of the prompt that the KV cache already had.
    pub(crate) cached_tokens: usize,
    /// Number of generated tokens, including an end token.
    pub(crate) tokens: usize,
}

/// Request for embeddings.
pub(crate) struct Embedding {
    /// Texts to embed.
    pub(crate) inputs: Vec<EmbeddingInput>,
    /// Receiver of the embeddings. The thread cancels the request when the receiver is dropped.
    pub(crate) answer: oneshot::Sender<ApiResult<Embeddings>>,
    /// Place of the request in the queue.
    pub(crate) permit: Permit,
}

/// Text to embed.
pub(crate) enum EmbeddingInput {
    /// Text that the model's tokenizer encodes.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// Answer to a request for embeddings.
#[derive(Debug, Default)]
pub(crate) struct Embeddings {
    /// One vector for each text.
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Number of tokens of all texts.
    pub(crate) tokens: usize,
}
