//! Opening: the segment table, the intents, the orphans of the last life.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use futures::StreamExt;
use larder_fs::*;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::dirty::{DirtyPiece, Payload};
use super::extents::SegmentId;
use super::flush::puts_max;
use super::intents::{self, Intent, Standing};
use super::memory::PIECE_BYTES;
use super::preserved::copies::Cut;
use super::record::count_allocated;
use super::segment::{object_path, segment_of};
use super::segments::{SEGMENT_TAG, Segments, decode_segment};
use super::shared::{Data, DataParts, Inner, store_error};
use super::small_commit;
use crate::counts::VolumeCounts;
use crate::inode::Inode;
use crate::keys::{self, table_range};
use crate::lineage::INHERITED;
use crate::meta::Batch;

const SCAN_MAX: usize = 1024;
/// Of a segment's number, those that count within a block.
const BLOCK_BITS: u32 = 32;
const THREADS_MAX: usize = 4;

impl Data {
    /// Replays intents, starts flusher and garbage collection.
    pub(crate) async fn open(parts: DataParts) -> FsResult<Arc<Data>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let inherited = (parts.inherited > 0).then_some(INHERITED);
        let mut table = Segments::new(parts.epoch, parts.snapshots.iter().copied().chain(inherited));
        table.skip_to(parts.inherited.saturating_add(1));
        let followed = parts.followed;
        let mut orphans = Vec::new();
        if !followed {
            load_segments(&parts, &mut table).await?;
            orphans = find_new_orphans(&parts, &mut table).await?;
        }
        if parts.shared && !followed {
            take_block(&parts, &mut table).await?;
        }
        let (from, to) = table_range(keys::tag::SHARER);
        let has_sharers = !followed && !parts.meta.scan(&from, &to, 1).await?.is_empty();
        let reserved = if followed { 0 } else { parts.meta.usage().reserved_bytes.max(0) };
        parts.memory.reserved.fetch_add(reserved, Ordering::Relaxed);
        let inner = Arc::new(Inner {
            counts: VolumeCounts::default(),
            volume: parts.memory.next_volume(),
            seq: AtomicU64::new(0),
            first_own: table.peek_next(),
            segments: Mutex::new(table),
            cut: Cut::at(parts.epoch),
            queue: Mutex::default(),
            idle_bytes: AtomicI64::new(0),
            charged: AtomicI64::new(0),
            dirty_bytes: AtomicI64::new(0),
            reserved: AtomicI64::new(reserved),
            flush_wake: Notify::new(),
            progress: Notify::new(),
            loads: (AtomicU64::new(0), AtomicU64::new(0)),
            puts: Arc::new(Semaphore::new(puts_max(parts.memory.dirty_max()))),
            workers: Arc::new(Semaphore::new(cores.min(THREADS_MAX))),
            failing: Mutex::new(None),
            poison: Mutex::new(None),
            fetches: Mutex::default(),
            fetch_bytes: AtomicU64::new(0),
            line: Default::default(),
            gate: Default::default(),
            has_sharers: has_sharers.into(),
            removals: AtomicUsize::new(0),
            storing: AtomicUsize::new(0),
            extents_total: Arc::new(AtomicUsize::new(0)),
            extents_list: Mutex::new(VecDeque::new()),
            gc_wake: Notify::new(),
            gc_wanted: false.into(),
            gc_rounds: AtomicU64::new(0),
            resting: Mutex::default(),
            gc_running: tokio::sync::Mutex::new(()),
            stop: CancellationToken::new(),
            tasks: Mutex::default(),
            parts,
        });
        let data = Arc::new(Data(Arc::clone(&inner)));
        if followed {
            return Ok(data);
        }
        inner.room(0);
        inner.start_flusher();
        inner.replay_intents().await?;
        inner.start_gc(orphans);
        Ok(data)
    }
}

/// Numbers that no other opening has (`segment.numbers_of_an_opening`).
async fn take_block(parts: &DataParts, table: &mut Segments) -> FsResult<()> {
    let stored = parts.meta.get(keys::BLOCK_KEY).await?;
    let stored = stored.map_or(Ok(1), |value| keys::decode_block(&value))?;
    // What was received or inherited has numbers of others.
    let used = u32::try_from(table.peek_next().0 >> BLOCK_BITS).unwrap_or(u32::MAX);
    let block = stored.max(used.saturating_add(1));
    let next = block.checked_add(1).ok_or_else(|| keys::damaged(keys::BLOCK_KEY, "there is no block left"))?;
    let mut batch = Batch::default();
    batch.put(keys::BLOCK_KEY, keys::encode_block(next));
    let ticket = parts.meta.write(batch).await?;
    parts.meta.durable(ticket).await?;
    table.skip_to(u64::from(block) << BLOCK_BITS);
    Ok(())
}

async fn load_segments(parts: &DataParts, table: &mut Segments) -> FsResult<()> {
    let (mut from, to) = table_range(SEGMENT_TAG);
    loop {
        let pairs = parts.meta.scan(&from, &to, SCAN_MAX).await?;
        for (key, value) in &pairs {
            let (id, segment) = decode_segment(key, value)?;
            table.load(id, segment);
        }
        let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { return Ok(()) };
        from = [last, &[0][..]].concat().into();
    }
}

/// Objects with numbers above those of the table are orphans of a crash. Their numbers are not used
/// again (`segment.written_once`).
async fn find_new_orphans(parts: &DataParts, table: &mut Segments) -> FsResult<Vec<SegmentId>> {
    let prefix = parts.prefix.clone().join("seg");
    let newest = table.iter().last().map_or(SegmentId(0), |(id, _)| id);
    let after = object_path(&parts.prefix, newest);
    let mut objects = parts.store.list_with_offset(Some(&prefix), &after);
    let mut orphans = Vec::new();
    while let Some(object) = objects.next().await {
        let object = object.map_err(|error| store_error("listing segments", &error))?;
        let Some(id) = segment_of(&object.location) else { continue };
        table.skip_to(id.0.saturating_add(1));
        orphans.push(id);
    }
    Ok(orphans)
}

impl Inner {
    /// The intents of an inode of a volume that another process writes lie over its extents, as in that process. The caller holds
    /// `extents_lock`. They cost no share of the memory bound: the inode is forgotten when they change.
    pub(super) async fn lay_intents(&self, inode: &Arc<Inode>) -> FsResult<()> {
        if inode.file.state.lock().intents_laid {
            return Ok(());
        }
        let generation = self.parts.meta.generation();
        let (mut from, to) = keys::range_of(intents::INTENT_TAG, inode.id.ino);
        let mut found: Vec<(Intent, Option<Vec<std::ops::Range<u64>>>)> = Vec::new();
        loop {
            let pairs = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                match intents::decode_mask(key, value)? {
                    Some(rest) => found.last_mut().into_iter().for_each(|(_, mask)| *mask = Some(rest.clone())),
                    None => found.push((intents::decode(key, value)?, None)),
                }
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { break };
            from = keys::key_after(last);
        }
        let Some(_still) = self.parts.meta.still(generation) else { return Ok(()) };
        let mut state = inode.file.state.lock();
        if inode.superseded.load(Ordering::Acquire) || std::mem::replace(&mut state.intents_laid, true) {
            return Ok(());
        }
        for (Intent { seq, offset, len, payload, .. }, rest) in found {
            let whole = || std::iter::once(offset..offset + len).collect();
            for range in rest.unwrap_or_else(whole) {
                let (start, end) = (range.start.max(offset), range.end.min(offset + len));
                if start < end {
                    let payload = payload.cut(start - offset, end - offset);
                    let piece =
                        DirtyPiece { len: end - start, payload, seq, charge: 0, in_flight: false, intent: true };
                    state.lay_intent(start, piece);
                }
            }
        }
        Ok(())
    }

    /// Every intent becomes a dirty range again, in order of writing (`intents.replay_in_order`).
    async fn replay_intents(self: &Arc<Self>) -> FsResult<()> {
        let (mut from, to) = table_range(intents::INTENT_TAG);
        let mut waiting: Option<Intent> = None;
        loop {
            let pairs = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                if let Some(rest) = intents::decode_mask(key, value)? {
                    if let Some(intent) = waiting.take() {
                        self.replay(intent, Some(rest)).await?;
                    }
                    continue;
                }
                let intent = intents::decode(key, value)?;
                if let Some(before) = waiting.replace(intent) {
                    self.replay(before, None).await?;
                }
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { break };
            from = [last, &[0][..]].concat().into();
        }
        if let Some(intent) = waiting {
            self.replay(intent, None).await?;
        }
        Ok(())
    }

    /// Waits for memory if need be: the flusher is at work already.
    async fn replay(self: &Arc<Self>, intent: Intent, rest: Option<Vec<std::ops::Range<u64>>>) -> FsResult<()> {
        let Intent { ino, seq, offset, len, payload } = intent;
        self.seq.fetch_max(seq, Ordering::Relaxed);
        let inode = match self.parts.inodes.load(ino).await {
            Ok(inode) => inode,
            Err(FsError::NotFound | FsError::Stale) => {
                let mut batch = Batch::default();
                small_commit::delete(ino, seq, offset, rest.is_some(), &mut batch);
                self.parts.meta.admit().await?;
                self.parts.meta.submit(batch)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.ensure_reserved(&inode).await?;
        let ranges = rest.clone().unwrap_or_else(|| std::iter::once(offset..offset + len).collect());
        for range in ranges {
            let (start, end) = (range.start.max(offset), range.end.min(offset + len));
            if start >= end {
                continue;
            }
            let payload = match &payload {
                Payload::Zero => Payload::Zero,
                Payload::Bytes(bytes) => {
                    Payload::Bytes(bytes.slice((start - offset) as usize..(end - offset) as usize))
                }
            };
            let data_bytes = if payload == Payload::Zero { 0 } else { end - start };
            self.hurry_if_tight();
            let charge = self.parts.memory.acquire(data_bytes + PIECE_BYTES).await.into_bytes();
            let uncut = self.cut.enter().await;
            let mut state = inode.file.state.lock();
            let mut state = uncut.change(&inode, &mut state, &inode.core.lock());
            let piece = DirtyPiece { len: end - start, payload, seq, charge, in_flight: false, intent: true };
            self.lay_piece(&mut state, start, piece, charge);
            self.enqueue(&inode, &mut state);
        }
        let uncut = self.cut.enter().await;
        let mut state = inode.file.state.lock();
        let mut state = uncut.change(&inode, &mut state, &inode.core.lock());
        state.last_seq = state.last_seq.max(seq);
        state.blocks().intents.insert((seq, offset), Standing::replayed(len, payload == Payload::Zero, rest));
        let mut core = inode.core.lock();
        count_allocated(&state, &mut core);
        Ok(())
    }

    fn hurry_if_tight(&self) {
        if self.parts.memory.dirty_used() > self.parts.memory.dirty_max() / 2 {
            self.hurry();
        }
    }
}
