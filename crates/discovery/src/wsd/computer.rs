//! The computer as it is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Where metadata is asked for: Explorer's firewall rules know this port.
pub(crate) const HTTP_PORT: u16 = 5357;
pub(crate) struct Computer {
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    /// When it was started: a client sees that older messages are of another life.
    instance: u64,
    messages: AtomicU32,
}

impl Computer {
    pub(crate) fn new(name: &str, uuid: Uuid) -> Computer {
        let instance = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // An unsignedInt on the wire.
        let instance = instance & u64::from(u32::MAX);
        Computer { name: name.to_owned(), uuid, instance, messages: AtomicU32::new(0) }
    }

    pub(crate) fn address(&self) -> String {
        format!("urn:uuid:{}", self.uuid)
    }

    /// The number of this life and of the next message in it.
    pub(crate) fn sequence(&self) -> (u64, u32) {
        (self.instance, self.messages.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
