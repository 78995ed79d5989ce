//! The settings of a server.

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct WebConfig {
    /// Connections at a time; a further one takes the place of the oldest that has not logged in, or is closed at once.
    pub connections_max: usize,
    /// How long connections may take to end at shutdown.
    pub drain_secs: u64,
    /// The file that keeps links to files (mode 0600); without one they end with the server.
    pub links: Option<std::path::PathBuf>,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self { connections_max: 4096, drain_secs: 10, links: None }
    }
}
