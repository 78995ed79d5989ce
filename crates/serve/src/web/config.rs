//! The settings of a server.

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct WebConfig {
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// How long connections may take to end at shutdown.
    pub drain_secs: u64,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self { connections_max: 4096, drain_secs: 10 }
    }
}
