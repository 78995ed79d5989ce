//! Sums about room: the answer of a store, the requests of writers, the reserves.

use std::sync::atomic::{AtomicU64, Ordering};

const MARGIN_BYTES_MAX: u64 = 1 << 30;
/// Garbage below this is not worth a writer's wait.
pub(super) const SEGMENT_MIN_GARBAGE: u64 = 1 << 20;

/// The last answer of the store.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) total: AtomicU64,
    pub(super) available: AtomicU64,
    pub(super) asked_at_us: AtomicU64,
    pub(super) accepted_since: AtomicU64,
}

impl Gate {
    /// How large the store is, if it has said so.
    pub(super) fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total > 0)
    }
}

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoomRequest {
    /// Bytes for which there is no promise yet.
    New(u64),
    /// Bytes that a promise covers: it was kept free for them.
    Promised(u64),
}

impl RoomRequest {
    pub(super) fn bytes(self) -> u64 {
        match self {
            RoomRequest::New(bytes) | RoomRequest::Promised(bytes) => bytes,
        }
    }
}

/// Room set aside for reserved bytes, with their index entries and metadata.
pub(super) fn set_aside(reserved_bytes: u64) -> u64 {
    reserved_bytes.saturating_add(reserved_bytes / 32)
}

/// The most that can be reserved in this room.
pub(crate) fn reservable(room: u64) -> u64 {
    room - room.div_ceil(33)
}

/// Kept free for metadata and for the segments that garbage collection writes before it deletes
/// others.
pub(crate) fn margin(total: u64) -> u64 {
    (total / 32).min(MARGIN_BYTES_MAX)
}
