//! The state that operations and tasks of one volume's file data share.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::Clock;
use larder_fs::*;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::extents::{SegmentId, WINDOW_BYTES};
use super::fetch::Fetch;
use super::gate::{Gate, set_aside};
use super::line::Line;
use super::memory::{Memory, RecordKey};
use super::preserved::copies::Cut;
use super::queue::Queue;
use super::segments::Segments;
use crate::backing::Space;
use crate::counts::VolumeCounts;
use crate::inode::Inode;
use crate::marks::Marks;
use crate::meta::{Meta, Ticket};
use crate::properties::{Compression, Properties, ZstdLevel};

/// Hands out inodes by number, for the replay of intents and garbage collection
/// (`inode.one_per_number`). [`FsError::NotFound`] or [`FsError::Stale`] say that the inode is gone
/// for good. Must work from the moment `Data::open` is called.
#[async_trait]
pub(crate) trait InodeSource: Send + Sync + 'static {
    async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>>;
    /// `None`: not in memory.
    fn cached(&self, ino: Ino) -> Option<Arc<Inode>>;
}

/// Settings that may change while the volume is open.
pub(crate) struct DataSettings {
    record_bytes: AtomicU32,
    /// 0 none, 1 LZ4, above it the level of zstd, shifted by one.
    compression: AtomicU8,
}

impl DataSettings {
    pub(crate) fn new(properties: &Properties) -> Self {
        let settings = Self { record_bytes: AtomicU32::new(0), compression: AtomicU8::new(0) };
        settings.set(properties);
        settings
    }

    pub(crate) fn set(&self, properties: &Properties) {
        let record_bytes = properties.record_bytes.clamp(4096, WINDOW_BYTES as u32);
        // Rounded down to a power of two: records must not cross windows (`extents.one_window`).
        self.record_bytes.store(1 << record_bytes.ilog2(), Ordering::Relaxed);
        let code = match properties.compression {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd(level) => level.get() + 1,
        };
        self.compression.store(code, Ordering::Relaxed);
    }

    pub(super) fn record_bytes(&self) -> u64 {
        u64::from(self.record_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn compression(&self) -> Compression {
        match self.compression.load(Ordering::Relaxed) {
            0 => Compression::None,
            1 => Compression::Lz4,
            code => ZstdLevel::new(code - 1).map_or(Compression::ZSTD, Compression::Zstd),
        }
    }
}

/// Everything `Data` stands on.
pub(crate) struct DataParts {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Segments lie under `<prefix>/seg/`.
    pub(crate) prefix: Path,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) settings: Arc<DataSettings>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) space: Arc<dyn Space>,
    pub(crate) inodes: Arc<dyn InodeSource>,
    /// Unreferenced segments may be all that is left of changes that the log has lost.
    pub(crate) keeps_orphans: bool,
    /// Other machines can reach the store (`segment.numbers_of_an_opening`).
    pub(crate) shared: bool,
    /// It is encrypted (`arena.wiped`).
    pub(crate) is_sealed: bool,
    /// Set before the first range is reserved: programs that do not know of reserved ranges are
    /// kept out.
    pub(crate) marks: Arc<Marks>,
    /// The newest segment that is an ancestor's (`lineage.by_number`); 0: none is.
    pub(crate) inherited: u64,
    /// The epoch, and the snapshots that there are.
    pub(crate) epoch: u64,
    pub(crate) snapshots: Vec<u64>,
    /// Another process writes the volume: nothing is stored, moved or deleted here.
    pub(crate) followed: bool,
}

impl DataParts {
    /// The store lies behind a network: a request is dear, and a large one is little dearer than a
    /// small one.
    pub(super) fn is_far(&self) -> bool {
        self.shared
    }

    /// Contents of an encrypted volume: their slots are zeroed before others use them.
    pub(super) fn mark_sealed(&self, chunks: &[Bytes]) {
        if self.is_sealed {
            chunks.iter().for_each(|chunk| _ = larder_base::arena::wipe_when_freed(chunk));
        }
    }
}

/// Bytes in memory beyond the engine's `Usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataUsage {
    /// Bytes accepted and not yet in `Usage::logical_bytes` (an upper bound: overwrites count too).
    pub(crate) dirty_bytes: u64,
    /// Bytes that are reserved and not written, not even in memory.
    pub(crate) reserved_bytes: u64,
    /// Bytes of segment objects, dead parts included.
    pub(crate) segment_bytes: u64,
    /// Bytes of segments that nothing refers to: GC will give them back.
    pub(crate) dead_bytes: u64,
    pub(crate) segments: u64,
}

/// One per open volume. Dropped without `close`, it stops at once: as in a crash.
pub(crate) struct Data(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) parts: DataParts,
    pub(super) counts: VolumeCounts,
    /// Of this volume in the record cache.
    pub(super) volume: u32,
    /// Writes are numbered; the order of numbers is the order of their effects.
    pub(super) seq: AtomicU64,
    pub(super) segments: Mutex<Segments>,
    pub(super) cut: Cut,
    /// Numbers from here on were given out by this opening.
    pub(super) first_own: SegmentId,
    pub(super) queue: Mutex<Queue>,
    /// Charge of ranges that no flush has taken.
    pub(super) idle_bytes: AtomicI64,
    /// Charge that this volume holds of the memory bound.
    pub(super) charged: AtomicI64,
    /// Bytes of data in dirty maps.
    pub(super) dirty_bytes: AtomicI64,
    /// This volume's part of the promise to reserved ranges (`reserved.promise_moves`).
    pub(super) reserved: AtomicI64,
    pub(super) flush_wake: Notify,
    /// After every committed flush and every failed put.
    pub(super) progress: Notify,
    /// Loads handed to the committer, and loads committed by it.
    pub(super) loads: (AtomicU64, AtomicU64),
    /// Puts of segments that may be under way together.
    pub(super) puts: Arc<Semaphore>,
    /// Puts of segments that the store is working on (`flush.refused_beside_others`).
    pub(super) storing: std::sync::atomic::AtomicUsize,
    /// Threads that compress, verify and decompress.
    pub(super) workers: Arc<Semaphore>,
    /// The last put failed and is being tried again.
    pub(super) failing: Mutex<Option<FsError>>,
    pub(super) poison: Mutex<Option<Arc<str>>>,
    pub(super) fetches: Mutex<HashMap<RecordKey, Arc<Fetch>>>,
    pub(super) fetch_bytes: AtomicU64,
    pub(super) line: Line,
    pub(super) gate: Gate,
    /// There are rows of sharers, or were some (`share.sharers_are_noted`).
    pub(super) has_sharers: std::sync::atomic::AtomicBool,
    /// Inodes whose data is being removed: its room is on its way back.
    pub(super) removals: std::sync::atomic::AtomicUsize,
    /// Extents in memory, and the inodes that have many, oldest first.
    pub(super) extents_total: Arc<std::sync::atomic::AtomicUsize>,
    pub(super) extents_list: Mutex<std::collections::VecDeque<std::sync::Weak<Inode>>>,
    pub(super) gc_wake: Notify,
    /// Garbage collection is asked to work although the volume has room by its own measure.
    pub(super) gc_wanted: std::sync::atomic::AtomicBool,
    pub(super) gc_rounds: AtomicU64,
    /// Retired segments whose objects replicas may still read, and when they may go (`maintain.grace_of_replicas`).
    pub(super) resting: Mutex<VecDeque<(Duration, SegmentId, Ticket)>>,
    /// One collection at a time; `check` holds it too.
    pub(super) gc_running: tokio::sync::Mutex<()>,
    pub(super) stop: CancellationToken,
    /// Tasks to wait for at close.
    pub(super) tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl Inner {
    pub(super) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn poison(&self, error: &FsError) -> FsError {
        let mut poison = self.poison.lock();
        let why = poison.get_or_insert_with(|| {
            tracing::error!(%error, "file data can no longer be stored; the volume refuses writes until it is reopened");
            match error {
                FsError::Poisoned(why) => why.clone(),
                error => error.to_string().into(),
            }
        });
        let error = FsError::Poisoned(Arc::clone(why));
        drop(poison);
        self.progress.notify_waiters();
        self.parts.memory.failing.notify_waiters();
        error
    }

    pub(super) fn check_poison(&self) -> FsResult<()> {
        match &*self.poison.lock() {
            Some(why) => Err(FsError::Poisoned(Arc::clone(why))),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Data that was never stored is gone with the volume; other volumes need the room.
        self.parts.memory.release(self.charged.load(Ordering::Relaxed).max(0) as u64);
        self.parts.memory.reserved.fetch_sub(self.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

impl Data {
    /// Bytes that can still be written into a store of this (total, available) room.
    pub(crate) fn writable(&self, room: (u64, u64)) -> u64 {
        self.0.writable(room)
    }

    /// Room that reserved ranges of all volumes of the store may still take.
    pub(crate) fn set_aside(&self) -> u64 {
        set_aside(self.0.parts.memory.reserved())
    }

    /// `reap` of some inode will be called.
    pub(crate) fn removal_begins(&self) {
        self.0.removals.fetch_add(1, Ordering::AcqRel);
    }

    /// It was, or will not be in this opening.
    pub(crate) fn removal_ends(&self) {
        let removals = self.0.removals.fetch_sub(1, Ordering::AcqRel);
        assert!(removals > 0, "a removal ends once");
    }

    /// Some inode's data is on its way out.
    pub(crate) fn is_removing(&self) -> bool {
        self.0.removals.load(Ordering::Acquire) > 0
    }

    /// Segments that extents refer to, now or in a snapshot, and the lengths of their objects.
    pub(crate) fn segments_in_use(&self) -> Vec<(SegmentId, u64)> {
        let segments = self.0.segments.lock();
        let in_use = segments.iter().filter(|(_, segment)| segments.is_used(segment));
        in_use.map(|(id, segment)| (id, segment.object_bytes)).collect()
    }

    pub(crate) fn counts(&self) -> &VolumeCounts {
        &self.0.counts
    }

    pub(crate) fn usage(&self) -> DataUsage {
        let segments = self.0.segments.lock();
        let (segment_bytes, live_bytes) = segments.bytes();
        DataUsage {
            dirty_bytes: self.0.dirty_bytes.load(Ordering::Relaxed).max(0) as u64,
            reserved_bytes: self.0.reserved.load(Ordering::Relaxed).max(0) as u64,
            segment_bytes,
            dead_bytes: segment_bytes - live_bytes,
            segments: segments.len() as u64,
        }
    }
}

/// The error of a caller for an error of the store.
pub(super) fn store_error(what: &str, error: &object_store::Error) -> FsError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && matches!(io.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        {
            return FsError::NoSpace(format!("{what}: {io}"));
        }
        source = cause.source();
    }
    FsError::Io(format!("{what}: {error}").into())
}
