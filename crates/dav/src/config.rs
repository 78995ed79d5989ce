//! The settings of a server.

use std::sync::Arc;

use larder_people::Network;

use larder_doors::login::Gate;
use larder_doors::strangers::Budget;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct WebConfig {
    /// Connections at a time; a further one takes the place of the oldest that has not logged in,
    /// or is closed at once.
    pub connections_max: usize,
    /// How long connections may take to end at shutdown.
    pub drain_secs: u64,
    /// What connections without a login may hold, at all doors together.
    pub strangers: Arc<Budget>,
    /// Passwords are looked at here, as those of other doors are.
    pub gate: Arc<Gate>,
    /// The networks of proxies that are believed whose request they pass on.
    pub trusted_proxies: Vec<Network>,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            drain_secs: 10,
            strangers: Arc::default(),
            gate: Arc::default(),
            trusted_proxies: Vec::new(),
        }
    }
}
