//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use drift_chat::Finish;
use drift_text::Message;
use serde_json::{Value, json};

use crate::api_error::{ApiError, ApiResult};
use crate::connection::read_fields;
use crate::fields::Fields;
use crate::format::{Format, finish_reason, usage};
use crate::generation::{Prompt, respond};
use crate::job::Outcome;
use crate::logprobs::TokenLogprobs;
use crate::parameters::Parameters;
use crate::random::random_id;
use crate::server::Server;
use crate::status_endpoints::now;

/// Answers a conversation.
pub(crate) async fn chat(State(server): State<Arc<Server>>, request: Request) -> ApiResult<Response> {
    let fields = read_fields(&server, request).await?;
    let model = server.model(fields.string("model")?)?;
    let parameters = Parameters::read(&fields, server.settings.max_tokens)?;
    let top = fields.count("top_logprobs")?;
    let parameters = match fields.boolean("logprobs")?.unwrap_or(false) {
        true => parameters.with_logprobs("top_logprobs", Some(top.unwrap_or(0)))?,
        false if top.is_some_and(|top| top > 0) => {
            return Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
        }
        false => parameters,
    };
    let prompt = Prompt::Messages(messages(&fields)?);
    let format = ChatFormat {
        id: random_id("chatcmpl"),
        created: now(),
        model: model.id.clone(),
        has_logprobs: parameters.logprobs.is_some(),
    };
    respond(&server, model, prompt, parameters, format).await
}

/// Reads the conversation.
fn messages(fields: &Fields) -> ApiResult<Vec<Message>> {
    let invalid = |message: &str| ApiError::invalid("messages", message);
    let list = fields.get("messages").ok_or_else(|| invalid("`messages` is missing"))?;
    let list = list.as_array().ok_or_else(|| invalid("`messages` must be a list of messages"))?;
    if list.is_empty() {
        return Err(invalid("`messages` must have at least one message"));
    }
    list.iter().enumerate().map(|(index, value)| message(index, value)).collect()
}

fn message(index: usize, value: &Value) -> ApiResult<Message> {
    let place = format!("messages[{index}]");
    let invalid = |message: String| ApiError::invalid(&place, message);
    let role = value.get("role").and_then(Value::as_str);
    let role = match role.ok_or_else(|| invalid(format!("`{place}.role` must be a string")))? {
        // The name that newer models of the API have for `system`.
        "developer" => "system",
        role @ ("system" | "user" | "assistant") => role,
        _ => return Err(invalid(format!("`{place}.role` must be `system`, `user` or `assistant`"))),
    };
    let is_set = |name: &str| value.get(name).is_some_and(|value| !value.is_null() && *value != json!([]));
    if let Some(name) = ["tool_calls", "function_call", "audio"].into_iter().find(|name| is_set(name)) {
        return Err(ApiError::unsupported(&place, format!("`{place}.{name}` is not supported: only text")));
    }
    let content = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(text_of_part).collect::<Option<Vec<&str>>>();
            texts
                .ok_or_else(|| {
                    ApiError::unsupported(
                        &place,
                        format!("`{place}.content` may have only parts of type `text`"),
                    )
                })?
                .concat()
        }
        _ => {
            return Err(invalid(format!(
                "`{place}.content` must be a string or a list of parts of type `text`"
            )));
        }
    };
    Ok(Message::new(role, &content))
}

/// Returns the text of a content part, or `None` if it is not a text.
fn text_of_part(part: &Value) -> Option<&str> {
    let is_text = part.get("type").and_then(Value::as_str) == Some("text");
    part.get("text").filter(|_| is_text)?.as_str()
}

/// Conversion of a completion to the JSON of a chat.
struct ChatFormat {
    id: String,
    created: u64,
    model: String,
    has_logprobs: bool,
}

impl ChatFormat {
    fn logprobs(&self, tokens: &[TokenLogprobs]) -> Value {
        match self.has_logprobs {
            true => {
                let content: Vec<Value> = tokens.iter().map(TokenLogprobs::chat_json).collect();
                json!({"content": content, "refusal": null})
            }
            false => Value::Null,
        }
    }

    fn object(&self, kind: &str, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices,
        })
    }

    fn delta(&self, delta: &Value, finish: Option<&Finish>, logprobs: &Value) -> Value {
        let finish = finish.map(finish_reason);
        let choice = json!({"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        self.object("chat.completion.chunk", &json!([choice]))
    }
}

impl Format for ChatFormat {
    fn answer(&self, text: &str, outcome: &Outcome, tokens: &[TokenLogprobs]) -> Value {
        let choice = json!({
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": self.logprobs(tokens),
            "finish_reason": finish_reason(&outcome.finish),
        });
        let mut answer = self.object("chat.completion", &json!([choice]));
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("usage".to_owned(), usage(outcome));
        }
        answer
    }

    fn first_chunk(&self) -> Option<Value> {
        Some(self.delta(&json!({"role": "assistant", "content": ""}), None, &Value::Null))
    }

    fn chunk(&mut self, text: &str, finish: Option<&Finish>, tokens: &[TokenLogprobs]) -> Value {
        let delta = if text.is_empty() { json!({}) } else { json!({"content": text}) };
        let logprobs = if tokens.is_empty() { Value::Null } else { self.logprobs(tokens) };
        self.delta(&delta, finish, &logprobs)
    }

    fn usage_chunk(&self, outcome: &Outcome) -> Value {
        let mut chunk = self.object("chat.completion.chunk", &json!([]));
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".to_owned(), usage(outcome));
        }
        chunk
    }
}
