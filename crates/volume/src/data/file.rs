//! The data side of an inode in memory.
//!
//! - `data.extents_lock`: `extents_lock` is held for writing while stored extents change (from
//!   reading the old ones to the submitted batch) and for reading while extents are loaded. Reads
//!   and writes that need nothing loaded take only `state`.
//! - `data.lock_order`: `extents_lock` (by ascending inode when several are taken), the gate of
//!   cuts ([`Uncut`](super::preserved::copies::Uncut)), the volume's segment table, `state` (by ascending inode), the flusher's queue, `core`. All but the first
//!   are held for moments, never across an await.
//! - `data.dirty_over_extents`: a read sees dirty ranges over extents over zeros. A range leaves
//!   `dirty` only after its extents are in the map (or the map has dropped that window) under the
//!   same lock.
//! - `data.gone_stores_nothing`: once `gone` is set, nothing about the inode is stored but the
//!   removal of its keys. A task that submits a batch with its record holds `state` from the check
//!   of `gone` to the submission.
//! - `data.traces_before_batch`: before a batch about the inode is prepared, `traces` is set, and
//!   `core.gone` is checked after that. So an unlink that found no traces, and set `core.gone`
//!   under the same lock, is never followed by a batch of data.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use larder_fs::FsError;
use parking_lot::Mutex;
use tokio::sync::{RwLock, Semaphore};

use super::dirty::{DirtyMap, DirtyPiece, Taken};
use super::extents::{Extent, ExtentMap};
use super::intents::{Intents, Zeros};
use super::preserved::Preserved;
use super::reserved::{Ranges, Reserved};

/// The data side of an inode, embedded in it.
pub(crate) struct FileState {
    pub(super) extents_lock: RwLock<()>,
    pub(super) state: Mutex<FileData>,
    /// The engine may hold something of the inode's data, or will (`data.traces_before_batch`).
    /// Read without `state`, under `core`.
    pub(super) traces: AtomicBool,
    /// It has reserved ranges, or had some since it is in memory (`reserved.rows_under_state`).
    /// Read without `state`.
    pub(super) has_reserved: AtomicBool,
}

#[derive(Default)]
pub(super) struct FileData {
    /// Read by anybody who holds `state`; changed through [`Changing`] alone.
    blocks: Blocks,
    /// Of a volume that another process writes: its intents lie in `dirty`.
    pub(super) intents_laid: bool,
    /// The newest write.
    pub(super) last_seq: u64,
    /// Every write up to this one is in extents, or newer data over it is.
    pub(super) flushed_seq: u64,
    /// It is in the flusher's queue.
    pub(super) queued: bool,
    /// Flushes under way that hold ranges of it, also ranges overwritten since.
    pub(super) in_flight: u32,
    pub(super) gone: bool,
    /// The epoch whose cut has been seen (`cut.before_change`).
    pub(super) epoch: u64,
    /// How many flushes failed, and the last reason: callers that wait for a flush get it.
    pub(super) failures: u64,
    pub(super) failure: Option<FsError>,
    /// Sequential readers, most recent last.
    pub(super) streams: Vec<Stream>,
    pub(super) scattered: Scattered,
    /// Turns of requests that read it ahead (`ahead.in_turn`); there are none before the first.
    pub(super) turns: Option<Arc<Semaphore>>,
    /// Extents that read-ahead will need are being loaded.
    pub(super) loads_ahead: bool,
    /// How many extents it has counted in the volume's total.
    pub(super) counted: Counted,
}

/// The content of a file, as far as it is in memory.
#[derive(Default)]
pub(super) struct Blocks {
    pub(super) dirty: DirtyMap,
    pub(super) extents: ExtentMap,
    /// Intents in the engine by (write, offset). Known completely: they are replayed at open.
    pub(super) intents: Intents,
    pub(super) reserved: Reserved,
}

impl Deref for FileData {
    type Target = Blocks;

    fn deref(&self) -> &Blocks {
        &self.blocks
    }
}

/// Steps that change neither what a reader finds nor what a snapshot needs.
impl FileData {
    /// Extents that were read from the engine.
    pub(super) fn load_extents(&mut self, range: Range<u64>, found: Vec<(u64, Extent)>) {
        self.blocks.extents.load(range, found);
    }

    /// They are read again when they are needed.
    pub(super) fn forget_extents(&mut self) {
        self.blocks.extents.forget();
    }

    /// Reserved ranges that were read from the engine. Nothing is dirty: data is laid over a file only after this.
    pub(super) fn load_reserved(&mut self, ranges: Ranges) {
        self.blocks.reserved = Reserved { unclaimed: ranges.bytes(), ranges: Some(ranges) };
    }

    /// An intent of another process that writes the volume.
    pub(super) fn lay_intent(&mut self, offset: u64, piece: DirtyPiece) {
        self.blocks.dirty.insert(offset, piece);
    }

    /// Marks ranges, and zero intents, as taken by a flush. Returns the charge of the ranges, too.
    pub(super) fn take(&mut self, max_bytes: u64) -> (Vec<Taken>, u64, Vec<Zeros>) {
        let (taken, charge) = self.blocks.dirty.take(max_bytes);
        (taken, charge, self.blocks.intents.take_zeros())
    }
}

/// The state of an inode that is being changed. There is one only while no cut can happen, and it is made after the last cut
/// has its copy ([`Preserved`]): so `cut.before_change` holds for every change of blocks.
pub(super) struct Changing<'s> {
    state: &'s mut FileData,
    _preserved: Preserved<'s>,
}

impl<'s> Changing<'s> {
    pub(super) fn of(state: &'s mut FileData, preserved: Preserved<'s>) -> Self {
        Self { state, _preserved: preserved }
    }

    pub(super) fn blocks(&mut self) -> &mut Blocks {
        &mut self.state.blocks
    }
}

impl Deref for Changing<'_> {
    type Target = FileData;

    fn deref(&self) -> &FileData {
        self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut FileData {
        self.state
    }
}

/// A sequential reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Where its next read is expected.
    pub(super) next: u64,
    /// Read ahead up to here.
    pub(super) ahead: u64,
    /// How far to read ahead.
    pub(super) window: u64,
    /// Bytes that it has read; counted where the store is far.
    pub(super) read: u64,
}

/// Reads at scattered places of a file, one soon after another (`ahead.around_dense_reads`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scattered {
    /// Those that the store had to answer.
    pub(super) misses: u32,
    /// When the newest of them came.
    pub(super) last: Duration,
}

/// An inode's part in the number of extents in memory; given back when the inode is dropped.
#[derive(Default)]
pub(super) struct Counted {
    total: Option<Arc<AtomicUsize>>,
    count: usize,
}

impl Counted {
    /// Counts `count` from now on. Returns whether it counted nothing before.
    pub(super) fn set(&mut self, total: &Arc<AtomicUsize>, count: usize) -> bool {
        let first = self.count == 0 && count > 0;
        total.fetch_add(count, Ordering::Relaxed);
        total.fetch_sub(self.count, Ordering::Relaxed);
        self.total = Some(Arc::clone(total));
        self.count = count;
        first
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(total) = &self.total {
            total.fetch_sub(self.count, Ordering::Relaxed);
        }
    }
}

impl FileState {
    /// The state of an inode read from the engine: its content is looked up when needed.
    /// `has_reserved`: its record says so.
    pub(crate) fn new(has_reserved: bool) -> Self {
        let reserved = if has_reserved { Reserved::default() } else { Reserved::none() };
        Self::with(Blocks { reserved, ..Blocks::default() }, true, has_reserved)
    }

    /// The state of a new inode: it has no data, and nothing needs to be looked up.
    pub(crate) fn fresh() -> Self {
        let blocks = Blocks { extents: ExtentMap::complete(), reserved: Reserved::none(), ..Blocks::default() };
        Self::with(blocks, false, false)
    }

    fn with(blocks: Blocks, traces: bool, has_reserved: bool) -> Self {
        Self {
            extents_lock: RwLock::new(()),
            state: Mutex::new(FileData { blocks, ..FileData::default() }),
            traces: AtomicBool::new(traces),
            has_reserved: AtomicBool::new(has_reserved),
        }
    }
}
