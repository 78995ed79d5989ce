//! The work that waits for repair: objects by path, or everything. Bounded: when it overflows, one
//! pass over the whole index does the same.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Damaged shards that could not be made anew yet, by path (`repair.owed_until_given`).
    deferred: Mutex<BTreeMap<String, Vec<(u64, u8)>>>,
    /// Versions that could not be read to make what they are owed; until disks come back it is no use.
    unreadable: Mutex<BTreeSet<u64>>,
    /// Something could be given to objects that are owed shards, if there were room for it.
    owing: AtomicBool,
    /// What is owed is being tried.
    pub(super) giving: AtomicBool,
    /// There may be room again.
    room: AtomicBool,
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

    /// A damaged shard could not be made anew now. Beyond the bound, readers find it again.
    pub(super) fn defer(&self, path: &str, version: u64, index: u8) {
        let mut deferred = self.deferred.lock();
        if deferred.len() < QUEUE_MAX || deferred.contains_key(path) {
            let shards = deferred.entry(path.to_owned()).or_default();
            if !shards.contains(&(version, index)) {
                shards.push((version, index));
            }
            drop(deferred);
            if !self.owing.swap(true, Ordering::AcqRel) {
                self.wanted.notify_one();
            }
        }
    }

    pub(super) fn deferred(&self) -> BTreeMap<String, Vec<(u64, u8)>> {
        self.deferred.lock().clone()
    }

    pub(super) fn forget_deferred(&self, path: &str) {
        self.deferred.lock().remove(path);
    }

    /// Objects with such shards.
    pub fn deferred_count(&self) -> usize {
        self.deferred.lock().len()
    }

    pub(super) fn note_unreadable(&self, version: u64) {
        let mut unreadable = self.unreadable.lock();
        if unreadable.len() < QUEUE_MAX {
            unreadable.insert(version);
        }
    }

    pub(super) fn is_unreadable(&self, version: u64) -> bool {
        self.unreadable.lock().contains(&version)
    }

    pub(super) fn forget_unreadable(&self) {
        self.unreadable.lock().clear();
    }

    pub fn set_owing(&self, is_owing: bool) {
        self.owing.store(is_owing, Ordering::Release);
    }

    pub(super) fn is_owing(&self) -> bool {
        self.owing.load(Ordering::Acquire)
    }

    /// Something was deleted, or somebody says that there is room: what is owed is tried soon.
    pub fn room_again(&self) {
        if self.is_owing() {
            self.room.store(true, Ordering::Release);
            self.wanted.notify_one();
        }
    }

    pub(super) fn take_room(&self) -> bool {
        self.room.swap(false, Ordering::AcqRel)
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

    /// Nothing is left to repair but what waits for room.
    pub fn is_idle_but_for_owed(&self) -> bool {
        self.giving.load(Ordering::Acquire) || self.is_idle()
    }

    pub fn is_idle(&self) -> bool {
        self.queue.lock().is_empty() && !self.all.load(Ordering::Acquire) && !self.busy.load(Ordering::Acquire)
    }
}
