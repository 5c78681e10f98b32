//! The error that reports a malformed ONNX model.

use crate::error::Error;
use crate::import::onnx::source::Source;

const REEXPORT: &str = "check the file with `onnx.checker`, or export it again";

/// Returns the error that reports a malformed model. `place` names the node or value at fault.
pub(super) fn model_error(source: &Source, place: &str, reason: impl Into<String>) -> Error {
    Error::Model {
        path: source.path.clone(),
        place: place.to_string(),
        reason: reason.into(),
        help: REEXPORT.to_string(),
    }
}
