//! The endpoints by path, and the steps before and after each of them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::api_error::ApiError;
use crate::server::Server;
use crate::{chat_endpoint, completion_endpoint, embedding_endpoint, status_endpoints};

/// Names of endpoints in the metrics. Other paths count as `other`, because clients choose them.
const ENDPOINTS: &[&str] =
    &["/", "/health", "/metrics", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"];

/// Creates the router.
pub(crate) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_endpoint::chat))
        .route("/v1/completions", post(completion_endpoint::complete))
        .route("/v1/embeddings", post(embedding_endpoint::embed))
        .route("/v1/models", get(status_endpoints::models))
        .route("/v1/models/{*id}", get(status_endpoints::model))
        .route("/health", get(status_endpoints::health))
        .route("/metrics", get(status_endpoints::metrics))
        .route("/", get(status_endpoints::page))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is no such endpoint"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "the endpoint does not support this method")
        })
        .layer(from_fn_with_state(server.clone(), around))
        .with_state(server)
}

/// Checks access, counts the request, and adds common headers.
async fn around(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let endpoint = ENDPOINTS.iter().find(|endpoint| **endpoint == request.uri().path());
    let endpoint = endpoint.copied().unwrap_or("other");
    let mut response = match server.access.check(&request) {
        _ if server.access.is_preflight(&request) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => error.into_response(),
        Ok(()) => next.run(request).await,
    };
    server.metrics.count(endpoint, response.status().as_u16());
    server.access.allow(response.headers_mut());
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
