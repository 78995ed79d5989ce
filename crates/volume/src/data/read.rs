//! Reading: dirty ranges over extents over zeros, as slices of memory.
//!
//! - `reading.one_moment`: a read is planned under one lock, so its bytes are those of one moment.
//!   Missing records are fetched, and then the read is planned again: it never mixes two moments,
//!   and it does not matter if a segment was moved in between.
//! - `reading.verified_first`: every record or piece from the store is verified before a byte of it
//!   is returned. One that fails is read once more, and then the read fails.
//! - `reading.pieces_unless_sequential`: a read that continues no other and wants less than half of
//!   a record fetches the pieces that it wants, else the whole record. The cache keeps either.
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

use bytes::Bytes;
use object_store::{GetOptions, ObjectStoreExt};

use super::blocking;
use super::dirty::Payload;
use super::extents::SegmentId;
use super::fetch::Fetch;
use super::file::{FileData, Stream};
use super::memory::{Record, RecordKey};
use super::pieces::{Codec, Part, RecordRef};
use super::segment::object_path;
use super::shared::{Data, Inner, store_error};
use crate::inode::Inode;
use crate::types::*;

/// Neighbouring records are fetched in one request up to this size.
const FETCH_BYTES_MAX: u64 = 1 << 20;
/// Unwanted bytes are fetched along to save a request, up to this many.
const FETCH_GAP_MAX: u64 = 32 << 10;
/// The same beside a piece, whose reader wants few bytes from the disks.
const PIECE_GAP_MAX: u64 = 4 << 10;
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
    /// Records and pieces that are not in memory, each with the offset in the file where it is
    /// needed.
    Missing(Vec<(Part, u64)>),
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
        let mut is_sequential = None;
        for _ in 0..PLANS_MAX {
            let (plan, ahead) = inner.plan(inode, offset..end, &fetched, &mut is_sequential);
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
                    for (part, at, fetch) in inner.start_fetches(missing) {
                        let key = inner.key(&part);
                        match fetch.wait().await {
                            Ok(content) => drop(fetched.insert(key, content)),
                            // The segment may have been moved since the plan: look again, but only
                            // once per record.
                            Err(error) if failed.as_ref().is_some_and(|(before, _)| *before == key) => {
                                return Err(explain(inode, at, &part.record, &error));
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
    pub(super) fn key(&self, part: &Part) -> RecordKey {
        self.key_of(&part.record, part.number())
    }

    fn key_of(&self, record: &RecordRef, piece: Option<u16>) -> RecordKey {
        (self.volume, record.segment, record.position, piece)
    }

    /// Plans a read of `range` (`reading.one_moment`). The first plan of a read finds out whether it
    /// continues another, and says which range to read ahead.
    fn plan(
        &self,
        inode: &Arc<Inode>,
        range: Range<u64>,
        fetched: &HashMap<RecordKey, Record>,
        is_sequential: &mut Option<bool>,
    ) -> (ReadPlan, Option<Range<u64>>) {
        let mut guard = inode.file.state.lock();
        let window_max = WINDOW_MAX.min(self.parts.memory.cache_bytes() / 16);
        let (is_sequential, ahead) = match *is_sequential {
            Some(known) => (known, None),
            None => {
                let (continues, ahead) = advance_streams(&mut guard.streams, range.clone(), window_max);
                (*is_sequential.insert(continues), ahead)
            }
        };
        let state = &*guard;
        let wanted = Wanted { fetched, is_sequential };
        let mut chunks = Vec::with_capacity(1 + ((range.end - range.start) >> 17) as usize);
        let mut missing = Vec::new();
        let mut at = range.start;
        let mut known = true;
        for (lo, hi, piece) in state.dirty.view(range.clone()) {
            known &= self.plan_stored(state, at..lo, &wanted, &mut chunks, &mut missing);
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
        known &= self.plan_stored(state, at..range.end, &wanted, &mut chunks, &mut missing);
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
        wanted: &Wanted<'_>,
        chunks: &mut Vec<Bytes>,
        missing: &mut Vec<(Part, u64)>,
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
                    let raw = skip as u32..(skip + len) as u32;
                    let before = missing.len();
                    self.plan_record(record, raw, lo, wanted, chunks, missing);
                    let counts = &self.parts.memory.counts;
                    if missing.len() > before {
                        counts.misses.add(1);
                    } else {
                        counts.hits.add(u64::from(wanted.fetched.is_empty()));
                    }
                }
            }
        }
        push_zeros(range.end - at, chunks);
        true
    }

    /// The bytes `raw` of a record, which lie at `at` in the file, or the parts that are missing
    /// (`reading.pieces_unless_sequential`).
    fn plan_record(
        &self,
        record: &RecordRef,
        raw: Range<u32>,
        at: u64,
        wanted: &Wanted<'_>,
        chunks: &mut Vec<Bytes>,
        missing: &mut Vec<(Part, u64)>,
    ) {
        let in_memory = |key: &RecordKey| wanted.fetched.get(key).cloned().or_else(|| self.parts.memory.get(key));
        if let Some(content) = in_memory(&self.key_of(record, None)) {
            return content.slice_into(raw.start as usize, (raw.end - raw.start) as usize, chunks);
        }
        let whole = |missing: &mut Vec<(Part, u64)>| {
            let is_new = missing.last().is_none_or(|(last, _)| last.record != *record || last.number().is_some());
            if is_new {
                missing.push((record.part(None), at));
            }
        };
        if !record.has_pieces() {
            return whole(missing);
        }
        let before = missing.len();
        let mut begin = raw.start;
        for number in record.pieces_of(raw.clone()) {
            let part = record.part(Some(number));
            let piece = part.raw();
            let (from, to) = (begin - piece.start, raw.end.min(piece.end) - piece.start);
            begin = piece.end;
            match in_memory(&self.key(&part)) {
                Some(content) => content.slice_into(from as usize, (to - from) as usize, chunks),
                None if wanted.is_sequential || (raw.end - raw.start) * 2 >= record.raw_len => {
                    missing.truncate(before);
                    return whole(missing);
                }
                None => missing.push((part, at)),
            }
        }
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
                    this.start_fetches(wanted);
                }
            });
            return;
        };
        self.start_fetches(wanted);
    }

    /// Records of `range` that are not in the cache. `None` if extents are not known.
    fn cold_records(&self, inode: &Arc<Inode>, range: &Range<u64>) -> Option<Vec<(Part, u64)>> {
        let state = inode.file.state.lock();
        if state.extents.missing(range.clone()).is_some() {
            return None;
        }
        let records = state.extents.view(range.clone()).filter_map(|(lo, _, _, e)| Some((e.record()?, lo)));
        let mut cold: Vec<_> =
            records.filter(|(record, _)| !self.parts.memory.holds(&self.key_of(record, None))).collect();
        cold.dedup_by(|a, b| a.0 == b.0);
        Some(cold.into_iter().map(|(record, at)| (record.part(None), at)).collect())
    }

    /// Joins the fetches under way and starts the others, neighbours together
    /// (`reading.fetched_once`).
    fn start_fetches(self: &Arc<Self>, wanted: Vec<(Part, u64)>) -> Vec<(Part, u64, Arc<Fetch>)> {
        let mut fresh: Vec<(Part, Arc<Fetch>)> = Vec::new();
        let all = {
            let mut fetches = self.fetches.lock();
            let join = wanted.into_iter().map(|(part, at)| {
                if part.number().is_some()
                    && let Some(under_way) = fetches.get(&self.key_of(&part.record, None))
                {
                    return (part.widened(), at, Arc::clone(under_way));
                }
                let key = self.key(&part);
                let fetch = match fetches.entry(key) {
                    Entry::Occupied(under_way) => Arc::clone(under_way.get()),
                    Entry::Vacant(vacant) => {
                        let fetch = Arc::new(Fetch::default());
                        // A fetch that ended since the plan has left the record in memory.
                        if let Some(content) = self.parts.memory.get(&key) {
                            fetch.finish(Ok(content));
                        } else {
                            fresh.push((part.clone(), Arc::clone(&fetch)));
                            vacant.insert(Arc::clone(&fetch));
                        }
                        fetch
                    }
                };
                (part, at, fetch)
            });
            join.collect()
        };
        fresh.sort_by_key(|(part, _)| (part.record.segment, part.stored().start));
        let mut rest = &fresh[..];
        while !rest.is_empty() {
            let count = run_length(rest);
            let (run, tail) = rest.split_at(count);
            rest = tail;
            let run = FetchRun { inner: Arc::clone(self), parts: run.to_vec() };
            self.fetch_bytes.fetch_add(run.bytes(), Ordering::Relaxed);
            tokio::spawn(run.run());
        }
        all
    }

    /// Reads records from the store, past the cache; returns the failures.
    pub(super) async fn read_records(&self, records: &[(Ino, u64, RecordRef)]) -> Vec<(Ino, u64, FsError)> {
        use futures::StreamExt;
        let reads = futures::stream::iter(records.to_vec()).map(|(ino, offset, record)| async move {
            let part = record.part(None);
            let first = self.fetch_again(&part).await;
            let read = if first.is_err() { self.fetch_again(&part).await } else { first };
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

    /// Reads one record or piece again after its first reading failed (`reading.verified_first`).
    async fn fetch_again(&self, part: &Part) -> FsResult<Record> {
        let stored = self.get_segment(part.record.segment, part.stored()).await?;
        part.unpack(std::slice::from_ref(&stored))
            .ok_or_else(|| FsError::Io("the checksum of the stored record is wrong".into()))
    }
}

/// The input of a plan.
struct Wanted<'a> {
    fetched: &'a HashMap<RecordKey, Record>,
    is_sequential: bool,
}

/// How many of the first parts lie close enough together for one request.
fn run_length(parts: &[(Part, Arc<Fetch>)]) -> usize {
    let Some((first, _)) = parts.first() else { return 0 };
    let start = first.stored().start;
    let (mut last, mut end) = (first, first.stored().end);
    let mut count = 1;
    for (part, _) in &parts[1..] {
        let stored = part.stored();
        let is_piece = part.number().is_some() || last.number().is_some();
        let gap_max = if is_piece { PIECE_GAP_MAX } else { FETCH_GAP_MAX };
        let near = part.record.segment == first.record.segment && stored.start >= end && stored.start - end <= gap_max;
        if !near || stored.end - start > FETCH_BYTES_MAX {
            break;
        }
        (last, end) = (part, stored.end);
        count += 1;
    }
    count
}

/// Parts fetched in one request. However it ends, every waiting reader is answered.
struct FetchRun {
    inner: Arc<Inner>,
    parts: Vec<(Part, Arc<Fetch>)>,
}

impl FetchRun {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(part, _)| u64::from(part.raw_len())).sum()
    }

    async fn run(self) {
        let start = self.parts.iter().map(|(part, _)| part.stored().start).min().unwrap_or(0);
        let end = self.parts.iter().map(|(part, _)| part.stored().end).max().unwrap_or(0);
        let Some(segment) = self.parts.first().map(|(part, _)| part.record.segment) else { return };
        let stored = self.inner.get_chunks(segment, start..end).await.ok();
        let unpacked = match stored {
            Some(stored) => self.unpack(stored, start).await,
            None => vec![None; self.parts.len()],
        };
        for ((part, fetch), content) in self.parts.iter().zip(unpacked) {
            let result = match content {
                Some(content) => Ok(content),
                None => self.inner.fetch_again(part).await,
            };
            let key = self.inner.key(part);
            if let Ok(content) = &result {
                self.inner.parts.memory.insert(key, content.clone());
            }
            fetch.finish(result);
            self.inner.fetches.lock().remove(&key);
        }
    }

    /// Verifies and decompresses, on another thread if it is much.
    async fn unpack(&self, stored: Vec<Bytes>, start: u64) -> Vec<Option<Record>> {
        if let [(part, _)] = &self.parts[..]
            && part.number().is_some()
        {
            return vec![part.unpack(&stored)];
        }
        let parts: Vec<Part> = self.parts.iter().map(|(part, _)| part.clone()).collect();
        let is_packed = |part: &&Part| part.record.codec != Codec::Raw;
        let packed = parts.iter().filter(is_packed).map(|part| u64::from(part.raw_len())).sum::<u64>();
        let stored = Record::from_chunks(&stored);
        let work = move || {
            let one = |part: &Part| {
                let mut chunks = Vec::new();
                let place = part.stored();
                stored.slice_into((place.start - start) as usize, (place.end - place.start) as usize, &mut chunks);
                part.unpack(&chunks)
            };
            parts.iter().map(one).collect()
        };
        if packed < 256 << 10 {
            return work();
        }
        let _worker = self.inner.workers.acquire().await;
        blocking::run_blocking(work).await.unwrap_or_else(|| vec![None; self.parts.len()])
    }
}

impl Drop for FetchRun {
    fn drop(&mut self) {
        self.inner.fetch_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
        for (part, fetch) in &self.parts {
            if fetch.done.get().is_none() {
                fetch.finish(Err(FsError::Io("the read was given up".into())));
                self.inner.fetches.lock().remove(&self.inner.key(part));
            }
        }
    }
}

fn push_zeros(mut len: u64, chunks: &mut Vec<Bytes>) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        chunks.push(Bytes::from_static(&ZEROS[..part as usize]));
        len -= part;
    }
}

/// Notes a read of `range`. Whether it continues an earlier one, and the range to read ahead.
fn advance_streams(streams: &mut Vec<Stream>, range: Range<u64>, window_max: u64) -> (bool, Option<Range<u64>>) {
    // Reads of one client may overtake each other by about the bytes in flight.
    let near = |s: &Stream| range.start <= s.next + s.window && range.start + s.window >= s.next;
    let Some(found) = streams.iter().rposition(near) else {
        if streams.len() >= STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(Stream { next: range.end, ahead: range.end, window: WINDOW_MIN });
        return (false, None);
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
    (true, ahead)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sequential_readers_get_a_growing_window_and_random_ones_nothing() {
        let mut streams = Vec::new();
        let mut ahead = 0;
        for n in 0..200u64 {
            let at = n * (128 << 10);
            let (continues, ahead_now) = advance_streams(&mut streams, at..at + (128 << 10), WINDOW_MAX);
            assert_eq!(continues, n > 0);
            if let Some(range) = ahead_now {
                assert!(range.start >= ahead && range.end > range.start);
                ahead = range.end;
            }
        }
        assert!(ahead >= 199 * (128 << 10) + WINDOW_MAX / 2);
        let mut streams = Vec::new();
        for n in 0..50u64 {
            let at = (n * 7919 % 100) * (64 << 20);
            assert_eq!(advance_streams(&mut streams, at..at + 4096, WINDOW_MAX), (false, None));
        }
        assert!(streams.len() <= STREAMS_MAX);
    }
}
