//! Ranges of files that share extents with other ranges of the volume (reflinks).
//!
//! - `share.counted_by_segment`: a shared record needs no count of its own. Segments count the extents that refer to them, of
//!   whichever file, in the batch that changes the extents (`segments.counted_with_extents`). So a record lives as long as one
//!   extent refers to it, and freeing either file is safe in any order and after any crash.
//! - `share.sharers_are_noted`: the index of a segment names one file for each record. The batch that lets extents of another
//!   place refer to the segment writes a row `T` (inode, segment), so that collection finds them. The row is a hint: extents that
//!   collection does not find keep their segment alive, and nothing is lost.
//! - `share.living_segments`: only extents of the volume as it is now are shared, so their segments have not died. A segment
//!   that only snapshots read never comes back to life: a replica may have dropped it.
//! - `share.at_one_moment`: a range of few extents is cloned in one batch. One of many is laid into a hole, in several batches
//!   under a zero intent over all of it, which the last batch takes away together with the new size. Until then readers see the
//!   hole (the extents in memory are not touched), and a crash leaves it (the intent is replayed). Of a range that is neither,
//!   nothing is cloned: [`FsError::FileTooLarge`].
//! - `share.holes_are_free`: room and quotas are asked for the data of a range. Where there is room for all of it, as if it were
//!   data, nobody counts; a range that has become more than was counted is not cloned.
//! - `share.outside_cuts`: no snapshot is cut while a range of many extents is on its way.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::{seam, task};
use larder_fs::*;
use tokio::sync::RwLockWriteGuard;

use super::commit::put_ops;
use super::extents::{Extent, ExtentOps, SegmentId, WINDOW_BYTES, decode_extent, extent_key};
use super::file::FileData;
use super::gate::RoomRequest;
use super::intents;
use super::promise::put_ranges;
use super::reserved::RangeOps;
use super::segments::{Segments, Tally};
use super::shared::{Data, Inner};
use crate::features;
use crate::inode::Inode;
use crate::keys::{MARK, damaged, key_after, tag};
use crate::meta::{Batch, Ticket};

/// Extents of one batch: more are laid into a hole, or refused.
const EXTENTS_MAX: usize = 16 << 10;
const SIMULATED_EXTENTS_MAX: usize = 3;
/// Bytes of their rows. A batch of the engine may have three times as many.
const ROWS_BYTES_MAX: usize = 4 << 20;
/// Extents that are replaced in one batch.
const REPLACED_MAX: usize = 64 << 10;
/// Rows read at once, and extents of one batch of many.
const PAGE: usize = 1024;
const SIMULATED_PAGE: usize = 2;
/// Extents laid into a hole at most: flushes of both files wait for all of them, some ten seconds.
const BULK_EXTENTS_MAX: u64 = 4 << 20;
/// Flushes after which a file that is written to all the time is given up.
const TRIES_MAX: usize = 16;
/// A wait for a flush of a file that is written to all the time ends after this.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of a file for each byte of metadata that a clone of it takes up, about.
const BYTES_PER_ROW_BYTE: u64 = 512;

/// `len` bytes of one file, from `from` on, in the place of those of another from `to` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloneSpan {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) len: u64,
    /// Bytes of it that are data, at most (`share.holes_are_free`).
    pub(crate) data: u64,
}

fn room_for(data: u64) -> RoomRequest {
    RoomRequest::New(data / BYTES_PER_ROW_BYTE)
}

impl CloneSpan {
    fn source(&self) -> Range<u64> {
        self.from..self.from + self.len
    }

    fn target(&self) -> Range<u64> {
        self.to..self.to + self.len
    }

    /// The bytes of these pieces, which are not more data than there was room for.
    fn check_data(&self, pieces: &[(u64, Extent)]) -> FsResult<u64> {
        let bytes = pieces.iter().map(|(_, extent)| u64::from(extent.len)).sum();
        if bytes > self.data { Err(FsError::Busy("the file keeps changing")) } else { Ok(bytes) }
    }

    /// The parts of an extent of the source at `offset` within the span, at their places in the target, cut at windows
    /// (`extents.one_window`).
    fn moved(&self, offset: u64, extent: &Extent, out: &mut Vec<(u64, Extent)>) {
        let (mut at, end) = (offset.max(self.from), (offset + u64::from(extent.len)).min(self.from + self.len));
        while at < end {
            let to = at - self.from + self.to;
            let window_end = (to / WINDOW_BYTES + 1) * WINDOW_BYTES;
            let until = end.min(at + (window_end - to));
            out.push((to, extent.cut(at - offset, until - offset)));
            at = until;
        }
    }
}

pub(crate) fn sharer_key(ino: Ino, segment: SegmentId) -> Bytes {
    let mut out = BytesMut::with_capacity(17);
    out.put_u8(tag::SHARER);
    out.put_u64(ino.0);
    out.put_u64(segment.0);
    out.freeze()
}

pub(crate) fn decode_sharer(key: &[u8], value: &[u8]) -> FsResult<(Ino, SegmentId)> {
    let numbers = key.get(1..).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let numbers = u128::from_be_bytes(numbers.ok_or_else(|| damaged(key, "wrong key length"))?);
    if value != &MARK[..] {
        return Err(damaged(key, "it is no mark"));
    }
    Ok((Ino((numbers >> 64) as u64), SegmentId(numbers as u64)))
}

/// A target as it was when its extents began to be laid into a hole of it.
struct Hole {
    range: Range<u64>,
    /// Of the zero intent.
    seq: u64,
    last_seq: u64,
    size: u64,
}

/// Why a clone did not come about.
enum Missed {
    /// Newer data is in memory: it is stored first.
    Dirty,
    Failed(FsError),
}

impl From<FsError> for Missed {
    fn from(error: FsError) -> Self {
        Self::Failed(error)
    }
}

impl Data {
    /// Whether there is room now for a clone of a range with so much data.
    pub(crate) fn has_room_to_clone(&self, data: u64) -> bool {
        self.0.has_room(room_for(data))
    }

    /// Bytes of a range that are data, on disks when it returns. Of a range of more extents than a clone takes it is less.
    pub(crate) async fn data_bytes(&self, source: &Arc<Inode>, range: Range<u64>) -> FsResult<u64> {
        self.0.flush_inode(source).await?;
        let (mut from, to) = rows_of(source.id.ino, &range);
        let (mut data, mut extents) = (0, 0);
        loop {
            let rows = self.0.parts.meta.scan(&from, &to, PAGE).await?;
            for (key, value) in &rows {
                let (_, offset, extent) = decode_extent(key, value)?;
                data += range.end.min(offset + u64::from(extent.len)).saturating_sub(range.start.max(offset));
            }
            extents += rows.len() as u64;
            match rows.last().filter(|_| rows.len() >= PAGE && extents <= BULK_EXTENTS_MAX) {
                Some((last, _)) => from = key_after(last),
                None => return Ok(data),
            }
        }
    }

    /// Lets a range of `target` refer to what a range of `source` holds now. `update` sets times and change. All or nothing;
    /// durable with the ticket.
    pub(crate) async fn clone_range(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        update: impl Fn(&mut Attr) + Send + Sync + 'static,
    ) -> FsResult<(Changed, Ticket)> {
        let (inner, source, target) = (Arc::clone(&self.0), Arc::clone(source), Arc::clone(target));
        // A caller that goes away leaves no half.
        let work = task::spawn_for(async move { inner.clone_range(&source, &target, span, &update).await });
        work.await.unwrap_or_else(|error| Err(FsError::Io(format!("cloning a range broke off: {error}").into())))
    }
}

impl Inner {
    async fn clone_range(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        update: &(impl Fn(&mut Attr) + Sync),
    ) -> FsResult<(Changed, Ticket)> {
        self.check_poison()?;
        let room = room_for(span.data);
        if !self.has_room(room) {
            self.wait_for_room(room).await?;
        }
        self.parts.marks.set(features::SHARED_EXTENTS).await?;
        self.has_sharers.store(true, Ordering::Release);
        let mut tries = 0;
        while tries < TRIES_MAX {
            self.flush_inode(source).await?;
            self.flush_inode(target).await?;
            match self.clone_now(source, target, span, update).await {
                Ok(done) => return Ok(done),
                Err(Missed::Dirty) => tries += usize::from(self.flushed_or_changed(source, target).await?),
                Err(Missed::Failed(error)) => return Err(error),
            }
        }
        Err(FsError::Busy("the file keeps changing"))
    }

    /// Waits for a flush of `target` that is under way, which may be one of its attributes alone. False: it is still under way
    /// because disks are slow, and nobody has written to either file.
    async fn flushed_or_changed(&self, source: &Inode, target: &Inode) -> FsResult<bool> {
        let written = || [source, target].map(|inode| inode.file.state.lock().last_seq);
        let before = written();
        let flushed = self.wait_until(|| target.file.state.lock().in_flight == 0);
        match tokio::time::timeout(FLUSH_WAIT_MAX, flushed).await {
            Ok(flushed) => flushed.map(|()| true),
            Err(_) => Ok(written() != before),
        }
    }

    async fn clone_now(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        update: &(impl Fn(&mut Attr) + Sync),
    ) -> Result<(Changed, Ticket), Missed> {
        let _uncut_for_long = self.cut.many.read().await;
        self.parts.meta.admit().await?;
        let _changing = lock_extents(source, target).await;
        self.ensure_loaded(target, span.target()).await?;
        self.ensure_reserved(target).await?;
        // The rows of the source stay as they are while its `extents_lock` is held.
        let (mut from, to) = rows_of(source.id.ino, &span.source());
        let (mut pieces, mut bytes, mut is_whole) = (Vec::new(), 0, false);
        let extents_max = seam::bound(EXTENTS_MAX, SIMULATED_EXTENTS_MAX);
        while pieces.len() <= extents_max && bytes <= ROWS_BYTES_MAX && !is_whole {
            let rows = self.parts.meta.scan(&from, &to, PAGE).await?;
            for (key, value) in &rows {
                bytes += key.len() + value.len();
                let (_, offset, extent) = decode_extent(key, value)?;
                span.moved(offset, &extent, &mut pieces);
            }
            span.check_data(&pieces)?;
            match rows.last().filter(|_| rows.len() >= PAGE) {
                Some((last, _)) => from = key_after(last),
                None => is_whole = true,
            }
        }
        match is_whole && pieces.len() <= extents_max {
            true => self.clone_at_once(source, target, span, pieces, update).await,
            false => self.clone_into_hole(source, target, span, update).await,
        }
    }

    /// One batch. The caller holds both files' `extents_lock`.
    async fn clone_at_once(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        pieces: Vec<(u64, Extent)>,
        update: &impl Fn(&mut Attr),
    ) -> Result<(Changed, Ticket), Missed> {
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut states = States::lock(source, target);
        states.are_ready(source, target, span)?;
        let state = states.target();
        if state.extents.view(span.target()).nth(REPLACED_MAX).is_some() {
            return Err(FsError::FileTooLarge.into());
        }
        let segments: BTreeSet<SegmentId> =
            pieces.iter().filter_map(|(_, extent)| Some(extent.record()?.segment)).collect();
        check_living(&segments, &table)?;
        let mut core = target.core.lock();
        let mut state = uncut.change(target, state, &core);
        let state = &mut state;
        let before = PreAttr::of(&core.attr);
        let (mut batch, mut tally) = (Batch::default(), Tally::default());
        let (mut ops, mut rows, mut allocated) = (ExtentOps::new(), RangeOps::new(), 0);
        let mut count = |extent: &Extent, kept| allocated += tally.count(extent, kept);
        state.blocks().extents.overlay(span.target(), None, &mut ops, &mut count);
        for (at, extent) in pieces {
            let range = at..at + u64::from(extent.len);
            state.blocks().extents.overlay(range, Some(extent), &mut ops, &mut count);
        }
        put_ops(target.id.ino, ops, &mut batch);
        note_sharers(target.id.ino, &segments, &mut table, &mut batch);
        let reserved_before = state.reserved.bytes() as i64;
        if !state.reserved.is_empty() {
            // As where a hole is punched: the room goes back.
            self.promise(state, span.target(), |state| state.blocks().reserved.remove(span.target(), &mut rows));
            put_ranges(target.id.ino, rows, &mut batch);
        }
        let reserved = state.reserved.bytes() as i64 - reserved_before;
        batch.usage.reserved_bytes += reserved;
        core.attr.size = core.attr.size.max(span.target().end);
        core.size_stored = None;
        core.has_unstable = state.dirty.is_unstable();
        update(&mut core.attr);
        let change = state.record_change(allocated + reserved);
        let changed = Changed { before, after: Attr { allocated: change.allocated(&core), ..core.attr } };
        batch.change(target, change);
        drop(core);
        self.count_extents(target, state);
        let ticket = self.submit_under(&uncut, &mut table, batch, tally)?;
        Ok((changed, ticket))
    }

    /// Several batches (`share.at_one_moment`). The caller holds both files' `extents_lock`, and keeps cuts away.
    async fn clone_into_hole(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        update: &(impl Fn(&mut Attr) + Sync),
    ) -> Result<(Changed, Ticket), Missed> {
        let hole = self.begin_hole(source, target, span).await?;
        let done = match self.fill_hole(source, target, span, &hole).await {
            Ok(()) => self.end_hole(target, &hole, update).await,
            Err(missed) => Err(missed),
        };
        if done.is_err()
            && let Err(error) = self.undo_hole(target, &hole).await
        {
            // The extents that stay are not those in memory. The intent removes them at the next opening.
            return Err(Missed::Failed(self.poison(&error)));
        }
        done
    }

    async fn begin_hole(&self, source: &Arc<Inode>, target: &Arc<Inode>, span: CloneSpan) -> Result<Hole, Missed> {
        let range = span.target();
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut states = States::lock(source, target);
        states.are_ready(source, target, span)?;
        let state = states.target();
        let is_reserved = state.reserved.ranges().is_some_and(|ranges| ranges.view(range.clone()).next().is_some());
        if is_reserved || state.extents.view(range.clone()).next().is_some() {
            return Err(FsError::FileTooLarge.into());
        }
        let core = target.core.lock();
        let state = uncut.change(target, state, &core);
        let hole = Hole { range, seq: self.next_seq(), last_seq: state.last_seq, size: core.attr.size };
        drop(core);
        let mut batch = Batch::default();
        batch.put(intents::key(target.id.ino, hole.seq, hole.range.start), intents::encode_zero(span.len));
        self.submit_under(&uncut, &mut table, batch, Tally::default())?;
        Ok(hole)
    }

    async fn fill_hole(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        span: CloneSpan,
        hole: &Hole,
    ) -> Result<(), Missed> {
        let (mut from, to) = rows_of(source.id.ino, &span.source());
        let (mut noted, mut extents, page) = (BTreeSet::new(), 0, seam::bound(PAGE, SIMULATED_PAGE));
        let mut left = span;
        loop {
            let rows = self.parts.meta.scan(&from, &to, page).await?;
            let mut pieces = Vec::with_capacity(rows.len());
            for (key, value) in &rows {
                let (_, offset, extent) = decode_extent(key, value)?;
                span.moved(offset, &extent, &mut pieces);
            }
            extents += pieces.len() as u64;
            left.data -= left.check_data(&pieces)?;
            if extents > BULK_EXTENTS_MAX {
                return Err(FsError::FileTooLarge.into());
            }
            self.parts.meta.admit().await?;
            if self.stop.is_cancelled() {
                return Err(FsError::Io("the volume is being closed".into()).into());
            }
            self.fill_some(target, hole, pieces, &mut noted).await?;
            seam::between().await;
            match rows.last().filter(|_| rows.len() >= page) {
                Some((last, _)) => from = key_after(last),
                None => return Ok(()),
            }
        }
    }

    async fn fill_some(
        &self,
        target: &Arc<Inode>,
        hole: &Hole,
        pieces: Vec<(u64, Extent)>,
        noted: &mut BTreeSet<SegmentId>,
    ) -> Result<(), Missed> {
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut state = target.file.state.lock();
        hole.is_untouched(target, &state)?;
        let state = uncut.change(target, &mut state, &target.core.lock());
        let (mut batch, mut tally, mut allocated) = (Batch::default(), Tally::default(), 0);
        pieces.iter().for_each(|(_, extent)| allocated += tally.count(extent, true));
        let mut segments: BTreeSet<SegmentId> = tally.segments().keys().copied().collect();
        check_living(&segments, &table)?;
        segments.retain(|segment| noted.insert(*segment));
        put_ops(target.id.ino, pieces.into_iter().map(|(at, extent)| (at, Some(extent))).collect(), &mut batch);
        note_sharers(target.id.ino, &segments, &mut table, &mut batch);
        batch.change(target, state.record_change(allocated));
        self.submit_under(&uncut, &mut table, batch, tally)?;
        Ok(())
    }

    /// The extents are there from this batch on, and in memory.
    async fn end_hole(
        &self,
        target: &Arc<Inode>,
        hole: &Hole,
        update: &impl Fn(&mut Attr),
    ) -> Result<(Changed, Ticket), Missed> {
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut state = target.file.state.lock();
        hole.is_untouched(target, &state)?;
        let mut core = target.core.lock();
        let mut state = uncut.change(target, &mut state, &core);
        let before = PreAttr::of(&core.attr);
        let mut batch = Batch::default();
        batch.delete(intents::key(target.id.ino, hole.seq, hole.range.start));
        core.attr.size = core.attr.size.max(hole.range.end);
        core.size_stored = None;
        core.has_unstable = state.dirty.is_unstable();
        update(&mut core.attr);
        let change = state.record_change(0);
        let changed = Changed { before, after: Attr { allocated: change.allocated(&core), ..core.attr } };
        batch.change(target, change);
        drop(core);
        state.blocks().extents.forget();
        self.count_extents(target, &mut state);
        let ticket = self.submit_under(&uncut, &mut table, batch, Tally::default())?;
        Ok((changed, ticket))
    }

    /// Takes away what was laid: nobody else lays extents while `extents_lock` is held.
    async fn undo_hole(&self, target: &Arc<Inode>, hole: &Hole) -> FsResult<()> {
        let (from, to) = (extent_key(target.id.ino, hole.range.start), extent_key(target.id.ino, hole.range.end));
        loop {
            let rows = self.parts.meta.scan(&from, &to, PAGE).await?;
            self.parts.meta.admit().await?;
            let uncut = self.cut.enter().await;
            let mut table = self.segments.lock();
            let mut state = target.file.state.lock();
            let (mut batch, mut tally, mut allocated) = (Batch::default(), Tally::default(), 0);
            for (key, value) in &rows {
                allocated += tally.count(&decode_extent(key, value)?.2, false);
                batch.delete(key.clone());
            }
            if rows.is_empty() {
                batch.delete(intents::key(target.id.ino, hole.seq, hole.range.start));
            }
            // Of a file that is gone only keys are removed (`data.gone_stores_nothing`).
            if state.may_store(target) {
                let state = uncut.change(target, &mut state, &target.core.lock());
                batch.change(target, state.record_change(allocated));
            }
            self.submit_under(&uncut, &mut table, batch, tally)?;
            if rows.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Hole {
    /// Nobody has written to the file since, resized or removed it.
    fn is_untouched(&self, target: &Inode, state: &FileData) -> Result<(), Missed> {
        if !state.may_store(target) {
            return Err(FsError::Stale.into());
        }
        let is_same = state.last_seq == self.last_seq && target.core.lock().attr.size == self.size;
        if is_same { Ok(()) } else { Err(Missed::Dirty) }
    }
}

/// The states of source and target, locked by ascending inode (`data.lock_order`).
struct States<'a> {
    target: parking_lot::MutexGuard<'a, FileData>,
    /// `None`: one file is both.
    source: Option<parking_lot::MutexGuard<'a, FileData>>,
}

impl<'a> States<'a> {
    fn lock(source: &'a Inode, target: &'a Inode) -> Self {
        let of = |inode: &'a Inode| inode.file.state.lock();
        match source.id.ino.cmp(&target.id.ino) {
            std::cmp::Ordering::Less => {
                let source = of(source);
                Self { target: of(target), source: Some(source) }
            }
            std::cmp::Ordering::Equal => Self { target: of(target), source: None },
            std::cmp::Ordering::Greater => {
                let target = of(target);
                Self { target, source: Some(of(source)) }
            }
        }
    }

    fn target(&mut self) -> &mut FileData {
        &mut self.target
    }

    /// All of both ranges is in extents, and no flush under way will lay others over the target.
    fn are_ready(&self, source: &Inode, target: &Inode, span: CloneSpan) -> Result<(), Missed> {
        let from = self.source.as_ref().unwrap_or(&self.target);
        let to = &self.target;
        // `data.traces_before_batch`
        if from.gone || source.core.lock().gone || !to.may_store(target) {
            return Err(FsError::Stale.into());
        }
        if span.source().end > source.core.lock().attr.size {
            return Err(FsError::Invalid("the range ends behind the end of the file that is cloned").into());
        }
        let is_clean = from.dirty.view(span.source()).next().is_none()
            && to.dirty.view(span.target()).next().is_none()
            && to.in_flight == 0
            && to.intents.len() == 0;
        if is_clean { Ok(()) } else { Err(Missed::Dirty) }
    }
}

async fn lock_extents<'a>(one: &'a Inode, other: &'a Inode) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut inodes = [one, other];
    inodes.sort_by_key(|inode| inode.id.ino);
    let count = if one.id.ino == other.id.ino { 1 } else { 2 };
    let mut guards = Vec::with_capacity(count);
    for inode in inodes.into_iter().take(count) {
        guards.push(inode.file.extents_lock.write().await);
    }
    guards
}

/// Where the rows are that touch a range (`extents.one_window`).
fn rows_of(ino: Ino, range: &Range<u64>) -> (Bytes, Bytes) {
    (extent_key(ino, range.start - range.start % WINDOW_BYTES), extent_key(ino, range.end))
}

/// `share.living_segments`
fn check_living(segments: &BTreeSet<SegmentId>, table: &Segments) -> FsResult<()> {
    let is_dead = segments.iter().any(|&segment| !table.is_living(segment));
    if is_dead { Err(FsError::NotSupported) } else { Ok(()) }
}

/// `share.sharers_are_noted`
pub(super) fn note_sharers(ino: Ino, segments: &BTreeSet<SegmentId>, table: &mut Segments, batch: &mut Batch) {
    for &segment in segments {
        table.mark_shared(segment);
        batch.put(sharer_key(ino, segment), MARK);
    }
}
