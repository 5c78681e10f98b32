//! Errors of starting the server.

/// Error of starting the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be resolved or is in use.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Address and port.
        address: String,
        /// Reason.
        reason: String,
    },
    /// The operating system refused a thread, a signal handler or another resource.
    #[error("cannot start the server: {0}")]
    Start(#[from] std::io::Error),
    /// A second signal ended the server before all requests were finished.
    #[error("a second signal ended the server before all requests were finished")]
    Interrupted,
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
}

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
