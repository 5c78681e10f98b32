//! Typed access to the fields of a request. `null` counts as a missing field. Unknown fields are ignored.

use serde_json::{Map, Value};

use crate::api_error::{ApiError, ApiResult};

/// Fields of a request body.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a request body.
    ///
    /// # Errors
    /// If the body is not a JSON object.
    pub(crate) fn parse(body: &[u8]) -> ApiResult<Self> {
        let bad = |reason: String| ApiError::new(axum::http::StatusCode::BAD_REQUEST, reason);
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(bad("the request body must be a JSON object".to_owned())),
            Err(error) => Err(bad(format!("the request body is not valid JSON: {error}"))),
        }
    }

    /// Returns a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a field with a string.
    pub(crate) fn string(&self, name: &str) -> ApiResult<Option<&str>> {
        self.typed(name, "a string", Value::as_str)
    }

    /// Returns a field with a boolean.
    pub(crate) fn boolean(&self, name: &str) -> ApiResult<Option<bool>> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// Returns a field with a finite number.
    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<f32>> {
        self.typed(name, "a number", |value| {
            let number = value.as_f64()? as f32;
            number.is_finite().then_some(number)
        })
    }

    /// Returns a field with an integer from 0 on.
    pub(crate) fn count(&self, name: &str) -> ApiResult<Option<usize>> {
        self.typed(name, "an integer that is at least 0", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// Returns a field with an integer, negative or not.
    pub(crate) fn integer(&self, name: &str) -> ApiResult<Option<i64>> {
        self.typed(name, "an integer", |value| {
            value.as_i64().or_else(|| value.as_u64().map(u64::cast_signed))
        })
    }

    /// Returns an error if a field is present and its value differs from all values that leave the answer unchanged.
    pub(crate) fn refuse(&self, name: &str, neutral: &[Value], message: &str) -> ApiResult<()> {
        match self.get(name) {
            Some(value) if !neutral.contains(value) => {
                Err(ApiError::unsupported(name, format!("`{name}` is not supported: {message}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        kind: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> ApiResult<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let converted = convert(value);
        converted.map(Some).ok_or_else(|| ApiError::invalid(name, format!("`{name}` must be {kind}")))
    }
}

/// Returns the token ids of a JSON array, or `None` if an element is not a token id.
pub(crate) fn token_ids(values: &[Value]) -> Option<Vec<u32>> {
    values.iter().map(|value| u32::try_from(value.as_u64()?).ok()).collect()
}
