//! Bytes of the journal: segments of batches of records. Pure; FORMAT.md has the diagrams.

use larder_base::checksum::checksum;
use uuid::Uuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::object::shard::Reader;

pub const SEGMENT_MAGIC: [u8; 8] = *b"LARDJRNL";
pub const BATCH_MAGIC: [u8; 8] = *b"LARDBTCH";
pub const FORMAT_VERSION: u32 = 1;
/// Batches start on this boundary, so that no acknowledged sector is written again
/// (`journal.sectors_written_once`).
pub const ALIGN_BYTES: u64 = 4096;
pub const BATCH_HEADER_BYTES: usize = 48;
pub const RECORD_HEADER_BYTES: usize = 56;
pub const STREAM_NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Entry = 1,
    /// The trims and removals so far; the first record of each segment.
    Checkpoint = 2,
    /// The stream and its entries so far are removed.
    Remove = 3,
}

/// Head of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub sequence: u64,
    pub bytes: u64,
    /// The number in the file's name, so that a header that a disk misdirected into another file is
    /// not believed. `None` where it was not written.
    pub file: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub batch: u64,
    /// Header and records, without the padding behind.
    pub bytes: u64,
    pub records: u32,
    /// `journal.records_of_one_batch`; 0 in batches of older programs.
    pub binding: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub kind: Kind,
    pub stream: String,
    pub id: u64,
    /// The stream's entry before this one, 0 for none: a gap in the chain is damage
    /// (`journal.entries_chained`).
    pub previous: u64,
    /// The last entry that the stream had trimmed when this was written.
    pub trimmed: u64,
    pub payload_bytes: u32,
    pub payload_checksum: u64,
    /// That of its batch (`journal.records_of_one_batch`).
    pub binding: u64,
}

/// The binding of a batch's records to their batch: a digest of its number and of all that they say, so that another batch
/// at the same place has another one, even with the same number (`journal.records_of_one_batch`). Never 0.
pub fn binding(batch: u64, records: &[RecordHeader]) -> u64 {
    let mut digest = Xxh3::with_seed(batch);
    for record in records {
        digest.update(&[record.kind as u8, record.stream.len() as u8]);
        for number in [record.id, record.previous, record.trimmed, record.payload_bytes.into(), record.payload_checksum]
        {
            digest.update(&number.to_le_bytes());
        }
        digest.update(record.stream.as_bytes());
    }
    digest.digest().max(1)
}

/// Binds checksums to the pool and to one life of a segment: bytes that an earlier life left in the
/// same file never pass.
pub fn segment_seed(pool: Uuid, sequence: u64) -> u64 {
    let mut id = [0u8; 24];
    id[..16].copy_from_slice(pool.as_bytes());
    id[16..].copy_from_slice(&sequence.to_le_bytes());
    xxh3_64(&id)
}

fn sealed(mut bytes: Vec<u8>, seed: u64) -> Vec<u8> {
    let sum = checksum(seed, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The part before the checksum, if that is right.
fn unseal(bytes: &[u8], seed: u64) -> Option<Reader<'_>> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    (checksum(seed, body).to_le_bytes() == sum).then_some(Reader(body))
}

impl SegmentHeader {
    pub const BYTES: usize = 56;

    pub fn encode(&self, pool: Uuid) -> Vec<u8> {
        let mut out = SEGMENT_MAGIC.to_vec();
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.file.map_or(0, |file| file.saturating_add(1)).to_le_bytes());
        out.extend_from_slice(pool.as_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        sealed(out, 0)
    }

    pub fn decode(bytes: &[u8], pool: Uuid) -> Option<Self> {
        let mut reader = unseal(bytes.get(..Self::BYTES)?, 0)?;
        let known = reader.take(8)? == SEGMENT_MAGIC && reader.u32()? == FORMAT_VERSION;
        let file = reader.u32()?.checked_sub(1);
        let ours = known && reader.take(16)? == pool.as_bytes();
        let header = Self { sequence: reader.u64()?, bytes: reader.u64()?, file };
        ours.then_some(header)
    }

    /// As `decode`, of the segment file with this number.
    pub fn decode_in(bytes: &[u8], pool: Uuid, file: u32) -> Option<Self> {
        Self::decode(bytes, pool).filter(|header| header.file.is_none_or(|own| own == file))
    }
}

impl BatchHeader {
    /// `seed` is the segment's, `offset` where the batch starts.
    pub fn encode(&self, seed: u64, offset: u64) -> Vec<u8> {
        let mut out = BATCH_MAGIC.to_vec();
        out.extend_from_slice(&self.batch.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.binding.to_le_bytes());
        assert_eq!(out.len(), BATCH_HEADER_BYTES - 8, "the header has room for its fields and its checksum");
        sealed(out, seed ^ offset)
    }

    pub fn decode(bytes: &[u8], seed: u64, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        // Cheap first: the search for batches behind damage comes by here often.
        if bytes.get(..8)? != BATCH_MAGIC {
            return None;
        }
        let mut reader = unseal(bytes, seed ^ offset)?;
        reader.take(8)?;
        let (batch, bytes, records) = (reader.u64()?, reader.u64()?, reader.u32()?);
        reader.u32()?;
        Some(Self { batch, bytes, records, binding: reader.u64()? })
    }
}

impl RecordHeader {
    /// Header, stream name, padding to 8 bytes.
    pub fn head_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.stream.len().next_multiple_of(8)
    }

    /// All of the record.
    pub fn bytes(&self) -> usize {
        self.head_bytes() + (self.payload_bytes as usize).next_multiple_of(8)
    }

    pub fn encode(&self, seed: u64, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head_bytes());
        out.extend_from_slice(&[self.kind as u8, self.stream.len() as u8, 0, 0]);
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        for number in [self.id, self.previous, self.trimmed, self.payload_checksum, self.binding] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.stream.as_bytes());
        assert!(self.stream.len() <= usize::from(u8::MAX), "the length of a stream's name is one byte");
        assert!(out.len() + 8 <= self.head_bytes(), "the header has room for its fields and its checksum");
        out.resize(self.head_bytes() - 8, 0);
        sealed(out, seed ^ offset)
    }

    pub fn decode(bytes: &[u8], seed: u64, offset: u64) -> Option<Self> {
        let name_bytes = usize::from(*bytes.get(1)?);
        let head = RECORD_HEADER_BYTES + name_bytes.next_multiple_of(8);
        let mut reader = unseal(bytes.get(..head)?, seed ^ offset)?;
        let kind = match reader.take(4)?.first()? {
            1 => Kind::Entry,
            2 => Kind::Checkpoint,
            3 => Kind::Remove,
            _ => return None,
        };
        let payload_bytes = reader.u32()?;
        let (id, previous, trimmed, payload_checksum) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let binding = reader.u64()?;
        let stream = reader.text(name_bytes)?;
        Some(Self { kind, stream, id, previous, trimmed, payload_bytes, payload_checksum, binding })
    }
}

/// The state of one stream in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamMark {
    pub stream: String,
    pub last: u64,
    pub trimmed: u64,
}

pub fn encode_checkpoint(marks: &[StreamMark]) -> Vec<u8> {
    let mut out = (marks.len() as u32).to_le_bytes().to_vec();
    for mark in marks {
        out.extend_from_slice(&(mark.stream.len() as u32).to_le_bytes());
        out.extend_from_slice(mark.stream.as_bytes());
        out.extend_from_slice(&mark.last.to_le_bytes());
        out.extend_from_slice(&mark.trimmed.to_le_bytes());
    }
    out
}

pub fn decode_checkpoint(bytes: &[u8]) -> Option<Vec<StreamMark>> {
    let mut reader = Reader(bytes);
    let count = reader.u32()?;
    let mut marks = Vec::new();
    for _ in 0..count {
        let length = reader.u32()? as usize;
        marks.push(StreamMark { stream: reader.text(length)?, last: reader.u64()?, trimmed: reader.u64()? });
    }
    Some(marks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn headers_round_trip_and_notice_damage() {
        let pool = Uuid::from_u128(1);
        let segment = SegmentHeader { sequence: 5, bytes: 1 << 20, file: None };
        let batch = BatchHeader { batch: 9, bytes: 300, records: 2, binding: 0 };
        let record = RecordHeader {
            kind: Kind::Entry,
            stream: "wal".into(),
            id: 4,
            previous: 3,
            trimmed: 1,
            payload_bytes: 10,
            payload_checksum: 77,
            binding: 0,
        };
        let seed = segment_seed(pool, 5);
        let (a, b, c) = (segment.encode(pool), batch.encode(seed, 4096), record.encode(seed, 4144));
        assert_eq!((a.len(), b.len(), c.len()), (SegmentHeader::BYTES, BATCH_HEADER_BYTES, record.head_bytes()));
        // Any change of the format changes this number: then raise FORMAT_VERSION.
        assert_eq!(format!("{:016x}", xxh3_64(&[&a[..], &b, &c].concat())), "1d717fd528dd1005", "golden");
        assert!(hex(&a).starts_with("4c4152444a524e4c0100000000000000"), "golden");
        assert!(hex(&b).starts_with("4c4152444254434809000000000000002c0100000000000002000000"), "golden");
        assert!(hex(&c).starts_with("010300000a000000040000000000000003000000000000000100000000000000"), "golden");
        assert_eq!(SegmentHeader::decode(&a, pool), Some(segment));
        let named = SegmentHeader { file: Some(7), ..segment }.encode(pool);
        assert_eq!(hex(&named[12..16]), "08000000");
        assert_eq!(SegmentHeader::decode_in(&a, pool, 7), Some(segment), "one from before files were named");
        assert!(SegmentHeader::decode_in(&named, pool, 7).is_some());
        assert_eq!(SegmentHeader::decode_in(&named, pool, 8), None, "a disk put it into another file");
        assert_eq!(BatchHeader::decode(&b, seed, 4096), Some(batch));
        assert_eq!(RecordHeader::decode(&c, seed, 4144), Some(record.clone()));
        // Older programs left 0 in place of the binding, and do not look at it.
        assert_eq!((&b[32..40], &c[40..48]), (&[0; 8][..], &[0; 8][..]), "golden");
        let bound = binding(9, std::slice::from_ref(&record));
        assert_eq!(format!("{bound:016x}"), "8af7983931a5c0ec", "golden");
        let (b2, c2) = (BatchHeader { binding: bound, ..batch }, RecordHeader { binding: bound, ..record });
        assert_eq!(b2.encode(seed, 4096)[32..40], bound.to_le_bytes(), "golden");
        assert_eq!(c2.encode(seed, 4144)[40..48], bound.to_le_bytes(), "golden");
        assert_eq!(BatchHeader::decode(&b2.encode(seed, 4096), seed, 4096), Some(b2));
        assert_eq!(RecordHeader::decode(&c2.encode(seed, 4144), seed, 4144), Some(c2.clone()));
        assert_ne!(binding(9, &[RecordHeader { payload_checksum: 78, ..c2.clone() }]), bound);
        assert_ne!(binding(10, &[c2]), bound);
        assert_eq!(BatchHeader::decode(&b, segment_seed(pool, 6), 4096), None, "another life of the segment");
        assert_eq!(BatchHeader::decode(&b, seed, 8192), None, "another place");
        for at in 0..c.len() {
            let mut bad = c.clone();
            bad[at] ^= 4;
            assert_eq!(RecordHeader::decode(&bad, seed, 4144), None);
            assert_eq!(RecordHeader::decode(&c[..at], seed, 4144), None);
        }
        let marks = vec![StreamMark { stream: "wal".into(), last: 4, trimmed: 2 }];
        assert_eq!(hex(&encode_checkpoint(&marks)), "010000000300000077616c04000000000000000200000000000000", "golden");
        assert_eq!(decode_checkpoint(&encode_checkpoint(&marks)), Some(marks));
    }
}
