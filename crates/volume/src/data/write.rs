//! Accepting changes: writes into dirty ranges, truncation and hole punching as zero ranges.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use larder_base::Timestamp;
use larder_base::arena::Received;
use larder_base::traffic::{self, Wait};
use larder_fs::access::next_change;
use larder_fs::*;

use super::dirty::{DirtyPiece, Payload};
use super::extents;
use super::file::{Changing, FileData};
use super::gate::RoomRequest;
use super::intents;
use super::memory::{Charge, PIECE_BYTES, fill_slots};
use super::preserved::copies::Uncut;
use super::record::count_allocated;
use super::reserved::{RESERVED_TAG, Reserved, decode_reserved, reserved_key};
use super::segments::Tally;
use super::shared::{Data, Inner};
use crate::inode::Inode;
use crate::keys::{self, key_after};
use crate::meta::Batch;

/// Smaller chunks of one write are copied together.
const CHUNK_BYTES_MIN: usize = 4096;
/// Larger chunks are cut (not copied), so that flushes can take them in parts.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Shorter writes do not get slots: their records are copied together.
const SLOTTED_BYTES_MIN: usize = 24 << 10;
/// Keys removed in one batch.
const REAP_KEYS_MAX: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAt {
    Offset(u64),
    Append,
}

/// Waits for room in the store where there is none (`ask`), then for `charge` bytes of memory.
#[larder_base::boxed]
async fn await_room(inner: &Inner, bytes: u64, charge: u64, ask: Option<RoomRequest>) -> FsResult<Charge> {
    let memory = &inner.parts.memory;
    if let Some(ask) = ask {
        inner.wait_for_room(ask).await?;
    }
    let delay = memory.delay(inner.parts.clock.elapsed(), bytes);
    if !delay.is_zero() {
        traffic::waiting(Wait::Disk, tokio::time::sleep(delay)).await;
    }
    loop {
        let failing = memory.failing.notified();
        tokio::select! {
            biased;
            charge = memory.acquire(charge) => return Ok(charge),
            () = failing => {
                inner.check_poison()?;
                if let Some(error) = inner.failing.lock().clone() {
                    return Err(error);
                }
            }
        }
    }
}

impl Data {
    /// Updates `core.attr` (size, mtime, ctime, change; then `update` for suid and the like) in one
    /// moment with the data.
    pub(crate) async fn write(
        &self,
        inode: &Arc<Inode>,
        at: WriteAt,
        data: Vec<Bytes>,
        stability: Stability,
        now: Timestamp,
        update: impl FnOnce(&mut Attr) + Send,
    ) -> FsResult<(u64, Changed)> {
        self.0.check_poison()?;
        let bytes: usize = data.iter().map(Bytes::len).sum();
        if bytes > IO_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        let data = slotted(inode, at, tidy(data), bytes);
        self.0.parts.mark_sealed(&data);
        let is_reserved = inode.file.has_reserved.load(Ordering::Acquire);
        let covered = if is_reserved { self.0.covered(inode, at, bytes as u64).await? } else { 0 };
        let charge = self.0.admit(bytes as u64, covered, data.len() as u64).await?;
        let accepted = {
            let uncut = self.0.cut.enter().await;
            self.0.accept(&uncut, inode, (at, data), charge, now, update)?
        };
        if stability > Stability::Unstable {
            self.commit(inode).await?;
        }
        Ok(accepted)
    }

    /// The record is ahead of the engine (`attr_dirty`, say an atime): it is written within 5 s.
    pub(crate) fn touch(&self, inode: &Arc<Inode>) {
        let mut state = inode.file.state.lock();
        self.0.enqueue(inode, &mut state);
    }

    /// Drops dirty data once `core.gone` is set (`inode.gone_is_final`); nothing more is written
    /// about the inode. Never waits: if a cut is under way, or `state` is taken just now, the flusher drops the
    /// data instead.
    pub(crate) fn forget(&self, inode: &Arc<Inode>) {
        if let Some(uncut) = self.0.cut.try_enter()
            && let Some(mut state) = inode.file.state.try_lock()
            && let Some(core) = inode.core.try_lock()
        {
            self.0.drop_changing(&mut uncut.change(inode, &mut state, &core));
        }
    }

    /// `reap` would have nothing to do: the record may go in the unlinking batch itself. Called
    /// under `core`, which is held until `core.gone` is set and that batch is submitted
    /// (`data.traces_before_batch`).
    pub(crate) fn is_traceless(&self, inode: &Inode) -> bool {
        !inode.file.traces.load(Ordering::SeqCst)
    }

    /// Removes the data of an inode from the engine in bounded batches, the last together with
    /// `end`, which removes its record and its orphan mark.
    pub(crate) async fn reap(&self, inode: &Arc<Inode>, mut end: Batch) -> FsResult<()> {
        let inner = &self.0;
        {
            let uncut = inner.cut.enter().await;
            inner.drop_dirty(&uncut, inode, &mut inode.file.state.lock());
        }
        let _changing = inode.file.extents_lock.write().await;
        let mut tally = Tally::default();
        // One scan loads a small file. Rows that do not decode are removed by their keys, below.
        let loaded = inner.ensure_loaded(inode, 0..1).await.is_ok() && inner.ensure_reserved(inode).await.is_ok();
        let mut sharers = Vec::new();
        if inner.has_sharers.load(Ordering::Acquire) {
            let prefix = intents::prefix(keys::tag::SHARER, inode.id.ino);
            sharers = inner.parts.meta.scan(&prefix, &key_after(&prefix), REAP_KEYS_MAX).await?;
        }
        let is_little = loaded && sharers.len() < REAP_KEYS_MAX;
        let reserved = if is_little { remove_known(inode, &mut end, &mut tally) } else { None };
        if let Some(bytes) = reserved {
            end.usage.reserved_bytes = -(bytes as i64);
            sharers.into_iter().for_each(|(key, _)| end.delete(key));
        } else {
            inode.file.state.lock().forget_extents();
            while inner.reap_some(inode).await? {}
        }
        inner.parts.meta.admit().await?;
        let uncut = inner.cut.enter().await;
        end.delete_record(inode.id.ino, &mut inode.core.lock());
        inner.submit(&uncut, end, tally)?;
        inner.move_promise(reserved.unwrap_or(0), 0);
        let mut state = inode.file.state.lock();
        let mut state = uncut.change(inode, &mut state, &inode.core.lock());
        let blocks = state.blocks();
        blocks.intents.clear();
        blocks.extents.forget();
        blocks.reserved = Reserved::none();
        Ok(())
    }
}

impl Inner {
    /// Bytes of a write that have a promise of room already: those in a reserved range, or over
    /// data in memory there.
    #[larder_base::boxed]
    async fn covered(&self, inode: &Arc<Inode>, at: WriteAt, bytes: u64) -> FsResult<u64> {
        self.ensure_reserved(inode).await?;
        let state = inode.file.state.lock();
        let start = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::Append => inode.core.lock().attr.size,
        };
        let range = start..start.saturating_add(bytes);
        let idle = state.dirty.view(range.clone()).filter(|(.., piece)| piece.is_data() && !piece.in_flight);
        let idle: u64 = idle.map(|(lo, hi, _)| hi - lo).sum();
        Ok((idle + state.unclaimed(range)).min(bytes))
    }

    /// Acquires room in the store and in memory for a write (`data.room_before_accept`,
    /// `memory.charge_before_accept`). `covered` bytes of it have a promise of room.
    async fn admit(&self, bytes: u64, covered: u64, pieces: u64) -> FsResult<Charge> {
        let charge = bytes + pieces * PIECE_BYTES;
        let memory = &self.parts.memory;
        let ask = if covered == bytes { RoomRequest::Promised(bytes) } else { RoomRequest::New(bytes - covered) };
        let has_room = self.has_room(ask);
        if has_room && let Some(charge) = memory.try_acquire(charge) {
            return Ok(charge);
        }
        await_room(self, bytes, charge, (!has_room).then_some(ask)).await
    }

    /// Lays a write over the file and counts it, in one moment.
    fn accept(
        &self,
        uncut: &Uncut<'_>,
        inode: &Arc<Inode>,
        (at, data): (WriteAt, Vec<Bytes>),
        charge: Charge,
        now: Timestamp,
        update: impl FnOnce(&mut Attr),
    ) -> FsResult<(u64, Changed)> {
        let mut state = inode.file.state.lock();
        let mut core = inode.core.lock();
        if state.gone || core.gone {
            return Err(FsError::Stale);
        }
        let mut state = uncut.change(inode, &mut state, &core);
        let offset = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::Append => core.attr.size,
        };
        let len: usize = data.iter().map(Bytes::len).sum();
        let end = offset.checked_add(len as u64).filter(|&end| end <= FILE_BYTES_MAX).ok_or(FsError::FileTooLarge)?;
        let before = PreAttr::of(&core.attr);
        if len == 0 {
            return Ok((offset, Changed { before, after: core.attr }));
        }
        self.lay(&mut state, offset, data, charge);
        if end > core.attr.size {
            let old_size = core.attr.size;
            core.size_stored.get_or_insert(old_size);
            core.attr.size = end;
        }
        core.attr.mtime = now;
        core.attr.ctime = now;
        core.attr.change = next_change(core.attr.change);
        core.attr_dirty = true;
        core.has_unstable = true;
        update(&mut core.attr);
        count_allocated(&state, &mut core);
        let changed = Changed { before, after: core.attr };
        drop(core);
        self.enqueue(inode, &mut state);
        Ok((offset, changed))
    }

    fn lay(&self, state: &mut Changing<'_>, mut offset: u64, data: Vec<Bytes>, charge: Charge) {
        let seq = self.next_seq();
        state.last_seq = seq;
        let mut unspent = charge.into_bytes();
        for bytes in data {
            let len = bytes.len() as u64;
            let charge = (len + PIECE_BYTES).min(unspent);
            unspent -= charge;
            let payload = Payload::Bytes(bytes);
            let piece = DirtyPiece { len, payload, seq, charge, in_flight: false, intent: false };
            self.lay_piece(state, offset, piece, charge);
            offset += len;
        }
        self.parts.memory.release(unspent);
    }

    /// Lays one piece whose charge was acquired.
    pub(super) fn lay_piece(&self, state: &mut Changing<'_>, offset: u64, piece: DirtyPiece, acquired: u64) {
        let before = state.dirty.data_bytes() as i64;
        let range = offset..offset + piece.len;
        let released = self.promise(state, range, |state| state.blocks().dirty.insert(offset, piece));
        self.charged.fetch_add(acquired as i64, Ordering::Relaxed);
        self.idle_bytes.fetch_add(acquired as i64 - released as i64, Ordering::Relaxed);
        self.dirty_bytes.fetch_add(state.dirty.data_bytes() as i64 - before, Ordering::Relaxed);
        self.release(released);
    }

    /// Gives charge back to the memory bound.
    pub(super) fn release(&self, bytes: u64) {
        self.charged.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.parts.memory.release(bytes);
    }

    pub(super) fn drop_dirty(&self, uncut: &Uncut<'_>, inode: &Arc<Inode>, state: &mut FileData) {
        let mut changing = uncut.change(inode, state, &inode.core.lock());
        self.drop_changing(&mut changing);
    }

    fn drop_changing(&self, state: &mut Changing<'_>) {
        state.gone = true;
        let before = state.dirty.data_bytes() as i64;
        let released = self.promise(state, 0..u64::MAX, |state| state.blocks().dirty.drain());
        self.release(released);
        self.idle_bytes.fetch_sub(released as i64, Ordering::Relaxed);
        self.dirty_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// One batch of removals; false when nothing is left. The caller holds `extents_lock`.
    async fn reap_some(&self, inode: &Arc<Inode>) -> FsResult<bool> {
        assert!(inode.file.extents_lock.try_write().is_err(), "`data.extents_lock`: the caller holds it");
        let meta = &self.parts.meta;
        meta.admit().await?;
        let (mut batch, mut tally, mut reserved) = (Batch::default(), Tally::default(), 0);
        for tag in [intents::INTENT_TAG, extents::EXTENT_TAG, RESERVED_TAG, keys::tag::SHARER] {
            let prefix = intents::prefix(tag, inode.id.ino);
            for (key, value) in meta.scan(&prefix, &key_after(&prefix), REAP_KEYS_MAX).await? {
                if tag == extents::EXTENT_TAG {
                    match extents::decode_extent(&key, &value) {
                        Ok((_, _, extent)) => drop(tally.count(&extent, false)),
                        Err(error) => {
                            tracing::error!(%error, "a damaged extent of a deleted file is removed uncounted")
                        }
                    }
                }
                if tag == RESERVED_TAG {
                    match decode_reserved(&key, &value) {
                        Ok((_, range)) => reserved += range.end - range.start,
                        Err(error) => {
                            tracing::error!(%error, "a damaged reservation of a deleted file is removed uncounted")
                        }
                    }
                }
                batch.delete(key);
            }
        }
        if batch.ops.is_empty() {
            return Ok(false);
        }
        batch.usage.reserved_bytes = -(reserved as i64);
        let uncut = self.cut.enter().await;
        self.submit(&uncut, batch, tally)?;
        self.move_promise(reserved, 0);
        Ok(true)
    }
}

/// Removes the data keys of an inode whose extents are all in memory, if they are few. The caller
/// holds `extents_lock`. Returns how many bytes were reserved.
fn remove_known(inode: &Inode, batch: &mut Batch, tally: &mut Tally) -> Option<u64> {
    let state = inode.file.state.lock();
    let reserved = state.reserved.ranges()?;
    let keys = state.extents.len() + state.intents.len() + reserved.len();
    if !state.extents.is_complete() || keys > REAP_KEYS_MAX {
        return None;
    }
    for (_, _, at, extent) in state.extents.view(0..u64::MAX) {
        tally.count(extent, false);
        batch.delete(extents::extent_key(inode.id.ino, at));
    }
    state.intents.delete_all(inode.id.ino, batch);
    reserved.starts().for_each(|at| batch.delete(reserved_key(inode.id.ino, at)));
    Some(reserved.bytes())
}

/// The bytes in slots that can become cached records (`memory.kept_uncopied`). What came otherwise
/// is copied now: it is in the processor's cache, and the door's buffer is free for its next use.
fn slotted(inode: &Inode, at: WriteAt, data: Vec<Bytes>, bytes: usize) -> Vec<Bytes> {
    if bytes < SLOTTED_BYTES_MIN || fill_slots(&data) {
        return data;
    }
    let offset = match at {
        WriteAt::Offset(offset) => offset,
        WriteAt::Append => inode.core.lock().attr.size,
    };
    let mut received = Received::new(offset, bytes);
    data.iter().for_each(|chunk| _ = received.fill_from(chunk));
    received.into_chunks()
}

/// Chunks of a size worth keeping apart.
fn tidy(data: Vec<Bytes>) -> Vec<Bytes> {
    let fits = |chunk: &Bytes| (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk.len());
    if data.len() == 1 && data.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX && !chunk.is_empty())
        || data.iter().all(fits)
    {
        return data;
    }
    let mut out: Vec<Bytes> = Vec::with_capacity(data.len());
    let mut small = BytesMut::new();
    for mut chunk in data {
        if chunk.len() < CHUNK_BYTES_MIN || (!small.is_empty() && small.len() < CHUNK_BYTES_MIN) {
            let room = (2 * CHUNK_BYTES_MIN).saturating_sub(small.len());
            small.extend_from_slice(&chunk.split_to(chunk.len().min(room)));
        }
        if small.len() >= CHUNK_BYTES_MIN || !chunk.is_empty() {
            out.extend((!small.is_empty()).then(|| small.split().freeze()));
        }
        while !chunk.is_empty() {
            out.push(chunk.split_to(chunk.len().min(CHUNK_BYTES_MAX)));
        }
    }
    out.extend((!small.is_empty()).then(|| small.freeze()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidying_keeps_every_byte_and_leaves_few_small_chunks() {
        let check = |lens: &[usize], max_chunks: usize| {
            let mut n = 0u8;
            let chunks: Vec<Bytes> = lens
                .iter()
                .map(|&len| {
                    n = n.wrapping_add(1);
                    Bytes::from(vec![n; len])
                })
                .collect();
            let tidied = tidy(chunks.clone());
            assert!(tidied.concat() == chunks.concat(), "{lens:?}");
            assert!(tidied.len() <= max_chunks && tidied.iter().all(|c| c.len() <= CHUNK_BYTES_MAX), "{lens:?}");
        };
        check(&[], 0);
        check(&[0], 0);
        check(&[1], 1);
        check(&[1448; 100], 36);
        check(&[100, 1 << 20, 100], 3);
        check(&[3 << 20], 3);
        check(&[4096, 4096], 2);
        check(&[1, 5000, 1, 5000], 4);
    }
}
