//! Thread of an embedding model: computes the embeddings of several requests in turns, one text in each turn.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use drift_chat::Embedder;
use tokio::sync::oneshot::Sender;

use crate::api_error::{ApiError, ApiResult, request_fault};
use crate::job::{Embedding, EmbeddingInput, Embeddings};
use crate::queue::RunningPermit;
use crate::shared::Shared;

/// Request that has embeddings of some of its texts.
struct Running {
    inputs: std::vec::IntoIter<EmbeddingInput>,
    answer: Sender<ApiResult<Embeddings>>,
    done: Embeddings,
    _permit: RunningPermit,
}

/// Serves the requests of an embedding model until the server drops their sender.
///
/// # Errors
/// If the device fails. The model is then of no further use.
pub(crate) fn run(
    mut embedder: Embedder,
    jobs: &Receiver<Embedding>,
    shared: &Shared,
) -> Result<(), drift_chat::Error> {
    let mut running: VecDeque<Running> = VecDeque::new();
    loop {
        if running.is_empty() {
            match jobs.recv() {
                Ok(job) => running.push_back(start(job, shared)),
                Err(_) => return Ok(()),
            }
        }
        while let Ok(job) = jobs.try_recv() {
            running.push_back(start(job, shared));
        }
        let Some(mut request) = running.pop_front() else { continue };
        if request.answer.is_closed() {
            shared.metrics.disconnected.add(1);
            continue;
        }
        if shared.is_stopping() {
            // The client may be gone.
            let _ = request.answer.send(Err(ApiError::unavailable("the server ends")));
            continue;
        }
        let Some(input) = request.inputs.next() else {
            let _ = request.answer.send(Ok(request.done));
            continue;
        };
        match embed(&mut embedder, input) {
            Ok((vector, tokens)) => {
                shared.metrics.prompt_tokens.add(tokens);
                request.done.vectors.push(vector);
                request.done.tokens += tokens;
                running.push_back(request);
            }
            Err(error) => {
                let fault = request_fault(&error).ok_or(error)?;
                let _ = request.answer.send(Err(fault));
            }
        }
    }
}

fn start(job: Embedding, shared: &Shared) -> Running {
    shared.queue.received();
    let Embedding { inputs, answer, permit } = job;
    Running { inputs: inputs.into_iter(), answer, done: Embeddings::default(), _permit: permit.run() }
}

/// Returns the embedding of a text and its number of tokens.
fn embed(embedder: &mut Embedder, input: EmbeddingInput) -> Result<(Vec<f32>, usize), drift_chat::Error> {
    let ids = match input {
        EmbeddingInput::Text(text) => embedder.tokenizer().encode(&text, true)?,
        EmbeddingInput::Ids(ids) => ids,
    };
    Ok((embedder.embed_ids(&ids)?, ids.len()))
}
