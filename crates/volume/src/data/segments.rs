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
//! - `segments.retired_in_one_place`: deletion goes through [`Segments::retire`] alone. Snapshots
//!   will ask there whether one lies between birth and death.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use super::extents::{Extent, SegmentId};
use super::segment::{ENTRY_BYTES, FOOTER_BYTES, HEADER_BYTES};
use crate::keys::{Reader, damaged, tag};
use crate::meta::{Batch, Ticket, Usage};
use crate::types::FsResult;

pub(crate) const SEGMENT_TAG: u8 = tag::SEGMENT;
const VERSION: u8 = 1;
/// Segments below this are merged when there are many.
pub(crate) const SMALL_BYTES: u64 = 4 << 20;
/// Until there are snapshots everything happens in one epoch.
pub(crate) const EPOCH: u64 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) birth: u64,
    pub(crate) object_bytes: u64,
    pub(crate) records: u32,
    pub(crate) live_bytes: u64,
    pub(crate) extents: u64,
    /// Its own extents are still being submitted: it may look dead without being so.
    pub(crate) pending: bool,
    /// Garbage collection could not read it; it is left alone while the volume is open.
    pub(crate) unreadable: bool,
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
    out.put_u64(0);
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
    let (birth, _death, object_bytes, records) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
    let (live_bytes, extents) = (r.u64()?, r.u64()?);
    r.finish()?;
    Ok((id, Segment { birth, object_bytes, records, live_bytes, extents, ..Segment::default() }))
}

/// The changes of the table by a batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    segments: BTreeMap<SegmentId, (i64, i64)>,
    logical_bytes: i64,
    stored_bytes: i64,
}

impl Tally {
    /// An extent appears (`kept`) or goes. Returns by how much the inode's `allocated` changes.
    pub(crate) fn count(&mut self, extent: &Extent, kept: bool) -> i64 {
        let sign = if kept { 1 } else { -1 };
        let live = sign * extent.live_bytes() as i64;
        if let Some(record) = extent.record() {
            let entry = self.segments.entry(record.segment).or_default();
            entry.0 += live;
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
    next: u64,
    object_bytes: u64,
    useful_bytes: u64,
    small: usize,
    /// Dead, to be deleted once the ticket is durable (`segments.deleted_once_durable`).
    doomed: VecDeque<(SegmentId, Ticket)>,
}

impl Segments {
    /// Takes an entry over from the engine.
    pub(crate) fn load(&mut self, id: SegmentId, segment: Segment) {
        self.object_bytes += segment.object_bytes;
        self.useful_bytes += segment.useful_bytes();
        self.next = self.next.max(id.0.saturating_add(1));
        self.small += usize::from(segment.object_bytes < SMALL_BYTES);
        let dead = segment.extents == 0;
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
        let segment = Segment { birth: EPOCH, object_bytes, records, pending: true, ..Segment::default() };
        self.map.insert(id, segment);
    }

    /// All extents of a new segment are submitted.
    pub(crate) fn settle(&mut self, id: SegmentId, ticket: Ticket) {
        let Some(segment) = self.map.get_mut(&id) else { return };
        assert!(segment.pending, "a segment is settled once");
        segment.pending = false;
        if segment.extents == 0 {
            self.retire(id, ticket);
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
            let before = segment.useful_bytes();
            segment.live_bytes = segment.live_bytes.saturating_add_signed(live);
            segment.extents = segment.extents.saturating_add_signed(extents);
            self.useful_bytes = self.useful_bytes + segment.useful_bytes() - before;
            batch.put(segment_key(id), encode_segment(segment));
            if segment.extents == 0 && !segment.pending {
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
            self.useful_bytes -= segment.useful_bytes();
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
