//! Fetching records and pieces from the store: neighbours in one request, each of them once.
//!
//! - `fetching.first_bytes_first`: a range of a store behind a network is taken apart while it
//!   arrives, in the order of its bytes. A reader waits for its own records, not for the range.
//! - `fetching.far_failure_is_final`: such a store has been asked again before it fails. So its
//!   failure is that of every record of the range that had not arrived, and whoever still needs one
//!   asks for that one alone. A pool fails a range for one block: there each record is asked for.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use larder_base::checksum::CallerVerifies;
use larder_base::task;
use larder_fs::*;
use object_store::{Extensions, GetOptions, ObjectStoreExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::extents::SegmentId;
use super::fetch::Fetch;
use super::line::RANGE;
use super::memory::{Record, Together, fills};
use super::pieces::{Codec, Part, RecordRef};
use super::segment::object_path;
use super::shared::{Inner, store_error};

/// Neighbouring records are fetched from disks in one request up to this size.
const FETCH_BYTES_MAX: u64 = 1 << 20;
/// The same of a store behind a network: what [`RANGE`] asks for, and the padding
/// between its records.
const FAR_FETCH_BYTES_MAX: u64 = RANGE + RANGE / 32;
/// Unwanted bytes are fetched along to save a request, up to this many.
const FETCH_GAP_MAX: u64 = 32 << 10;
/// The same beside a piece, whose reader wants few bytes from the disks.
const PIECE_GAP_MAX: u64 = 4 << 10;

impl Inner {
    /// Joins the fetches under way and starts the others, neighbours together
    /// (`reading.fetched_once`).
    pub(super) fn start_fetches(self: &Arc<Self>, wanted: Vec<(Part, u64)>) -> Vec<(Part, u64, Arc<Fetch>)> {
        self.start_fetches_within(wanted, Terms::default())
    }

    /// As `start_fetches`, of bytes that nobody, or hardly anybody, waits for yet.
    pub(super) fn start_fetches_within(
        self: &Arc<Self>,
        wanted: Vec<(Part, u64)>,
        terms: Terms,
    ) -> Vec<(Part, u64, Arc<Fetch>)> {
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
                        if let Some(content) = self.parts.memory.get_in_sequence(&key, false) {
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
        let permit = terms.permit.map(Arc::new);
        let mut waits = !terms.is_waited_for;
        let bytes_max = if self.parts.is_far() { FAR_FETCH_BYTES_MAX } else { FETCH_BYTES_MAX };
        let mut rest = &fresh[..];
        while !rest.is_empty() {
            let count = run_length(rest, bytes_max);
            let (run, tail) = rest.split_at(count);
            rest = tail;
            let turns = terms.turns.clone().filter(|_| waits);
            waits = true;
            let run = FetchRun { inner: Arc::clone(self), parts: run.to_vec(), turns, _permit: permit.clone() };
            self.fetch_bytes.fetch_add(run.bytes(), Ordering::Relaxed);
            task::spawn(run.run());
        }
        all
    }

    /// Reads records from the store, past the cache; returns the failures.
    pub(super) async fn read_records(&self, records: &[(Ino, u64, RecordRef)]) -> Vec<(Ino, u64, FsError)> {
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
            return Err(too_short(id));
        }
        Ok(got)
    }

    /// As `get_segment`, in the pieces in which the store has them: a pool does not copy blocks
    /// together. The bytes are yet to be verified.
    async fn get_chunks(&self, id: SegmentId, range: Range<u64>) -> FsResult<Vec<Bytes>> {
        let want = range.end - range.start;
        let mut extensions = Extensions::default();
        extensions.insert(CallerVerifies);
        let body = self.open_range(id, range, extensions).await?;
        let chunks: Vec<Bytes> = body.try_collect().await?;
        if chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>() != want {
            return Err(too_short(id));
        }
        Ok(chunks)
    }

    /// The bytes `range` of a segment object, as they arrive.
    async fn open_range(
        &self,
        id: SegmentId,
        range: Range<u64>,
        extensions: Extensions,
    ) -> FsResult<BoxStream<'static, FsResult<Bytes>>> {
        let path = object_path(&self.parts.prefix, id);
        let failed = move |error| store_error(&format!("reading segment {:016x}", id.0), &error);
        let options = GetOptions { range: Some(range.into()), extensions, ..GetOptions::default() };
        let got = self.parts.store.get_opts(&path, options).await.map_err(failed)?;
        Ok(got.into_stream().map_err(failed).boxed())
    }

    /// Reads one record or piece again after its first reading failed (`reading.verified_first`).
    async fn fetch_again(&self, part: &Part) -> FsResult<Record> {
        let stored = self.get_segment(part.record.segment, part.stored()).await?;
        part.unpack(std::slice::from_ref(&stored))
            .ok_or_else(|| FsError::Io("the checksum of the stored record is wrong".into()))
    }
}

/// How many of the first parts lie close enough together for one request.
fn run_length(parts: &[(Part, Arc<Fetch>)], bytes_max: u64) -> usize {
    let Some((first, _)) = parts.first() else { return 0 };
    let start = first.stored().start;
    let (mut last, mut end) = (first, first.stored().end);
    let mut count = 1;
    for (part, _) in &parts[1..] {
        let stored = part.stored();
        let is_piece = part.number().is_some() || last.number().is_some();
        let gap_max = if is_piece { PIECE_GAP_MAX } else { FETCH_GAP_MAX };
        let near = part.record.segment == first.record.segment && stored.start >= end && stored.start - end <= gap_max;
        if !near || stored.end - start > bytes_max {
            break;
        }
        (last, end) = (part, stored.end);
        count += 1;
    }
    count
}

/// How bytes are fetched that are read later.
#[derive(Default)]
pub(super) struct Terms {
    /// Room for them.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// Each request waits for one of these.
    pub(super) turns: Option<Arc<Semaphore>>,
    /// The first request has bytes that are read now, and waits for no turn.
    pub(super) is_waited_for: bool,
}

/// Parts fetched in one request. However it ends, every waiting reader is answered.
struct FetchRun {
    inner: Arc<Inner>,
    parts: Vec<(Part, Arc<Fetch>)>,
    /// It waits for one of these (`ahead.in_turn`).
    turns: Option<Arc<Semaphore>>,
    /// Its share of the bytes that are read ahead, until it ends.
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl FetchRun {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(part, _)| u64::from(part.raw_len())).sum()
    }

    async fn run(self) {
        let start = self.parts.iter().map(|(part, _)| part.stored().start).min().unwrap_or(0);
        let end = self.parts.iter().map(|(part, _)| part.stored().end).max().unwrap_or(0);
        let Some(segment) = self.parts.first().map(|(part, _)| part.record.segment) else { return };
        if self.inner.parts.is_far() {
            return self.run_far(segment, start..end).await;
        }
        let stored = self.inner.get_chunks(segment, start..end).await.ok();
        let unpacked = match stored {
            Some(stored) => unpack(&self.inner, &self.parts, stored, start).await,
            None => vec![None; self.parts.len()],
        };
        let together = self.together(&unpacked, (end - start) as usize);
        for ((part, fetch), content) in self.parts.iter().zip(unpacked) {
            let result = match content {
                Some(content) => Ok(content),
                None => self.inner.fetch_again(part).await,
            };
            self.finish(part, fetch, result, together.as_ref());
        }
    }

    /// The records that stay in the slots in which they were read, if those hold little else
    /// (`memory.read_uncopied`).
    fn together(&self, unpacked: &[Option<Record>], read_bytes: usize) -> Option<Arc<Together>> {
        let is_raw = |part: &Part| part.record.codec == Codec::Raw && part.number().is_none();
        let stay = |content: &Option<Record>| content.as_ref().is_some_and(Record::lies_in_slots);
        let found = self.parts.iter().zip(unpacked);
        let staying: Vec<&Part> =
            found.filter(|((part, _), content)| is_raw(part) && stay(content)).map(|((part, _), _)| part).collect();
        let bytes: usize = staying.iter().map(|part| part.raw_len() as usize).sum();
        let keys = || staying.iter().map(|part| self.inner.key(part)).collect();
        fills(bytes, read_bytes).then(|| self.inner.parts.memory.together(keys()))
    }

    fn finish(&self, part: &Part, fetch: &Fetch, result: FsResult<Record>, together: Option<&Arc<Together>>) {
        let (key, memory) = (self.inner.key(part), &self.inner.parts.memory);
        let shared = together.filter(|together| together.holds(&key));
        // A packed one was unpacked into memory of its own.
        let lies_elsewhere = shared.is_none() && part.record.codec == Codec::Raw;
        let result = result.map(|content| if lies_elsewhere { Record::kept(content.chunks()) } else { content });
        if let Ok(content) = &result {
            self.inner.parts.mark_sealed(content.chunks());
            match shared {
                Some(together) => memory.insert_shared(key, content.clone(), together),
                None => memory.insert(key, content.clone()),
            }
            if self.inner.parts.is_far() {
                memory.keep(&key);
            }
        }
        fetch.finish(result);
        self.inner.fetches.lock().remove(&key);
    }

    /// Takes the range apart while it arrives (`fetching.first_bytes_first`).
    async fn run_far(&self, segment: SegmentId, range: Range<u64>) {
        let turn = match &self.turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        let clock = &self.inner.parts.clock;
        let (begun, start, bytes) = (clock.elapsed(), range.start, range.end - range.start);
        let (stream, failed) = match self.inner.open_range(segment, range, Extensions::default()).await {
            Ok(stream) => (stream, None),
            Err(error) => (futures::stream::empty().boxed(), Some(error)),
        };
        let answered = clock.elapsed();
        let mut body = Body { segment, stream, held: Bytes::new(), at: start, failed };
        let mut damaged = Vec::new();
        for one @ (part, fetch) in &self.parts {
            let stored = match body.take(part.stored()).await {
                Ok(stored) => stored,
                Err(error) => {
                    self.finish(part, fetch, Err(error), None);
                    continue;
                }
            };
            let unpacked = unpack(&self.inner, std::slice::from_ref(one), stored, part.stored().start).await;
            match unpacked.into_iter().next().flatten() {
                Some(content) => self.finish(part, fetch, Ok(content), None),
                None => damaged.push((part, fetch)),
            }
        }
        if body.failed.is_none() {
            let lasted = clock.elapsed().saturating_sub(answered);
            self.inner.line.measured(answered.saturating_sub(begun), bytes, lasted);
        }
        drop(turn);
        for (part, fetch) in damaged {
            let again = self.inner.fetch_again(part).await;
            self.finish(part, fetch, again, None);
        }
    }
}

/// Verifies and decompresses `parts`, whose bytes begin at `start`; on another thread if it is much.
async fn unpack(inner: &Inner, parts: &[(Part, Arc<Fetch>)], stored: Vec<Bytes>, start: u64) -> Vec<Option<Record>> {
    if let [(part, _)] = parts
        && (part.number().is_some() || part.record.codec == Codec::Raw)
        && part.stored().start == start
    {
        return vec![part.unpack(&stored)];
    }
    let count = parts.len();
    let parts: Vec<Part> = parts.iter().map(|(part, _)| part.clone()).collect();
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
    let _worker = inner.workers.acquire().await;
    task::computed(work).await.unwrap_or_else(|| vec![None; count])
}

fn too_short(segment: SegmentId) -> FsError {
    FsError::Io(format!("segment {:016x} is shorter than it should be", segment.0).into())
}

/// A range of a segment on its way.
struct Body {
    segment: SegmentId,
    stream: BoxStream<'static, FsResult<Bytes>>,
    held: Bytes,
    /// Where the held bytes begin in the segment.
    at: u64,
    /// It ended early: nothing more comes.
    failed: Option<FsError>,
}

impl Body {
    /// The bytes at `place`, which lies behind all places taken before.
    async fn take(&mut self, place: Range<u64>) -> FsResult<Vec<Bytes>> {
        let mut taken = Vec::new();
        while self.at < place.end {
            if self.held.is_empty() {
                self.held = self.next().await?;
            }
            let skip = place.start.saturating_sub(self.at).min(self.held.len() as u64);
            self.held.advance(skip as usize);
            self.at += skip;
            if self.at >= place.start {
                let now = (place.end - self.at).min(self.held.len() as u64);
                self.at += now;
                taken.extend((now > 0).then(|| self.held.split_to(now as usize)));
            }
        }
        Ok(taken)
    }

    async fn next(&mut self) -> FsResult<Bytes> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.stream.next().await.unwrap_or_else(|| Err(too_short(self.segment)));
        next.inspect_err(|error| self.failed = Some(error.clone()))
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
