//! Every way in which reading, loading or running a bundle can fail, as one enum.
//!
//! A message names the place, the reason, and what to do about it, so that a caller can print it as it is.

use std::path::PathBuf;

/// What this crate's functions return.
pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("not a drift bundle: it does not start with the bundle's magic bytes")]
    NotABundle,
    #[error(
        "the bundle has format version {found}, this runtime reads version {supported}; compile the model again with a matching driftc"
    )]
    Version { found: String, supported: String },
    #[error("corrupt bundle, {section} at byte {at}: {reason}; fetch or compile the bundle again")]
    Corrupt { section: String, at: u64, reason: String },
    #[error("invalid bundle, {place}: {reason}")]
    Invalid { place: String, reason: String },
}

impl Error {
    /// A section of the file whose bytes are not what the bundle says they are.
    pub(crate) fn corrupt(section: impl Into<String>, at: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt { section: section.into(), at, reason: reason.into() }
    }

    /// A manifest that decodes but contradicts itself.
    pub(crate) fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { place: place.into(), reason: reason.into() }
    }
}
