//! Checks before a request reaches an endpoint: host name, origin and API key.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::api_error::{ApiError, ApiResult};
use crate::error::{Error, Result};
use crate::settings::Settings;

/// Endpoints that need no API key: a health check, and the chat page, which contains no data.
const OPEN: &[&str] = &["/health", "/"];

/// Rules of access.
pub(crate) struct Access {
    /// Hash of the API key. Hashes of equal length are compared in constant time.
    key: Option<blake3::Hash>,
    /// Origin of the web pages that may read answers, or `*`.
    cors: Option<HeaderValue>,
    /// True if only names of this machine are allowed in the header `host`.
    only_local_names: bool,
}

impl Access {
    /// Reads the rules from the settings.
    ///
    /// # Errors
    /// If the origin is not valid in a header, or the key is empty.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let cors = settings.cors.as_deref().map(HeaderValue::from_str).transpose();
        let cors = cors.map_err(|_| Error::Setting("the origin contains invalid characters".to_owned()))?;
        if settings.api_key.as_deref() == Some("") {
            return Err(Error::Setting("the API key is empty".to_owned()));
        }
        Ok(Self {
            key: settings.api_key.as_deref().map(|key| blake3::hash(key.as_bytes())),
            cors,
            only_local_names: settings.api_key.is_none() && is_local_name(&settings.host),
        })
    }

    /// Checks a request.
    ///
    /// # Errors
    /// If the request has no valid API key, or a web page sent it under a foreign host name.
    pub(crate) fn check(&self, request: &Request) -> ApiResult<()> {
        if self.only_local_names {
            check_host(request.headers())?;
        }
        let Some(key) = &self.key else { return Ok(()) };
        if OPEN.contains(&request.uri().path()) {
            return Ok(());
        }
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let given = given.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        match given.is_some_and(|(_, given)| blake3::hash(given.trim_ascii()) == *key) {
            true => Ok(()),
            false => {
                let message = "the API key is missing or wrong: send `Authorization: Bearer KEY`";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
            }
        }
    }

    /// True if a request only asks whether a web page may send another request.
    pub(crate) fn is_preflight(&self, request: &Request) -> bool {
        self.cors.is_some() && request.method() == Method::OPTIONS && request.headers().contains_key(ORIGIN)
    }

    /// Adds the headers that let web pages of the allowed origin read a response.
    pub(crate) fn allow(&self, headers: &mut HeaderMap) {
        let Some(origin) = &self.cors else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(VARY, HeaderValue::from_static("origin"));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

/// Checks that a request names this machine as its host. A web page whose host name was redirected to this machine would
/// otherwise read answers (DNS rebinding).
fn check_host(headers: &HeaderMap) -> ApiResult<()> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    match is_local_name(name) {
        true => Ok(()),
        false => {
            let message = "the header `host` does not name this machine; to use another name, start the server with \
                           --api-key or --host";
            Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, message))
        }
    }
}

/// True if a name or address belongs to the loopback interface.
fn is_local_name(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use axum::http::header::HOST;

    use super::check_host;

    #[test]
    fn only_local_host_names_are_allowed() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            check_host(&headers).is_ok()
        };
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:80", "[::1]"] {
            assert!(check(host), "{host}");
        }
        for host in ["", "example.com", "localhost.example.com:80", "10.0.0.1", "127.0.0.1.example.com"] {
            assert!(!check(host), "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
    }
}
