//! Errors in target profiles. Each error names the file, the field, the reason and the remedy.

use std::fmt::Display;

/// Reason why a target profile could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("no target is called `{name}`; the known targets are {known}\n  = help: {help}")]
    Unknown { name: String, known: String, help: String },
    #[error(
        "`{name}` names devices of several targets: {devices}\n  = help: give a longer name or the name of a target"
    )]
    Ambiguous { name: String, devices: String },
    #[error("the profile {file} cannot be read: {reason}\n  = help: check the path and its permissions")]
    Read { file: String, reason: String },
    #[error("the profile {file} is not valid TOML: {reason}")]
    Syntax { file: String, reason: String },
    #[error("the profile {file} has an invalid field `{field}`: {reason}\n  = help: {help}")]
    Field { file: String, field: String, reason: String, help: String },
    #[error(
        "the profile {file} inherits from itself: {chain}\n  = help: remove one `inherits` of that chain"
    )]
    Cycle { file: String, chain: String },
    #[error("the profile {name} cannot be written as TOML: {reason}")]
    Write { name: String, reason: String },
}

impl TargetError {
    pub(super) fn field(file: &str, field: &str, reason: impl Display, help: impl Display) -> TargetError {
        TargetError::Field {
            file: file.to_owned(),
            field: field.to_owned(),
            reason: reason.to_string(),
            help: help.to_string(),
        }
    }

    pub(super) fn write(name: &str, reason: &impl Display) -> TargetError {
        TargetError::Write { name: name.to_owned(), reason: reason.to_string() }
    }
}
