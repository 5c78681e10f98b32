//! The way of a chat or completion from its parameters to its answer.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;
use drift_chat::TextRequest;
use drift_text::Message;
use tokio::sync::mpsc;

use crate::api_error::{ApiError, ApiResult, json_response, request_fault};
use crate::format::Format;
use crate::job::{Event, Generation, MAX_EVENTS, Outcome};
use crate::logprobs::TokenLogprobs;
use crate::parameters::Parameters;
use crate::server::{Jobs, Language, Served, Server};
use crate::sse;

/// Prompt of a request.
pub(crate) enum Prompt {
    /// Conversation, which the chat template turns into a text.
    Messages(Vec<Message>),
    /// Text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// Generates a completion and returns the response.
///
/// # Errors
/// If the request is invalid, the queue is full, or the model fails before the first text.
pub(crate) async fn respond(
    server: &Server,
    model: &Served,
    prompt: Prompt,
    parameters: Parameters,
    format: impl Format,
) -> ApiResult<Response> {
    let (stream, include_usage) = (parameters.stream, parameters.include_usage);
    let mut events = start(server, model, prompt, parameters).await?;
    if !stream {
        let (text, outcome, tokens) = collect(model, events).await?;
        return Ok(json_response(StatusCode::OK, &format.answer(&text, &outcome, &tokens)));
    }
    // A request that fails at once gets an error status in place of a stream.
    match events.recv().await {
        None => Err(model.unavailable()),
        Some(Event::Failed(error)) => Err(error),
        Some(first) => Ok(sse::response(first, events, Box::new(format), include_usage)),
    }
}

/// Sends a request to the thread of the model.
async fn start(
    server: &Server,
    model: &Served,
    prompt: Prompt,
    parameters: Parameters,
) -> ApiResult<mpsc::Receiver<Event>> {
    let Jobs::Language(jobs, language) = &model.jobs else {
        let message = format!("`{}` is an embedding model: use /v1/embeddings", model.id);
        return Err(ApiError::invalid("model", message));
    };
    let arrived = Instant::now();
    let permit = model.shared.queue.admit()?;
    let Parameters { request, max_tokens, logprobs, exact, .. } = parameters;
    // Encoding a long text takes a while, and other connections need this thread.
    let for_encoder = language.clone();
    let encoding = Encoding(Some(model));
    let prompt = tokio::task::spawn_blocking(move || encode(&for_encoder, prompt)).await;
    encoding.done();
    let prompt =
        prompt.map_err(|_| ApiError::internal("the tokenizer failed, which is a bug in driftc"))??;
    // The last token that is generated needs no place in the KV cache.
    let room = (language.context + 1).saturating_sub(prompt.len());
    let max_tokens = max_tokens.or(server.settings.max_tokens).unwrap_or(usize::MAX).min(room);
    let request = TextRequest { max_tokens, ..request };
    let (events, receiver) = mpsc::channel(MAX_EVENTS);
    let job = Generation { prompt, request, logprobs, exact, events, arrived, permit };
    model.shared.queue.sent();
    jobs.send(job).map_err(|_| model.unavailable())?;
    Ok(receiver)
}

/// Guard that counts a disconnect if the client is gone before its prompt is encoded. The thread of the model counts later
/// disconnects.
struct Encoding<'a>(Option<&'a Served>);

impl Encoding<'_> {
    /// Marks the prompt as encoded.
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Encoding<'_> {
    fn drop(&mut self) {
        if let Some(model) = self.0 {
            model.shared.metrics.disconnected.add(1);
        }
    }
}

/// Converts a prompt to token ids that fit the context.
fn encode(language: &Arc<Language>, prompt: Prompt) -> ApiResult<Vec<u32>> {
    let encoder = &language.encoder;
    let encoded = match prompt {
        Prompt::Messages(messages) => encoder.encode_conversation(&messages),
        Prompt::Text(text) => encoder.encode_text(&text),
        Prompt::Ids(ids) => encoder.check(&ids).map(|()| ids),
    };
    let ids = encoded.map_err(|error| {
        request_fault(&error).unwrap_or_else(|| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))
    })?;
    if ids.is_empty() {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "the prompt is empty"));
    }
    if ids.len() > language.context {
        let (given, context) = (ids.len(), language.context);
        let message = format!("the prompt has {given} tokens, but the model's context has {context}");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, message).code("context_length_exceeded"));
    }
    Ok(ids)
}

/// Waits for the end of a completion. Returns its text, its end, and its tokens with logarithms of probabilities.
async fn collect(
    model: &Served,
    mut events: mpsc::Receiver<Event>,
) -> ApiResult<(String, Outcome, Vec<TokenLogprobs>)> {
    let (mut text, mut all) = (String::new(), Vec::new());
    loop {
        match events.recv().await {
            Some(Event::Text(more, tokens)) => {
                text.push_str(&more);
                all.extend(tokens);
            }
            Some(Event::Done(outcome, tokens)) => {
                all.extend(tokens);
                return Ok((text, outcome, all));
            }
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(model.unavailable()),
        }
    }
}
