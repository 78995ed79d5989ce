//! The bytes of a batch: a header, then each record's header and payload, padded to the alignment.

use bytes::Bytes;
use larder_base::checksum::checksum_slices;

use super::format::{ALIGN_BYTES, BATCH_HEADER_BYTES, BatchHeader, RecordHeader, binding, segment_seed};
use super::replay::Location;
use crate::member::members::Members;

/// The place where the next batch of a segment goes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The sequence number of the segment.
    pub segment: u64,
    /// The offset within the segment's file, in bytes.
    pub offset: u64,
}

/// A batch ready to be written.
pub struct Built {
    pub bytes: Bytes,
    pub locations: Vec<Location>,
    /// Where the batch after it goes, in bytes from the segment's start.
    pub end: u64,
}

/// The length of a batch with these records.
pub fn batch_bytes(records: &[RecordHeader]) -> u64 {
    let bytes = BATCH_HEADER_BYTES + records.iter().map(RecordHeader::bytes).sum::<usize>();
    (bytes as u64).next_multiple_of(ALIGN_BYTES)
}

/// Builds a batch at `place`. `before` is written in front of it: the header of a segment that
/// begins with the batch.
pub fn build(
    members: &Members,
    place: Place,
    batch: u64,
    mut records: Vec<RecordHeader>,
    payloads: &[&[Bytes]],
    before: &[u8],
) -> Built {
    let seed = segment_seed(members.id, place.segment);
    let used = BATCH_HEADER_BYTES + records.iter().map(RecordHeader::bytes).sum::<usize>();
    assert!(place.offset.is_multiple_of(ALIGN_BYTES), "`journal.sectors_written_once`: a batch starts on a boundary");
    assert_eq!(payloads.len(), records.len(), "each record has its payload");
    let end = place.offset + (used as u64).next_multiple_of(ALIGN_BYTES);
    let mut at = place.offset + BATCH_HEADER_BYTES as u64;
    for (record, payload) in records.iter_mut().zip(payloads) {
        let offset = at + record.head_bytes() as u64;
        record.payload_checksum = checksum_slices(seed ^ offset, payload.iter().map(|part| &part[..]));
        at += record.bytes() as u64;
    }
    let binding = binding(batch, &records);
    let header = BatchHeader { batch, bytes: used as u64, records: records.len() as u32, binding };
    let mut buffer = members.buffers.take(before.len() + (end - place.offset) as usize);
    let mut out = Fill { rest: buffer.bytes_mut() };
    out.put(before);
    out.put(&header.encode(seed, place.offset));
    let mut at = place.offset + BATCH_HEADER_BYTES as u64;
    let mut locations = Vec::with_capacity(records.len());
    for (mut record, payload) in records.into_iter().zip(payloads) {
        record.binding = binding;
        locations.push(Location {
            segment: place.segment,
            offset: at + record.head_bytes() as u64,
            bytes: record.payload_bytes,
            checksum: record.payload_checksum,
            previous: record.previous,
        });
        out.put(&record.encode(seed, at));
        payload.iter().for_each(|part| out.put(part));
        out.zeros((record.payload_bytes as usize).next_multiple_of(8) - record.payload_bytes as usize);
        at += record.bytes() as u64;
    }
    out.zeros((end - at) as usize);
    assert!(out.rest.is_empty(), "the batch fills its buffer: old bytes of it must not reach a disk");
    Built { bytes: buffer.freeze(), locations, end }
}

/// Fills memory from the front.
struct Fill<'a> {
    rest: &'a mut [u8],
}

impl Fill<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn zeros(&mut self, count: usize) {
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(count);
        to.fill(0);
        self.rest = rest;
    }
}
