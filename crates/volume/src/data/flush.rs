//! The flusher: gathers dirty ranges into segments, puts them, and hands them on to be committed in
//! order.
//!
//! ```text
//!            accept                collect                 put                     commit_load
//! clean ----------> dirty ------------------> in flight ---------> durable object ------------> extents
//!                     ^  overwritten: stays dirty, the flush stores what it took
//! ```
//!
//! - `flush.when_to_start`: a flush starts when a segment is full, when the oldest dirty range is
//!   [`AGE_MAX`] old, or when a caller waits for an inode. Inodes with a waiting caller go first
//!   and share segments.
//! - `flush.ordered_commits`: up to [`PUTS_MAX`] puts run together; commits happen in the order of
//!   collecting (`data.commit_in_order`), one at a time.
//! - `flush.in_groups`: a store may hold back a quarter of all dirty data, written but not flushed, so
//!   that one flush of the disks serves several loads. A load that a caller waits for ends that.
//! - `flush.put_until_stored`: a put that fails is tried again in its place in the order, after a
//!   pause. Each failure is reported to the callers that wait for one of its inodes, and to writers
//!   that wait for memory.
//! - `flush.refused_beside_others`: a store may count the room of a put under way as promised and
//!   as taken. So a put that it refuses for want of room beside another has not failed yet.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use larder_base::group_commit::GroupCommit;
use larder_base::task;
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::compress::{compress, is_zero};
use super::dirty::{Payload, Taken};
use super::extents::{Extent, INLINE_BYTES_MAX, Place, SegmentId, WINDOW_BYTES};
use super::file::FileData;
use super::intents::Zeros;
use super::memory::Record;
use super::pieces::Codec;
use super::preserved::copies::Uncut;
use super::segment::{Builder, SEGMENT_BYTES_MAX, object_path};
use super::shared::{Data, Inner, store_error};
use crate::features;
use crate::inode::Inode;
use crate::properties::Compression;

/// Dirty data older than this is flushed: 5 s are promised, the put takes some of it.
const AGE_MAX: Duration = Duration::from_secs(3);
/// Segment puts under way together, beside those that are held back.
const PUTS_MAX: usize = 3;
/// Payload of one segment: index and a last large piece still fit the object's bound.
pub(super) const LOAD_BYTES_MAX: u64 = SEGMENT_BYTES_MAX - (2 << 20);
const _: () = assert!(LOAD_BYTES_MAX + WINDOW_BYTES < SEGMENT_BYTES_MAX);
const LOAD_INODES_MAX: usize = 8192;
/// Less work than this is done in place instead of on another thread.
const INLINE_WORK_BYTES: u64 = 128 << 10;
/// A look at removals is trusted for this long by callers that wait for them.
const REMOVAL_WAIT: Duration = Duration::from_millis(50);
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Puts that a store may hold back, written but not flushed (`flush.in_groups`). None where so few
/// loads may be dirty that writers would soon wait for them.
fn held_puts(dirty_max: u64) -> usize {
    match dirty_max / 4 / LOAD_BYTES_MAX {
        0 | 1 => 0,
        count => count as usize,
    }
}

/// Segment puts at once, with those that are held back.
pub(super) fn puts_max(dirty_max: u64) -> usize {
    PUTS_MAX + held_puts(dirty_max)
}

/// The ranges that one flush took.
#[derive(Default)]
pub(super) struct Load {
    pub(super) inodes: Vec<LoadInode>,
    pub(super) charge: u64,
    bytes: u64,
    /// A caller waits for it, and has nothing that comes later.
    is_awaited: bool,
}

pub(super) struct LoadInode {
    pub(super) inode: Arc<Inode>,
    pub(super) taken: Vec<Taken>,
    /// Zero intents that this flush applies, before `taken`.
    pub(super) zeros: Vec<Zeros>,
    size: u64,
    /// With this flush, all writes up to here are stored.
    pub(super) flushed_seq: Option<u64>,
}

/// The new content of a range.
pub(super) struct Out {
    pub(super) range: Range<u64>,
    /// `None`: a hole.
    pub(super) extent: Option<Extent>,
    /// The content, for the cache.
    cached: Option<Record>,
}

pub(super) struct Built {
    pub(super) segment: Option<(SegmentId, PutPayload, u64, u32)>,
    /// For each inode of the load.
    pub(super) outs: Vec<Vec<Out>>,
}

type Handed = (Load, JoinHandle<FsResult<Built>>);

impl Inner {
    /// Queues an inode with something to flush; `state` is its own, locked.
    pub(super) fn enqueue(&self, inode: &Arc<Inode>, state: &mut FileData) {
        let first = !state.queued;
        if first {
            state.queued = true;
            self.queue.lock().order.push_back((Arc::clone(inode), Instant::now()));
        }
        if first || self.idle_bytes.load(Ordering::Relaxed) >= self.load_target() {
            self.flush_wake.notify_one();
        }
    }

    pub(super) fn make_urgent(&self, inode: &Arc<Inode>) {
        self.queue.lock().urgent.push_back(Arc::clone(inode));
        self.flush_wake.notify_one();
    }

    /// Flushes everything now: memory or room is short, or a caller asked for a sync.
    pub(super) fn hurry(&self) {
        self.queue.lock().all_until = Some(Instant::now());
        self.flush_wake.notify_one();
    }

    /// A full load: smaller where little memory may be dirty, and so small that the margin of room
    /// (see `space`) holds two: garbage collection writes one before it can delete others.
    pub(super) fn load_target(&self) -> i64 {
        let by_room = self.gate.total().map_or(u64::MAX, |total| (total / 64).max(1 << 20));
        LOAD_BYTES_MAX.min(self.parts.memory.dirty_max() / 4).min(by_room) as i64
    }

    /// Waits until everything written to `inode` before is stored.
    pub(super) async fn flush_inode(&self, inode: &Arc<Inode>) -> FsResult<()> {
        let (failures, until) = {
            let state = inode.file.state.lock();
            (state.failures, state.last_seq)
        };
        let mut asked = false;
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            self.check_poison()?;
            {
                let state = inode.file.state.lock();
                if state.gone || state.flushed_seq >= until || (state.dirty.is_empty() && state.in_flight == 0) {
                    return Ok(());
                }
                if state.failures > failures
                    && let Some(error) = &state.failure
                {
                    return Err(error.clone());
                }
            }
            if !asked {
                asked = true;
                self.make_urgent(inode);
            }
            tokio::select! {
                () = progress => {}
                () = self.stop.cancelled() => return Err(FsError::Io("the volume is being closed".into())),
            }
        }
    }

    /// Starts the two tasks of the flusher.
    pub(super) fn start_flusher(self: &Arc<Self>) {
        let (hand, handed) = mpsc::channel(puts_max(self.parts.memory.dirty_max()));
        let flusher = task::spawn(Arc::clone(self).run_flusher(hand));
        let committer = task::spawn(Arc::clone(self).run_committer(handed));
        self.tasks.lock().extend([flusher, committer]);
    }

    async fn run_flusher(self: Arc<Self>, hand: mpsc::Sender<Handed>) {
        loop {
            let wait = self.time_to_flush();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.flush_wake.notified(), if wait.is_none_or(|wait| !wait.is_zero()) => continue,
                () = sleep_or_forever(wait) => {}
            }
            let Ok(permit) = Arc::clone(&self.puts).acquire_owned().await else { return };
            let load = {
                let uncut = self.cut.enter().await;
                self.collect(&uncut)
            };
            let Some(load) = load else { continue };
            let this = Arc::clone(&self);
            let (parts, load) = load.split();
            let is_awaited = load.is_awaited;
            let task = task::spawn_for(async move {
                let built = this.build_and_put(parts, is_awaited).await;
                drop(permit);
                built
            });
            if hand.send((load, task)).await.is_err() {
                return;
            }
        }
    }

    /// The time until the next flush. `None`: none is needed until a caller asks.
    fn time_to_flush(&self) -> Option<Duration> {
        if self.poison.lock().is_some() {
            return None;
        }
        let queue = self.queue.lock();
        let full = self.idle_bytes.load(Ordering::Relaxed) >= self.load_target();
        let (_, since) = match queue.order.front() {
            _ if !queue.urgent.is_empty() => return Some(Duration::ZERO),
            None => return None,
            Some((_, since)) if full || queue.all_until.is_some_and(|until| *since <= until) => {
                return Some(Duration::ZERO);
            }
            Some(oldest) => oldest,
        };
        Some(AGE_MAX.saturating_sub(since.elapsed()))
    }

    /// Takes the next load: of inodes that a caller waits for, or else of all by age.
    fn collect(&self, uncut: &Uncut<'_>) -> Option<Load> {
        let mut load = Load::default();
        let mut seen = HashSet::new();
        let mut oldest = None;
        let urgent_only = {
            let mut queue = self.queue.lock();
            queue.collecting = true;
            !queue.urgent.is_empty()
        };
        let target = self.load_target() as u64;
        while load.bytes < target && load.inodes.len() < LOAD_INODES_MAX {
            let mut queue = self.queue.lock();
            let (inode, since) = if let Some(inode) = queue.urgent.pop_front() {
                (inode, None)
            } else if urgent_only {
                break;
            } else if let Some((inode, since)) = queue.order.pop_front() {
                (inode, Some(since))
            } else {
                break;
            };
            if !seen.insert(inode.id.ino) {
                queue.met_twice.push((inode, since));
                continue;
            }
            drop(queue);
            oldest = oldest.or(since);
            self.take_from(uncut, inode, since, target, &mut load);
        }
        let mut queue = self.queue.lock();
        queue.put_back();
        load.is_awaited = match urgent_only {
            true => load.inodes.iter().any(|inode| inode.flushed_seq.is_some()),
            false => oldest.is_some_and(|oldest| queue.ends_hurry(oldest)),
        };
        // Under the lock of the queue: a caller that sees that an inode was taken out also sees how
        // many loads there are.
        if !load.inodes.is_empty() {
            self.loads.0.fetch_add(1, Ordering::Relaxed);
        }
        queue.collecting = false;
        drop(queue);
        self.progress.notify_waiters();
        (!load.inodes.is_empty()).then_some(load)
    }

    fn take_from(&self, uncut: &Uncut<'_>, inode: Arc<Inode>, since: Option<Instant>, target: u64, load: &mut Load) {
        let mut guard = inode.file.state.lock();
        let state = &mut *guard;
        let taken = if state.may_store(&inode) {
            self.take(&inode, state, target - load.bytes)
        } else {
            self.drop_dirty(uncut, &inode, state);
            None
        };
        let more = state.dirty.has_idle();
        match (since, more) {
            (None, true) => self.queue.lock().urgent.push_front(Arc::clone(&inode)),
            (Some(since), true) => self.queue.lock().order.push_front((Arc::clone(&inode), since)),
            (Some(_), false) => state.queued = false,
            (None, false) => {}
        }
        let Some((taken, charge, bytes)) = taken else {
            // Nothing is left to take: waiting callers may look again.
            drop(guard);
            self.progress.notify_waiters();
            return;
        };
        drop(guard);
        load.bytes += bytes;
        load.charge += charge;
        load.inodes.push(taken);
    }

    /// Takes the ranges that fit. `None` if there is nothing to store.
    pub(super) fn take(
        &self,
        inode: &Arc<Inode>,
        state: &mut FileData,
        max_bytes: u64,
    ) -> Option<(LoadInode, u64, u64)> {
        let (taken, charge, zeros) = state.take(max_bytes);
        let (size, attr_dirty) = {
            let core = inode.core.lock();
            (core.attr.size, core.attr_dirty)
        };
        if taken.is_empty() && zeros.is_empty() && !attr_dirty {
            return None;
        }
        state.in_flight += 1;
        self.idle_bytes.fetch_sub(charge as i64, Ordering::Relaxed);
        let bytes = taken.iter().filter(|t| t.payload != Payload::Zero).map(|t| t.len).sum::<u64>();
        let bytes = bytes + 64 * taken.len() as u64;
        let flushed_seq = (!state.dirty.has_idle()).then_some(state.last_seq);
        Some((LoadInode { inode: Arc::clone(inode), taken, zeros, size, flushed_seq }, charge, bytes))
    }

    async fn build_and_put(self: Arc<Self>, parts: Vec<BuildInode>, is_awaited: bool) -> FsResult<Built> {
        let bytes: u64 = parts.iter().flat_map(|part| &part.taken).map(|t| t.len.min(LOAD_BYTES_MAX)).sum();
        let made = self.next_segment();
        let (record_bytes, compression) = (self.parts.settings.record_bytes(), self.parts.settings.compression());
        let inodes: Vec<Arc<Inode>> = parts.iter().map(|part| Arc::clone(&part.inode)).collect();
        let built = if bytes <= INLINE_WORK_BYTES {
            build(&parts, made, record_bytes, compression)
        } else {
            let _worker = self.workers.acquire().await;
            let work = move || build(&parts, made, record_bytes, compression);
            task::computed(work).await.ok_or_else(|| FsError::Io("building a segment was cancelled".into()))?
        };
        if let Some((id, payload, _, _)) = &built.segment {
            self.put_segment(*id, payload, &inodes, is_awaited).await?;
        }
        Ok(built)
    }

    /// The number of a new segment, and the epoch in which it is built: its birth or an earlier one.
    pub(super) fn next_segment(&self) -> (SegmentId, u64) {
        let mut table = self.segments.lock();
        (table.next_id(), table.epoch())
    }

    /// Puts until it succeeds or the volume stops (`flush.put_until_stored`).
    async fn put_segment(
        &self,
        id: SegmentId,
        payload: &PutPayload,
        inodes: &[Arc<Inode>],
        is_awaited: bool,
    ) -> FsResult<()> {
        let path = object_path(&self.parts.prefix, id);
        let bytes_max = held_puts(self.parts.memory.dirty_max()) as u64 * LOAD_BYTES_MAX;
        let group = (bytes_max > 0).then_some(GroupCommit { bytes_max, is_awaited });
        let mut pause = RETRY_MIN;
        let began = std::time::Instant::now();
        loop {
            self.storing.fetch_add(1, Ordering::AcqRel);
            let put = self.put_once(&path, payload.clone(), group).await;
            let is_alone = self.storing.fetch_sub(1, Ordering::AcqRel) == 1;
            let Err(error) = put else {
                self.failing.lock().take();
                self.counts.flush.add(began.elapsed());
                self.counts.flushed_bytes.add(payload.content_length() as u64);
                return Ok(());
            };
            // `flush.refused_beside_others`
            if is_alone || !matches!(error, FsError::NoSpace(_)) {
                self.report_failure(&error, inodes);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return Err(error),
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Puts a segment, after the mark that says that its records may have pieces.
    pub(super) async fn put_once(&self, path: &Path, payload: PutPayload, group: Option<GroupCommit>) -> FsResult<()> {
        self.parts.marks.set(features::PIECES).await?;
        let failed = |error: &object_store::Error| store_error(&format!("writing {path}"), error);
        if !self.parts.shared {
            let mut options = PutOptions::default();
            group.map(|group| options.extensions.insert(group));
            return self.parts.store.put_opts(path, payload, options).await.map(drop).map_err(|error| failed(&error));
        }
        // The name is this opening's alone: what is there already is an earlier try of the same put, whose answer was lost.
        let length = payload.content_length() as u64;
        match self.parts.store.put_opts(path, payload, PutMode::Create.into()).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {
                let there = self.parts.store.head(path).await.map_err(|error| failed(&error))?;
                match there.size == length {
                    true => Ok(()),
                    false => Err(FsError::Io(format!("writing {path}: another object has its name").into())),
                }
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn report_failure(&self, error: &FsError, inodes: &[Arc<Inode>]) {
        if self.failing.lock().replace(error.clone()).is_none() {
            tracing::warn!(%error, "file data cannot be stored; it is kept in memory and tried again");
        }
        for inode in inodes {
            let mut state = inode.file.state.lock();
            state.failures += 1;
            state.failure = Some(error.clone());
        }
        self.progress.notify_waiters();
        self.parts.memory.failing.notify_waiters();
    }

    async fn run_committer(self: Arc<Self>, mut handed: mpsc::Receiver<Handed>) {
        while let Some((load, task)) = handed.recv().await {
            let built = match task.await {
                Ok(Ok(built)) => built,
                // Stopped while the store failed: the data in memory is lost with the volume.
                Ok(Err(_)) if self.stop.is_cancelled() => return,
                Ok(Err(error)) => {
                    self.poison(&error);
                    continue;
                }
                Err(panic) => {
                    self.poison(&FsError::Io(format!("a flush panicked: {panic}").into()));
                    continue;
                }
            };
            if let Err(error) = self.commit_load(&load, built).await {
                self.poison(&error);
                continue;
            }
            self.release(load.charge);
            let committed = self.loads.1.fetch_add(1, Ordering::Relaxed);
            assert!(
                committed < self.loads.0.load(Ordering::Relaxed),
                "`flush.ordered_commits`: each load is handed on once"
            );
            drop(load);
            self.progress.notify_waiters();
            self.wake_gc();
        }
    }
}

async fn sleep_or_forever(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// The parts of a [`LoadInode`] that building needs; the committer keeps the rest.
pub(super) struct BuildInode {
    pub(super) inode: Arc<Inode>,
    pub(super) taken: Vec<Taken>,
    pub(super) size: u64,
}

impl Load {
    /// For the builder and for the committer. Payloads are shared, not copied; the committer's are
    /// dropped.
    fn split(mut self) -> (Vec<BuildInode>, Load) {
        let parts = self.inodes.iter_mut().map(|load| {
            let without = |t: &Taken| Taken { payload: Payload::Zero, ..t.clone() };
            let kept = load.taken.iter().map(without).collect();
            let taken = std::mem::replace(&mut load.taken, kept);
            BuildInode { inode: Arc::clone(&load.inode), taken, size: load.size }
        });
        (parts.collect(), self)
    }
}

/// Cuts taken ranges into records and packs them.
pub(super) fn build(
    parts: &[BuildInode],
    (id, epoch): (SegmentId, u64),
    record_bytes: u64,
    compression: Compression,
) -> Built {
    let mut builder = Builder::new(id, epoch);
    let outs = parts.iter().map(|part| {
        let mut cutter = Cutter::new(&mut builder, part, record_bytes, compression);
        part.taken.iter().for_each(|taken| cutter.add(taken));
        cutter.finish()
    });
    let outs = outs.collect();
    let records = builder.records();
    let segment = (records > 0).then(|| {
        let (parts, len) = builder.finish();
        (id, PutPayload::from_iter(parts), len, records)
    });
    Built { segment, outs }
}

/// The load of a tiny file: no record, so no segment.
pub(super) fn build_inline(load: &LoadInode) -> Vec<Out> {
    let part = BuildInode { inode: Arc::clone(&load.inode), taken: load.taken.clone(), size: load.size };
    let mut outs = build(&[part], (SegmentId(0), 0), INLINE_BYTES_MAX as u64, Compression::None).outs;
    outs.pop().unwrap_or_default()
}

/// Joins neighbouring ranges of one inode and cuts them at multiples of the record size.
struct Cutter<'a> {
    builder: &'a mut Builder,
    part: &'a BuildInode,
    record_bytes: u64,
    compression: Compression,
    start: u64,
    len: u64,
    chunks: Vec<Bytes>,
    outs: Vec<Out>,
}

impl<'a> Cutter<'a> {
    fn new(builder: &'a mut Builder, part: &'a BuildInode, record_bytes: u64, compression: Compression) -> Self {
        Self { builder, part, record_bytes, compression, start: 0, len: 0, chunks: Vec::new(), outs: Vec::new() }
    }

    fn add(&mut self, taken: &Taken) {
        let Payload::Bytes(bytes) = &taken.payload else {
            self.end_record();
            self.hole(taken.range());
            return;
        };
        let (mut offset, mut bytes) = (taken.offset, bytes.clone());
        while !bytes.is_empty() {
            if self.start + self.len != offset || offset.is_multiple_of(self.record_bytes) {
                self.end_record();
                self.start = offset;
            }
            let room = self.record_bytes - offset % self.record_bytes;
            let chunk = bytes.split_to(bytes.len().min(room as usize));
            offset += chunk.len() as u64;
            self.len += chunk.len() as u64;
            self.chunks.push(chunk);
        }
    }

    fn hole(&mut self, range: Range<u64>) {
        if let Some(last) = self.outs.last_mut()
            && last.extent.is_none()
            && last.range.end == range.start
        {
            last.range.end = range.end;
            return;
        }
        self.outs.push(Out { range, extent: None, cached: None });
    }

    fn end_record(&mut self) {
        let (start, len) = (self.start, std::mem::take(&mut self.len));
        if len == 0 {
            return;
        }
        let chunks = std::mem::take(&mut self.chunks);
        let range = start..start + len;
        let (first, last) = (start / self.record_bytes, (range.end - 1) / self.record_bytes);
        assert_eq!(first, last, "`extents.one_window`: records are cut at multiples of their size");
        if chunks.iter().all(|chunk| is_zero(chunk)) {
            self.hole(range);
            return;
        }
        if self.part.size <= INLINE_BYTES_MAX as u64 && len <= INLINE_BYTES_MAX as u64 {
            let place = Place::Inline(chunks.concat().into());
            self.outs.push(Out { range, extent: Some(Extent { len: len as u32, skip: 0, place }), cached: None });
            return;
        }
        let packed = compress(self.compression, &chunks, len as usize);
        let (codec, frames, stored) = match &packed {
            Some(packed) => (packed.codec, packed.frames.as_ref(), std::slice::from_ref(&packed.bytes)),
            None => (Codec::Raw, None, &chunks[..]),
        };
        let owner = (self.part.inode.id.ino, self.part.inode.id.generation, start);
        let order = (self.builder.id().0, self.builder.epoch());
        let record = self.builder.push(owner, order, (codec, frames), len as u32, stored);
        let extent = Extent { len: len as u32, skip: 0, place: Place::Record(record) };
        self.outs.push(Out { range, extent: Some(extent), cached: Some(Record::from_chunks(&chunks)) });
    }

    fn finish(mut self) -> Vec<Out> {
        self.end_record();
        self.outs
    }
}

impl Out {
    /// Puts the content into the cache, where the next reads will look for it. Not before it is
    /// stored: until then a copy would be in memory twice (`memory.kept_uncopied`).
    pub(super) fn remember(&mut self, inner: &Inner) {
        if let (Some(cached), Some(record)) = (self.cached.take(), self.extent.as_ref().and_then(Extent::record)) {
            inner.parts.memory.insert(inner.key(&record.part(None)), Record::kept(cached.chunks()));
        }
    }
}

impl Data {
    /// Everything accepted so far is stored and durable.
    pub(crate) async fn sync_all(&self) -> FsResult<()> {
        let inner = &self.0;
        inner.store_all().await?;
        inner.parts.meta.durable(inner.parts.meta.newest()).await
    }

    /// Whether no accepted data is on its way: `Usage` then counts all that files take up.
    pub(crate) fn is_settled(&self) -> bool {
        let inner = &self.0;
        // Under the lock of the queue: an inode taken out of it is in a load that is counted.
        let queue = inner.queue.lock();
        queue.is_empty() && inner.loads.0.load(Ordering::Relaxed) == inner.loads.1.load(Ordering::Relaxed)
    }

    /// Everything accepted so far is stored; if data is being removed, some more of it is.
    pub(crate) async fn settle(&self) -> FsResult<()> {
        self.0.store_all().await?;
        if self.is_removing() {
            tokio::time::sleep(REMOVAL_WAIT).await;
        }
        Ok(())
    }

    /// Flushes, then stops every background task. `meta` is closed by the caller afterwards.
    pub(crate) async fn close(&self) -> FsResult<()> {
        let flushed = self.sync_all().await;
        self.0.stop.cancel();
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for task in tasks {
            let _ = task.await;
        }
        self.0.parts.memory.forget_volume(self.0.volume);
        flushed
    }
}

impl Data {
    /// Why nothing can be stored any more (`data.poison_after_engine_failure`).
    pub(crate) fn fault(&self) -> Option<FsError> {
        self.0.check_poison().err()
    }

    /// Of a volume that another process writes: there is nothing to store.
    pub(crate) fn leave(&self) {
        self.0.stop.cancel();
        self.0.parts.memory.forget_volume(self.0.volume);
    }
}

impl Inner {
    async fn store_all(&self) -> FsResult<()> {
        let asked = Instant::now();
        self.hurry();
        self.wait_until(|| self.queue.lock().has_taken(asked)).await?;
        self.loads_are_over().await
    }

    /// Waits until progress makes `done` true, but not through a failure.
    pub(super) async fn wait_until(&self, done: impl Fn() -> bool) -> FsResult<()> {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            self.check_poison()?;
            if done() {
                return Ok(());
            }
            if let Some(error) = self.failing.lock().clone() {
                return Err(error);
            }
            tokio::select! {
                () = progress => {}
                () = self.stop.cancelled() => return Err(FsError::Io("the volume is being closed".into())),
            }
        }
    }
}
