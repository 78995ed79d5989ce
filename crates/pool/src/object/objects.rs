//! The objects of an open pool: stored and deleted ones, and the locks of their readers and
//! writers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use quick_cache::sync::Cache;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::disk::DiskFile;
use crate::object::group::Groups;
use crate::object::index::{Grave, Graveyard, Index, Object};
use crate::object::versions::Versions;

/// Objects being written at once: bounds threads and memory, far above the needs of a disk.
const WRITERS_MAX: usize = 16;

/// Blocking reads at once.
const READERS_MAX: usize = 64;

/// Locks that order commits of one path.
const COMMIT_LOCKS: usize = 64;

/// Files kept open for reading; each may hold two descriptors, with and without the kernel's cache.
const OPEN_FILES_MAX: usize = 384;

/// Identifies an open shard file: disk, version, shard.
pub type FileKey = (u8, u64, u8);

/// The objects of an open pool.
pub struct Objects {
    index: RwLock<Index>,
    pub graveyard: Graveyard,
    pub versions: Versions,
    /// Files kept open for reading.
    pub files: Cache<FileKey, Arc<dyn DiskFile>>,
    /// Deleted versions whose tombstones are not trimmed, by path (`write.outrun`).
    pub(super) deleted: Mutex<BTreeMap<String, u64>>,
    /// Versions that were refused after some of their shards had a name. One may be found at the
    /// next opening, so a delete of the path deletes it, too.
    pub(super) refused: Mutex<BTreeMap<String, Object>>,
    /// Files that a disk would not unlink (`tombstone.kept_until_unlinked`).
    pub(super) stubborn: Mutex<Vec<Grave>>,
    /// An authority has failed to sync unlinked files. A second sync may report success without
    /// them, so tombstones stay until the pool is opened again (`tombstone.kept_until_unlinked`).
    pub(super) unsynced: AtomicBool,
    pub(super) writers: Semaphore,
    pub(super) groups: Groups,
    pub(super) readers: Semaphore,
    commits: Vec<tokio::sync::Mutex<()>>,
}

impl Objects {
    pub fn new(graveyard: Graveyard) -> Self {
        Self {
            index: RwLock::default(),
            graveyard,
            versions: Versions::default(),
            files: Cache::new(OPEN_FILES_MAX),
            deleted: Mutex::default(),
            refused: Mutex::default(),
            stubborn: Mutex::default(),
            unsynced: AtomicBool::new(false),
            writers: Semaphore::new(WRITERS_MAX),
            groups: Groups::default(),
            readers: Semaphore::new(READERS_MAX),
            commits: (0..COMMIT_LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
        }
    }

    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    pub fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }

    /// Orders the commits of one path.
    pub fn commit_lock(&self, path: &str) -> &tokio::sync::Mutex<()> {
        let at = xxhash_rust::xxh3::xxh3_64(path.as_bytes()) as usize % self.commits.len();
        &self.commits[at]
    }

    /// Waits until no object is being written. None is begun while the permit is held.
    pub async fn hold_writers(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.writers.acquire_many(WRITERS_MAX as u32).await
    }
}
