//! Garbage collection: dead segments are deleted, mostly dead ones are rewritten.
//!
//! - `gc.move_if_unchanged`: a record is moved only where the stored extents still refer to it when
//!   the move is committed, compared under the inode's `extents_lock`. A range overwritten in
//!   between stays overwritten.
//! - `gc.work_as_room_demands`: collection works only as hard as the room demands
//!   ([`Inner::live_limit`]). With plenty free it touches only segments that are half dead, and
//!   only if they add up; near full it rewrites every segment with a gap.
//! - `gc.neighbours_join`: pieces that lie side by side in a file become one record again, so
//!   collection also defragments.
//! - `gc.rewrites_gain`: a segment is rewritten by itself only if that gives bytes back. Otherwise it
//!   is left alone until fewer of its bytes are live. Several become one. So collection ends.
//! - `gc.shared_stays_shared`: a record to which several extents refer is moved once, for all of them. The index names one
//!   file for it; rows `T` lead to the others (`share.sharers_are_noted`), and the new place gets such rows, too.
//! - `gc.bounded_memory`: collection takes no memory from the bound of dirty data. It holds at most
//!   one segment read and one being built.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use larder_base::task;
use larder_fs::*;
use object_store::{ObjectStoreExt, PutPayload};

use super::clone_range::{decode_sharer, note_sharers};
use super::commit::put_ops;
use super::compress::compress;
use super::extents::{EXTENT_TAG, Extent, ExtentOps, Place, SegmentId, decode_extent, extent_key};
use super::flush::LOAD_BYTES_MAX;
use super::gate::SEGMENT_MIN_GARBAGE;
use super::memory::Record;
use super::pieces::{Codec, RecordRef, verify_and_unpack};
use super::segment::{Builder, FOOTER_BYTES, IndexEntry, object_path, parse_footer, parse_index, segment_of};
use super::segments::{SMALL_BYTES, Tally};
use super::shared::{Inner, store_error};
use crate::inode::Inode;
use crate::keys::{key_after, range_of, table_range, tag};
use crate::meta::maintain::REPLICA_GRACE;
use crate::meta::{Batch, Ticket};
use crate::properties::Compression;

const DELETES_MAX: usize = 64;
const VICTIMS_MAX: usize = 32;
/// Of less, records stay in the cache until others take their places: looking at all of it costs more.
const FORGET_BYTES_MIN: u64 = 32 << 20;
/// Garbage below this is left alone while there is room.
const IDLE_GARBAGE_BYTES: u64 = 64 << 20;
const SMALL_COUNT_MAX: usize = 128;
/// Index entries whose ranges lie this close are looked up in one scan.
const SCAN_GAP_BYTES: u64 = 128 << 10;
const SCAN_MAX: usize = 1024;
const READ_GAP_BYTES: u64 = 64 << 10;
const READ_BYTES_MAX: u64 = 4 << 20;
/// Pieces of files that share victims: with more, the victims are left alone until fewer of their bytes are live.
const SHARED_PIECES_MAX: usize = 256 << 10;
/// Moves committed in one batch.
const MOVES_MAX: usize = 1024;
/// The first pause after a failure, shorter than a writer waits for room; it doubles up to the
/// last.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A part of a record that extents still refer to.
#[derive(Clone, Debug)]
struct LivePiece {
    ino: Ino,
    generation: u64,
    offset: u64,
    len: u32,
    skip: u32,
    record: RecordRef,
    order: u64,
    birth: u64,
}

impl LivePiece {
    /// A piece of the record that `entry` names; `record` is as an extent has it.
    fn new(entry: &IndexEntry, offset: u64, len: u32, skip: u32, record: RecordRef) -> LivePiece {
        let IndexEntry { ino, generation, order, birth, .. } = *entry;
        LivePiece { ino, generation, offset, len, skip, record, order, birth }
    }
}

/// A new record and the pieces of one file that it takes the place of.
struct Move {
    offset: u64,
    /// Bytes of the record before those at `offset`.
    skip: u32,
    record: RecordRef,
    pieces: Vec<LivePiece>,
    /// Other moves have the same record (`gc.shared_stays_shared`).
    is_shared: bool,
}

impl Move {
    fn end(&self) -> u64 {
        self.pieces.last().map_or(self.offset, |piece| piece.offset + u64::from(piece.len))
    }
}

impl Inner {
    /// Cheap: the collector looks for itself whether there is something to do.
    pub(super) fn wake_gc(&self) {
        let doomed = self.segments.lock().has_doomed();
        if doomed || self.live_limit().is_some() {
            self.gc_wake.notify_one();
        }
    }

    pub(super) fn start_gc(self: &Arc<Self>, orphans: Vec<SegmentId>) {
        let task = task::spawn(Arc::clone(self).run_gc(orphans));
        self.tasks.lock().push(task);
        self.gc_wake.notify_one();
    }

    async fn run_gc(self: Arc<Self>, orphans: Vec<SegmentId>) {
        let stop = self.stop.clone();
        let work = async {
            if let Err(error) = self.sweep_orphans(orphans).await {
                tracing::warn!(%error, "unreferenced segments could not be swept; the next opening tries again");
            }
            while let Err(error) = self.find_shared().await {
                tracing::warn!(%error, "garbage collection waits: the segments that files share could not be listed");
                tokio::time::sleep(RETRY_MAX).await;
            }
            loop {
                self.await_work().await;
                let mut pause = RETRY_MIN;
                loop {
                    match self.gc_round().await {
                        Ok(true) => pause = RETRY_MIN,
                        Ok(false) | Err(FsError::Poisoned(_)) => break,
                        Err(error) => {
                            tracing::warn!(%error, "garbage collection could not go on; it tries again");
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(RETRY_MAX);
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Marks the segments that files share (`share.sharers_are_noted`): before the first rewriting, since a record that is moved
    /// for one file alone is stored twice.
    async fn find_shared(&self) -> FsResult<()> {
        let (mut from, to) = table_range(tag::SHARER);
        loop {
            let rows = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            let mut table = self.segments.lock();
            for (key, value) in &rows {
                table.mark_shared(decode_sharer(key, value)?.1);
            }
            let Some((last, _)) = rows.last().filter(|_| rows.len() >= SCAN_MAX) else { return Ok(()) };
            from = key_after(last);
        }
    }

    /// Until somebody wakes it, or a retired segment has rested for long enough.
    async fn await_work(&self) {
        let due = self.resting.lock().front().map(|(due, ..)| *due);
        let Some(due) = due else { return self.gc_wake.notified().await };
        let left = due.saturating_sub(self.parts.clock.elapsed());
        tokio::select! {
            () = self.gc_wake.notified() => {}
            () = tokio::time::sleep(left) => {}
        }
    }

    /// Retired segments whose objects may go.
    fn take_doomed(&self) -> Vec<(SegmentId, Ticket)> {
        if !self.parts.shared {
            return self.segments.lock().take_doomed(DELETES_MAX);
        }
        // `maintain.grace_of_replicas`
        let now = self.parts.clock.elapsed();
        let retired = self.segments.lock().take_doomed(usize::MAX);
        let mut resting = self.resting.lock();
        resting.extend(retired.into_iter().map(|(id, ticket)| (now + REPLICA_GRACE, id, ticket)));
        let count = resting.iter().take(DELETES_MAX).take_while(|(due, ..)| *due <= now).count();
        resting.drain(..count).map(|(_, id, ticket)| (id, ticket)).collect()
    }

    /// One round; true if it is worth trying another at once.
    async fn gc_round(self: &Arc<Self>) -> FsResult<bool> {
        let _running = self.gc_running.lock().await;
        let done = async {
            let deleted = self.delete_doomed().await?;
            let moved = match self.live_limit() {
                Some(limit) => self.rewrite(limit).await.inspect(|freed| self.counts.collected_bytes.add(*freed))?,
                None => 0,
            };
            FsResult::Ok(deleted > 0 || moved > 0 || self.segments.lock().has_doomed())
        };
        let again = done.await;
        match &again {
            Ok(true) => _ = self.gc_rounds.fetch_add(1, Ordering::Relaxed),
            Ok(false) | Err(FsError::Poisoned(_)) => self.gc_wanted.store(false, Ordering::Relaxed),
            Err(_) => {}
        }
        self.progress.notify_waiters();
        again
    }

    /// The percentage of live bytes up to which a segment is worth rewriting
    /// (`gc.work_as_room_demands`). `None`: there is nothing to do.
    fn live_limit(&self) -> Option<u64> {
        let (objects, garbage, small) = {
            let table = self.segments.lock();
            let (objects, live) = table.bytes();
            (objects, objects - live, table.small())
        };
        let (total, available) = self.room(0);
        if garbage >= SEGMENT_MIN_GARBAGE {
            if self.gc_wanted.load(Ordering::Relaxed) || available < total / 12 {
                return Some(96);
            }
            if available < total / 6 {
                return Some(85);
            }
        }
        let worthwhile = garbage > IDLE_GARBAGE_BYTES && garbage > objects / 4;
        (worthwhile || small > SMALL_COUNT_MAX).then_some(50)
    }

    /// Deletes objects that nothing refers to any more, durably (`segments.deleted_once_durable`).
    /// Returns how many.
    async fn delete_doomed(self: &Arc<Self>) -> FsResult<usize> {
        let doomed = self.take_doomed();
        let Some(newest) = doomed.iter().map(|(_, ticket)| *ticket).max() else { return Ok(0) };
        let put_back = |doomed: &[(SegmentId, Ticket)]| {
            let mut table = self.segments.lock();
            doomed.iter().for_each(|&(id, ticket)| table.retire(id, ticket));
        };
        if let Err(error) = self.parts.meta.durable(newest).await {
            put_back(&doomed);
            return Err(error);
        }
        let ids: Vec<SegmentId> = doomed.iter().map(|(id, _)| *id).collect();
        if let Err(error) = self.delete_objects(ids).await {
            put_back(&doomed);
            return Err(error);
        }
        self.parts.meta.admit().await?;
        let mut bytes = 0;
        {
            let uncut = self.cut.enter().await;
            let mut table = self.segments.lock();
            let mut batch = Batch::default();
            for (id, _) in &doomed {
                bytes += table.get(*id).map_or(0, |segment| segment.object_bytes);
                table.remove(*id, &mut batch);
            }
            self.submit_under(&uncut, &mut table, batch, Tally::default())?;
        }
        if bytes >= FORGET_BYTES_MIN {
            // `memory.dead_records_make_room`
            self.parts.memory.forget_segments(self.volume, &doomed.iter().map(|(id, _)| *id).collect());
        }
        Ok(doomed.len())
    }

    async fn delete_objects(self: &Arc<Self>, ids: Vec<SegmentId>) -> FsResult<()> {
        let deletions = futures::stream::iter(ids).map(|id| async move {
            match self.parts.store.delete(&object_path(&self.parts.prefix, id)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(store_error(&format!("deleting segment {:016x}", id.0), &error)),
            }
        });
        let results: Vec<FsResult<()>> = deletions.buffer_unordered(8).collect().await;
        results.into_iter().collect()
    }

    /// Deletes objects of earlier openings that are not in the table
    /// (`segments.orphans_are_swept`).
    async fn sweep_orphans(self: &Arc<Self>, mut orphans: Vec<SegmentId>) -> FsResult<()> {
        if self.parts.keeps_orphans {
            tracing::warn!("the log has lost what was acknowledged: segments that nothing refers to are kept");
            return Ok(());
        }
        let prefix = self.parts.prefix.clone().join("seg");
        let mut objects = self.parts.store.list(Some(&prefix));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| store_error("listing segments", &error))?;
            let Some(id) = segment_of(&object.location) else { continue };
            if id < self.first_own && self.segments.lock().get(id).is_none() {
                orphans.push(id);
            }
        }
        self.delete_objects(orphans).await
    }

    /// Rewrites the live parts of the segments that are worth it most. Returns how many bytes were
    /// given up.
    async fn rewrite(self: &Arc<Self>, live_limit: u64) -> FsResult<u64> {
        let victims = self.choose_victims(live_limit);
        let mut pieces = self.shared_pieces(&victims).await?;
        let found_whole: HashSet<Ino> = pieces.iter().map(|piece| piece.ino).collect();
        let mut freed = 0;
        for id in &victims {
            match self.live_pieces(*id).await {
                Ok(found) => pieces.extend(found.into_iter().filter(|piece| !found_whole.contains(&piece.ino))),
                Err(error) => {
                    tracing::error!(%error, segment = id.0, "garbage collection leaves a segment alone that it cannot read");
                    self.segments.lock().mark_unreadable(*id);
                }
            }
            freed += self.segments.lock().get(*id).map_or(0, |segment| segment.object_bytes);
        }
        if pieces.is_empty() {
            return Ok(0);
        }
        pieces.sort_by_key(|piece| (piece.ino, piece.offset));
        let contents = self.read_pieces(&pieces).await;
        let made = self.next_segment();
        let id = made.0;
        let (record_bytes, compression) = (self.parts.settings.record_bytes(), self.parts.settings.compression());
        let built = task::computed(move || rebuild(made, pieces, &contents, record_bytes, compression)).await;
        let cancelled = || FsError::Io("rebuilding was cancelled".into());
        let (moves, parts, object_bytes) = built.ok_or_else(cancelled)?;
        if moves.is_empty() {
            return Ok(0);
        }
        if let [only] = victims[..]
            && object_bytes >= freed
        {
            self.segments.lock().mark_no_gain(only);
            return Ok(0);
        }
        let records = moves.iter().map(|(_, one)| one.record.position).collect::<BTreeSet<_>>().len() as u32;
        let path = object_path(&self.parts.prefix, id);
        self.put_once(&path, PutPayload::from_iter(parts), None).await?;
        self.segments.lock().add_pending(id, object_bytes, records);
        let mut ticket = Ticket(0);
        for (ino, moves) in by_inode(moves) {
            match self.parts.inodes.load(ino).await {
                Ok(inode) => ticket = ticket.max(self.commit_moves(&inode, moves).await?),
                // It is being removed, and its extents with it.
                Err(FsError::NotFound | FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        self.segments.lock().settle(id, ticket);
        self.parts.meta.durable(ticket).await?;
        Ok(freed.saturating_sub(object_bytes))
    }

    /// Victims by benefit over cost: the bytes that become free, weighted by age.
    fn choose_victims(&self, live_limit: u64) -> Vec<SegmentId> {
        let (_, available) = self.room(0);
        let table = self.segments.lock();
        let newest = table.iter().last().map_or(0, |(id, _)| id.0);
        let merge_small = table.small() > SMALL_COUNT_MAX;
        let mut candidates: Vec<(u64, SegmentId, u64)> = table
            .iter()
            .filter(|(_, s)| s.extents > 0 && !s.pending && !s.unreadable && !table.is_pinned(s))
            .filter(|(_, s)| s.no_gain_at != Some(s.live_bytes))
            .filter_map(|(id, s)| {
                let live = (s.useful_bytes() * 1000 / s.object_bytes.max(1)).min(1000);
                let small = merge_small && s.object_bytes < SMALL_BYTES;
                let wanted = live <= live_limit * 10 || small;
                let age = (newest - id.0 + 1).ilog2() as u64 + 1;
                let live = if small { live / 2 } else { live };
                wanted.then(|| ((1000 - live) * age * 1000 / (1000 + live), id, s.live_bytes))
            })
            .collect();
        candidates.sort_by_key(|&(score, id, _)| (std::cmp::Reverse(score), id));
        let (mut room, mut victims) = ((self.load_target() as u64).min(available / 2), Vec::new());
        for (_, id, live) in candidates {
            let fits = live <= room || victims.is_empty() && live <= available / 4 * 3;
            if fits {
                room = room.saturating_sub(live);
                victims.push(id);
            }
            if room == 0 || victims.len() >= VICTIMS_MAX {
                break;
            }
        }
        // One small segment by itself is as good as it can be.
        let single = victims.len() == 1
            && victims
                .iter()
                .all(|id| table.get(*id).is_some_and(|s| s.useful_bytes() * 100 > s.object_bytes * live_limit));
        if single { Vec::new() } else { victims }
    }

    pub(super) async fn read_index(&self, id: SegmentId) -> FsResult<Vec<IndexEntry>> {
        let Some(len) = self.segments.lock().get(id).map(|segment| segment.object_bytes) else { return Ok(Vec::new()) };
        let bad = |why: &str| FsError::Io(format!("segment {:016x}: {why}", id.0).into());
        let at = len.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| bad("it is too short"))?;
        let footer = parse_footer(id, &self.get_segment(id, at..len).await?, len).map_err(bad)?;
        let start = u64::from(footer.index_at);
        let index = self.get_segment(id, start..start + footer.index_bytes()).await?;
        parse_index(id, &footer, &index).map_err(bad)
    }

    /// The parts of the records of a segment that extents refer to now.
    async fn live_pieces(&self, id: SegmentId) -> FsResult<Vec<LivePiece>> {
        let mut index = self.read_index(id).await?;
        let mut pieces = Vec::new();
        // Most files that are written are in memory with their extents and need no look into the
        // engine.
        index.retain(|entry| match self.known_pieces(id, entry) {
            Some(found) => {
                pieces.extend(found);
                false
            }
            None => true,
        });
        index.sort_by_key(|entry| (entry.ino, entry.offset));
        let by_position: HashMap<u32, &IndexEntry> = index.iter().map(|e| (e.record.position, e)).collect();
        let mut rest = &index[..];
        while let Some(first) = rest.first() {
            let mut end = first.offset + u64::from(first.record.raw_len);
            let mut count = 1;
            for entry in &rest[1..] {
                if entry.ino != first.ino || entry.offset > end + SCAN_GAP_BYTES {
                    break;
                }
                end = end.max(entry.offset + u64::from(entry.record.raw_len));
                count += 1;
            }
            rest = &rest[count..];
            let mut from = extent_key(first.ino, first.offset);
            loop {
                let pairs = self.parts.meta.scan(&from, &extent_key(first.ino, end), SCAN_MAX).await?;
                for (key, value) in &pairs {
                    let (_, offset, extent) = decode_extent(key, value)?;
                    let Some(record) = extent.record().filter(|record| record.segment == id) else { continue };
                    let Some(entry) = by_position.get(&record.position) else { continue };
                    pieces.push(LivePiece::new(entry, offset, extent.len, extent.skip, record.clone()));
                }
                match pairs.last() {
                    Some((last, _)) if pairs.len() >= SCAN_MAX => from = [last, &[0][..]].concat().into(),
                    _ => break,
                }
            }
        }
        Ok(pieces)
    }

    /// The pieces of shared victims in the files that rows lead to: all of these files'. Rows of segments that are gone go, too.
    async fn shared_pieces(&self, victims: &[SegmentId]) -> FsResult<Vec<LivePiece>> {
        let shared: BTreeSet<SegmentId> = {
            let table = self.segments.lock();
            victims.iter().copied().filter(|id| table.get(*id).is_some_and(|segment| segment.shared)).collect()
        };
        let mut pieces = Vec::new();
        if shared.is_empty() {
            return Ok(pieces);
        }
        let mut entries = HashMap::new();
        for &id in &shared {
            // One that cannot be read is found out, and left alone, with the others.
            let index = self.read_index(id).await.unwrap_or_default();
            entries.extend(index.into_iter().map(|entry| ((id, entry.record.position), entry)));
        }
        for ino in self.sharers_of(&shared).await? {
            let inode = match self.parts.inodes.load(ino).await {
                Ok(inode) => inode,
                Err(FsError::NotFound | FsError::Stale) => continue,
                Err(error) => return Err(error),
            };
            let (mut from, to) = range_of(EXTENT_TAG, ino);
            loop {
                let rows = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
                for (key, value) in &rows {
                    let (_, offset, extent) = decode_extent(key, value)?;
                    let Some(record) = extent.record() else { continue };
                    let Some(entry) = entries.get(&(record.segment, record.position)) else { continue };
                    let piece = LivePiece::new(entry, offset, extent.len, extent.skip, record.clone());
                    pieces.push(LivePiece { ino, generation: inode.id.generation, ..piece });
                }
                let Some((last, _)) = rows.last().filter(|_| rows.len() >= SCAN_MAX) else { break };
                from = key_after(last);
            }
            if pieces.len() > SHARED_PIECES_MAX {
                let mut table = self.segments.lock();
                shared.iter().for_each(|&id| table.mark_no_gain(id));
                return Err(FsError::Busy("too many files share segments that are mostly dead"));
            }
        }
        Ok(pieces)
    }

    async fn sharers_of(&self, segments: &BTreeSet<SegmentId>) -> FsResult<BTreeSet<Ino>> {
        let (mut from, to) = table_range(tag::SHARER);
        let mut found = BTreeSet::new();
        loop {
            let rows = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            let mut batch = Batch::default();
            for (key, value) in &rows {
                let (ino, segment) = decode_sharer(key, value)?;
                if segments.contains(&segment) {
                    found.insert(ino);
                }
                // Its number is never given out again.
                if self.segments.lock().get(segment).is_none() {
                    batch.delete(key.clone());
                }
            }
            if !batch.ops.is_empty() {
                self.parts.meta.admit().await?;
                let uncut = self.cut.enter().await;
                self.submit(&uncut, batch, Tally::default())?;
            }
            let Some((last, _)) = rows.last().filter(|_| rows.len() >= SCAN_MAX) else { return Ok(found) };
            from = key_after(last);
        }
    }

    /// The pieces of one record, if memory holds them. They are as good as the stored ones, since
    /// moves compare again (`gc.move_if_unchanged`).
    fn known_pieces(&self, id: SegmentId, entry: &IndexEntry) -> Option<Vec<LivePiece>> {
        let inode = self.parts.inodes.cached(entry.ino)?;
        let state = inode.file.state.lock();
        let range = entry.offset..entry.offset + u64::from(entry.record.raw_len);
        if state.extents.missing(range.clone()).is_some() {
            return None;
        }
        let of_record = state.extents.view(range).filter_map(|(lo, hi, at, extent)| {
            let record = extent.record().filter(|r| r.segment == id && r.position == entry.record.position)?;
            Some(LivePiece::new(entry, lo, (hi - lo) as u32, extent.skip + (lo - at) as u32, record.clone()))
        });
        Some(of_record.collect())
    }

    /// The stored records of all pieces, verified. Unreadable ones are left out and not moved.
    async fn read_pieces(&self, pieces: &[LivePiece]) -> BTreeMap<(SegmentId, u32), Bytes> {
        let mut records: Vec<RecordRef> = pieces.iter().map(|piece| piece.record.clone()).collect();
        records.sort_by_key(|record| (record.segment, record.position));
        records.dedup();
        let mut out = BTreeMap::new();
        let mut rest = &records[..];
        while let Some(first) = rest.first() {
            let start = u64::from(first.position);
            let end_of = |r: &RecordRef| u64::from(r.position) + u64::from(r.stored_len);
            let mut end = end_of(first);
            let near = rest[1..].iter().take_while(|r| {
                let near = r.segment == first.segment
                    && u64::from(r.position) <= end + READ_GAP_BYTES
                    && end_of(r) - start <= READ_BYTES_MAX;
                if near {
                    end = end.max(end_of(r));
                }
                near
            });
            let count = 1 + near.count();
            match self.get_segment(first.segment, start..end).await {
                Ok(bytes) => {
                    for record in &rest[..count] {
                        let at = (u64::from(record.position) - start) as usize;
                        let stored = bytes.slice(at..at + record.stored_len as usize);
                        if verify_and_unpack(record, &stored).is_some() {
                            out.insert((record.segment, record.position), stored);
                        } else {
                            self.leave_alone(record, "its checksum is wrong");
                        }
                    }
                }
                Err(error) => self.leave_alone(first, &error.to_string()),
            }
            rest = &rest[count..];
        }
        out
    }

    fn leave_alone(&self, record: &RecordRef, why: &str) {
        let (segment, position) = (record.segment.0, record.position);
        tracing::error!(segment, position, why, "garbage collection leaves a segment alone that it cannot read");
        self.segments.lock().mark_unreadable(record.segment);
    }

    /// Lets extents refer to the new records where they still refer to the old ones
    /// (`gc.move_if_unchanged`).
    async fn commit_moves(&self, inode: &Arc<Inode>, moves: Vec<Move>) -> FsResult<crate::meta::Ticket> {
        let mut ticket = crate::meta::Ticket(0);
        for moves in moves.chunks(MOVES_MAX) {
            self.parts.meta.admit().await?;
            let _changing = inode.file.extents_lock.write().await;
            for one in moves {
                self.ensure_loaded(inode, one.offset..one.end()).await?;
            }
            let uncut = self.cut.enter().await;
            let mut table = self.segments.lock();
            let mut state = inode.file.state.lock();
            let mut changing = uncut.change(inode, &mut state, &inode.core.lock());
            if !changing.may_store(inode) {
                return Ok(ticket);
            }
            let (mut batch, mut tally, mut ops) = (Batch::default(), Tally::default(), ExtentOps::new());
            let mut allocated = 0;
            for one in moves {
                let same: Vec<_> = one.pieces.iter().flat_map(|piece| unchanged(&changing.extents, piece)).collect();
                for (lo, hi) in same {
                    let (len, skip) = ((hi - lo) as u32, one.skip + (lo - one.offset) as u32);
                    let new = Extent { len, skip, place: Place::Record(one.record.clone()) };
                    let count = |extent: &_, kept| allocated += tally.count(extent, kept);
                    changing.blocks().extents.overlay(lo..hi, Some(new), &mut ops, count);
                }
                self.keep_warm(one);
            }
            put_ops(inode.id.ino, ops, &mut batch);
            let shared: BTreeSet<SegmentId> =
                moves.iter().filter(|one| one.is_shared).map(|one| one.record.segment).collect();
            note_sharers(inode.id.ino, &shared, &mut table, &mut batch);
            batch.change(inode, changing.record_change(allocated));
            ticket = self.submit_under(&uncut, &mut table, batch, tally)?;
            drop((state, table, uncut));
            self.trim_extents();
        }
        Ok(ticket)
    }

    /// A whole record that was in the cache is in the cache at its new place.
    fn keep_warm(&self, one: &Move) {
        let [piece] = &one.pieces[..] else { return };
        if piece.skip == 0 && piece.len == piece.record.raw_len {
            let memory = &self.parts.memory;
            if let Some(content) = memory.get(&self.key(&piece.record.part(None))) {
                memory.insert(self.key(&one.record.part(None)), Record::kept(content.chunks()));
            }
        }
    }
}

/// The parts of a piece that extents still refer to as they did.
fn unchanged(extents: &super::extents::ExtentMap, piece: &LivePiece) -> Vec<(u64, u64)> {
    let view = extents.view(piece.offset..piece.offset + u64::from(piece.len));
    let same = view.filter(|(lo, _, at, extent)| {
        let skip_now = u64::from(extent.skip) + lo - at;
        let skip_then = u64::from(piece.skip) + lo - piece.offset;
        extent.record() == Some(&piece.record) && skip_now == skip_then
    });
    same.map(|(lo, hi, ..)| (lo, hi)).collect()
}

fn by_inode(moves: Vec<(Ino, Move)>) -> BTreeMap<Ino, Vec<Move>> {
    let mut out: BTreeMap<Ino, Vec<Move>> = BTreeMap::new();
    for (ino, one) in moves {
        out.entry(ino).or_default().push(one);
    }
    out
}

/// Packs pieces, in order of inode and offset, into a new segment: whole records as they are
/// stored, parts as new records, neighbours together (`gc.neighbours_join`).
fn rebuild(
    (id, epoch): (SegmentId, u64),
    pieces: Vec<LivePiece>,
    stored: &BTreeMap<(SegmentId, u32), Bytes>,
    record_bytes: u64,
    compression: Compression,
) -> (Vec<(Ino, Move)>, Vec<Bytes>, u64) {
    let mut builder = Builder::new(id, epoch);
    let mut moves = Vec::new();
    let (shared, pieces) = split_shared(pieces);
    for group in shared {
        rebuild_shared(&mut builder, &group, stored, compression, &mut moves);
    }
    let mut rest = &pieces[..];
    while let Some(first) = rest.first() {
        let mut count = 1;
        let mut end = first.offset + u64::from(first.len);
        let block = first.offset / record_bytes;
        for piece in &rest[1..] {
            if piece.ino != first.ino || piece.offset != end || piece.offset / record_bytes != block {
                break;
            }
            end = piece.offset + u64::from(piece.len);
            if (end - 1) / record_bytes != block {
                break;
            }
            count += 1;
        }
        let (run, tail) = rest.split_at(count);
        rest = tail;
        if builder.bytes() + (run.iter().map(|piece| u64::from(piece.len)).sum::<u64>()) > LOAD_BYTES_MAX {
            continue;
        }
        if let Some(record) = rebuild_run(&mut builder, run, stored, compression) {
            let pieces = run.to_vec();
            moves.push((first.ino, Move { offset: first.offset, skip: 0, record, pieces, is_shared: false }));
        }
    }
    let (parts, len) = builder.finish();
    (moves, parts, len)
}

/// Pieces of the same bytes, led by one that has all of them: they become one record. All others stay in their order.
fn split_shared(pieces: Vec<LivePiece>) -> (Vec<Vec<LivePiece>>, Vec<LivePiece>) {
    let mut by_record: HashMap<(SegmentId, u32), Vec<usize>> = HashMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        by_record.entry((piece.record.segment, piece.record.position)).or_default().push(at);
    }
    let (mut groups, mut taken) = (Vec::new(), HashSet::new());
    let mut several: Vec<Vec<usize>> = by_record.into_values().filter(|of_record| of_record.len() > 1).collect();
    several.sort();
    for mut of_record in several {
        of_record.sort_by_key(|&at| (pieces[at].skip, std::cmp::Reverse(pieces[at].len), at));
        let mut group: Vec<usize> = Vec::new();
        let mut close = |group: &mut Vec<usize>| {
            if group.len() > 1 {
                taken.extend(group.iter().copied());
                groups.push(group.iter().map(|&at| pieces[at].clone()).collect());
            }
            group.clear();
        };
        for at in of_record {
            let is_within = group.first().is_some_and(|&leader| {
                let (leader, piece) = (&pieces[leader], &pieces[at]);
                piece.skip >= leader.skip && piece.skip + piece.len <= leader.skip + leader.len
            });
            if !is_within {
                close(&mut group);
            }
            group.push(at);
        }
        close(&mut group);
    }
    let rest = pieces.into_iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(_, piece)| piece).collect();
    (groups, rest)
}

/// `gc.shared_stays_shared`
fn rebuild_shared(
    builder: &mut Builder,
    group: &[LivePiece],
    stored: &BTreeMap<(SegmentId, u32), Bytes>,
    compression: Compression,
    moves: &mut Vec<(Ino, Move)>,
) {
    let Some(leader) = group.first() else { return };
    if builder.bytes() + u64::from(leader.len) > LOAD_BYTES_MAX {
        return;
    }
    let Some(record) = rebuild_run(builder, std::slice::from_ref(leader), stored, compression) else { return };
    for piece in group {
        let (skip, pieces) = (piece.skip - leader.skip, vec![piece.clone()]);
        moves.push((piece.ino, Move { offset: piece.offset, skip, record: record.clone(), pieces, is_shared: true }));
    }
}

fn rebuild_run(
    builder: &mut Builder,
    run: &[LivePiece],
    stored: &BTreeMap<(SegmentId, u32), Bytes>,
    compression: Compression,
) -> Option<RecordRef> {
    let first = run.first()?;
    let owner = (first.ino, first.generation, first.offset);
    let order = run.iter().map(|piece| piece.order).max()?;
    let birth = run.iter().map(|piece| piece.birth).min()?;
    if run.len() == 1 && first.skip == 0 && first.len == first.record.raw_len {
        let bytes = stored.get(&(first.record.segment, first.record.position))?;
        let chunks = std::slice::from_ref(bytes);
        let frames = first.record.frames();
        let form = (first.record.codec, frames.as_ref());
        return Some(builder.push(owner, (order, birth), form, first.len, chunks));
    }
    let mut chunks = Vec::new();
    for piece in run {
        let bytes = stored.get(&(piece.record.segment, piece.record.position))?;
        let raw = verify_and_unpack(&piece.record, bytes)?;
        chunks.push(raw.slice(piece.skip as usize..piece.skip as usize + piece.len as usize));
    }
    let len: usize = chunks.iter().map(Bytes::len).sum();
    match compress(compression, &chunks, len) {
        Some(packed) => {
            let form = (packed.codec, packed.frames.as_ref());
            Some(builder.push(owner, (order, birth), form, len as u32, &[packed.bytes]))
        }
        None => Some(builder.push(owner, (order, birth), (Codec::Raw, None), len as u32, &chunks)),
    }
}

#[cfg(test)]
impl Inner {
    /// Collects everything that can be collected, at once.
    pub(super) async fn collect_garbage_now(self: &Arc<Self>) -> FsResult<()> {
        let _running = self.gc_running.lock().await;
        loop {
            let deleted = self.delete_doomed().await?;
            if deleted == 0 && self.rewrite(96).await? == 0 && !self.segments.lock().has_doomed() {
                return Ok(());
            }
        }
    }
}
