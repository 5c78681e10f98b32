//! Reading of request bodies, with limits on size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::api_error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::server::Server;

/// Multiple of the size limit that is read from a body that is too large. A client can read the error only after the server
/// has read the body.
const DISCARDED: usize = 8;

/// Reads the fields of a request.
///
/// # Errors
/// If the body is not JSON, is too large, or takes too long.
pub(crate) async fn read_fields(server: &Server, request: Request) -> ApiResult<Fields> {
    check_type(request.headers())?;
    let (limit, timeout) = (server.settings.max_body, server.settings.client_timeout);
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = length.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    let body = request.into_body();
    if announced > limit {
        discard(body, limit, timeout).await;
        return Err(too_large(limit));
    }
    let reading = Limited::new(body, limit).collect();
    let body: Bytes = match tokio::time::timeout(timeout, reading).await {
        Err(_) => {
            let message = format!("the request body did not arrive within {} s", timeout.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
        }
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
        Ok(Err(error)) => {
            let message = format!("cannot read the request body: {error}");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
        }
    };
    Fields::parse(&body)
}

/// Requires JSON. Web pages of other origins cannot send this type without permission.
fn check_type(headers: &HeaderMap) -> ApiResult<()> {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => {
            let message = "send the header `Content-Type: application/json`";
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the request body has more than {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
}

/// Reads a body that is too large, up to a multiple of the limit.
async fn discard(mut body: Body, limit: usize, timeout: Duration) {
    let mut left = limit.saturating_mul(DISCARDED);
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // The response is an error in any case.
    let _ = tokio::time::timeout(timeout, reading).await;
}
