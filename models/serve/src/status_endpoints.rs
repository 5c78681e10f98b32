//! Endpoints that describe the server: models, health, metrics, and the chat page.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use crate::api_error::{ApiResult, json_response};
use crate::server::{Jobs, Served, Server, no_such_model};

/// Page for chats, without external resources.
const PAGE: &str = include_str!("page.html");
/// Resources that the page may use: its own style and script, and this server.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// Returns the present time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `GET /v1/models`.
pub(crate) async fn models(State(server): State<Arc<Server>>) -> Response {
    let data: Vec<Value> = server.models.iter().map(|model| describe(&server, model)).collect();
    json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn model(State(server): State<Arc<Server>>, Path(id): Path<String>) -> ApiResult<Response> {
    let model = server.models.iter().find(|model| model.id == id).ok_or_else(|| no_such_model(&id))?;
    Ok(json_response(StatusCode::OK, &describe(&server, model)))
}

fn describe(server: &Server, model: &Served) -> Value {
    let (kind, context) = match &model.jobs {
        Jobs::Language(_, language) => ("language", json!(language.context)),
        Jobs::Embedding(_) => ("embedding", Value::Null),
    };
    json!({
        "id": model.id, "object": "model", "created": server.started, "owned_by": "driftc", "kind": kind,
        "context_length": context,
    })
}

/// `GET /health`.
pub(crate) async fn health(State(server): State<Arc<Server>>) -> Response {
    let state = |model: &Served| match model.shared.failure() {
        None => json!({"id": model.id, "status": "ok"}),
        Some(reason) => json!({"id": model.id, "status": "failed", "reason": reason}),
    };
    let failed = server.models.iter().any(|model| model.shared.failure().is_some());
    let (status, word) = match failed {
        true => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
        false => (StatusCode::OK, "ok"),
    };
    let models: Vec<Value> = server.models.iter().map(state).collect();
    json_response(status, &json!({"status": word, "models": models}))
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let states: Vec<_> = server.models.iter().map(Served::state).collect();
    with_type(server.metrics.text(&states), "text/plain; version=0.0.4; charset=utf-8")
}

/// `GET /`.
pub(crate) async fn page() -> Response {
    let mut response = with_type(PAGE, "text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}

fn with_type(body: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
