//! The error of a lowering: the reason why a node is refused.

use std::fmt::Display;

use crate::error::{Error, OpError, Within};

/// Refusal of an ONNX node by the importer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// Reason for the refusal.
    pub(super) reason: String,
    /// Bounds of a symbolic size with which the node would be accepted.
    pub(super) within: Option<Within>,
    /// True if the operator itself is unknown.
    pub(super) unknown_operator: bool,
}

impl Refused {
    /// Creates the refusal of a node for a reason.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), within: None, unknown_operator: false }
    }

    /// Creates the refusal of a node whose operator is unknown.
    pub(super) fn unknown_operator(reason: impl Into<String>) -> Self {
        Self { unknown_operator: true, ..Self::new(reason) }
    }

    /// Creates the refusal of a node that would be accepted with the given bounds of a symbolic size.
    pub(super) fn with_bounds(reason: String, within: Within) -> Self {
        Self { within: Some(within), ..Self::new(reason) }
    }

    /// Creates the refusal of an attribute's value. `supported` lists the supported values.
    pub(super) fn attribute(name: &str, value: impl Display, supported: &str) -> Self {
        Self::new(format!("attribute `{name}` is `{value}`; supported: {supported}"))
    }
}

impl From<OpError> for Refused {
    fn from(error: OpError) -> Self {
        Self::new(error.0)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Node { reason, operator, .. } => Self::new(format!("{operator}: {reason}")),
            other => Self::new(other.to_string()),
        }
    }
}
