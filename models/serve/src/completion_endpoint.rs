//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use drift_chat::Finish;
use serde_json::{Value, json};

use crate::api_error::{ApiError, ApiResult};
use crate::connection::read_fields;
use crate::fields::{Fields, token_ids};
use crate::format::{Format, finish_reason, usage};
use crate::generation::{Prompt, respond};
use crate::job::Outcome;
use crate::logprobs::{TokenLogprobs, completion_json};
use crate::parameters::Parameters;
use crate::random::random_id;
use crate::server::Server;
use crate::status_endpoints::now;

/// Maximum number of tokens of a request that does not set it, as in the OpenAI API.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Continues a text.
pub(crate) async fn complete(State(server): State<Arc<Server>>, request: Request) -> ApiResult<Response> {
    let fields = read_fields(&server, request).await?;
    let model = server.model(fields.string("model")?)?;
    let limit = server.settings.max_tokens;
    let mut parameters = Parameters::read(&fields, limit)?;
    let default = limit.map_or(DEFAULT_MAX_TOKENS, |limit| limit.min(DEFAULT_MAX_TOKENS));
    parameters.max_tokens.get_or_insert(default);
    let parameters = parameters.with_logprobs("logprobs", fields.count("logprobs")?)?;
    let format = CompletionFormat {
        id: random_id("cmpl"),
        created: now(),
        model: model.id.clone(),
        has_logprobs: parameters.logprobs.is_some(),
        offset: 0,
    };
    respond(&server, model, prompt(&fields)?, parameters, format).await
}

/// Reads the prompt: a text, token ids, or a list with one of them.
fn prompt(fields: &Fields) -> ApiResult<Prompt> {
    let wrong = || ApiError::invalid("prompt", "`prompt` must be a string or a list of token ids");
    match fields.get("prompt") {
        None => Err(ApiError::invalid("prompt", "`prompt` is missing")),
        Some(Value::String(text)) => Ok(Prompt::Text(text.clone())),
        Some(Value::Array(list)) => match list.as_slice() {
            [Value::String(text)] => Ok(Prompt::Text(text.clone())),
            [Value::Array(ids)] => token_ids(ids).map(Prompt::Ids).ok_or_else(wrong),
            [Value::String(_) | Value::Array(_), ..] => {
                let message = "`prompt` may have only one text: send one request for each text";
                Err(ApiError::unsupported("prompt", message))
            }
            ids => token_ids(ids).map(Prompt::Ids).ok_or_else(wrong),
        },
        Some(_) => Err(wrong()),
    }
}

/// Conversion of a completion to JSON.
struct CompletionFormat {
    id: String,
    created: u64,
    model: String,
    has_logprobs: bool,
    /// Number of characters of the tokens in earlier chunks.
    offset: usize,
}

impl CompletionFormat {
    fn object(&self, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn choices(text: &str, finish: Option<&Finish>, logprobs: &Value) -> Value {
        let finish = finish.map(finish_reason);
        json!([{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}])
    }

    fn logprobs(&self, tokens: &[TokenLogprobs], offset: &mut usize) -> Value {
        if self.has_logprobs { completion_json(tokens, offset) } else { Value::Null }
    }
}

impl Format for CompletionFormat {
    fn answer(&self, text: &str, outcome: &Outcome, tokens: &[TokenLogprobs]) -> Value {
        let logprobs = self.logprobs(tokens, &mut 0);
        let mut answer = self.object(&Self::choices(text, Some(&outcome.finish), &logprobs));
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("usage".to_owned(), usage(outcome));
        }
        answer
    }

    fn first_chunk(&self) -> Option<Value> {
        None
    }

    fn chunk(&mut self, text: &str, finish: Option<&Finish>, tokens: &[TokenLogprobs]) -> Value {
        let mut offset = self.offset;
        let logprobs = if tokens.is_empty() { Value::Null } else { self.logprobs(tokens, &mut offset) };
        self.offset = offset;
        self.object(&Self::choices(text, finish, &logprobs))
    }

    fn usage_chunk(&self, outcome: &Outcome) -> Value {
        let mut chunk = self.object(&json!([]));
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".to_owned(), usage(outcome));
        }
        chunk
    }
}
