//! File data: from what clients write to segment objects and extents, and back.
//!
//! ```text
//! write -> dirty ranges -> segment (put) -> one batch: extents, segment table, inode records
//!             |                                  ^
//!             +-- small fsync: intents ----------+ (the batch also deletes them)
//! ```
//!
//! A1. Nothing in the engine refers to an object before the object is durable, and no object is deleted before
//!     the batch that took its last extent is durable. A crash leaves an orphan object at worst.
//! A2. Flushes are committed in the order in which they took their ranges: what is newer always lies over what is older.
//! A3. Room is found before a write is accepted; an accepted write is never dropped for want of it.
//! A4. When the engine fails, nothing is accepted any more (poison); what is in memory can still be read. A
//!     store that fails is tried again for as long as the volume is open, and everyone who waits is told.
//! A5. Every background task sleeps until it is woken; while nothing is dirty there is no timer.
//!
//! Modules: `dirty`, `extents`, `segment`, `segments`, `compress` are pure; `write`, `read`, `flush`, `commit`, `gc` move data;
//! `allocate` and `reserved` set room aside for data that is still to come.

mod allocate;
mod check;
mod commit;
mod compress;
mod dirty;
mod extents;
mod file;
mod flush;
mod gc;
mod heavy;
mod intents;
mod memory;
mod open;
mod read;
mod reserved;
mod segment;
mod segments;
mod space;
mod write;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use larder_base::Clock;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::inode::Inode;
use crate::marks::Marks;
use crate::meta::Meta;
use crate::metrics::VolumeCounts;
use crate::types::*;
use crate::volume::{Compression, Properties, Space};

pub(crate) use compress::decompress;
pub(crate) use dirty::Payload as IntentPayload;
#[cfg(test)]
pub(crate) use extents::Extent;
#[cfg(any(test, fuzzing))]
pub(crate) use extents::{Codec, put_extent};
pub(crate) use extents::{EXTENT_TAG, Place, RecordRef, SegmentId, decode_extent};
pub(crate) use file::FileState;
pub(crate) use intents::{INTENT_TAG, decode as decode_intent, decode_mask};
pub(crate) use memory::Memory;
pub(crate) use reserved::{RESERVED_TAG, decode_reserved};
#[cfg(any(test, fuzzing))]
pub(crate) use reserved::{encode_reserved, reserved_key};
#[cfg(test)]
pub(crate) use segment::Builder as SegmentBuilder;
pub(crate) use segment::{
    FOOTER_BYTES, Footer, HEADER_BYTES, IndexEntry, object_path, parse_footer, parse_index, place_seed, segment_of,
    verify_header,
};
#[cfg(test)]
pub(crate) use segments::Segment;
#[cfg(any(test, fuzzing))]
pub(crate) use segments::encode_segment;
pub(crate) use segments::{SEGMENT_TAG, decode_segment};
pub(crate) use space::margin;
pub(crate) use write::WriteAt;

/// Hands out inodes by number: at most one `Inode` per number exists (I1). Replay of intents and garbage collection need it.
/// [`FsError::NotFound`] or [`FsError::Stale`] say that the inode is gone for good. Must work from the moment `Data::open` is called.
#[async_trait]
pub(crate) trait InodeSource: Send + Sync + 'static {
    async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>>;
    /// `None`: not in memory.
    fn cached(&self, ino: Ino) -> Option<Arc<Inode>>;
}

/// What may change while the volume is open.
pub(crate) struct DataSettings {
    record_bytes: AtomicU32,
    compression: AtomicU8,
}

impl DataSettings {
    pub(crate) fn new(properties: &Properties) -> Self {
        let settings = Self { record_bytes: AtomicU32::new(0), compression: AtomicU8::new(0) };
        settings.set(properties);
        settings
    }

    pub(crate) fn set(&self, properties: &Properties) {
        let record_bytes = properties.record_bytes.clamp(4096, extents::WINDOW_BYTES as u32);
        // Rounded down to a power of two: records must not cross windows (E1).
        self.record_bytes.store(1 << record_bytes.ilog2(), Ordering::Relaxed);
        self.compression.store(properties.compression as u8, Ordering::Relaxed);
    }

    fn record_bytes(&self) -> u64 {
        u64::from(self.record_bytes.load(Ordering::Relaxed))
    }

    fn compression(&self) -> Compression {
        let raw = self.compression.load(Ordering::Relaxed);
        [Compression::Lz4, Compression::Zstd].into_iter().find(|&c| c as u8 == raw).unwrap_or(Compression::None)
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
    /// Segments that nothing refers to may be all that is left of what the log has lost.
    pub(crate) keeps_orphans: bool,
    /// Set before the first range is reserved: programs that do not know of reserved ranges are kept out.
    pub(crate) marks: Arc<Marks>,
}

/// What is in memory beyond the engine's `Usage`.
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
pub(crate) struct Data(Arc<Inner>);

struct Inner {
    parts: DataParts,
    counts: VolumeCounts,
    /// Of this volume in the record cache.
    volume: u32,
    /// Writes are numbered; the order of numbers is the order of their effects.
    seq: AtomicU64,
    segments: Mutex<segments::Segments>,
    /// Numbers from here on were given out by this opening.
    first_own: extents::SegmentId,
    queue: Mutex<flush::Queue>,
    /// Charge of ranges that no flush has taken.
    idle_bytes: AtomicI64,
    /// Charge that this volume holds of the memory bound.
    charged: AtomicI64,
    /// Bytes of data in dirty maps.
    dirty_bytes: AtomicI64,
    /// This volume's part of the promise to reserved ranges (Q3).
    reserved: AtomicI64,
    flush_wake: Notify,
    /// After every committed flush and every failed put.
    progress: Notify,
    /// Loads handed to the committer, and loads committed by it.
    loads: (AtomicU64, AtomicU64),
    /// Puts of segments that may be under way together.
    puts: Arc<Semaphore>,
    /// Threads that compress, verify and decompress.
    workers: Arc<Semaphore>,
    /// The last put failed and is being tried again.
    failing: Mutex<Option<FsError>>,
    poison: Mutex<Option<Arc<str>>>,
    fetches: Mutex<HashMap<memory::RecordKey, Arc<read::Fetch>>>,
    fetch_bytes: AtomicU64,
    gate: space::Gate,
    /// Inodes whose data is being removed: its room is on its way back.
    removals: std::sync::atomic::AtomicUsize,
    /// Extents in memory, and the inodes that have many, oldest first.
    extents_total: Arc<std::sync::atomic::AtomicUsize>,
    extents_list: Mutex<std::collections::VecDeque<std::sync::Weak<Inode>>>,
    gc_wake: Notify,
    /// Garbage collection is asked to work although the volume has room by its own measure.
    gc_wanted: std::sync::atomic::AtomicBool,
    gc_rounds: AtomicU64,
    /// One collection at a time; `check` holds it too.
    gc_running: tokio::sync::Mutex<()>,
    stop: CancellationToken,
    /// Tasks to wait for at close.
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl Inner {
    fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn poison(&self, error: &FsError) -> FsError {
        let mut poison = self.poison.lock();
        let why = poison.get_or_insert_with(|| {
            tracing::error!(%error, "file data can no longer be stored; the volume refuses writes until it is reopened");
            error.to_string().into()
        });
        let error = FsError::Poisoned(Arc::clone(why));
        drop(poison);
        self.progress.notify_waiters();
        self.parts.memory.failing.notify_waiters();
        error
    }

    fn check_poison(&self) -> FsResult<()> {
        match &*self.poison.lock() {
            Some(why) => Err(FsError::Poisoned(Arc::clone(why))),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What was never stored is gone with the volume; other volumes need the room.
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
    /// What can still be written into a store of this (total, available) room.
    pub(crate) fn writable(&self, room: (u64, u64)) -> u64 {
        self.0.writable(room)
    }

    /// Room that reserved ranges of all volumes of the store may still take.
    pub(crate) fn set_aside(&self) -> u64 {
        space::set_aside(self.0.parts.memory.reserved())
    }

    /// `reap` of some inode will be called.
    pub(crate) fn removal_begins(&self) {
        self.0.removals.fetch_add(1, Ordering::AcqRel);
    }

    /// It was, or will not be in this opening.
    pub(crate) fn removal_ends(&self) {
        self.0.removals.fetch_sub(1, Ordering::AcqRel);
    }

    /// Some inode's data is on its way out.
    pub(crate) fn is_removing(&self) -> bool {
        self.0.removals.load(Ordering::Acquire) > 0
    }

    /// Segments that extents refer to, and the lengths of their objects.
    pub(crate) fn segments_in_use(&self) -> Vec<(SegmentId, u64)> {
        let segments = self.0.segments.lock();
        let in_use = segments.iter().filter(|(_, segment)| segment.extents > 0 && !segment.pending);
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

/// What a store's error means to a caller.
fn store_error(what: &str, error: &object_store::Error) -> FsError {
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
