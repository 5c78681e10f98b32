//! Error of a malformed model.

use crate::error::Error;
use crate::import::onnx::source::Source;

const REEXPORT: &str = "check the file with `onnx.checker`, or export it again";

/// Returns an error at a place in the model file.
pub(super) fn model_error(source: &Source, place: &str, reason: impl Into<String>) -> Error {
    Error::Model {
        path: source.path.clone(),
        place: place.to_string(),
        reason: reason.into(),
        help: REEXPORT.to_string(),
    }
}
