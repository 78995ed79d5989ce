//! What the rooms of an open pool share: one of each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use tokio::sync::Semaphore;

use crate::change::mover::Mover;
use crate::disk::DiskFile;
use crate::disk::activity::Activity;
use crate::error::PoolError;
use crate::heal::repair_queue::RepairQueue;
use crate::heal::scrub::Scrubs;
use crate::journal;
use crate::member::member_disk::{MemberDisk, reserve_hard};
use crate::member::members::Members;
use crate::member::reserve::{self, Reserves};
use crate::member::room::Placed;
use crate::member::waiting::Hanging;
use crate::object::index::{Grave, Graveyard, Index, Object};
use crate::object::versions::Versions;

/// Objects being written at once: bounds threads and memory, far above what a disk needs.
pub const WRITERS_MAX: usize = 16;

/// Blocking reads at once.
const READERS_MAX: usize = 64;

/// Locks that order commits of one path.
const COMMIT_LOCKS: usize = 64;

/// Files kept open for reading; each may hold two descriptors, with and without the kernel's cache.
const OPEN_FILES_MAX: usize = 384;

/// Identifies an open shard file: disk, version, shard.
pub type FileKey = (u8, u64, u8);

pub struct Core {
    pub members: Arc<Members>,
    pub versions: Versions,
    pub index: RwLock<Index>,
    pub graveyard: Graveyard,
    /// Deleted versions whose tombstones are not trimmed, by path (W5).
    pub gone: Mutex<BTreeMap<String, u64>>,
    pub files: Cache<FileKey, Arc<dyn DiskFile>>,
    pub writers: Semaphore,
    pub readers: Semaphore,
    pub commits: Vec<tokio::sync::Mutex<()>>,
    pub repairs: RepairQueue,
    pub reserves: Arc<Reserves>,
    pub mover: Mover,
    /// Held while the disks or the layout are changed: one change at a time.
    pub changing: Mutex<()>,
    pub activity: Arc<Activity>,
    pub scrubs: Scrubs,
    pub closed: AtomicBool,
    /// Versions that were refused after some of their shards had a name: one may be found at the next opening, so whoever
    /// deletes the path deletes it, too.
    pub refused: Mutex<BTreeMap<String, Object>>,
    /// Files that a disk would not unlink (T1).
    pub stubborn: Mutex<Vec<Grave>>,
    /// A disk whose word counts has failed to sync what was unlinked. A second sync may tell of success without it, so
    /// tombstones stay until the pool is opened again (T1).
    pub unsynced: AtomicBool,
    /// Told of disks that are in sync again.
    pub journal: OnceLock<Weak<journal::Shared>>,
}

impl Core {
    pub fn new(members: Members, index: Index, graveyard: Graveyard) -> Self {
        let members = Arc::new(members);
        Self {
            versions: Versions::default(),
            index: RwLock::new(index),
            graveyard,
            gone: Mutex::default(),
            files: Cache::new(OPEN_FILES_MAX),
            writers: Semaphore::new(WRITERS_MAX),
            readers: Semaphore::new(READERS_MAX),
            commits: (0..COMMIT_LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
            repairs: RepairQueue::default(),
            reserves: Arc::default(),
            mover: Mover::new(members.out.clone()),
            changing: Mutex::new(()),
            activity: Arc::default(),
            scrubs: Scrubs::default(),
            closed: AtomicBool::new(false),
            refused: Mutex::default(),
            stubborn: Mutex::default(),
            unsynced: AtomicBool::new(false),
            journal: OnceLock::new(),
            members,
        }
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Closed(self.members.name.clone())) } else { Ok(()) }
    }

    pub fn commit_lock(&self, path: &str) -> &tokio::sync::Mutex<()> {
        let at = xxhash_rust::xxh3::xxh3_64(path.as_bytes()) as usize % self.commits.len();
        &self.commits[at]
    }

    /// Runs blocking work on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let core = self.clone();
        self.members
            .work
            .blocking(move || work(&core))
            .await
            .ok_or_else(|| PoolError::Cancelled(self.members.name.clone()))
    }

    /// As `blocking`, but waits no longer than the disks at these slots answer (H1). Where one does not any more, `work` goes
    /// on without anybody who waits for it: it must not hold what others need.
    pub async fn blocking_on<T: Send + 'static>(
        self: &Arc<Self>,
        slots: impl IntoIterator<Item = u8>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<Result<T, Hanging>, PoolError> {
        match self.members.while_answering(slots, self.blocking(work)).await {
            Ok(done) => done.map(Ok),
            Err(hanging) => Ok(Err(hanging)),
        }
    }

    /// Does `work`, which reads these shards of an object, again and again without the disks that turn out to hang. Blocks.
    pub fn read_watched<T: Send + 'static>(
        self: &Arc<Self>,
        object: &Arc<Object>,
        work: impl Fn(&Arc<Self>, &Object) -> T + Clone + Send + 'static,
    ) -> Result<T, PoolError> {
        let slots: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
        let (core, object) = (self.clone(), object.clone());
        self.members.without_hanging(&slots, move |_| work(&core, &object))
    }

    /// Object bytes stored plus available, and those available: what can really be written.
    pub fn space(&self) -> (u64, u64) {
        let available = self.members.available();
        (self.index.read().bytes + available, available)
    }

    /// Chooses disks for an object and reserves room until the result is dropped.
    pub fn place(&self, size: u64, avoid: &[u8]) -> Result<Placed, PoolError> {
        match self.members.place_beside(reserve_hard, size, avoid) {
            Err(error) if error.is_no_space() && size <= reserve::OBJECT_BYTES_MAX && self.reserves.are_lacking() => {
                self.members.place_beside(|_| 0, size, avoid)
            }
            placed => placed,
        }
    }

    /// Gives up the disks and their locks. Whoever opens the pool next does not meet a writer of ours: what is being
    /// written to a label or a file beside it ends first, and nothing comes after it.
    pub fn give_back_disks(&self) {
        let (labels, _history, _scrub) = (self.members.hold_labels(), self.members.history.hold(), self.scrubs.hold());
        self.members.give_back(&labels);
        self.files.clear();
        self.members.iter().for_each(MemberDisk::detach);
    }

    /// Lets the journal have its copies on the disks that take data, as many as it should have. Blocks.
    pub fn refresh_journal(&self) {
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            journal.refresh_copies();
        }
    }

    /// Bytes of a copy of the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.get().and_then(Weak::upgrade).map_or(0, |journal| journal.copied_bytes())
    }
}
