//! Truncation and fallocate: changes of a file's shape and of its reserved ranges (see `reserved`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_fs::*;

use super::dirty::{DirtyPiece, Payload};
use super::file::{Changing, FileData};
use super::gate::{RoomRequest, set_aside};
use super::memory::{Charge, PIECE_BYTES};
use super::promise::put_ranges;
use super::reserved::{RANGES_MAX, RangeOps, Ranges};
use super::shared::{Data, Inner};
use super::{intents, small_commit};
use crate::features;
use crate::inode::Inode;
use crate::meta::{Batch, Ticket};

/// Searches for room after which an allocation of a file that keeps changing fails.
const TRIES_MAX: usize = 16;

/// The next shape of a file.
struct Shape {
    size: u64,
    /// Reads as zeros from now on.
    zero: Range<u64>,
    /// Not reserved any more.
    release: Range<u64>,
}

impl Data {
    /// Sets the size. `update` runs under `core` after the size is set, before the record is
    /// encoded: it sets times, change and whatever else SETATTR changes. One batch; durable with
    /// the ticket.
    pub(crate) async fn truncate(
        &self,
        inode: &Arc<Inode>,
        new_size: u64,
        update: impl FnOnce(&mut Attr) + Send,
    ) -> FsResult<(Changed, Ticket)> {
        if new_size > FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let shape = |attr: &Attr| Shape {
            size: new_size,
            zero: new_size..attr.size.max(new_size),
            // As on ext4, reserved ranges behind the end stay when the file grows.
            release: if new_size <= attr.size { new_size..FILE_BYTES_MAX } else { 0..0 },
        };
        let reshaped = self.0.reshape(inode, 0..0, 0, shape, update).await?;
        reshaped.map_err(|_| FsError::Busy("the file keeps changing"))
    }

    /// fallocate. `update` sets times and change. The caller holds [`Data::reserving`] if `mode`
    /// reserves.
    pub(crate) async fn allocate(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        mode: AllocateMode,
        mut update: impl FnMut(&mut Attr) + Send,
    ) -> FsResult<(Changed, Ticket)> {
        let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX).ok_or(FsError::FileTooLarge)?;
        let zeroes = matches!(mode, AllocateMode::PunchHole | AllocateMode::Zero | AllocateMode::ZeroKeepSize);
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::Zero);
        let shape = |attr: &Attr| Shape {
            size: if grows { attr.size.max(end) } else { attr.size },
            zero: if zeroes { offset.min(attr.size)..end.min(attr.size) } else { 0..0 },
            release: if mode.reserves() { 0..0 } else { offset..end },
        };
        let reserve = if mode.reserves() { offset..end } else { 0..0 };
        let inner = &self.0;
        if mode.reserves() {
            // A range larger than the whole store must be refused before its holes are searched.
            let data = inner.parts.meta.usage().logical_bytes.max(0) as u64;
            let in_memory = inner.parts.memory.dirty_used();
            let reserved = inner.parts.memory.reserved();
            inner.find_room(len.saturating_sub(data).saturating_sub(in_memory).saturating_sub(reserved)).await?;
        }
        let mut granted = 0;
        for _ in 0..TRIES_MAX {
            match inner.reshape(inode, reserve.clone(), granted, shape, &mut update).await? {
                Ok(reshaped) => return Ok(reshaped),
                Err(needed) => {
                    inner.find_room(needed).await?;
                    inner.parts.marks.set(features::RESERVED_RANGES).await?;
                    granted = needed;
                }
            }
        }
        Err(FsError::Busy("the file keeps changing"))
    }

    /// One reservation at a time, from the search for room until the room is taken
    /// (`reserved.promise_grows_in_allocate`).
    pub(crate) async fn reserving(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.parts.memory.reserving.lock().await
    }
}

impl Inner {
    async fn find_room(&self, reserved_bytes: u64) -> FsResult<()> {
        let ask = RoomRequest::New(set_aside(reserved_bytes));
        if reserved_bytes == 0 || self.has_room(ask) { Ok(()) } else { self.wait_for_room(ask).await }
    }

    /// Changes the size, zeroes a range and changes reserved ranges in one batch, as `shape` says
    /// of the present attributes. If that would promise more than `granted` bytes, nothing changes
    /// and the answer is the number of bytes.
    async fn reshape(
        &self,
        inode: &Arc<Inode>,
        reserve: Range<u64>,
        granted: u64,
        shape: impl FnOnce(&Attr) -> Shape + Send,
        update: impl FnOnce(&mut Attr) + Send,
    ) -> FsResult<Result<(Changed, Ticket), u64>> {
        self.check_poison()?;
        self.ensure_reserved(inode).await?;
        let charge = self.parts.memory.acquire(PIECE_BYTES).await;
        self.parts.meta.admit().await?;
        let mut _standing = None;
        if !reserve.is_empty() {
            _standing = Some(inode.file.extents_lock.read().await);
            self.ensure_loaded(inode, reserve.clone()).await?;
        }
        let uncut = self.cut.enter().await;
        let mut guard = inode.file.state.lock();
        let state = &mut *guard;
        let (mut batch, mut rows) = (Batch::default(), RangeOps::new());
        let changed = {
            let mut core = inode.core.lock();
            inode.file.traces.store(true, Ordering::SeqCst);
            if state.gone || core.gone {
                return Err(FsError::Stale);
            }
            let state = &mut uncut.change(inode, state, &core);
            let before = PreAttr::of(&core.attr);
            let shape = shape(&core.attr);
            let needed = state.to_promise(&reserve, &shape.zero)?;
            if needed > granted {
                return Ok(Err(needed));
            }
            if !shape.zero.is_empty() {
                self.zero(inode, state, shape.zero, charge, &mut batch);
            }
            let reserved_before = state.reserved.bytes();
            if !shape.release.is_empty() {
                self.promise(state, shape.release.clone(), |state| {
                    state.blocks().reserved.remove(shape.release, &mut rows);
                });
            }
            for hole in state.unreserved_holes(reserve) {
                inode.file.has_reserved.store(true, Ordering::Release);
                self.promise(state, hole.clone(), |state| state.blocks().reserved.insert(hole, &mut rows));
            }
            core.attr.size = shape.size;
            // The new size is explicit: it is durable with this batch.
            core.size_stored = None;
            core.has_unstable = state.dirty.is_unstable();
            update(&mut core.attr);
            let reserved = state.reserved.bytes() as i64 - reserved_before as i64;
            let change = state.record_change(reserved);
            batch.usage.reserved_bytes = reserved;
            batch.change(inode, change);
            Changed { before, after: Attr { allocated: change.allocated(&core), ..core.attr } }
        };
        put_ranges(inode.id.ino, rows, &mut batch);
        self.enqueue(inode, state);
        let ticket = self.parts.meta.submit_with_records(batch).map_err(|error| self.poison(&error))?;
        Ok(Ok((changed, ticket)))
    }

    /// Lays zeros over `range` of the file: at once in memory, as an intent in `batch`, later in
    /// the extents.
    fn zero(&self, inode: &Arc<Inode>, state: &mut Changing<'_>, range: Range<u64>, charge: Charge, batch: &mut Batch) {
        let kept = small_commit::shadow(inode.id.ino, state, &range, batch);
        let nothing_stored = state.extents.missing(range.clone()).is_none()
            && state.extents.view(range.clone()).next().is_none()
            && state.in_flight == 0
            && !kept;
        if nothing_stored {
            let before = state.dirty.data_bytes() as i64;
            let released = self.promise(state, range.clone(), |state| state.blocks().dirty.clear(range));
            self.idle_bytes.fetch_sub(released as i64, Ordering::Relaxed);
            self.dirty_bytes.fetch_add(state.dirty.data_bytes() as i64 - before, Ordering::Relaxed);
            self.release(released);
            return;
        }
        let (seq, len) = (self.next_seq(), range.end - range.start);
        state.last_seq = seq;
        let charge = charge.into_bytes();
        let piece = DirtyPiece { len, payload: Payload::Zero, seq, charge, in_flight: false, intent: true };
        self.lay_piece(state, range.start, piece, charge);
        batch.put(intents::key(inode.id.ino, seq, range.start), intents::encode_zero(len));
        state.blocks().intents.insert((seq, range.start), intents::Standing::new(len, true));
    }
}

impl FileData {
    /// How many bytes of `reserve` would be promised for the first time if its holes, with those
    /// that `zero` makes, were reserved.
    fn to_promise(&self, reserve: &Range<u64>, zero: &Range<u64>) -> FsResult<u64> {
        if reserve.is_empty() {
            return Ok(0);
        }
        let count = self.reserved.ranges().map_or(0, Ranges::len);
        if !zero.is_empty() {
            // Bytes overwritten with zeros give their room back later.
            let reserved: u64 = self.reserved.ranges().into_iter().flat_map(|r| r.view(reserve.clone())).map(len).sum();
            return if count < RANGES_MAX { Ok(len(reserve.clone()) - reserved) } else { Err(too_many()) };
        }
        let holes = self.unreserved_holes(reserve.clone());
        if count + holes.len() > RANGES_MAX {
            return Err(too_many());
        }
        let claimed = |hole: &Range<u64>| -> u64 {
            let pieces = self.dirty.view(hole.clone()).filter(|(.., piece)| piece.is_data());
            pieces.map(|(lo, hi, _)| hi - lo).sum()
        };
        Ok(holes.iter().map(|hole| len(hole.clone()) - claimed(hole)).sum())
    }
}

fn len(range: Range<u64>) -> u64 {
    range.end - range.start
}

fn too_many() -> FsError {
    FsError::NoSpace(format!("the file has {RANGES_MAX} reserved ranges; write to them or punch holes first"))
}
