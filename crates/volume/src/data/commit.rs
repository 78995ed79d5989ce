//! From durable objects to extents: the batches that complete a flush.
//!
//! A task that changes extents holds the inode's `extents_lock` for writing and loads the extents
//! that it is going to change. Then, without waiting, it computes and submits one batch under the
//! table's lock (`data.extents_lock`, `data.lock_order`, `segments.counted_with_extents`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use larder_fs::*;
use parking_lot::MutexGuard;

use super::extents::{
    EXTENT_KEY_BYTES, EXTENT_VALUE_BYTES, ExtentOps, WINDOW_BYTES, decode_extent, extent_key, put_extent,
    put_extent_key,
};
use super::file::FileData;
use super::flush::{Built, Load, LoadInode, Out};
use super::preserved::copies::Uncut;
use super::promise::put_ranges;
use super::reserved::RangeOps;
use super::segments::{Segments, Tally};
use super::shared::Inner;
use super::small_commit;
use crate::follow;
use crate::inode::Inode;
use crate::meta::{Batch, Ticket};

/// Extents changed in one batch, about.
const BATCH_EXTENTS_MAX: usize = 2048;
/// Extents read at once.
const LOAD_EXTENTS_MAX: usize = 1024;
/// Inodes with fewer extents in memory than this keep them for as long as they are cached
/// themselves.
const LISTED_EXTENTS_MIN: usize = 64;
/// Bytes that an extent takes up in memory, about.
const EXTENT_MEMORY_BYTES: u64 = 256;
const LIST_MAX: usize = 64 << 10;
const EXTENTS_MIN: usize = 64 << 10;

/// A part of a load: some extents of one inode; `last` of them when its ranges are no longer dirty
/// afterwards.
struct Step<'a> {
    load: &'a LoadInode,
    outs: &'a [Out],
    last: bool,
}

impl Inner {
    /// Commits a load whose segment is durable (`data.objects_before_references`,
    /// `data.commit_in_order`).
    pub(super) async fn commit_load(&self, load: &Load, mut built: Built) -> FsResult<()> {
        if let Some((id, _, object_bytes, records)) = &built.segment {
            self.segments.lock().add_pending(*id, *object_bytes, *records);
        }
        for out in built.outs.iter_mut().flatten() {
            out.remember(self);
            // A load is many records to copy: others go on in between.
            tokio::task::coop::consume_budget().await;
        }
        for inode in load.inodes.iter().filter(|inode| !inode.zeros.is_empty()) {
            self.punch_zeros(inode).await?;
        }
        let mut steps: Vec<Step<'_>> = Vec::new();
        let (mut pending, mut ticket) = (0, Ticket(0));
        for (load, outs) in load.inodes.iter().zip(&built.outs) {
            let mut slices = outs.chunks(BATCH_EXTENTS_MAX).peekable();
            loop {
                let outs = slices.next().unwrap_or_default();
                let last = slices.peek().is_none();
                pending += outs.len() + 1;
                steps.push(Step { load, outs, last });
                if pending >= BATCH_EXTENTS_MAX {
                    ticket = self.commit_steps(std::mem::take(&mut steps)).await?;
                    pending = 0;
                }
                if last {
                    break;
                }
            }
        }
        if !steps.is_empty() {
            ticket = self.commit_steps(steps).await?;
        }
        if let Some((id, ..)) = built.segment {
            self.segments.lock().settle(id, ticket);
        }
        Ok(())
    }

    async fn commit_steps(&self, mut steps: Vec<Step<'_>>) -> FsResult<Ticket> {
        self.parts.meta.admit().await?;
        steps.sort_by_key(|step| step.load.inode.id.ino);
        let mut changing = Vec::with_capacity(steps.len());
        for step in &steps {
            changing.push(step.load.inode.file.extents_lock.write().await);
            for out in step.outs {
                self.ensure_loaded(&step.load.inode, out.range.clone()).await?;
            }
        }
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut locked: Vec<_> = steps.iter().map(|step| (step, step.load.inode.file.state.lock())).collect();
        let (mut batch, mut tally) = (Batch::default(), Tally::default());
        for (step, state) in &mut locked {
            self.store_step(&uncut, step, state, &mut batch, &mut tally);
        }
        self.submit_under(&uncut, &mut table, batch, tally)
    }

    /// Everything a step changes: extents in the map and in `batch`; then dirty ranges, intents and
    /// the record.
    fn store_step(
        &self,
        uncut: &Uncut<'_>,
        step: &Step<'_>,
        state: &mut FileData,
        batch: &mut Batch,
        tally: &mut Tally,
    ) {
        let inode = &step.load.inode;
        if step.last {
            assert!(state.in_flight > 0, "`data.commit_in_order`: a commit ends a flush of this inode");
            state.in_flight -= 1;
        }
        let mut state = uncut.change(inode, state, &inode.core.lock());
        let state = &mut state;
        if !state.may_store(inode) {
            return;
        }
        let mut ops = ExtentOps::new();
        let mut allocated = 0;
        for out in step.outs {
            let count = |extent: &_, kept| allocated += tally.count(extent, kept);
            state.blocks().extents.overlay(out.range.clone(), out.extent.clone(), &mut ops, count);
        }
        put_ops(inode.id.ino, ops, batch);
        let reserved_before = state.reserved.bytes();
        if !state.reserved.is_empty() {
            let mut rows = RangeOps::new();
            for out in step.outs.iter().filter(|out| out.extent.is_some()) {
                self.use_reserved(state, out.range.clone(), &mut rows);
            }
            put_ranges(inode.id.ino, rows, batch);
        }
        self.count_extents(inode, state);
        let dirty_before = state.dirty.data_bytes() as i64;
        if step.last {
            for taken in &step.load.taken {
                self.promise(state, taken.range(), |state| state.blocks().dirty.remove_flushed(taken));
            }
            let zeros: Vec<_> = step.load.zeros.iter().map(|(key, _)| *key).collect();
            small_commit::settle(inode.id.ino, state, &step.load.taken, &zeros, batch);
            state.flushed_seq = state.flushed_seq.max(step.load.flushed_seq.unwrap_or(0));
        }
        let reserved = state.reserved.bytes() as i64 - reserved_before as i64;
        batch.usage.reserved_bytes += reserved;
        batch.change(inode, state.record_change(allocated + reserved));
        self.dirty_bytes.fetch_add(state.dirty.data_bytes() as i64 - dirty_before, Ordering::Relaxed);
        let mut core = inode.core.lock();
        core.has_unstable = state.dirty.is_unstable();
        if let Some(size) = core.size_stored {
            // Extents never reach beyond the size in the same batch: old bytes there would come to
            // light when the file grows after a crash. Newer data over a part of them is still to
            // be stored, but the older data is there.
            let ends = step.outs.iter().filter(|out| out.extent.is_some()).map(|out| out.range.end);
            let size = size.max(ends.max().unwrap_or(0).min(core.attr.size));
            let unstable = state.dirty.first_unstable_beyond(size).map(|at| at.max(size));
            core.size_stored = if step.last { unstable } else { Some(size) };
        }
    }

    /// Stores the data of a tiny file in its extents at once: cheaper than an intent now and a
    /// flush later. False if it is no tiny file or nothing is to be done.
    pub(super) async fn commit_inline(&self, inode: &Arc<Inode>) -> FsResult<bool> {
        let fits = |state: &FileData| {
            let size = inode.core.lock().attr.size;
            let tiny = size <= super::extents::INLINE_BYTES_MAX as u64 && state.in_flight == 0 && !state.gone;
            tiny && state.dirty.is_unstable() && !state.intents.has_zeros()
        };
        if !fits(&inode.file.state.lock()) {
            return Ok(false);
        }
        self.parts.meta.admit().await?;
        let _changing = inode.file.extents_lock.write().await;
        self.ensure_loaded(inode, 0..WINDOW_BYTES).await?;
        let uncut = self.cut.enter().await;
        let mut table = self.segments.lock();
        let mut state = inode.file.state.lock();
        if !fits(&state) {
            return Ok(false);
        }
        let Some((load, charge, _)) = self.take(inode, &mut state, u64::MAX) else { return Ok(false) };
        let outs = super::flush::build_inline(&load);
        let (mut batch, mut tally) = (Batch::default(), Tally::default());
        self.store_step(&uncut, &Step { load: &load, outs: &outs, last: true }, &mut state, &mut batch, &mut tally);
        self.submit_under(&uncut, &mut table, batch, tally)?;
        drop((state, table));
        self.release(charge);
        Ok(true)
    }

    /// Applies the zero intents of a load in bounded steps: a truncated file may have had millions
    /// of extents.
    async fn punch_zeros(&self, load: &LoadInode) -> FsResult<()> {
        let inode = &load.inode;
        for (_, range) in &load.zeros {
            let mut at = range.start;
            while at < range.end {
                self.parts.meta.admit().await?;
                let _changing = inode.file.extents_lock.write().await;
                self.ensure_loaded(inode, at..at + 1).await?;
                let uncut = self.cut.enter().await;
                let mut table = self.segments.lock();
                let mut state = inode.file.state.lock();
                let mut state = uncut.change(inode, &mut state, &inode.core.lock());
                if !state.may_store(inode) {
                    return Ok(());
                }
                let mut end = range.end.min(state.extents.loaded_until(at));
                if let Some((beyond, ..)) = state.extents.view(at..end).nth(BATCH_EXTENTS_MAX) {
                    end = beyond;
                }
                let (mut batch, mut tally, mut ops) = (Batch::default(), Tally::default(), ExtentOps::new());
                let mut allocated = 0;
                let count = |extent: &_, kept| allocated += tally.count(extent, kept);
                state.blocks().extents.overlay(at..end, None, &mut ops, count);
                at = end;
                if ops.is_empty() {
                    continue;
                }
                put_ops(inode.id.ino, ops, &mut batch);
                batch.change(inode, state.record_change(allocated));
                self.submit_under(&uncut, &mut table, batch, tally)?;
            }
        }
        Ok(())
    }

    /// Submits a batch whose effect on segments is `tally`. Failure poisons
    /// (`data.poison_after_engine_failure`).
    pub(super) fn submit(&self, uncut: &Uncut<'_>, batch: Batch, tally: Tally) -> FsResult<Ticket> {
        self.submit_under(uncut, &mut self.segments.lock(), batch, tally)
    }

    pub(super) fn submit_under(
        &self,
        _uncut: &Uncut<'_>,
        table: &mut MutexGuard<'_, Segments>,
        mut batch: Batch,
        tally: Tally,
    ) -> FsResult<Ticket> {
        self.check_poison()?;
        let dead = table.apply(tally, &mut batch);
        let ticket = self.parts.meta.submit_with_records(batch).map_err(|error| self.poison(&error))?;
        if !dead.is_empty() {
            self.gc_wake.notify_one();
        }
        dead.into_iter().for_each(|id| table.retire(id, ticket));
        Ok(ticket)
    }

    /// Loads extents until all of `range` is known. The caller holds `extents_lock`.
    pub(super) async fn ensure_loaded(&self, inode: &Arc<Inode>, range: std::ops::Range<u64>) -> FsResult<()> {
        loop {
            let Some(at) = inode.file.state.lock().extents.missing(range.clone()) else { return Ok(()) };
            if inode.superseded.load(Ordering::Acquire) {
                return Err(follow::superseded());
            }
            if self.parts.followed {
                Box::pin(self.lay_intents(inode)).await?;
            }
            self.load_extents(inode, at).await?;
        }
    }

    /// Loads the window that holds `at` and as much behind it as one scan yields.
    async fn load_extents(&self, inode: &Arc<Inode>, at: u64) -> FsResult<()> {
        assert!(inode.file.extents_lock.try_write().is_err(), "`data.extents_lock`: the caller holds it");
        let ino = inode.id.ino;
        let start = at - at % WINDOW_BYTES;
        let to = extent_key(Ino(ino.0.saturating_add(1)), 0);
        let (mut from, mut found) = (extent_key(ino, start), Vec::new());
        let generation = self.parts.meta.generation();
        let end = loop {
            let pairs = self.parts.meta.scan(&from, &to, LOAD_EXTENTS_MAX).await?;
            let more = pairs.len() >= LOAD_EXTENTS_MAX;
            for (key, value) in &pairs {
                let (_, offset, extent) = decode_extent(key, value)?;
                found.push((offset, extent));
            }
            let last = found.last().map_or(0, |(offset, _)| *offset);
            if !more {
                break u64::MAX;
            }
            // The last window may continue behind the rows that were read.
            let whole = last - last % WINDOW_BYTES;
            if whole > start {
                found.retain(|(offset, _)| *offset < whole);
                break whole;
            }
            from = extent_key(ino, last + 1);
        };
        // Rows of before a turn are not loaded after it.
        let Some(_still) = self.parts.meta.still(generation) else { return Ok(()) };
        if inode.superseded.load(Ordering::Acquire) {
            return Err(follow::superseded());
        }
        let mut state = inode.file.state.lock();
        state.load_extents(start..end, found);
        self.count_extents(inode, &mut state);
        Ok(())
    }

    /// Updates the number of extents in memory; lists inodes that hold many.
    pub(super) fn count_extents(&self, inode: &Arc<Inode>, state: &mut FileData) {
        let count = Some(state.extents.len()).filter(|&count| count >= LISTED_EXTENTS_MIN).unwrap_or(0);
        if state.counted.set(&self.extents_total, count) {
            let mut list = self.extents_list.lock();
            while list.len() >= LIST_MAX || list.front().is_some_and(|oldest| oldest.strong_count() == 0) {
                list.pop_front();
            }
            list.push_back(Arc::downgrade(inode));
        }
    }

    /// Drops extents of inodes that no task is changing while there are too many. The caller holds
    /// no lock.
    pub(super) fn trim_extents(&self) {
        let max = (self.parts.memory.cache_bytes() / 8 / EXTENT_MEMORY_BYTES) as usize;
        let rounds = self.extents_list.lock().len();
        for _ in 0..rounds {
            if self.extents_total.load(Ordering::Relaxed) <= max.max(EXTENTS_MIN) {
                return;
            }
            let Some(oldest) = self.extents_list.lock().pop_front() else { return };
            let Some(inode) = oldest.upgrade() else { continue };
            let Ok(_changing) = inode.file.extents_lock.try_write() else {
                self.extents_list.lock().push_back(oldest);
                continue;
            };
            let mut state = inode.file.state.lock();
            state.forget_extents();
            state.counted.set(&self.extents_total, 0);
        }
    }
}

/// Encodes changed extents; keys and values share one allocation.
pub(super) fn put_ops(ino: Ino, ops: ExtentOps, batch: &mut Batch) {
    let mut arena = BytesMut::with_capacity(ops.len() * (EXTENT_KEY_BYTES + EXTENT_VALUE_BYTES));
    let mut cut = |write: &dyn Fn(&mut BytesMut)| -> Bytes {
        write(&mut arena);
        arena.split().freeze()
    };
    for (offset, extent) in ops {
        let key = cut(&|out| put_extent_key(out, ino, offset));
        match extent {
            Some(extent) => batch.put(key, cut(&|out| put_extent(out, &extent))),
            None => batch.delete(key),
        }
    }
}
