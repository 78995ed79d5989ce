//! The state of a pool's scrub: its progress, its next command, and the turns at each disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

use super::found::{Damage, MissingObjects};
use super::state::State;
use crate::member::member_disk::MemberDisk;
use crate::object::index::Object;

/// Commands to the scrub that runs, kept in [`Scrubs::wish`].
pub const GO_ON: u8 = 0;

pub const PAUSE: u8 = 1;

pub const STOP: u8 = 2;

/// The scrub of a pool: at most one.
pub struct Scrubs {
    pub(super) state: Mutex<State>,
    pub(super) wish: AtomicU8,
    pub(super) wanted: Notify,
    /// By slot (`scrub.streams_of_a_disk`).
    pub(super) turns: Vec<Turns>,
    /// Versions that the scrub is repairing: it counts their errors itself.
    pub(super) in_repair: Mutex<BTreeSet<u64>>,
    /// Bytes were lost since the counters were zero: not all was answered.
    pub(super) has_lost: AtomicBool,
    pub(super) saving: Mutex<()>,
    pub(super) users: Mutex<Option<Arc<dyn Users>>>,
}

/// Users of the pool's objects, asked at the end of a scrub: they know which objects they need.
pub trait Users: Send + Sync {
    /// How many of these damaged objects no user needs any more. Such damage is no error for
    /// people.
    fn count_unused(&self, damage: Vec<Damage>) -> BoxFuture<'_, u64>;
    /// Their missing objects, if they can tell.
    fn find_missing(&self) -> BoxFuture<'_, Option<MissingObjects>>;
}

/// Streams of a disk that does not seek.
pub const STREAMS_MAX: u32 = 2;

/// Shards of one disk that are read or verified at once.
pub const PLACES: u32 = STREAMS_MAX + 1;

/// The streams at work on a disk (`scrub.streams_of_a_disk`).
#[derive(Debug)]
pub struct Turns {
    pub(super) places: Semaphore,
    /// Where one stream is right, it takes all permits.
    pub(super) reading: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { places: Semaphore::new(PLACES as usize), reading: Arc::new(Semaphore::new(STREAMS_MAX as usize)) }
    }
}

/// How many streams are right for a disk.
pub fn streams(member: &MemberDisk) -> u32 {
    if member.io().is_ok_and(|io| !io.seeks()) { STREAMS_MAX } else { 1 }
}

impl Default for Scrubs {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            wish: AtomicU8::new(GO_ON),
            wanted: Notify::new(),
            turns: (0..=u8::MAX).map(|_| Turns::default()).collect(),
            in_repair: Mutex::default(),
            has_lost: AtomicBool::new(false),
            saving: Mutex::default(),
            users: Mutex::default(),
        }
    }
}

impl Scrubs {
    /// The user may hold a reference to the pool.
    pub fn forget_users(&self) {
        *self.users.lock() = None;
    }

    /// Bytes were lost since the counters were zero.
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// As long as it is held, nothing is written to the disks.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.saving.lock()
    }

    pub fn is_repairing(&self, object: &Object) -> bool {
        self.in_repair.lock().contains(&object.version)
    }
}
