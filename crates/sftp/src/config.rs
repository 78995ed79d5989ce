//! The settings of a server.

use std::sync::Arc;

use super::host_key::HostKey;
use larder_doors::login::Gate;
use larder_doors::strangers::Budget;
use larder_doors::unread::{UNREAD_BYTES_MAX, UNREAD_BYTES_MIN};

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct SftpConfig {
    /// The key by which clients know the server.
    pub host_key: HostKey,
    /// Connections at a time; a further one takes the place of the oldest that has not logged in, or is closed at once.
    pub connections_max: usize,
    /// How long connections may take to end at shutdown.
    pub drain_secs: u64,
    /// What connections without a login may hold, at all doors together.
    pub strangers: Arc<Budget>,
    /// What requests and answers of all connections with a login may hold, in bytes.
    pub unread_bytes_max: usize,
    /// Passwords are looked at here, as those of other doors are.
    pub gate: Arc<Gate>,
}

impl SftpConfig {
    /// What requests and answers may hold where `bytes` would be right: within bounds.
    pub fn unread_bytes(bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX).clamp(UNREAD_BYTES_MIN, UNREAD_BYTES_MAX)
    }

    /// As many connections as the other servers take.
    pub fn new(host_key: HostKey) -> Self {
        Self {
            host_key,
            connections_max: 4096,
            drain_secs: 10,
            strangers: Arc::default(),
            unread_bytes_max: UNREAD_BYTES_MAX,
            gate: Arc::default(),
        }
    }
}
