//! Conversions for writing bundles: indices to u32, and errors of the format crate to errors of the compiler.

use crate::error::{Error, Result};

/// Converts an error of the format crate to an error of the compiler.
pub(super) fn format_error(e: drift_format::Error) -> Error {
    match e {
        drift_format::Error::Io { path, source } => Error::Io { path, reason: source.to_string() },
        other => Error::internal("bundle", other.to_string()),
    }
}

/// Converts an index to u32, as the bundle format stores it. Fails if the index is too large.
pub(super) fn index(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|e| Error::internal("bundle", e.to_string()))
}
