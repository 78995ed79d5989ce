//! What clients hold of the files of one tree, of all doors in one table: opens, byte ranges, and
//! promises to cache.
//!
//! The table is state and judgement alone. It does no I/O, knows no protocol and never waits: a
//! client that has to wait gets a [`Waiter`], and a holder that has to be asked is asked by the
//! [`Door`] it came through, with none of the table's locks held.
//!
//! ```text
//!  Table ── shard of the inode ── File ─┬─ kinds of opens, each with a count     [`Entry`] is one open
//!                                       ├─ ranges: of owners (POSIX), of opens   [`Held`]
//!                                       ├─ promises: what clients may cache      [`Promise`]
//!                                       └─ waiters, woken by each change         [`Waiter`]
//! ```
//!
//! - `opens.one_entry`: a file's opens, ranges, promises and waiters are one record behind one lock.
//!   It is there as long as one of them is.
//! - `opens.woken_by_change`: whatever may let an open or a lock through wakes the file's waiters,
//!   after the lock of the record is given up. They try again. Those who wait for ranges alone are
//!   woken by ranges alone: a file that is opened and closed all the time tells them nothing.
//! - `opens.judged_where_kept`: an open or a range is judged and entered under one lock, so nothing
//!   slips in between.
#![warn(missing_docs)]

mod caches;
mod entry;
mod locks;
#[cfg(test)]
mod model;
mod promises;
mod ranges;
mod reclaims;
#[cfg(test)]
mod tests;
mod uses;
mod waiters;
mod waits;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use larder_fs::Ino;
use parking_lot::{Mutex, RwLock};

use caches::Promised;
pub use caches::{Caches, Others};
pub use entry::{Entry, Refused};
pub use promises::Promise;
use ranges::Bounds;
pub use ranges::{Held, LockError, Owner, Range};
pub use reclaims::Reclaims;
use uses::Kinds;
pub use uses::Uses;
use waiters::{Waits, Wakes};
pub use waits::{Waiter, Waiting};

const SHARDS: usize = 32;

/// A door, asked about its clients. No question may wait. The table holds no lock meanwhile. Of
/// the doors that answer under a lock, one alone asks under it: two would wait for each other.
pub trait Door: Send + Sync {
    /// A lock of this door's owner is in the way of another door's. Whether that owner has gone,
    /// and has lost it now.
    fn loses_lock(&self, _ino: Ino, _owner: u64) -> bool {
        false
    }

    /// Another door's access needs what clients of this one cache of a file
    /// (`promises.asked_first`). It asks them, or takes it from those that have gone. If these are
    /// handles, it is asked wherever it has an open.
    fn ask_back(&self, _ino: Ino, _what: Caches) {}
}

/// What clients hold of the files of one tree.
pub struct Table {
    shards: [Mutex<HashMap<Ino, File>>; SHARDS],
    next_id: AtomicU64,
    /// Opens that deny something, for a look without locks.
    denying: AtomicUsize,
    /// Promises of something, for a look without locks.
    promised: AtomicUsize,
    bounds: Bounds,
    /// Each waiting owner, and the owner of the lock in its way.
    waiting: Mutex<HashMap<Owner, Owner>>,
    /// Doors whose clients take back what they had.
    reclaiming: RwLock<Vec<u32>>,
    doors: RwLock<Vec<(u32, Weak<dyn Door>)>>,
    /// As many as `doors`, for a look without its lock.
    door_count: AtomicUsize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            next_id: AtomicU64::new(1),
            denying: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            bounds: Bounds::default(),
            waiting: Mutex::default(),
            reclaiming: RwLock::default(),
            doors: RwLock::default(),
            door_count: AtomicUsize::new(0),
        }
    }
}

/// `opens.one_entry`
#[derive(Default)]
struct File {
    kinds: Kinds,
    ranges: Vec<Held>,
    /// How many of `ranges` are of opens, for a look by one of these opens without the record's
    /// lock.
    of_opens: Arc<AtomicUsize>,
    promises: Vec<Promised>,
    waits: Waits,
}

impl File {
    fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.ranges.is_empty() && self.promises.is_empty() && self.waits.is_empty()
    }
}

/// What a change of a file did, and the waiters that it may let through.
struct Change<T> {
    done: T,
    wakes: Wakes,
}

impl<T> Change<T> {
    fn quiet(done: T) -> Self {
        Self { done, wakes: Wakes::Nobody }
    }
}

impl Table {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, File>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Looks at a file of which something is held.
    fn look<T>(&self, ino: Ino, look: impl FnOnce(&File) -> T) -> Option<T> {
        self.shard(ino).lock().get(&ino).map(look)
    }

    /// Changes what is held of a file (`opens.one_entry`, `opens.woken_by_change`).
    fn change<T>(&self, ino: Ino, change: impl FnOnce(&mut File) -> Change<T>) -> T {
        let mut shard = self.shard(ino).lock();
        let file = shard.entry(ino).or_default();
        let Change { done, wakes } = change(file);
        let woken = file.waits.wake(wakes);
        if file.is_empty() {
            shard.remove(&ino);
        }
        drop(shard);
        woken.into_iter().for_each(Waker::wake);
        done
    }

    /// Asks `door` about the clients of the door with this number, as long as somebody keeps it.
    pub fn add_door(&self, number: u32, door: Weak<dyn Door>) {
        let mut doors = self.doors.write();
        doors.retain(|(_, door)| door.strong_count() > 0);
        doors.push((number, door));
        self.door_count.store(doors.len(), Ordering::Release);
    }

    /// Whether any door wants to be asked.
    pub fn has_doors(&self) -> bool {
        self.door_count.load(Ordering::Acquire) > 0
    }

    fn doors(&self, which: impl Fn(u32) -> bool) -> Vec<Arc<dyn Door>> {
        if !self.has_doors() {
            return Vec::new();
        }
        let doors = self.doors.read();
        doors.iter().filter(|(number, _)| which(*number)).filter_map(|(_, door)| door.upgrade()).collect()
    }

    /// Whether nothing is held of any file.
    pub fn is_empty(&self) -> bool {
        self.files() == 0
    }

    fn files(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
