//! Segment objects: records of many files packed together, and an index from which they can be read
//! back.
//!
//! ```text
//! header (64) | record | record | ... | index entry (64) * records | footer (48)
//! ```
//!
//! - `segment.written_once`: an object is written once, whole, and never changed. Its number is
//!   never used again.
//! - `segment.place_in_checksum`: the checksum of a record is seeded with segment and position, so
//!   a stale or misdirected block does not pass.
//! - `segment.index_rebuilds_files`: the index says for every record which bytes of which inode it
//!   was written for, and in which order. With the segments alone the newest content of every file
//!   can be put together again. Garbage collection keeps `order`.
//!
//! Integers are big-endian, as in keys.

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::checksum::{checksum, checksum_slices, seed};
use object_store::path::Path;

use super::extents::{Codec, RecordRef, SegmentId, WINDOW_BYTES};
use crate::types::Ino;

pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const MAGIC: [u8; 8] = *b"LARDRSEG";
const FOOTER_MAGIC: [u8; 8] = *b"LARDRIDX";
const VERSION: u16 = 1;
pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_BYTES: usize = 64;
pub(crate) const FOOTER_BYTES: usize = 48;
/// Records of one segment: a bound for readers of an index (64 MiB of 64-byte records).
pub(crate) const RECORDS_MAX: u32 = 1 << 20;

pub(crate) fn object_path(prefix: &Path, segment: SegmentId) -> Path {
    prefix.clone().join("seg").join(format!("{:016x}", segment.0))
}

/// The number in an object's name, if it is a segment's.
pub(crate) fn segment_of(path: &Path) -> Option<SegmentId> {
    let name = path.filename().filter(|name| name.len() == 16)?;
    u64::from_str_radix(name, 16).ok().map(SegmentId)
}

/// The seed of the checksum of what lies at `position` of `segment` (`segment.place_in_checksum`).
pub(crate) fn place_seed(segment: SegmentId, position: u32) -> u64 {
    seed(&segment.0.to_be_bytes(), u64::from(position))
}

/// One entry of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) ino: Ino,
    pub(crate) generation: u64,
    pub(crate) offset: u64,
    /// The segment in which these bytes were first written: later is newer
    /// (`segment.index_rebuilds_files`).
    pub(crate) order: u64,
    /// The snapshot epoch in which they were first written.
    pub(crate) birth: u64,
    pub(crate) record: RecordRef,
}

/// Gathers records; nothing is copied.
pub(crate) struct Builder {
    id: SegmentId,
    birth: u64,
    parts: Vec<Bytes>,
    position: u32,
    index: BytesMut,
    records: u32,
}

impl Builder {
    pub(crate) fn new(id: SegmentId, birth: u64) -> Self {
        let mut header = BytesMut::with_capacity(HEADER_BYTES);
        header.put_slice(&MAGIC);
        header.put_u16(VERSION);
        header.put_u16(0);
        header.put_u32(0);
        header.put_u64(id.0);
        header.put_u64(birth);
        header.put_bytes(0, HEADER_BYTES - 8 - header.len());
        let sum = checksum(place_seed(id, 0), &header);
        header.put_u64(sum);
        Self {
            id,
            birth,
            parts: vec![header.freeze()],
            position: HEADER_BYTES as u32,
            index: BytesMut::new(),
            records: 0,
        }
    }

    /// The epoch in which it is built.
    pub(crate) fn epoch(&self) -> u64 {
        self.birth
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Bytes of records so far.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.position)
    }

    /// Adds a record of `raw_len` bytes whose stored form is `chunks`.
    pub(crate) fn push(
        &mut self,
        owner: (Ino, u64, u64),
        (order, birth): (u64, u64),
        codec: Codec,
        raw_len: u32,
        chunks: &[Bytes],
    ) -> RecordRef {
        let position = self.position;
        let stored_len: usize = chunks.iter().map(Bytes::len).sum();
        assert!(stored_len > 0 && stored_len <= raw_len as usize, "a record is stored only where that saves bytes");
        assert!(u64::from(raw_len) <= WINDOW_BYTES, "`extents.one_window`: no record is longer than a window");
        assert!(u64::from(position) + stored_len as u64 <= u64::from(u32::MAX), "positions in a segment have 32 bits");
        let record = RecordRef {
            segment: self.id,
            position,
            stored_len: stored_len as u32,
            raw_len,
            codec,
            checksum: checksum_chunks(place_seed(self.id, position), chunks),
        };
        self.parts.extend(chunks.iter().cloned());
        self.position += stored_len as u32;
        self.records += 1;
        let (ino, generation, offset) = owner;
        put_entry(&mut self.index, &IndexEntry { ino, generation, offset, order, birth, record });
        record
    }

    /// The object, in parts, and its length.
    pub(crate) fn finish(mut self) -> (Vec<Bytes>, u64) {
        let index = self.index.freeze();
        let mut footer = BytesMut::with_capacity(FOOTER_BYTES);
        footer.put_slice(&FOOTER_MAGIC);
        footer.put_u64(self.id.0);
        footer.put_u32(self.records);
        footer.put_u32(self.position);
        footer.put_u64(checksum(place_seed(self.id, self.position), &index));
        footer.put_u64(0);
        let sum = checksum(place_seed(self.id, u32::MAX), &footer);
        footer.put_u64(sum);
        let len = u64::from(self.position) + index.len() as u64 + footer.len() as u64;
        if !index.is_empty() {
            self.parts.push(index);
        }
        self.parts.push(footer.freeze());
        (self.parts, len)
    }
}

pub(crate) fn checksum_chunks(seed: u64, chunks: &[Bytes]) -> u64 {
    checksum_slices(seed, chunks.iter().map(|chunk| &chunk[..]))
}

fn put_entry(out: &mut BytesMut, entry: &IndexEntry) {
    out.put_u64(entry.ino.0);
    out.put_u64(entry.generation);
    out.put_u64(entry.offset);
    out.put_u64(entry.order);
    out.put_u64(entry.birth);
    out.put_u32(entry.record.position);
    out.put_u32(entry.record.stored_len);
    // Raw lengths are at most 2^20: the codec fits above.
    out.put_u32(u32::from(entry.record.codec as u8) << 24 | entry.record.raw_len);
    out.put_u32(0);
    out.put_u64(entry.record.checksum);
}

const _: () = assert!(WINDOW_BYTES < 1 << 24);

/// The content of the footer: where the index lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) records: u32,
    pub(crate) index_at: u32,
    checksum: u64,
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

fn be_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// Reads the last [`FOOTER_BYTES`] of an object of `object_len` bytes.
pub(crate) fn parse_footer(id: SegmentId, footer: &[u8], object_len: u64) -> Result<Footer, &'static str> {
    let (body, sum) = footer.split_at_checked(FOOTER_BYTES - 8).ok_or("the footer is cut short")?;
    if body.first_chunk() != Some(&FOOTER_MAGIC) {
        return Err("the footer has no magic");
    }
    if be_u64(sum, 0) != Some(checksum(place_seed(id, u32::MAX), body)) || be_u64(body, 8) != Some(id.0) {
        return Err("the footer's checksum is wrong");
    }
    let read = || Some(Footer { records: be_u32(body, 16)?, index_at: be_u32(body, 20)?, checksum: be_u64(body, 24)? });
    let footer = read().ok_or("the footer is cut short")?;
    let index = u64::from(footer.records) * ENTRY_BYTES as u64;
    if footer.records > RECORDS_MAX || u64::from(footer.index_at) + index + FOOTER_BYTES as u64 != object_len {
        return Err("the footer does not fit the object");
    }
    Ok(footer)
}

/// The records of a segment, verified against its footer.
pub(crate) fn parse_index(id: SegmentId, footer: &Footer, index: &[u8]) -> Result<Vec<IndexEntry>, &'static str> {
    if checksum(place_seed(id, footer.index_at), index) != footer.checksum {
        return Err("the index's checksum is wrong");
    }
    let (entries, rest) = index.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() || entries.len() != footer.records as usize {
        return Err("the index has a wrong length");
    }
    entries.iter().map(|entry| parse_entry(id, entry).ok_or("an index entry is impossible")).collect()
}

fn parse_entry(id: SegmentId, entry: &[u8; ENTRY_BYTES]) -> Option<IndexEntry> {
    let lengths = be_u32(entry, 48)?;
    let record = RecordRef {
        segment: id,
        position: be_u32(entry, 40)?,
        stored_len: be_u32(entry, 44)?,
        raw_len: lengths & 0xFF_FFFF,
        codec: Codec::from_u8((lengths >> 24) as u8)?,
        checksum: be_u64(entry, 56)?,
    };
    let offset = be_u64(entry, 16)?;
    offset.checked_add(u64::from(record.raw_len))?;
    (u64::from(record.raw_len) <= WINDOW_BYTES).then_some(())?;
    Some(IndexEntry {
        ino: Ino(be_u64(entry, 0)?),
        generation: be_u64(entry, 8)?,
        offset,
        order: be_u64(entry, 24)?,
        birth: be_u64(entry, 32)?,
        record,
    })
}

/// Checks the header: the object is a segment, and this one.
pub(crate) fn verify_header(id: SegmentId, header: &[u8]) -> Result<(), &'static str> {
    let (body, sum) = header.split_at_checked(HEADER_BYTES - 8).ok_or("the header is cut short")?;
    if body.first_chunk() != Some(&MAGIC) {
        return Err("the header has no magic");
    }
    if be_u64(sum, 0) != Some(checksum(place_seed(id, 0), body)) || be_u64(body, 16) != Some(id.0) {
        return Err("the header's checksum is wrong");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sample() -> (Vec<u8>, Vec<RecordRef>) {
        let mut builder = Builder::new(SegmentId(0x2A), 1);
        let parts = [Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
        let refs = vec![
            builder.push((Ino(7), 9, 131_072), (0x2A, 1), Codec::Raw, 11, &parts),
            builder.push((Ino(8), 1, 0), (3, 1), Codec::Lz4, 4096, &[Bytes::from_static(b"packed")]),
        ];
        let (parts, len) = builder.finish();
        let object = parts.concat();
        assert_eq!(object.len() as u64, len);
        (object, refs)
    }

    #[test]
    fn golden_object() {
        let (object, _) = sample();
        assert_eq!(object.len(), 64 + 17 + 2 * 64 + 48);
        assert_eq!(&object[..8], b"LARDRSEG");
        assert_eq!(&object[64..81], b"hello worldpacked");
        // Any change of the format changes this number: then raise VERSION.
        assert_eq!(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&object)), GOLDEN);
    }
    const GOLDEN: &str = "7c6eac3381a63f33";

    #[test]
    fn the_index_reads_back_and_every_flipped_bit_is_found() {
        let (object, refs) = sample();
        let read = |object: &[u8]| {
            let id = SegmentId(0x2A);
            verify_header(id, &object[..HEADER_BYTES])?;
            let footer = parse_footer(id, &object[object.len() - FOOTER_BYTES..], object.len() as u64)?;
            parse_index(id, &footer, &object[footer.index_at as usize..object.len() - FOOTER_BYTES])
        };
        let index = read(&object).unwrap();
        assert_eq!(index.iter().map(|entry| entry.record).collect::<Vec<_>>(), refs);
        assert_eq!((index[1].ino, index[1].order, index[0].offset), (Ino(8), 3, 131_072));
        for at in (0..64).chain(81..object.len()) {
            let mut damaged = object.clone();
            damaged[at] ^= 0x10;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }
}
