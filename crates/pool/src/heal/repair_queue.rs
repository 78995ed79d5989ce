//! The work that waits for repair: objects by path, or everything. Bounded: when it overflows, one
//! pass over the whole index does the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

const QUEUE_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct RepairQueue {
    /// Bad shards by path; an empty list means "whatever is missing".
    queue: Mutex<BTreeMap<String, Vec<(u64, u8)>>>,
    pub(super) wanted: Notify,
    /// The whole index is to be looked at.
    all: AtomicBool,
    pub(super) busy: AtomicBool,
    /// One rebuild of an object at a time: two of one shard would write one temporary file.
    ones: [Mutex<()>; 32],
    pub(super) repaired: AtomicU64,
    /// Bytes of those pieces, since the last change of disks ended.
    pub(super) repaired_bytes: AtomicU64,
    pub(super) checked: AtomicU64,
    pub(super) total: AtomicU64,
}

impl RepairQueue {
    /// Held while shards of this version of an object are written or moved.
    pub fn one(&self, version: u64) -> MutexGuard<'_, ()> {
        self.ones[version as usize % self.ones.len()].lock()
    }

    pub fn add(&self, path: &str) {
        self.push(path, None);
    }

    pub fn add_shard(&self, path: &str, version: u64, index: u8) {
        self.push(path, Some((version, index)));
    }

    fn push(&self, path: &str, shard: Option<(u64, u8)>) {
        let mut queue = self.queue.lock();
        if queue.len() >= QUEUE_MAX && !queue.contains_key(path) {
            self.all.store(true, Ordering::Release);
        } else {
            let shards = queue.entry(path.to_owned()).or_default();
            if let Some(shard) = shard
                && !shards.contains(&shard)
            {
                shards.push(shard);
            }
        }
        assert!(queue.len() <= QUEUE_MAX, "the queue is bounded: beyond it the whole index is looked at");
        drop(queue);
        self.wanted.notify_one();
    }

    /// Whether such a pass was asked for; it is from now on not any more.
    pub(super) fn take_all(&self) -> bool {
        self.all.swap(false, Ordering::AcqRel)
    }

    /// Asks for a pass over everything.
    pub fn add_all(&self) {
        self.all.store(true, Ordering::Release);
        self.wanted.notify_one();
    }

    pub(super) fn forget(&self, path: &str) {
        self.queue.lock().remove(path);
    }

    pub(super) fn pop(&self) -> Option<(String, Vec<(u64, u8)>)> {
        self.queue.lock().pop_first()
    }

    /// The worker looks again, if only to see that the pool is closed.
    pub fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Something is being repaired just now.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Shards made anew since the pool was opened.
    pub fn repaired(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Bytes of shards made anew since the last change of disks ended.
    pub fn repaired_bytes(&self) -> u64 {
        self.repaired_bytes.load(Ordering::Relaxed)
    }

    /// The next change of disks counts for itself.
    pub fn forget_repaired_bytes(&self) {
        self.repaired_bytes.store(0, Ordering::Relaxed);
    }

    /// Objects that the pass over everything has looked at, and how many there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.checked.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub fn is_idle(&self) -> bool {
        self.queue.lock().is_empty() && !self.all.load(Ordering::Acquire) && !self.busy.load(Ordering::Acquire)
    }
}
