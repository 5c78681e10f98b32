//! Settings of the server.

use std::time::Duration;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name or address of the interface to listen on.
    pub host: String,
    /// TCP port; 0 lets the system choose a free port.
    pub port: u16,
    /// Maximum number of requests of a model that wait for a slot.
    pub queue: usize,
    /// Maximum bytes of a request body.
    pub max_body: usize,
    /// Maximum number of generated tokens of a request. `None` means that only the context length is the limit.
    pub max_tokens: Option<usize>,
    /// Key that requests must carry.
    pub api_key: Option<String>,
    /// Origin of web pages that may use the server, or `*` for all.
    pub cors: Option<String>,
    /// Maximum time that a client may take to send a header or a body, or to read pending output.
    pub client_timeout: Duration,
    /// Maximum time to finish running requests at shutdown.
    pub grace: Duration,
    /// Maximum number of open connections.
    pub connections: usize,
}
