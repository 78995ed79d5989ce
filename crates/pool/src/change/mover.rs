//! How far the moving of objects to their places is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The state of the background task.
#[derive(Debug)]
pub struct Mover {
    pub(super) wanted: Arc<Notify>,
    /// Signalled whenever an object has been written anew (`moving.never_beside_a_delete`).
    pub(super) landed: Notify,
    /// Objects with less redundancy than the layout has now: uploads that began before it changed.
    pub(super) stragglers: AtomicBool,
    pub(super) busy: AtomicBool,
    pub(super) writing_anew: tokio::sync::Mutex<()>,
    pub(super) pass: Mutex<Option<Pass>>,
    pub(super) moved_bytes: AtomicU64,
    pub(super) looked_at: AtomicU64,
    /// Why the last object that could not be moved could not.
    pub(super) last_error: Mutex<String>,
    /// Held while the disks or the layout are changed: one change at a time.
    pub(super) changing: Mutex<()>,
}

/// One walk over the index.
#[derive(Debug)]
pub struct Pass {
    pub started: Instant,
    pub objects: u64,
}

/// The progress of a pass that moves data: part of the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// The reason, such as "removing /disk1".
    pub why: String,
    /// Objects that the pass looks at.
    pub objects: u64,
    /// Of these, objects that are done.
    pub objects_done: u64,
    /// Bytes moved since it began, or since the pool was opened.
    pub moved_bytes: u64,
    /// Seconds since the pass began.
    pub seconds: u64,
    /// Seconds until the end of this pass, estimated by its rate so far.
    pub seconds_left: Option<u64>,
    /// The reason why some object cannot be moved now; empty if all can. The move is tried again.
    pub stuck: String,
}

impl Mover {
    /// `wanted` is signalled by others, too: when a disk goes out of use, a spare may take its
    /// place.
    pub fn new(wanted: Arc<Notify>) -> Self {
        Self {
            wanted,
            landed: Notify::new(),
            stragglers: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            writing_anew: tokio::sync::Mutex::default(),
            pass: Mutex::default(),
            moved_bytes: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            last_error: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// The mover looks again, if only to see that the pool is closed.
    pub fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Signalled when an object has been written anew (`moving.never_beside_a_delete`).
    pub fn landed(&self) -> Notified<'_> {
        self.landed.notified()
    }

    /// Whether there may be objects with less redundancy than the layout has now.
    pub fn has_stragglers(&self) -> bool {
        self.stragglers.load(Ordering::Acquire)
    }

    pub fn set_stragglers(&self, are_left: bool) {
        self.stragglers.store(are_left, Ordering::Release);
    }

    /// Shards are being moved just now.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}
