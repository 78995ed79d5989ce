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
//! - `reading.cache_owns_its_bytes`: a record in the cache keeps nothing else in memory. A slice of a fetched buffer
//!   is copied, unless its neighbours are in the cache, too, and leave with it (`memory.read_uncopied`).
//! - `reading.bounded_read_ahead`: read-ahead never displaces records that a reader waits for: it
//!   stops at a share of the cache ([`super::ahead`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use larder_base::traffic::{self, Wait};
use larder_fs::*;

use super::dirty::Payload;
use super::file::FileData;
use super::memory::{Record, RecordKey};
use super::pieces::{Part, RecordRef};
use super::shared::{Data, Inner};
use crate::inode::Inode;

/// Plans of one read. A second one after fetching is normal; this many mean that extents move all
/// the time.
const PLANS_MAX: usize = 64;

static ZEROS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; 64 << 10]));

/// The result of planning a read.
enum ReadPlan {
    Ready(Vec<Bytes>),
    /// Records and pieces that are not in memory, each with the offset in the file where it is
    /// needed.
    Missing(Vec<(Part, u64)>),
    /// Extents are not known.
    Unknown,
}

/// Brings the extents of `range` into memory while nobody changes them.
#[larder_base::boxed]
async fn load_under_lock(inner: &Inner, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<()> {
    let _loading = inode.file.extents_lock.read().await;
    traffic::waiting(Wait::Disk, inner.ensure_loaded(inode, range)).await
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
        let (mut is_sequential, mut later) = (None, None);
        let mut may_be_scattered = inner.parts.is_far();
        for _ in 0..PLANS_MAX {
            let (plan, ahead) = inner.plan(inode, offset..end, &fetched, &mut is_sequential);
            // `ahead.one_request`: that needs to know where the bytes of this read lie.
            match ahead.or_else(|| later.take().map(|range: Box<Range<u64>>| *range)) {
                Some(range) if inner.parts.is_far() && matches!(plan, ReadPlan::Unknown) => {
                    later = Some(Box::new(range))
                }
                Some(range) => {
                    let is_waited_for = range.start < end;
                    inner.read_ahead(inode, range, is_waited_for);
                }
                None => {}
            }
            match plan {
                ReadPlan::Ready(chunks) => return Ok(chunks),
                ReadPlan::Unknown => load_under_lock(inner, inode, offset..end).await?,
                ReadPlan::Missing(missing) => {
                    if std::mem::take(&mut may_be_scattered) && is_sequential == Some(false) {
                        inner.read_around(inode, &(offset..end));
                    }
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
    #[larder_base::boxed]
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

    pub(super) fn key_of(&self, record: &RecordRef, piece: Option<u16>) -> RecordKey {
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
        let (is_sequential, ahead) = match *is_sequential {
            Some(known) => (known, None),
            None => {
                let (continues, ahead) = self.advance(&mut guard.streams, range.clone());
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
        let in_cache = |key: &RecordKey, end: u32| match wanted.is_sequential {
            // Only the first plan of a read counts.
            true => self.parts.memory.get_in_sequence(key, raw.end == end && wanted.fetched.is_empty()),
            false => self.parts.memory.get(key),
        };
        let in_memory = |key: &RecordKey, end: u32| wanted.fetched.get(key).cloned().or_else(|| in_cache(key, end));
        if let Some(content) = in_memory(&self.key_of(record, None), record.raw_len) {
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
            match in_memory(&self.key(&part), piece.end) {
                Some(content) => content.slice_into(from as usize, (to - from) as usize, chunks),
                None if wanted.is_sequential || (raw.end - raw.start) * 2 >= record.raw_len => {
                    missing.truncate(before);
                    return whole(missing);
                }
                None => missing.push((part, at)),
            }
        }
    }
}

/// The input of a plan.
struct Wanted<'a> {
    fetched: &'a HashMap<RecordKey, Record>,
    is_sequential: bool,
}

fn push_zeros(mut len: u64, chunks: &mut Vec<Bytes>) {
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        chunks.push(ZEROS.slice(..part as usize));
        len -= part;
    }
}
