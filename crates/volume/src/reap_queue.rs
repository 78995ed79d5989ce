//! Inodes that wait to be removed for good.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{Notify, Semaphore};

/// Inodes reaped at once: more would only contend for the engine.
const REAPS_AT_ONCE: usize = 8;
/// Inodes that wait to be reaped. Beyond this, the removal of names is slowed to the pace of
/// reaping.
pub(crate) const REAPS_MAX: usize = 4096;

/// The queue of inodes to be reaped.
pub(crate) struct ReapQueue {
    pub(crate) at_once: Semaphore,
    pub(crate) waiting: AtomicUsize,
    pub(crate) fewer: Notify,
}

impl ReapQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { at_once: Semaphore::new(REAPS_AT_ONCE), waiting: AtomicUsize::new(0), fewer: Notify::new() })
    }
}
