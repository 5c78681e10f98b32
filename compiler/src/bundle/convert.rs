//! Conversions of indices and errors.

use crate::error::{Error, Result};

/// Converts an error of the format crate.
pub(super) fn format_error(e: drift_format::Error) -> Error {
    match e {
        drift_format::Error::Io { path, source } => Error::Io { path, reason: source.to_string() },
        other => Error::internal("bundle", other.to_string()),
    }
}

/// Converts an index to the width that the format stores.
pub(super) fn index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|e| Error::internal("bundle", e.to_string()))
}
