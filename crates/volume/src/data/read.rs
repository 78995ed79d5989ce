//! Reading: dirty ranges over extents over zeros, as slices of memory.
//!
//! - `reading.one_moment`: a read is planned under one lock, so its bytes are those of one moment.
//!   Missing records are fetched, and then the read is planned again: it never mixes two moments,
//!   and it does not matter if a segment was moved in between.
//! - `reading.verified_first`: every record from the store is verified before a byte of it is
//!   returned. A record that fails is read once more, and then the read fails.
//! - `reading.fetched_once`: a record is fetched once, however many readers wait for it. The fetch
//!   continues when its reader goes away.
//! - `reading.cache_owns_its_bytes`: the cache keeps copies. A record that was a slice of a fetched
//!   buffer would keep its neighbours in memory.
//! - `reading.bounded_read_ahead`: read-ahead never displaces records that a reader waits for: it
//!   stops at a share of the cache.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use object_store::{GetOptions, ObjectStoreExt};

use super::blocking;
use super::compress::decompress;
use super::dirty::Payload;
use super::extents::{Codec, RecordRef, SegmentId};
use super::fetch::Fetch;
use super::file::{FileData, Stream};
use super::memory::{Record, RecordKey};
use super::segment::{checksum_chunks, object_path, place_seed};
use super::shared::{Data, Inner, store_error};
use crate::inode::Inode;
use crate::types::*;

/// Neighbouring records are fetched in one request up to this size.
const FETCH_BYTES_MAX: u64 = 1 << 20;
/// Unwanted bytes are fetched along to save a request, up to this many.
const FETCH_GAP_MAX: u64 = 32 << 10;
const STREAMS_MAX: usize = 4;
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 8 << 20;
/// Plans of one read. A second one after fetching is normal; this many mean that extents move all
/// the time.
const PLANS_MAX: usize = 64;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The result of planning a read.
enum ReadPlan {
    Ready(Vec<Bytes>),
    /// Records that are not in memory, each with the offset in the file where it is needed.
    Missing(Vec<(RecordRef, u64)>),
    /// Extents are not known.
    Unknown,
}

impl Data {
    /// Exactly `len` bytes: the caller has cut it to the file's size. Warm reads do not suspend.
    pub(crate) async fn read(&self, inode: &Arc<Inode>, offset: u64, len: usize) -> FsResult<Vec<Bytes>> {
        let end = offset.checked_add(len as u64).filter(|_| len <= IO_BYTES_MAX).ok_or(FsError::TooBig)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let inner = &self.0;
        let mut fetched: HashMap<RecordKey, Record> = HashMap::new();
        let mut failed: Option<(RecordKey, FsError)> = None;
        let mut first = true;
        for _ in 0..PLANS_MAX {
            let (plan, ahead) = inner.plan(inode, offset..end, &fetched, std::mem::take(&mut first));
            if let Some(range) = ahead {
                inner.read_ahead(inode, range);
            }
            match plan {
                ReadPlan::Ready(chunks) => return Ok(chunks),
                ReadPlan::Unknown => {
                    let _loading = inode.file.extents_lock.read().await;
                    inner.ensure_loaded(inode, offset..end).await?;
                }
                ReadPlan::Missing(missing) => {
                    for (record, at, fetch) in inner.start_fetches(&missing) {
                        let key = inner.key(&record);
                        match fetch.wait().await {
                            Ok(content) => drop(fetched.insert(key, content)),
                            // The segment may have been moved since the plan: look again, but only
                            // once per record.
                            Err(error) if failed.as_ref().is_some_and(|(before, _)| *before == key) => {
                                return Err(explain(inode, at, &record, &error));
                            }
                            Err(error) => {
                                failed = Some((key, error));
                                break;
                            }
                        }
                    }
                }
            }
            inner.trim_extents();
        }
        let why = failed.map_or_else(|| "its extents never stood still".to_owned(), |(_, error)| error.to_string());
        Err(FsError::Io(format!("inode {} offset {offset} cannot be read: {why}", inode.id.ino.0).into()))
    }

    /// Bytes of `range` that are not in holes, and reserved bytes.
    pub(crate) async fn held_bytes(&self, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<u64> {
        self.0.ensure_reserved(inode).await?;
        let size = inode.core.lock().attr.size;
        let whole = range.clone();
        let range = range.start.min(size)..range.end.min(size);
        let _loading = inode.file.extents_lock.read().await;
        self.0.ensure_loaded(inode, range.clone()).await?;
        let state = inode.file.state.lock();
        let reserved = state.unclaimed(whole);
        let stored = |from: u64, to: u64| state.extents.view(from..to).map(|(lo, hi, ..)| hi - lo).sum::<u64>();
        let (mut held, mut at) = (0, range.start);
        for (lo, hi, piece) in state.dirty.view(range.clone()) {
            held += stored(at, lo) + if piece.is_data() { hi - lo } else { 0 };
            at = hi;
        }
        Ok(held + stored(at, range.end) + reserved)
    }

    /// [`FsError::NotFound`] past the end.
    pub(crate) async fn seek(&self, inode: &Arc<Inode>, offset: u64, to: SeekTo) -> FsResult<u64> {
        let mut at = offset;
        loop {
            let size = inode.core.lock().attr.size;
            if at >= size {
                return if to == SeekTo::Hole && offset < size { Ok(size) } else { Err(FsError::NotFound) };
            }
            let found = stretch_at(&inode.file.state.lock(), at);
            match found {
                Some((data, _)) if data == (to == SeekTo::Data) => return Ok(at),
                Some((_, end)) => at = end,
                None => {
                    let _loading = inode.file.extents_lock.read().await;
                    self.0.ensure_loaded(inode, at..at + 1).await?;
                }
            }
        }
    }
}

/// Whether there is data at `at`, and up to where that is so at least. `None` if extents are not
/// known.
fn stretch_at(state: &FileData, at: u64) -> Option<(bool, u64)> {
    let next_dirty = match state.dirty.view(at..u64::MAX).next() {
        Some((start, end, piece)) if start == at => return Some((piece.is_data(), end)),
        Some((start, ..)) => start,
        None => u64::MAX,
    };
    let loaded = state.extents.loaded_until(at);
    if loaded == at {
        return None;
    }
    let known = loaded.min(next_dirty);
    match state.extents.view(at..known).next() {
        Some((start, end, ..)) if start == at => Some((true, end)),
        Some((start, ..)) => Some((false, start)),
        None => Some((false, known)),
    }
}

fn explain(inode: &Arc<Inode>, at: u64, record: &RecordRef, error: &FsError) -> FsError {
    let (ino, segment, position) = (inode.id.ino.0, record.segment.0, record.position);
    FsError::Io(format!("inode {ino} offset {at} (segment {segment:016x} at {position}): {error}").into())
}

impl Inner {
    fn key(&self, record: &RecordRef) -> RecordKey {
        (self.volume, record.segment, record.position)
    }

    /// Plans a read of `range` (`reading.one_moment`). With `advance` it also says which range to
    /// read ahead.
    fn plan(
        &self,
        inode: &Arc<Inode>,
        range: Range<u64>,
        fetched: &HashMap<RecordKey, Record>,
        advance: bool,
    ) -> (ReadPlan, Option<Range<u64>>) {
        let mut guard = inode.file.state.lock();
        let window_max = WINDOW_MAX.min(self.parts.memory.cache_bytes() / 16);
        let ahead = if advance { advance_streams(&mut guard.streams, range.clone(), window_max) } else { None };
        let state = &*guard;
        let mut chunks = Vec::with_capacity(1 + ((range.end - range.start) >> 17) as usize);
        let mut missing = Vec::new();
        let mut at = range.start;
        let mut known = true;
        for (lo, hi, piece) in state.dirty.view(range.clone()) {
            known &= self.plan_stored(state, at..lo, fetched, &mut chunks, &mut missing);
            match &piece.payload {
                Payload::Zero => push_zeros(hi - lo, &mut chunks),
                Payload::Bytes(bytes) => {
                    // `view` cuts the range, not the piece.
                    let skip = (lo - state.dirty.start_of(lo)) as usize;
                    chunks.push(bytes.slice(skip..skip + (hi - lo) as usize));
                }
            }
            at = hi;
        }
        known &= self.plan_stored(state, at..range.end, fetched, &mut chunks, &mut missing);
        let plan = match (known, missing.is_empty()) {
            (false, _) => ReadPlan::Unknown,
            (true, false) => ReadPlan::Missing(missing),
            (true, true) => ReadPlan::Ready(chunks),
        };
        (plan, ahead)
    }

    /// Extents and zeros of `range`. False if extents are not known.
    fn plan_stored(
        &self,
        state: &FileData,
        range: Range<u64>,
        fetched: &HashMap<RecordKey, Record>,
        chunks: &mut Vec<Bytes>,
        missing: &mut Vec<(RecordRef, u64)>,
    ) -> bool {
        if range.is_empty() {
            return true;
        }
        if state.extents.missing(range.clone()).is_some() {
            return false;
        }
        let mut at = range.start;
        for (lo, hi, start, extent) in state.extents.view(range.clone()) {
            push_zeros(lo - at, chunks);
            at = hi;
            let (skip, len) = ((u64::from(extent.skip) + lo - start) as usize, (hi - lo) as usize);
            match &extent.place {
                super::extents::Place::Inline(bytes) => chunks.push(bytes.slice(skip..skip + len)),
                super::extents::Place::Record(record) => {
                    let key = self.key(record);
                    let content = fetched.get(&key).cloned().or_else(|| self.parts.memory.get(&key));
                    let counts = &self.parts.memory.counts;
                    match content {
                        Some(content) => {
                            counts.hits.add(u64::from(fetched.is_empty()));
                            content.slice_into(skip, len, chunks);
                        }
                        None if missing.last().is_some_and(|(last, _)| last == record) => {}
                        None => {
                            counts.misses.add(1);
                            missing.push((*record, lo));
                        }
                    }
                }
            }
        }
        push_zeros(range.end - at, chunks);
        true
    }

    /// Fetches records that are likely to be read next. Never waits.
    fn read_ahead(self: &Arc<Self>, inode: &Arc<Inode>, range: Range<u64>) {
        let budget = (self.parts.memory.cache_bytes() / 8).min(64 << 20);
        if self.fetch_bytes.load(Ordering::Relaxed) >= budget {
            return;
        }
        let size = inode.core.lock().attr.size;
        let range = range.start.min(size)..range.end.min(size);
        if range.is_empty() {
            return;
        }
        let Some(wanted) = self.cold_records(inode, &range) else {
            let (this, inode) = (Arc::clone(self), Arc::clone(inode));
            tokio::spawn(async move {
                let _loading = inode.file.extents_lock.read().await;
                if this.ensure_loaded(&inode, range.clone()).await.is_ok()
                    && let Some(wanted) = this.cold_records(&inode, &range)
                {
                    this.start_fetches(&wanted);
                }
            });
            return;
        };
        self.start_fetches(&wanted);
    }

    /// Records of `range` that are not in the cache. `None` if extents are not known.
    fn cold_records(&self, inode: &Arc<Inode>, range: &Range<u64>) -> Option<Vec<(RecordRef, u64)>> {
        let state = inode.file.state.lock();
        if state.extents.missing(range.clone()).is_some() {
            return None;
        }
        let records = state.extents.view(range.clone()).filter_map(|(lo, _, _, e)| Some((*e.record()?, lo)));
        let mut cold: Vec<_> = records.filter(|(record, _)| !self.parts.memory.holds(&self.key(record))).collect();
        cold.dedup_by(|a, b| a.0 == b.0);
        Some(cold)
    }

    /// Joins the fetches under way and starts the others, neighbours together
    /// (`reading.fetched_once`).
    fn start_fetches(self: &Arc<Self>, wanted: &[(RecordRef, u64)]) -> Vec<(RecordRef, u64, Arc<Fetch>)> {
        let mut fresh: Vec<(RecordRef, Arc<Fetch>)> = Vec::new();
        let all = {
            let mut fetches = self.fetches.lock();
            let join = wanted.iter().map(|&(record, at)| {
                let key = self.key(&record);
                let fetch = match fetches.entry(key) {
                    Entry::Occupied(under_way) => Arc::clone(under_way.get()),
                    Entry::Vacant(vacant) => {
                        let fetch = Arc::new(Fetch::default());
                        // A fetch that ended since the plan has left the record in memory.
                        if let Some(content) = self.parts.memory.get(&key) {
                            fetch.finish(Ok(content));
                        } else {
                            fresh.push((record, Arc::clone(&fetch)));
                            vacant.insert(Arc::clone(&fetch));
                        }
                        fetch
                    }
                };
                (record, at, fetch)
            });
            join.collect()
        };
        fresh.sort_by_key(|(record, _)| (record.segment, record.position));
        let mut rest = &fresh[..];
        while !rest.is_empty() {
            let count = run_length(rest);
            let (run, tail) = rest.split_at(count);
            rest = tail;
            let run = FetchRun { inner: Arc::clone(self), records: run.to_vec() };
            self.fetch_bytes.fetch_add(run.bytes(), Ordering::Relaxed);
            tokio::spawn(run.run());
        }
        all
    }

    /// Reads records from the store, past the cache; returns the failures.
    pub(super) async fn read_records(&self, records: &[(Ino, u64, RecordRef)]) -> Vec<(Ino, u64, FsError)> {
        use futures::StreamExt;
        let reads = futures::stream::iter(records.to_vec()).map(|(ino, offset, record)| async move {
            let first = self.fetch_again(&record).await;
            let read = if first.is_err() { self.fetch_again(&record).await } else { first };
            read.err().map(|error| (ino, offset, error))
        });
        reads.buffer_unordered(8).filter_map(|failed| async move { failed }).collect().await
    }

    /// The bytes `range` of a segment object.
    pub(super) async fn get_segment(&self, id: SegmentId, range: Range<u64>) -> FsResult<Bytes> {
        let path = object_path(&self.parts.prefix, id);
        let want = range.end - range.start;
        let got = self.parts.store.get_range(&path, range).await;
        let got = got.map_err(|error| store_error(&format!("reading segment {:016x}", id.0), &error))?;
        if got.len() as u64 != want {
            return Err(FsError::Io(format!("segment {:016x} is shorter than it should be", id.0).into()));
        }
        Ok(got)
    }

    /// As `get_segment`, in the pieces in which the store has them: a pool does not copy blocks
    /// together.
    async fn get_chunks(&self, id: SegmentId, range: Range<u64>) -> FsResult<Vec<Bytes>> {
        use futures::TryStreamExt;
        let path = object_path(&self.parts.prefix, id);
        let want = range.end - range.start;
        let failed = |error| store_error(&format!("reading segment {:016x}", id.0), &error);
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let got = self.parts.store.get_opts(&path, options).await.map_err(failed)?;
        let chunks: Vec<Bytes> = got.into_stream().try_collect().await.map_err(failed)?;
        if chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>() != want {
            return Err(FsError::Io(format!("segment {:016x} is shorter than it should be", id.0).into()));
        }
        Ok(chunks)
    }

    /// Reads one record again after its first reading failed (`reading.verified_first`).
    async fn fetch_again(&self, record: &RecordRef) -> FsResult<Record> {
        let start = u64::from(record.position);
        let stored = self.get_segment(record.segment, start..start + u64::from(record.stored_len)).await?;
        verify_and_keep(record, std::slice::from_ref(&stored))
            .ok_or_else(|| FsError::Io("the checksum of the stored record is wrong".into()))
    }
}

/// How many of the first records lie close enough together for one request.
fn run_length(records: &[(RecordRef, Arc<Fetch>)]) -> usize {
    let Some((first, _)) = records.first() else { return 0 };
    let mut end = u64::from(first.position) + u64::from(first.stored_len);
    let mut count = 1;
    for (record, _) in &records[1..] {
        let (start, len) = (u64::from(record.position), u64::from(record.stored_len));
        let near = record.segment == first.segment && start >= end && start - end <= FETCH_GAP_MAX;
        if !near || start + len - u64::from(first.position) > FETCH_BYTES_MAX {
            break;
        }
        end = start + len;
        count += 1;
    }
    count
}

/// Records fetched in one request. However it ends, every waiting reader is answered.
struct FetchRun {
    inner: Arc<Inner>,
    records: Vec<(RecordRef, Arc<Fetch>)>,
}

impl FetchRun {
    fn bytes(&self) -> u64 {
        self.records.iter().map(|(record, _)| u64::from(record.raw_len)).sum()
    }

    async fn run(self) {
        let start = self.records.iter().map(|(r, _)| u64::from(r.position)).min().unwrap_or(0);
        let end = self.records.iter().map(|(r, _)| u64::from(r.position) + u64::from(r.stored_len)).max().unwrap_or(0);
        let Some(segment) = self.records.first().map(|(record, _)| record.segment) else { return };
        let stored = self.inner.get_chunks(segment, start..end).await.ok();
        let unpacked = match stored {
            Some(stored) => self.unpack(stored, start).await,
            None => vec![None; self.records.len()],
        };
        for ((record, fetch), content) in self.records.iter().zip(unpacked) {
            let result = match content {
                Some(content) => Ok(content),
                None => self.inner.fetch_again(record).await,
            };
            let key = self.inner.key(record);
            if let Ok(content) = &result {
                self.inner.parts.memory.insert(key, content.clone());
            }
            fetch.finish(result);
            self.inner.fetches.lock().remove(&key);
        }
    }

    /// Verifies and decompresses, on another thread if it is much.
    async fn unpack(&self, stored: Vec<Bytes>, start: u64) -> Vec<Option<Record>> {
        let records: Vec<RecordRef> = self.records.iter().map(|(record, _)| *record).collect();
        let packed = records.iter().filter(|r| r.codec != Codec::Raw).map(|r| u64::from(r.raw_len)).sum::<u64>();
        let stored = Record::from_chunks(&stored);
        let work = move || {
            let one = |record: &RecordRef| {
                let mut chunks = Vec::new();
                let at = (u64::from(record.position) - start) as usize;
                stored.slice_into(at, record.stored_len as usize, &mut chunks);
                verify_and_keep(record, &chunks)
            };
            records.iter().map(one).collect()
        };
        if packed < 256 << 10 {
            return work();
        }
        let _worker = self.inner.workers.acquire().await;
        blocking::run_blocking(work).await.unwrap_or_else(|| vec![None; self.records.len()])
    }
}

impl Drop for FetchRun {
    fn drop(&mut self) {
        self.inner.fetch_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
        for (record, fetch) in &self.records {
            if fetch.done.get().is_none() {
                fetch.finish(Err(FsError::Io("the read was given up".into())));
                self.inner.fetches.lock().remove(&self.inner.key(record));
            }
        }
    }
}

/// The record in `stored`, as a slice where it is not packed.
pub(super) fn verify_and_unpack(record: &RecordRef, stored: &Bytes) -> Option<Bytes> {
    let chunks = std::slice::from_ref(stored);
    let intact = checksum_chunks(place_seed(record.segment, record.position), chunks) == record.checksum;
    if intact { decompress(record.codec, stored, record.raw_len as usize) } else { None }
}

/// The record in `stored`, in memory of its own (`reading.cache_owns_its_bytes`).
fn verify_and_keep(record: &RecordRef, stored: &[Bytes]) -> Option<Record> {
    let seed = place_seed(record.segment, record.position);
    if record.codec == Codec::Raw {
        // The copy is verified: it is in the processor's cache now, and in one piece.
        let content = Record::copied(stored);
        let intact = checksum_chunks(seed, content.chunks()) == record.checksum;
        return (intact && content.len() == record.raw_len as usize).then_some(content);
    }
    if checksum_chunks(seed, stored) != record.checksum {
        return None;
    }
    let unpack = |stored| decompress(record.codec, stored, record.raw_len as usize).map(Record::One);
    if let [one] = stored { unpack(one) } else { unpack(&joined(stored)) }
}

fn joined(chunks: &[Bytes]) -> Bytes {
    let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
    whole.freeze()
}

fn push_zeros(mut len: u64, chunks: &mut Vec<Bytes>) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        chunks.push(Bytes::from_static(&ZEROS[..part as usize]));
        len -= part;
    }
}

/// Notes a read of `range`. If it continues an earlier one, returns the range to read ahead.
fn advance_streams(streams: &mut Vec<Stream>, range: Range<u64>, window_max: u64) -> Option<Range<u64>> {
    // Reads of one client may overtake each other by about the bytes in flight.
    let near = |s: &Stream| range.start <= s.next + s.window && range.start + s.window >= s.next;
    let Some(found) = streams.iter().rposition(near) else {
        if streams.len() >= STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(Stream { next: range.end, ahead: range.end, window: WINDOW_MIN });
        return None;
    };
    let mut stream = streams.remove(found);
    if range.end > stream.next {
        stream.next = range.end;
        stream.window = (stream.window * 2).min(window_max.max(WINDOW_MIN));
    }
    stream.ahead = stream.ahead.max(stream.next);
    let due = stream.ahead - stream.next < stream.window / 2;
    let ahead = due.then(|| stream.ahead..stream.next + stream.window);
    if let Some(range) = &ahead {
        stream.ahead = range.end;
    }
    streams.push(stream);
    ahead
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(stored: &Bytes, codec: Codec, raw_len: u32) -> RecordRef {
        let (segment, position) = (SegmentId(7), 640);
        let checksum = checksum_chunks(place_seed(segment, position), std::slice::from_ref(stored));
        RecordRef { segment, position, stored_len: stored.len() as u32, raw_len, codec, checksum }
    }

    #[test]
    fn records_that_come_in_pieces_are_what_they_would_be_in_one() {
        let raw: Bytes = b"pantry shelf ".repeat(9000).into();
        let packed: Bytes = lz4_flex::block::compress(&raw).into();
        for (stored, codec) in [(&raw, Codec::Raw), (&packed, Codec::Lz4)] {
            let record = record(stored, codec, raw.len() as u32);
            let pieces = [stored.slice(..100), stored.slice(100..101), stored.slice(101..)];
            assert_eq!(verify_and_keep(&record, &pieces).unwrap().chunks().concat(), raw);
            assert_eq!(verify_and_unpack(&record, stored).unwrap(), raw);
            let mut bad = stored.to_vec();
            bad[100] ^= 1;
            let bad = Bytes::from(bad);
            assert!(verify_and_keep(&record, &[bad.slice(..100), bad.slice(100..)]).is_none());
            assert!(verify_and_unpack(&record, &bad).is_none());
            assert!(verify_and_keep(&record, &pieces[..2]).is_none());
        }
    }

    #[test]
    fn sequential_readers_get_a_growing_window_and_random_ones_nothing() {
        let mut streams = Vec::new();
        let mut ahead = 0;
        for n in 0..200u64 {
            let at = n * (128 << 10);
            if let Some(range) = advance_streams(&mut streams, at..at + (128 << 10), WINDOW_MAX) {
                assert!(range.start >= ahead && range.end > range.start);
                ahead = range.end;
            }
        }
        assert!(ahead >= 199 * (128 << 10) + WINDOW_MAX / 2);
        let mut streams = Vec::new();
        for n in 0..50u64 {
            let at = (n * 7919 % 100) * (64 << 20);
            assert_eq!(advance_streams(&mut streams, at..at + 4096, WINDOW_MAX), None);
        }
        assert!(streams.len() <= STREAMS_MAX);
    }
}
