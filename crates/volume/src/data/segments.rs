//! The segment table: what every segment object is worth. In memory whole, in the engine under 'G'.
//!
//! - `segments.counted_with_extents`: `extents` counts the stored extents that refer to the
//!   segment, `live` sums their [`Extent::live_bytes`]. Both change in the same batch as the
//!   extents, under the table's lock, so batches and table are always in one order.
//! - `segments.deleted_once_durable`: an object is deleted only after the batch is durable that
//!   took its last extent, and its entry only after the object. A crash in between leaves an entry
//!   without extents, which the next opening deletes.
//! - `segments.orphans_are_swept`: a segment without an entry is an orphan, put and never referred
//!   to. The next opening deletes it.
//! - `segments.retired_in_one_place`: deletion goes through [`Segments::retire`] alone.
//! - `segments.kept_for_snapshots`: a segment that no extent refers to any more is kept while a
//!   snapshot lies between its birth and its death (`snap.segments_between`). Collection leaves
//!   segments alone that a snapshot reads: a copy of their live parts would free nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use larder_fs::FsResult;

use super::extents::{Extent, SegmentId};
use super::segment::{ENTRY_BYTES, FOOTER_BYTES, HEADER_BYTES};
use crate::keys::{Reader, damaged, tag};
use crate::meta::{Batch, Ticket, Usage};

pub(crate) const SEGMENT_TAG: u8 = tag::SEGMENT;
const VERSION: u8 = 1;
/// Segments below this are merged when there are many.
pub(crate) const SMALL_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The epoch in which the first extent referred to it.
    pub(crate) birth: u64,
    /// The epoch in which the last one went; 0 while there is one.
    pub(crate) death: u64,
    pub(crate) object_bytes: u64,
    pub(crate) records: u32,
    pub(crate) live_bytes: u64,
    pub(crate) extents: u64,
    /// [`Segments::retire`] has it.
    pub(crate) retired: bool,
    /// Its own extents are still being submitted: it may look dead without being so.
    pub(crate) pending: bool,
    /// Files share it (`share.sharers_are_noted`): its live bytes may count a record several times, so that it looks full
    /// although it is not.
    pub(crate) shared: bool,
    /// Garbage collection could not read it; it is left alone while the volume is open.
    pub(crate) unreadable: bool,
    /// The live bytes at which rewriting it would have given nothing back (`gc.rewrites_gain`).
    pub(crate) no_gain_at: Option<u64>,
}

impl Segment {
    /// Bytes that would remain if it were rewritten now: live bytes and their share of header and
    /// index.
    pub(crate) fn useful_bytes(&self) -> u64 {
        let overhead = (HEADER_BYTES + FOOTER_BYTES) as u64 + ENTRY_BYTES as u64 * self.extents;
        let useful = if self.extents == 0 { 0 } else { self.live_bytes + overhead };
        useful.min(self.object_bytes)
    }
}

pub(crate) fn segment_key(id: SegmentId) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(SEGMENT_TAG);
    out.put_u64(id.0);
    out.freeze()
}

/// Version, birth, death (0: alive), object bytes, records, live bytes, extents.
pub(crate) fn encode_segment(segment: &Segment) -> Bytes {
    let mut out = BytesMut::with_capacity(45);
    out.put_u8(VERSION);
    out.put_u64(segment.birth);
    out.put_u64(segment.death);
    out.put_u64(segment.object_bytes);
    out.put_u32(segment.records);
    out.put_u64(segment.live_bytes);
    out.put_u64(segment.extents);
    out.freeze()
}

pub(crate) fn decode_segment(key: &[u8], value: &[u8]) -> FsResult<(SegmentId, Segment)> {
    let id = key.get(1..).filter(|_| key.len() == 9).and_then(|bytes| bytes.first_chunk::<8>());
    let id = id.map(|bytes| SegmentId(u64::from_be_bytes(*bytes))).ok_or_else(|| damaged(key, "wrong key length"))?;
    let mut r = Reader::new(key, value)?;
    let (birth, death, object_bytes, records) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
    let (live_bytes, extents) = (r.u64()?, r.u64()?);
    r.finish()?;
    if death != 0 && (death < birth || extents > 0) {
        return Err(damaged(key, "it is dead before its birth, or while extents refer to it"));
    }
    Ok((id, Segment { birth, death, object_bytes, records, live_bytes, extents, ..Segment::default() }))
}

/// The changes of the table by a batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    segments: BTreeMap<SegmentId, (i64, i64)>,
    logical_bytes: i64,
    stored_bytes: i64,
}

impl Tally {
    /// By how much the counters of the volume change.
    pub(crate) fn usage(&self) -> Usage {
        Usage { logical_bytes: self.logical_bytes, stored_bytes: self.stored_bytes, ..Usage::default() }
    }

    /// By how much live bytes and extents of each segment change.
    pub(crate) fn segments(&self) -> &BTreeMap<SegmentId, (i64, i64)> {
        &self.segments
    }

    /// An extent appears (`kept`) or goes. Returns by how much the inode's `allocated` changes.
    pub(crate) fn count(&mut self, extent: &Extent, kept: bool) -> i64 {
        let sign = if kept { 1 } else { -1 };
        let live = sign * extent.live_bytes() as i64;
        if let Some(record) = extent.record() {
            let entry = self.segments.entry(record.segment).or_default();
            entry.0 += sign * extent.segment_bytes() as i64;
            entry.1 += sign;
        }
        self.logical_bytes += sign * i64::from(extent.len);
        self.stored_bytes += live;
        sign * extent.allocated_bytes() as i64
    }
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    map: BTreeMap<SegmentId, Segment>,
    /// The epoch of the volume as it is now.
    epoch: u64,
    /// The numbers of snapshots, that of an unfinished one too.
    snapshots: BTreeSet<u64>,
    next: u64,
    object_bytes: u64,
    useful_bytes: u64,
    small: usize,
    /// Dead, to be deleted once the ticket is durable (`segments.deleted_once_durable`).
    doomed: VecDeque<(SegmentId, Ticket)>,
}

impl Segments {
    /// Of a volume with these snapshots.
    pub(crate) fn new(epoch: u64, snapshots: impl IntoIterator<Item = u64>) -> Self {
        Self { epoch, snapshots: snapshots.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a snapshot reads the segment, or may (`segments.kept_for_snapshots`).
    pub(crate) fn is_pinned(&self, segment: &Segment) -> bool {
        let death = if segment.death == 0 { self.epoch } else { segment.death };
        segment.birth < death && self.snapshots.range(segment.birth..death).next().is_some()
    }

    /// Whether its object must be there.
    pub(crate) fn is_used(&self, segment: &Segment) -> bool {
        !segment.pending && (segment.extents > 0 || self.is_pinned(segment))
    }

    /// The snapshots that may read a segment.
    pub(crate) fn readers(&self, id: SegmentId) -> Vec<u64> {
        let Some(segment) = self.map.get(&id) else { return Vec::new() };
        let death = if segment.death == 0 { self.epoch } else { segment.death };
        self.snapshots.range(segment.birth..death.max(segment.birth)).copied().collect()
    }

    /// The segments that a snapshot reads, or may, and their lengths in bytes.
    pub(crate) fn read_by(&self, number: u64) -> Vec<(SegmentId, u64)> {
        let death = |segment: &Segment| if segment.death == 0 { self.epoch } else { segment.death };
        let is_read = |segment: &Segment| (segment.birth..death(segment)).contains(&number);
        self.iter().filter(|(_, segment)| is_read(segment)).map(|(id, segment)| (id, segment.object_bytes)).collect()
    }

    /// Bytes that collection cannot give back.
    fn useful(&self, segment: &Segment) -> u64 {
        if self.is_pinned(segment) { segment.object_bytes } else { segment.useful_bytes() }
    }

    fn count_useful(&mut self) {
        self.useful_bytes = self.map.values().map(|segment| self.useful(segment)).sum();
    }

    /// Closes the epoch with an unfinished snapshot, and returns its number.
    pub(crate) fn begin_snapshot(&mut self) -> u64 {
        let number = self.epoch;
        self.snapshots.insert(number);
        self.epoch += 1;
        self.count_useful();
        number
    }

    /// The snapshot is gone from `ticket` on.
    pub(crate) fn end_snapshot(&mut self, number: u64, ticket: Ticket) {
        self.snapshots.remove(&number);
        self.count_useful();
        let is_free = |s: &Segment| s.extents == 0 && !s.pending && !s.retired && !self.is_pinned(s);
        let free: Vec<SegmentId> = self.iter().filter(|(_, segment)| is_free(segment)).map(|(id, _)| id).collect();
        free.into_iter().for_each(|id| self.retire(id, ticket));
    }

    /// A segment that an unfinished snapshot alone refers to.
    pub(crate) fn add_for_snapshot(
        &mut self,
        id: SegmentId,
        object_bytes: u64,
        records: u32,
        number: u64,
        batch: &mut Batch,
    ) {
        let segment = Segment { birth: number, death: number + 1, object_bytes, records, ..Segment::default() };
        batch.put(segment_key(id), encode_segment(&segment));
        self.object_bytes += object_bytes;
        self.useful_bytes += object_bytes;
        self.small += usize::from(object_bytes < SMALL_BYTES);
        self.map.insert(id, segment);
    }

    /// Bytes of segments that each snapshot alone keeps.
    pub(crate) fn kept_by_one(&self) -> BTreeMap<u64, u64> {
        let mut out = BTreeMap::new();
        for segment in self.map.values().filter(|segment| segment.death != 0) {
            let mut readers = self.snapshots.range(segment.birth..segment.death.max(segment.birth));
            if let (Some(&one), None) = (readers.next(), readers.next()) {
                *out.entry(one).or_default() += segment.object_bytes;
            }
        }
        out
    }

    /// Bytes of segments that these snapshots keep, and no other.
    pub(crate) fn kept_by(&self, numbers: &BTreeSet<u64>) -> u64 {
        let only_they = |segment: &&Segment| {
            let mut readers = self.snapshots.range(segment.birth..segment.death.max(segment.birth)).peekable();
            segment.death != 0 && readers.peek().is_some() && readers.all(|number| numbers.contains(number))
        };
        self.map.values().filter(only_they).map(|segment| segment.object_bytes).sum()
    }

    /// Bytes of segments by the epoch of their birth.
    pub(crate) fn born_in(&self) -> BTreeMap<u64, u64> {
        let mut out = BTreeMap::new();
        for segment in self.map.values() {
            *out.entry(segment.birth).or_default() += segment.object_bytes;
        }
        out
    }

    /// Takes an entry over from the engine.
    pub(crate) fn load(&mut self, id: SegmentId, segment: Segment) {
        self.object_bytes += segment.object_bytes;
        self.useful_bytes += self.useful(&segment);
        self.next = self.next.max(id.0.saturating_add(1));
        self.small += usize::from(segment.object_bytes < SMALL_BYTES);
        let dead = segment.extents == 0 && !self.is_pinned(&segment);
        self.map.insert(id, segment);
        if dead {
            self.retire(id, Ticket(0));
        }
    }

    /// No number below is given out any more (`segment.written_once`).
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// The next number to be given out.
    pub(crate) fn peek_next(&self) -> SegmentId {
        SegmentId(self.next.max(1))
    }

    /// How many segments are so small that merging them is worthwhile.
    pub(crate) fn small(&self) -> usize {
        self.small
    }

    /// Extents refer to it now, so more may (`share.living_segments`).
    pub(crate) fn is_living(&self, id: SegmentId) -> bool {
        self.map.get(&id).is_some_and(|segment| segment.extents > 0)
    }

    pub(crate) fn next_id(&mut self) -> SegmentId {
        let id = SegmentId(self.next.max(1));
        self.next = id.0 + 1;
        id
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.map.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.map.iter().map(|(&id, segment)| (id, segment))
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// (bytes of objects, bytes that would remain if all were rewritten). A pending segment counts
    /// as garbage until its extents are submitted.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.object_bytes, self.useful_bytes.min(self.object_bytes))
    }

    /// An object was put; its extents follow.
    pub(crate) fn add_pending(&mut self, id: SegmentId, object_bytes: u64, records: u32) {
        self.object_bytes += object_bytes;
        self.small += usize::from(object_bytes < SMALL_BYTES);
        let segment = Segment { birth: self.epoch, object_bytes, records, pending: true, ..Segment::default() };
        self.map.insert(id, segment);
    }

    /// All extents of a new segment are submitted.
    pub(crate) fn settle(&mut self, id: SegmentId, ticket: Ticket) {
        let Some(segment) = self.map.get_mut(&id) else { return };
        assert!(segment.pending, "a segment is settled once");
        segment.pending = false;
        if segment.extents > 0 {
            return;
        }
        segment.death = self.epoch;
        let segment = segment.clone();
        if !self.is_pinned(&segment) {
            self.retire(id, ticket);
        }
    }

    /// See `gc.rewrites_gain`.
    pub(crate) fn mark_no_gain(&mut self, id: SegmentId) {
        if let Some(segment) = self.map.get_mut(&id) {
            segment.no_gain_at = Some(segment.live_bytes);
        }
    }

    /// Extents of other places than its index names refer to it, or did.
    pub(crate) fn mark_shared(&mut self, id: SegmentId) {
        if let Some(segment) = self.map.get_mut(&id) {
            segment.shared = true;
        }
    }

    pub(crate) fn mark_unreadable(&mut self, id: SegmentId) {
        if let Some(segment) = self.map.get_mut(&id) {
            segment.unreadable = true;
        }
    }

    /// Applies `tally` and adds the changed entries to `batch`; returns the segments that die by it
    /// (`segments.counted_with_extents`).
    pub(crate) fn apply(&mut self, tally: Tally, batch: &mut Batch) -> Vec<SegmentId> {
        let mut dead = Vec::new();
        for (id, (live, extents)) in tally.segments {
            let Some(segment) = self.map.get_mut(&id) else {
                tracing::error!(segment = id.0, "an extent refers to a segment that is not in the table");
                continue;
            };
            let before = segment.clone();
            segment.live_bytes = segment.live_bytes.saturating_add_signed(live);
            segment.extents = segment.extents.saturating_add_signed(extents);
            segment.death = if segment.extents == 0 { self.epoch } else { 0 };
            batch.put(segment_key(id), encode_segment(segment));
            let after = segment.clone();
            self.useful_bytes = self.useful_bytes + self.useful(&after) - self.useful(&before);
            if after.extents == 0 && !after.pending && !self.is_pinned(&after) {
                dead.push(id);
            }
        }
        let (logical_bytes, stored_bytes) = (tally.logical_bytes, tally.stored_bytes);
        batch.usage = batch.usage.plus(Usage { logical_bytes, stored_bytes, ..Usage::default() });
        dead
    }

    /// No extent refers to it from `ticket` on. The one place where the life of a segment ends
    /// (`segments.retired_in_one_place`).
    pub(crate) fn retire(&mut self, id: SegmentId, ticket: Ticket) {
        if let Some(segment) = self.map.get_mut(&id) {
            segment.retired = true;
        }
        self.doomed.push_back((id, ticket));
    }

    pub(crate) fn take_doomed(&mut self, max: usize) -> Vec<(SegmentId, Ticket)> {
        let count = self.doomed.len().min(max);
        self.doomed.drain(..count).collect()
    }

    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Its object is deleted.
    pub(crate) fn remove(&mut self, id: SegmentId, batch: &mut Batch) {
        if let Some(segment) = self.map.remove(&id) {
            self.object_bytes -= segment.object_bytes;
            self.small -= usize::from(segment.object_bytes < SMALL_BYTES);
            self.useful_bytes -= self.useful(&segment);
        }
        batch.delete(segment_key(id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn golden_bytes() {
        let segment = Segment {
            birth: 1,
            object_bytes: 0x0400_0000,
            records: 512,
            live_bytes: 7,
            extents: 3,
            ..Segment::default()
        };
        let value = encode_segment(&segment);
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "01000000000000000100000000000000000000000004000000000002000000000000000007 0000000000000003"
                .replace(' ', "")
        );
        let key = segment_key(SegmentId(9));
        assert_eq!(decode_segment(&key, &value).unwrap(), (SegmentId(9), segment));
        for cut in 0..value.len() {
            assert!(decode_segment(&key, &value[..cut]).is_err());
        }
    }
}
