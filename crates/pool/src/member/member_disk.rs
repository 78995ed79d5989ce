//! One disk of an open pool: its state, its error counts, its room.
//!
//! ```text
//!       write fails, probe fails, hangs         label missing
//!   Online ------------------------> Faulted   ------------> Removed
//!     |  ^                              |                       |
//!     |  | resilvered                   | seen again            | seen again
//!     |  +---- Resilvering <------------+-----------------------+---- Missing
//!     +--> ReadOnly (writes refused, reads answered)
//!
//!   Missing, Removed, Faulted --> Diverged: it went on without this pool; a person takes it back
//! ```
//!
//! - `member.out_before_answer`: a disk that leaves the writable states misses writes from then on.
//!   `in_sync` is false until it has been resilvered, and the labels of the others say so before
//!   the next acknowledgement.
//! - `member.no_more_out_than_survivable`: no more disks are out of sync than the layout survives.
//!   Further disks that fail stay authorities, so that the pool opens when all are back. Writes
//!   that they miss meanwhile are safe: newer versions win, deletes stay in the journal
//!   (`tombstone.kept_until_unlinked`), and missing shards are rebuilt at opening.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::counted::{CountedDisk, DiskCounts};
use crate::disk::watch::Watch;
use crate::disk::{DiskIo, DiskSpace};
use crate::member::divergence::Divergence;
use crate::member::label;

/// The state of a disk; the transitions are drawn at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum DiskState {
    /// Read and written.
    Online = 0,
    /// Back after an absence; being brought up to date.
    Resilvering = 1,
    /// Reads work, writes are refused.
    ReadOnly = 2,
    /// Fails I/O.
    Faulted = 3,
    /// Its directory is missing or lost its label.
    Removed = 4,
    /// Was not there when the pool was opened.
    Missing = 5,
    /// A person asked for it not to be used.
    Offline = 6,
    /// It went on without this pool, and may hold acknowledged data of its own
    /// (`label.lineage_tells_divergence`).
    Diverged = 7,
}

impl DiskState {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Online,
            1 => Self::Resilvering,
            2 => Self::ReadOnly,
            3 => Self::Faulted,
            4 => Self::Removed,
            6 => Self::Offline,
            7 => Self::Diverged,
            _ => Self::Missing,
        }
    }
}

impl std::fmt::Display for DiskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Online => "online",
            Self::Resilvering => "being resilvered",
            Self::ReadOnly => "read-only",
            Self::Faulted => "faulted",
            Self::Removed => "removed",
            Self::Missing => "missing",
            Self::Offline => "offline",
            Self::Diverged => "diverged",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Read,
    Write,
    Checksum,
}

/// Free space is asked of the filesystem at most this often.
const SPACE_AGE_MAX: Duration = Duration::from_millis(100);
/// The same for a look that asks no disk, while nothing is written: other programs may use the filesystem.
const KNOWN_SPACE_AGE_MAX: Duration = Duration::from_secs(300);
/// How long a disk that said "no space" is taken at its word.
const FULL_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct MemberDisk {
    pub id: Uuid,
    pub path: RwLock<PathBuf>,
    io: RwLock<Option<Arc<dyn DiskIo>>>,
    /// The calls since it was attached.
    watch: RwLock<Arc<Watch>>,
    lock: Mutex<Option<Box<dyn Any + Send + Sync>>>,
    state: AtomicU8,
    pub in_sync: AtomicBool,
    /// Its label was damaged, so all on it is read and verified before it counts as in sync.
    pub suspect: AtomicBool,
    /// An older copy of itself lay in its place when the pool was opened
    /// (`label.settled_outlives`).
    pub rolled_back: AtomicBool,
    /// Its label is older than one that was settled: its copy of the journal is not believed, in sync or not. What missed
    /// that label may have missed batches, too (`label.settled_outlives`).
    pub unsettled: AtomicBool,
    /// The side of it that went on without this pool, while it has diverged.
    pub divergence: Mutex<Option<Divergence>>,
    /// Why it was out of date when the pool was opened.
    pub stale: Mutex<Option<String>>,
    /// It takes no new data, and its data moves to others.
    pub leaving: AtomicBool,
    /// The disk whose place it takes, until that one has left.
    replaces: Mutex<Option<Uuid>>,
    /// It has left; only its slot remains.
    retired: AtomicBool,
    pub read_errors: AtomicU64,
    pub write_errors: AtomicU64,
    pub checksum_errors: AtomicU64,
    /// It joined, or errors of it were counted or cleared, since the pool was opened. Else an earlier
    /// life of the pool may have counted some.
    has_count: AtomicBool,
    pub counts: Arc<DiskCounts>,
    /// Bytes of shards made anew on it since it is back.
    pub resilvered_bytes: AtomicU64,
    /// Bytes promised to writers that are still at work.
    pub pending_bytes: AtomicU64,
    /// Reads under way, to choose among copies.
    pub reading: AtomicU64,
    space: Mutex<Option<SpaceSeen>>,
    full_until: Mutex<Option<Instant>>,
    /// It has said "no space" since somebody last made room. While its filesystem has no inodes it stays
    /// full, whatever bytes are free.
    has_refused: AtomicBool,
    /// When it went out of use, as far as is known.
    out_since: Mutex<Option<Instant>>,
    /// The last error, for people.
    pub last_error: Mutex<String>,
}

/// The room on a disk, as it was seen last.
#[derive(Clone, Copy, Debug)]
struct SpaceSeen {
    /// Since when it counts as fresh; `None`: to be looked at again.
    fresh: Option<Instant>,
    looked: Instant,
    /// [`MemberDisk::written`] then.
    written: u64,
    space: DiskSpace,
}

impl MemberDisk {
    pub fn new(id: Uuid, path: PathBuf) -> Self {
        Self {
            id,
            path: RwLock::new(path),
            io: RwLock::new(None),
            watch: RwLock::default(),
            lock: Mutex::new(None),
            state: AtomicU8::new(DiskState::Missing as u8),
            in_sync: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            rolled_back: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            divergence: Mutex::default(),
            stale: Mutex::default(),
            leaving: AtomicBool::new(false),
            replaces: Mutex::default(),
            retired: AtomicBool::new(false),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            checksum_errors: AtomicU64::new(0),
            has_count: AtomicBool::new(true),
            counts: Arc::default(),
            resilvered_bytes: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            reading: AtomicU64::new(0),
            space: Mutex::new(None),
            full_until: Mutex::new(None),
            has_refused: AtomicBool::new(false),
            out_since: Mutex::new(None),
            last_error: Mutex::new(String::new()),
        }
    }

    /// A disk as the label has it, not attached yet.
    pub fn of_entry(entry: &label::Member) -> Self {
        let new = Self { replaces: Mutex::new(entry.replaces), ..Self::new(entry.id, entry.path.clone()) };
        new.has_count.store(false, Ordering::Release);
        new.leaving.store(entry.leaving, Ordering::Release);
        if entry.offline {
            new.set_state(DiskState::Offline);
        }
        new
    }

    /// Its entry on the label.
    pub fn entry(&self) -> label::Member {
        label::Member {
            id: self.id,
            path: self.path.read().clone(),
            in_sync: self.is_in_sync(),
            suspect: self.is_suspect(),
            leaving: self.is_leaving(),
            offline: self.state() == DiskState::Offline,
            replaces: self.replaces(),
            diverged: self.divergence.lock().as_ref().map(|divergence| divergence.seen),
        }
    }

    pub fn state(&self) -> DiskState {
        DiskState::from_byte(self.state.load(Ordering::Acquire))
    }

    pub fn set_state(&self, state: DiskState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// From now on calls to `io` are counted and watched as those to this disk.
    pub fn watched(&self, io: Arc<dyn DiskIo>) -> Arc<dyn DiskIo> {
        let watch = io.watch().unwrap_or_default();
        *self.watch.write() = Arc::clone(&watch);
        Arc::new(CountedDisk { inner: io, counts: Arc::clone(&self.counts), watch })
    }

    pub fn watch(&self) -> Arc<Watch> {
        self.watch.read().clone()
    }

    /// Takes a disk in use whose calls are counted ([`Self::watched`]).
    pub fn attach(&self, io: Arc<dyn DiskIo>, lock: Box<dyn Any + Send + Sync>, path: PathBuf) {
        *self.path.write() = path;
        *self.space.lock() = io.space().ok().map(|space| SpaceSeen { fresh: None, ..self.seen(space) });
        *self.io.write() = Some(io);
        *self.lock.lock() = Some(lock);
        self.resilvered_bytes.store(0, Ordering::Relaxed);
        *self.out_since.lock() = None;
    }

    pub fn detach(&self) {
        *self.io.write() = None;
        *self.lock.lock() = None;
    }

    pub fn is_readable(&self) -> bool {
        matches!(self.state(), DiskState::Online | DiskState::Resilvering | DiskState::ReadOnly)
    }

    pub fn is_writable(&self) -> bool {
        matches!(self.state(), DiskState::Online | DiskState::Resilvering)
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub fn replaces(&self) -> Option<Uuid> {
        *self.replaces.lock()
    }

    pub fn set_replaces(&self, disk: Option<Uuid>) {
        *self.replaces.lock() = disk;
    }

    /// Whether new data may be put on it.
    pub fn takes_data(&self) -> bool {
        self.is_writable() && !self.is_leaving()
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// From now on the pool does not know it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    pub fn is_in_sync(&self) -> bool {
        self.in_sync.load(Ordering::Acquire)
    }

    /// The disk, whatever its state.
    pub fn io(&self) -> std::io::Result<Arc<dyn DiskIo>> {
        self.io
            .read()
            .clone()
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotConnected, "the disk is not there"))
    }

    /// Counts an error; whether it is the first of its kind since the counters were zero.
    pub fn count(&self, kind: ErrorKind, error: &str) -> bool {
        let counter = match kind {
            ErrorKind::Read => &self.read_errors,
            ErrorKind::Write => &self.write_errors,
            ErrorKind::Checksum => &self.checksum_errors,
        };
        *self.last_error.lock() = error.to_owned();
        self.has_count.store(true, Ordering::Release);
        counter.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Whether its counters say more than that this life of the pool has counted nothing.
    pub fn has_count(&self) -> bool {
        self.has_count.load(Ordering::Acquire)
    }

    /// The disk is up to date, and the reason why it was out of use is over. Counted errors are
    /// shown until they are cleared.
    pub fn forget_why_out(&self) {
        let counters = [&self.read_errors, &self.write_errors, &self.checksum_errors];
        if counters.iter().all(|counter| counter.load(Ordering::Relaxed) == 0) {
            self.last_error.lock().clear();
        }
    }

    pub fn clear_errors(&self) {
        for counter in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            counter.store(0, Ordering::Relaxed);
        }
        self.has_count.store(true, Ordering::Release);
        self.last_error.lock().clear();
    }

    /// The room that the filesystem reports, at most [`SPACE_AGE_MAX`] old.
    pub fn space(&self) -> DiskSpace {
        let mut cached = self.space.lock();
        if let Some(seen) = *cached
            && seen.fresh.is_some_and(|at| at.elapsed() < SPACE_AGE_MAX)
        {
            return seen.space;
        }
        let fresh = self.io().and_then(|io| io.space());
        // Unknown is not full: the next write finds out whether the disk is well.
        let space = fresh.unwrap_or_else(|_| cached.map(|seen| seen.space).unwrap_or_default());
        *cached = Some(self.seen(space));
        space
    }

    /// For a look that asks no disk: what was seen last counts as fresh once more, unless something was written since.
    pub fn keep_space(&self) {
        let written = self.written();
        if let Some(seen) = &mut *self.space.lock()
            && (seen.fresh.is_some() && seen.written == written && seen.looked.elapsed() < KNOWN_SPACE_AGE_MAX)
        {
            seen.fresh = Some(Instant::now());
        }
    }

    /// The next caller looks again. The old figure is kept for the case that the disk does not
    /// answer.
    pub fn forget_space(&self) {
        if let Some(seen) = &mut *self.space.lock() {
            seen.fresh = None;
        }
    }

    fn seen(&self, space: DiskSpace) -> SpaceSeen {
        let now = Instant::now();
        SpaceSeen { fresh: Some(now), looked: now, written: self.written(), space }
    }

    /// Grows with whatever is written.
    fn written(&self) -> u64 {
        self.counts.writes.get() + self.counts.syncs.get()
    }

    /// Notes that it is out of use, unless that is known; returns for how long.
    pub fn out_since(&self) -> Duration {
        self.out_since.lock().get_or_insert_with(Instant::now).elapsed()
    }

    pub fn mark_full(&self) {
        *self.full_until.lock() = Some(Instant::now() + FULL_FOR);
        self.has_refused.store(true, Ordering::Release);
        self.forget_space();
    }

    /// Something was deleted: the disk may have room again.
    pub fn unmark_full(&self) {
        *self.full_until.lock() = None;
        self.has_refused.store(false, Ordering::Release);
    }

    pub fn is_full(&self) -> bool {
        let is_told = self.full_until.lock().is_some_and(|until| Instant::now() < until);
        is_told || self.has_refused.load(Ordering::Acquire) && self.space().without_inodes
    }
}

/// Room that ordinary data leaves free, so that metadata can still be written when users see a
/// full pool. Shown as not available.
pub fn reserve_soft(total_bytes: u64) -> u64 {
    (total_bytes / 64).clamp(2 << 20, 1 << 30)
}

/// Room that nothing but labels and repairs uses.
pub fn reserve_hard(total_bytes: u64) -> u64 {
    reserve_soft(total_bytes) / 4
}
