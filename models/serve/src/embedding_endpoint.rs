//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api_error::{ApiError, ApiResult, json_response};
use crate::connection::read_fields;
use crate::fields::{Fields, token_ids};
use crate::job::{Embedding, EmbeddingInput, Embeddings};
use crate::server::{Jobs, Server};

/// Maximum number of texts of a request, as in the OpenAI API.
const MAX_INPUTS: usize = 2048;

/// Computes embeddings of texts.
pub(crate) async fn embed(State(server): State<Arc<Server>>, request: Request) -> ApiResult<Response> {
    let fields = read_fields(&server, request).await?;
    let model = server.model(fields.string("model")?)?;
    let Jobs::Embedding(jobs) = &model.jobs else {
        let message = format!("`{}` is a language model and computes no embeddings", model.id);
        return Err(ApiError::invalid("model", message));
    };
    fields.refuse("dimensions", &[], "embeddings have the model's own size")?;
    let is_base64 = match fields.string("encoding_format")?.unwrap_or("float") {
        "float" => false,
        "base64" => true,
        _ => {
            let message = "`encoding_format` must be `float` or `base64`";
            return Err(ApiError::invalid("encoding_format", message));
        }
    };
    let inputs = inputs(&fields)?;
    let permit = model.shared.queue.admit()?;
    let (answer, receiver) = oneshot::channel();
    model.shared.queue.sent();
    jobs.send(Embedding { inputs, answer, permit }).map_err(|_| model.unavailable())?;
    let Embeddings { vectors, tokens } = receiver.await.map_err(|_| model.unavailable())??;
    let entry = |(index, vector): (usize, &Vec<f32>)| {
        let embedding = if is_base64 { json!(base64(vector)) } else { json!(vector) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    let data: Vec<Value> = vectors.iter().enumerate().map(entry).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let answer = json!({"object": "list", "data": data, "model": model.id, "usage": usage});
    Ok(json_response(StatusCode::OK, &answer))
}

/// Reads the texts: a string, token ids, or a list of strings or of token ids.
fn inputs(fields: &Fields) -> ApiResult<Vec<EmbeddingInput>> {
    let wrong = || {
        let message =
            "`input` must be a string, a list of strings, a list of token ids, or a list of such lists";
        ApiError::invalid("input", message)
    };
    let one = |value: &Value| match value {
        Value::String(text) => Some(EmbeddingInput::Text(text.clone())),
        Value::Array(ids) => token_ids(ids).map(EmbeddingInput::Ids),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let inputs = match fields.get("input") {
        None => return Err(ApiError::invalid("input", "`input` is missing")),
        Some(Value::Array(list)) if list.first().is_some_and(|first| !first.is_number()) => {
            list.iter().map(one).collect::<Option<Vec<EmbeddingInput>>>().ok_or_else(wrong)?
        }
        Some(value) => vec![one(value).ok_or_else(wrong)?],
    };
    match inputs.len() > MAX_INPUTS {
        true => Err(ApiError::invalid("input", format!("`input` has more than {MAX_INPUTS} texts"))),
        false => Ok(inputs),
    }
}

/// Encodes the little-endian bytes of a vector as base64.
fn base64(vector: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            (0..3).fold(0usize, |word, at| word << 8 | chunk.get(at).map_or(0, |byte| usize::from(*byte)));
        for digit in 0..4 {
            let value = word >> (18 - 6 * digit) & 63;
            let character = DIGITS.get(value).filter(|_| digit <= chunk.len());
            text.push(char::from(character.copied().unwrap_or(b'=')));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn vectors_become_base64() {
        assert_eq!(base64(&[]), "");
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64(&[1.0, -2.5, 0.0]), "AACAPwAAIMAAAAAA");
    }
}
