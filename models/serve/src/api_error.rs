//! Errors of requests, as JSON in the form of the OpenAI API.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Result of a request.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// Error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    /// Field of the request that is at fault.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// Creates an error with this status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// Creates an error for an invalid field of a request.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// Creates an error for a field that this server does not support.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self::invalid(param, message).code("unsupported_parameter")
    }

    /// Creates an error of the model or the server.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Creates an error of a server that cannot serve the request now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// Sets the error code that programs can test.
    pub(crate) fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Returns the error as JSON.
    pub(crate) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.json());
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Converts an error of generating or embedding text. Returns `None` if the model cannot continue after the error, because
/// its device failed.
pub(crate) fn request_fault(error: &drift_chat::Error) -> Option<ApiError> {
    use drift_chat::Error as E;
    use drift_runtime::Error as R;
    let message = error.to_string();
    Some(match error {
        E::Runtime(R::ContextFull { .. }) | E::TooLong { .. } => {
            ApiError::new(StatusCode::BAD_REQUEST, message).code("context_length_exceeded")
        }
        E::Runtime(R::InvalidSampling { name, .. }) => ApiError::invalid(name, message),
        E::Runtime(R::EmptyPrompt | R::NotInVocabulary { .. }) => {
            ApiError::new(StatusCode::BAD_REQUEST, message)
        }
        E::Runtime(_) => return None,
        E::Text(drift_text::Error::File { .. }) => ApiError::internal(message),
        E::Text(_) | E::EmptyConversation | E::OutsideVocabulary { .. } => {
            ApiError::new(StatusCode::BAD_REQUEST, message)
        }
        E::NoChatTemplate => {
            ApiError::new(StatusCode::BAD_REQUEST, format!("{message}; use /v1/completions"))
        }
        E::NoTokenizer | E::NoAnswer | E::Transcript { .. } | E::NotAnEmbedder { .. } => {
            ApiError::internal(message)
        }
    })
}

/// Creates a response with a JSON body.
pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
