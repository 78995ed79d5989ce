//! Reading ahead of sequential readers, and around scattered ones.
//!
//! Disks are read ahead by windows that double with each read. A store behind a network (a far one)
//! is dear by the request and by its distance, so its windows and requests are larger:
//!
//! - `ahead.proven`: a reader has at most [`PROOF`] times as much read ahead of it as it has read in
//!   sequence, so few bytes are fetched in vain for one that stops. The first read of a file counts
//!   as sequential if it is not tiny.
//! - `ahead.one_request`: what is read ahead is fetched in ranges of [`RANGE`], and what the reader
//!   wants itself is the beginning of the first one.
//! - `ahead.in_turn`: at most [`WAYS`] requests read a file ahead at once. More are begun before, and each goes when one before it
//!   has ended, so the line has always as many. Bytes then come in about the order in which they are read. A request for bytes
//!   that the reader wants itself waits for no turn.
//! - `ahead.bounded`: all readers of the process together have a bounded number of bytes on
//!   their way (`memory.ahead_is_bounded`); each takes at most half of what is left.
//! - `ahead.around_dense_reads`: reads at scattered places of a far file, one soon after another,
//!   fetch more and more around them, in the background and behind the bytes that are wanted. Only
//!   where the whole file is small beside the cache, so that at most the file is fetched once; and
//!   only as much as the line brings in a few round trips, so that nobody waits long for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fetching::Terms;
use super::file::{Scattered, Stream};
use super::line::RANGE;
use super::pieces::Part;
use super::shared::Inner;
use crate::inode::Inode;
use larder_base::task;

const STREAMS_MAX: usize = 4;
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 8 << 20;

/// Requests that read one file ahead, at a time (`ahead.in_turn`).
const WAYS: usize = 16;
/// Twice what is on its way at once: the reader need not move for the next requests to leave.
const FAR_WINDOW_MAX: u64 = 2 * WAYS as u64 * RANGE;
/// `ahead.proven`
const PROOF: u64 = 16;
/// Reads of one client may overtake each other by this much at most.
const SLACK_MAX: u64 = 8 << 20;
/// Ahead of the first read of a file, if that is long enough: programs that look at headers read
/// less.
const FIRST_AHEAD: u64 = 1 << 20;
const FIRST_READ_MIN: u64 = 64 << 10;

/// Files larger than this are never read around, nor those larger than a quarter of the cache.
const AROUND_FILE_MAX: u64 = 1 << 30;
const AROUND_MIN: u64 = 128 << 10;
const AROUND_MAX: u64 = 2 * RANGE;
/// After this long without a scattered read of the file they begin anew.
const AROUND_PAUSE: Duration = Duration::from_secs(1);
/// What is fetched around a read takes the line this many round trips at most.
const AROUND_ROUND_TRIPS: u64 = 3;
/// Unwanted bytes between two records that are still neighbours.
const GAP_MAX: u64 = 32 << 10;

impl Scattered {
    /// Counts a read that the store has to answer. How much to fetch around it; 0: nothing.
    fn missed(&mut self, now: Duration) -> u64 {
        if now.saturating_sub(self.last) > AROUND_PAUSE {
            self.misses = 0;
        }
        self.last = now;
        self.misses = self.misses.saturating_add(1);
        match self.misses {
            0 | 1 => 0,
            misses => (AROUND_MIN << ((misses - 2) / 2).min(16)).min(AROUND_MAX),
        }
    }
}

impl Inner {
    /// Notes a read. Whether it continues an earlier one, and the range to read ahead.
    pub(super) fn advance(&self, streams: &mut Vec<Stream>, range: Range<u64>) -> (bool, Option<Range<u64>>) {
        let memory = &self.parts.memory;
        if !self.parts.is_far() {
            return advance_streams(streams, range, WINDOW_MAX.min(memory.cache_bytes() / 16));
        }
        let window_max = FAR_WINDOW_MAX.min(memory.cache_bytes() / 16).min(memory.ahead_left() / 2);
        advance_far(streams, range, window_max)
    }

    /// Fetches records that are likely to be read next; `is_waited_for`: the first of them are read now. Never waits.
    pub(super) fn read_ahead(self: &Arc<Self>, inode: &Arc<Inode>, range: Range<u64>, is_waited_for: bool) {
        if self.parts.is_far() {
            return self.read_far_ahead(inode, range, is_waited_for);
        }
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
            task::spawn(async move {
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

    fn read_far_ahead(self: &Arc<Self>, inode: &Arc<Inode>, range: Range<u64>, is_waited_for: bool) {
        let (size, end) = (inode.core.lock().attr.size, range.end);
        let range = range.start.min(size)..range.end.min(size);
        if range.is_empty() {
            return;
        }
        self.load_ahead(inode, range.end..range.end.saturating_add(FAR_WINDOW_MAX).min(size));
        let Some(wanted) = self.cold_records(inode, &range) else {
            let (this, inode) = (Arc::clone(self), Arc::clone(inode));
            task::spawn(async move {
                let _loading = inode.file.extents_lock.read().await;
                if this.ensure_loaded(&inode, range.clone()).await.is_ok()
                    && let Some(wanted) = this.cold_records(&inode, &range)
                {
                    this.fetch_ahead(&inode, end, wanted, is_waited_for);
                }
            });
            return;
        };
        self.fetch_ahead(inode, end, wanted, is_waited_for);
    }

    /// Loads the extents of `range`, so that read-ahead need not wait for them when it gets there.
    fn load_ahead(self: &Arc<Self>, inode: &Arc<Inode>, range: Range<u64>) {
        let mut state = inode.file.state.lock();
        let Some(at) = state.extents.missing(range).filter(|_| !state.loads_ahead) else { return };
        state.loads_ahead = true;
        drop(state);
        let (this, inode) = (Arc::clone(self), Arc::clone(inode));
        task::spawn(async move {
            let _loading = inode.file.extents_lock.read().await;
            // Whoever needs them hears of the failure.
            let _ = this.ensure_loaded(&inode, at..at + 1).await;
            inode.file.state.lock().loads_ahead = false;
        });
    }

    /// Fetches as many of `wanted` as there is room for (`ahead.bounded`), which the reader believes
    /// to reach up to `end`.
    fn fetch_ahead(self: &Arc<Self>, inode: &Inode, end: u64, mut wanted: Vec<(Part, u64)>, is_waited_for: bool) {
        let left = self.parts.memory.ahead_left();
        let mut bytes = 0;
        let fits = wanted.iter().take_while(|(part, _)| {
            bytes += u64::from(part.raw_len());
            bytes <= left
        });
        let count = fits.count();
        let cut = wanted.get(count).map(|(_, at)| *at);
        wanted.truncate(count);
        let permit = self.permit_for(&wanted);
        // The reader asks again for what is not fetched now.
        let left_out = if permit.is_some() { cut } else { wanted.first().map(|(_, at)| *at) };
        if let Some(at) = left_out {
            let mut state = inode.file.state.lock();
            state.streams.iter_mut().filter(|stream| stream.ahead == end).for_each(|stream| stream.ahead = at);
        }
        if permit.is_some() && !wanted.is_empty() {
            let turns = inode.file.state.lock().turns.get_or_insert_with(|| Arc::new(Semaphore::new(WAYS))).clone();
            self.start_fetches_within(wanted, Terms { permit, turns: Some(turns), is_waited_for });
        }
    }

    fn permit_for(&self, wanted: &[(Part, u64)]) -> Option<OwnedSemaphorePermit> {
        let bytes: u64 = wanted.iter().map(|(part, _)| u64::from(part.raw_len())).sum();
        self.parts.memory.try_acquire_ahead(bytes)
    }

    /// Fetches what lies around a scattered read that the store has to answer
    /// (`ahead.around_dense_reads`). Never waits.
    pub(super) fn read_around(self: &Arc<Self>, inode: &Arc<Inode>, range: &Range<u64>) {
        let size = inode.core.lock().attr.size;
        if size > AROUND_FILE_MAX.min(self.parts.memory.cache_bytes() / 4) {
            return;
        }
        let now = self.parts.clock.elapsed();
        let wish = inode.file.state.lock().scattered.missed(now);
        let bytes = wish.min((self.line.round_trip_bytes() * AROUND_ROUND_TRIPS).max(AROUND_MIN));
        if wish == 0 {
            return;
        }
        let start = range.start - range.start % bytes;
        let around = start..start.saturating_add(bytes.max(range.end - start)).min(size);
        let Some(cold) = self.cold_records(inode, &around) else { return };
        let Some(own) = cold.iter().rposition(|(_, at)| *at <= range.start) else { return };
        // The bytes that are wanted come first, those before them by a request of their own.
        let behind = cold.get(own..).unwrap_or_default();
        let behind = behind.get(..neighbours(behind.iter())).unwrap_or_default().to_vec();
        let before = cold.get(..own).unwrap_or_default();
        let count = neighbours(cold.get(..=own).unwrap_or_default().iter().rev()).saturating_sub(1);
        let before = before.get(own.saturating_sub(count)..).unwrap_or_default().to_vec();
        for wanted in [behind, before] {
            let Ok(turn) = Arc::clone(&self.line.around).try_acquire_owned() else { return };
            if let Some(permit) = self.permit_for(&wanted).filter(|_| !wanted.is_empty()) {
                let fetches = self.start_fetches_within(wanted, Terms { permit: Some(permit), ..Terms::default() });
                task::spawn(async move {
                    for (_, _, fetch) in fetches {
                        let _ = fetch.wait().await;
                    }
                    drop(turn);
                });
            }
        }
    }
}

/// How many of the first parts lie next to each other in one segment, in either direction.
fn neighbours<'a>(parts: impl Iterator<Item = &'a (Part, u64)>) -> usize {
    let mut last: Option<&Part> = None;
    let mut count = 0;
    for (part, _) in parts {
        let near = last.is_none_or(|last| {
            let (a, b) = (last.stored(), part.stored());
            let gap = b.start.checked_sub(a.end).or_else(|| a.start.checked_sub(b.end));
            last.record.segment == part.record.segment && gap.is_some_and(|gap| gap <= GAP_MAX)
        });
        if !near {
            break;
        }
        last = Some(part);
        count += 1;
    }
    count
}

/// Notes a read of `range`. Whether it continues an earlier one, and the range to read ahead.
fn advance_streams(streams: &mut Vec<Stream>, range: Range<u64>, window_max: u64) -> (bool, Option<Range<u64>>) {
    // Reads of one client may overtake each other by about the bytes in flight.
    let near = |s: &Stream| range.start <= s.next + s.window && range.start + s.window >= s.next;
    let Some(found) = streams.iter().rposition(near) else {
        if streams.len() >= STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(Stream { next: range.end, ahead: range.end, window: WINDOW_MIN, read: 0 });
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

/// The same for a far store (`ahead.proven`, `ahead.one_request`).
fn advance_far(streams: &mut Vec<Stream>, range: Range<u64>, window_max: u64) -> (bool, Option<Range<u64>>) {
    let length = range.end - range.start;
    let near = |s: &Stream| {
        let slack = (s.read * PROOF).min(SLACK_MAX);
        range.start <= s.next + slack && range.start + slack >= s.next
    };
    let Some(found) = streams.iter().rposition(near) else {
        if streams.len() >= STREAMS_MAX {
            streams.remove(0);
        }
        let begins = range.start == 0 && length >= FIRST_READ_MIN;
        let ahead = range.end + if begins { FIRST_AHEAD.min(window_max) } else { 0 };
        streams.push(Stream { next: range.end, ahead, window: 0, read: length });
        return (begins, (ahead > range.end).then_some(range.start..ahead));
    };
    let mut stream = streams.remove(found);
    stream.next = stream.next.max(range.end);
    stream.read = stream.read.saturating_add(length);
    stream.window = stream.read.saturating_mul(PROOF).min(window_max);
    // What the reader wants now comes by the same request, unless it was read ahead.
    let from = if stream.ahead < range.end { range.start } else { stream.ahead };
    let target = stream.next + stream.window;
    let room = target.saturating_sub(from);
    let due = target.saturating_sub(stream.ahead.max(stream.next)) >= (stream.window / 2).clamp(1, RANGE);
    let ahead = due.then(|| from..from + if room > RANGE { room - room % RANGE } else { room });
    stream.ahead = stream.ahead.max(ahead.as_ref().map_or(stream.next, |ahead| ahead.end));
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

    #[test]
    fn a_far_reader_is_read_ahead_in_proportion_to_what_it_has_read() {
        let (mut streams, mut ahead, mut requests) = (Vec::new(), 0, 0);
        for n in 0..2000u64 {
            let range = n * (128 << 10)..(n + 1) * (128 << 10);
            let (continues, due) = advance_far(&mut streams, range.clone(), FAR_WINDOW_MAX);
            assert!(continues, "a first read of so many bytes counts as one");
            if let Some(due) = due {
                assert!(due.start == ahead.max(range.start) || due.start == range.start, "{due:?} at {range:?}");
                assert!(due.end <= range.end + (PROOF * range.end).clamp(FIRST_AHEAD, FAR_WINDOW_MAX));
                (ahead, requests) = (due.end, requests + (due.end - due.start).div_ceil(RANGE));
            }
        }
        assert!(ahead >= 2000 * (128 << 10) + FAR_WINDOW_MAX - RANGE);
        assert!(requests <= ahead / RANGE + 6, "{requests} requests for {ahead} bytes");
        let mut streams = Vec::new();
        for n in 1..50u64 {
            let at = (n * 7919 % 100) * (64 << 20) + 4096;
            assert_eq!(advance_far(&mut streams, at..at + 4096, FAR_WINDOW_MAX), (false, None));
        }
        assert!(streams.len() <= STREAMS_MAX);
    }

    #[test]
    fn scattered_reads_have_more_and_more_fetched_around_them_while_they_come_fast() {
        let (mut scattered, at) = (Scattered::default(), Duration::from_secs);
        assert_eq!(scattered.missed(at(10)), 0);
        let sizes: Vec<u64> = (0..20).map(|_| scattered.missed(at(10))).collect();
        assert_eq!((sizes[0], sizes[2], sizes[19]), (AROUND_MIN, 2 * AROUND_MIN, AROUND_MAX));
        assert!(sizes.is_sorted());
        assert_eq!(scattered.missed(at(12)), 0);
    }
}
