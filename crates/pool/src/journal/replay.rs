//! Reading the journal back when a pool is opened: the copies are merged record by record.
//!
//! A batch counts if each of its records is intact on some copy. A record counts only in the batch it was written with
//! (`journal.records_of_one_batch`): below a batch that was cut off may lie records of another one that was cut off at the same
//! place before, whose header is gone and whose number was given out again. The first one that does not, at
//! the end of its segment, was never acknowledged: the batch after it is written only when it is
//! durable everywhere. Where more batches follow, the hole is damage, and the chain of entry ids
//! (`journal.entries_chained`) tells which streams it hit.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_base::checksum::checksum;
use uuid::Uuid;

use super::format::{
    ALIGN_BYTES, BATCH_HEADER_BYTES, BatchHeader, Kind, RecordHeader, SegmentHeader, decode_checkpoint, segment_seed,
};

/// Where the payload of an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub segment: u64,
    pub offset: u64,
    pub bytes: u32,
    pub checksum: u64,
    /// The id of the stream's entry before this one.
    pub previous: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StreamState {
    pub entries: BTreeMap<u64, Location>,
    pub last: u64,
    pub trimmed: u64,
    pub damage: Option<String>,
}

/// One segment file as the copies hold it; copies may differ in length and content.
pub struct SegmentImage {
    pub header: SegmentHeader,
    pub copies: Vec<Vec<u8>>,
}

/// The result of scanning one segment.
#[derive(Debug, Default)]
pub struct Scanned {
    pub records: Vec<(RecordHeader, Location)>,
    /// End of the last good batch.
    pub end: u64,
    pub batch_last: u64,
    /// The merged bytes, up to `end`, and the ranges where they are known. Between the ranges
    /// nothing is mended, because another reading may find what this one did not.
    pub merged: Vec<u8>,
    pub known: Vec<Range<usize>>,
    /// The copies that differ from it.
    pub differing: Vec<usize>,
}

impl Scanned {
    /// The known bytes, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.known.iter().filter_map(|range| Some((range.start, self.merged.get(range.clone())?)))
    }

    /// Whether a copy has all that is known.
    pub fn is_in(&self, copy: &[u8]) -> bool {
        self.pieces().all(|(at, piece)| copy.get(at..).is_some_and(|rest| rest.starts_with(piece)))
    }

    /// Forgets the bytes from `bytes` on.
    pub fn truncate(&mut self, bytes: usize) {
        self.merged.truncate(bytes);
        self.known.retain(|range| range.start < bytes);
        self.known.iter_mut().for_each(|range| range.end = range.end.min(bytes));
    }
}

pub fn scan(pool: Uuid, image: &SegmentImage) -> Scanned {
    let seed = segment_seed(pool, image.header.sequence);
    let mut found = Scanned { end: ALIGN_BYTES, ..Scanned::default() };
    let longest = image.copies.iter().map(Vec::len).max().unwrap_or(0);
    found.merged = vec![0; longest.min(ALIGN_BYTES as usize)];
    let header = image.header.encode(pool);
    if let Some(head) = found.merged.get_mut(..header.len()) {
        head.copy_from_slice(&header);
    }
    found.known.push(0..found.merged.len());
    let mut offset = ALIGN_BYTES;
    while (offset as usize) < longest {
        match read_batch(seed, image, offset, found.batch_last) {
            Some(batch) => {
                found.merged.resize(offset as usize, 0);
                found.merged.extend_from_slice(&batch.bytes);
                found.records.extend(batch.records);
                found.batch_last = batch.header.batch;
                let start = offset as usize;
                offset = (offset + batch.header.bytes).next_multiple_of(ALIGN_BYTES);
                found.end = offset;
                found.known.push(start..longest.min(offset as usize));
            }
            // Torn, damaged, or the end: batches further on decide.
            None => offset += ALIGN_BYTES,
        }
    }
    found.merged.resize((found.end as usize).min(longest), 0);
    found.differing = image.copies.iter().enumerate().filter(|(_, copy)| !found.is_in(copy)).map(|(i, _)| i).collect();
    found
}

struct Batch {
    header: BatchHeader,
    records: Vec<(RecordHeader, Location)>,
    bytes: Vec<u8>,
}

fn read_batch(seed: u64, image: &SegmentImage, offset: u64, batch_last: u64) -> Option<Batch> {
    let start = offset as usize;
    let decode = |copy: &Vec<u8>| BatchHeader::decode(copy.get(start..)?, seed, offset);
    let header = image.copies.iter().find_map(decode)?;
    if header.batch <= batch_last {
        return None;
    }
    let end = offset.checked_add(header.bytes)?;
    let mut bytes = header.encode(seed, offset);
    let mut records = Vec::new();
    let mut at = offset + BATCH_HEADER_BYTES as u64;
    for _ in 0..header.records {
        let (record, location, raw) = read_record(seed, image, at, header.binding)?;
        at += record.bytes() as u64;
        if at > end {
            return None;
        }
        bytes.extend_from_slice(&raw);
        records.push((record, location));
    }
    Some(Batch { header, records, bytes })
}

fn read_record(seed: u64, image: &SegmentImage, at: u64, binding: u64) -> Option<(RecordHeader, Location, Vec<u8>)> {
    let start = at as usize;
    let decode = |copy: &Vec<u8>| RecordHeader::decode(copy.get(start..)?, seed, at).filter(|it| it.binding == binding);
    let header = image.copies.iter().find_map(decode)?;
    let from = start + header.head_bytes();
    let to = from.checked_add(header.payload_bytes as usize)?;
    let payload = image
        .copies
        .iter()
        .filter_map(|copy| copy.get(from..to))
        .find(|payload| checksum(seed ^ from as u64, payload) == header.payload_checksum)?;
    let mut raw = header.encode(seed, at);
    raw.extend_from_slice(payload);
    raw.resize(header.bytes(), 0);
    let location = Location {
        segment: image.header.sequence,
        offset: from as u64,
        bytes: header.payload_bytes,
        checksum: header.payload_checksum,
        previous: header.previous,
    };
    Some((header, location, raw))
}

/// Builds the streams from the records of all segments, oldest first. `payload` gives the bytes of
/// a checkpoint.
#[derive(Default)]
pub struct Rebuild {
    pub streams: BTreeMap<String, StreamState>,
}

impl Rebuild {
    pub fn apply(&mut self, record: &RecordHeader, location: Location, payload: &[u8]) {
        match record.kind {
            Kind::Remove => {
                self.streams.remove(&record.stream);
            }
            Kind::Checkpoint => self.checkpoint(payload),
            Kind::Entry => self.entry(record, location),
        }
    }

    fn entry(&mut self, record: &RecordHeader, location: Location) {
        let state = self.streams.entry(record.stream.clone()).or_default();
        if record.previous == 0 {
            // The first entry of its stream. Earlier entries belong to a removed stream of the same
            // name, whose removal lay in a segment that has been written over.
            *state = StreamState::default();
        }
        state.trim(record.trimmed);
        state.last = state.last.max(record.id);
        if record.id > state.trimmed {
            state.entries.insert(record.id, location);
        }
    }

    fn checkpoint(&mut self, payload: &[u8]) {
        let Some(marks) = decode_checkpoint(payload) else { return };
        self.streams.retain(|name, _| marks.iter().any(|mark| mark.stream == *name));
        for mark in marks {
            let state = self.streams.entry(mark.stream).or_default();
            state.trim(mark.trimmed);
            // A checkpoint knows all entries that were durable before it. Later ids belong to a
            // removed stream, as above.
            drop(state.entries.split_off(&mark.last.saturating_add(1)));
            state.last = mark.last;
        }
    }

    /// Checks the chains (`journal.entries_chained`), now that all trims are known.
    pub fn finish(mut self) -> BTreeMap<String, StreamState> {
        self.streams.values_mut().for_each(StreamState::check_chain);
        self.streams
    }
}

impl StreamState {
    fn check_chain(&mut self) {
        let mut before = self.trimmed;
        for (id, location) in &self.entries {
            if location.previous > before {
                self.damage = Some(format!("entries after {before} and before {id} are lost"));
                return;
            }
            before = *id;
        }
        if self.last > before {
            self.damage = Some(format!("entries {} to {} are lost", before + 1, self.last));
        }
    }

    pub fn trim(&mut self, through: u64) {
        if through > self.trimmed {
            self.trimmed = through;
            self.entries = self.entries.split_off(&through.saturating_add(1));
        }
    }
}
