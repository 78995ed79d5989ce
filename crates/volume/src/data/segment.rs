//! Segment objects: records of many files packed together, and an index from which they can be read
//! back.
//!
//! ```text
//! header (64) | record | record | ... | index entry (64) * records | tables of pieces | footer (48)
//! ```
//!
//! - `segment.written_once`: an object is written once, whole, and never changed. Its number is
//!   never used again.
//! - `segment.numbers_of_an_opening`: where other machines can reach the store, each opening takes a block of 2^32 numbers and says
//!   so durably, before its first segment. The log makes openings follow each other (`LogStore::is_shared`), so no two have the same
//!   numbers: what an earlier owner writes or deletes late is its own.
//! - `segment.place_in_checksum`: the checksum of a record is seeded with segment and position, so
//!   a stale or misdirected block does not pass.
//! - `segment.index_rebuilds_files`: the index says for every record which bytes of which inode it
//!   was written for, and in which order. With the segments alone the newest content of every file
//!   can be put together again. Garbage collection keeps `order`.
//! - `segment.pieces_on_blocks`: records that are not packed begin on multiples of a piece, as far
//!   as that costs [`PADDING_DIVISOR`] of the segment at most. A pool that checks blocks of this
//!   length then reads one block for one piece.
//!
//! Integers are big-endian, as in keys.

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::checksum::checksum;
use larder_fs::Ino;
use object_store::path::Path;

use super::pieces::{Codec, Frames, RAW_LOG2, RecordRef, Sums};
pub(crate) use super::place::place_seed;
use super::place::{SegmentId, WINDOW_BYTES};

pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const MAGIC: [u8; 8] = *b"LARDRSEG";
const FOOTER_MAGIC: [u8; 8] = *b"LARDRIDX";
/// The first one knew no tables of pieces.
const VERSION_FIRST: u16 = 1;
const VERSION: u16 = 2;
/// See `segment.pieces_on_blocks`.
const PADDING_DIVISOR: u64 = 64;
static PADDING: [u8; 1 << RAW_LOG2] = [0; 1 << RAW_LOG2];
/// The longest table: of a record of a whole window, raw.
const TABLE_BYTES_MAX: usize = 1 + (WINDOW_BYTES as usize >> RAW_LOG2) * 10;
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
    padding: u32,
    index: BytesMut,
    tables: BytesMut,
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
            padding: 0,
            index: BytesMut::new(),
            tables: BytesMut::new(),
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

    /// Adds a record of `raw_len` bytes whose stored form is `chunks`, packed in `frames`.
    pub(crate) fn push(
        &mut self,
        owner: (Ino, u64, u64),
        (order, birth): (u64, u64),
        (codec, frames): (Codec, Option<&Frames>),
        raw_len: u32,
        chunks: &[Bytes],
    ) -> RecordRef {
        if codec == Codec::Raw && raw_len > 1 << RAW_LOG2 {
            self.pad(raw_len);
        }
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
            sums: Sums::of((self.id, position), (codec, raw_len), frames, chunks),
        };
        if let Sums::Pieces(table) = &record.sums {
            self.tables.put_slice(table);
        }
        self.parts.extend(chunks.iter().cloned());
        self.position += stored_len as u32;
        self.records += 1;
        let (ino, generation, offset) = owner;
        put_entry(&mut self.index, &IndexEntry { ino, generation, offset, order, birth, record: record.clone() });
        record
    }

    /// `segment.pieces_on_blocks`, for a record of `len` bytes.
    fn pad(&mut self, len: u32) {
        let padding = self.position.next_multiple_of(1 << RAW_LOG2) - self.position;
        let all = u64::from(self.padding) + u64::from(padding);
        if padding > 0 && all * PADDING_DIVISOR <= u64::from(self.position) + u64::from(len) {
            self.parts.push(Bytes::from_static(&PADDING[..padding as usize]));
            self.position += padding;
            self.padding += padding;
        }
    }

    /// The object, in parts, and its length.
    pub(crate) fn finish(mut self) -> (Vec<Bytes>, u64) {
        let tables_bytes = self.tables.len();
        self.index.extend_from_slice(&self.tables);
        let index = self.index.freeze();
        let mut footer = BytesMut::with_capacity(FOOTER_BYTES);
        footer.put_slice(&FOOTER_MAGIC);
        footer.put_u64(self.id.0);
        footer.put_u32(self.records);
        footer.put_u32(self.position);
        footer.put_u64(checksum(place_seed(self.id, self.position), &index));
        footer.put_u32(tables_bytes as u32);
        footer.put_u32(0);
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
    let (table_bytes, sum) = match &entry.record.sums {
        Sums::Whole(sum) => (0, *sum),
        Sums::Pieces(table) => (table.len() as u32, 0),
    };
    out.put_u32(table_bytes);
    out.put_u64(sum);
}

const _: () = assert!(WINDOW_BYTES < 1 << 24);

/// The content of the footer: where the index lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) records: u32,
    pub(crate) index_at: u32,
    tables_bytes: u32,
    checksum: u64,
}

impl Footer {
    /// The length of the index: entries and tables.
    pub(crate) fn index_bytes(&self) -> u64 {
        u64::from(self.records) * ENTRY_BYTES as u64 + u64::from(self.tables_bytes)
    }
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
    let read = || {
        let (records, index_at, checksum) = (be_u32(body, 16)?, be_u32(body, 20)?, be_u64(body, 24)?);
        Some(Footer { records, index_at, tables_bytes: be_u32(body, 32)?, checksum })
    };
    let footer = read().ok_or("the footer is cut short")?;
    let too_long = u64::from(footer.tables_bytes) > u64::from(footer.records) * TABLE_BYTES_MAX as u64;
    if footer.records > RECORDS_MAX
        || too_long
        || u64::from(footer.index_at) + footer.index_bytes() + FOOTER_BYTES as u64 != object_len
    {
        return Err("the footer does not fit the object");
    }
    Ok(footer)
}

/// The records of a segment, verified against its footer.
pub(crate) fn parse_index(id: SegmentId, footer: &Footer, index: &[u8]) -> Result<Vec<IndexEntry>, &'static str> {
    if checksum(place_seed(id, footer.index_at), index) != footer.checksum {
        return Err("the index's checksum is wrong");
    }
    let split = index.split_at_checked(footer.records as usize * ENTRY_BYTES).ok_or("the index has a wrong length")?;
    let (entries, mut tables) = (split.0.as_chunks::<ENTRY_BYTES>().0, split.1);
    let parse = |entry| parse_entry(id, entry, &mut tables).ok_or("an index entry is impossible");
    let parsed: Result<Vec<_>, _> = entries.iter().map(parse).collect();
    if tables.is_empty() { parsed } else { parsed.and(Err("the tables of pieces have a wrong length")) }
}

/// Takes the record's table from the front of `tables`.
fn parse_entry(id: SegmentId, entry: &[u8; ENTRY_BYTES], tables: &mut &[u8]) -> Option<IndexEntry> {
    let lengths = be_u32(entry, 48)?;
    let (stored_len, raw_len) = (be_u32(entry, 44)?, lengths & 0xFF_FFFF);
    let codec = Codec::from_u8((lengths >> 24) as u8)?;
    let sums = match be_u32(entry, 52)? as usize {
        0 => Sums::Whole(be_u64(entry, 56)?),
        bytes => {
            let table;
            (table, *tables) = tables.split_at_checked(bytes)?;
            Sums::from_table(table, codec, stored_len, raw_len)?
        }
    };
    let record = RecordRef { segment: id, position: be_u32(entry, 40)?, stored_len, raw_len, codec, sums };
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
    match body.get(8..).unwrap_or_default().first_chunk().map(|version| u16::from_be_bytes(*version)) {
        Some(VERSION_FIRST | VERSION) => Ok(()),
        _ => Err("the version is unknown"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Two records of one piece, one packed in two frames, and a raw one of two pieces.
    fn sample() -> (Vec<u8>, Vec<RecordRef>) {
        let mut builder = Builder::new(SegmentId(0x2A), 1);
        let parts = [Bytes::from_static(b"hello "), Bytes::from_static(b"world")];
        let frames = Frames { log2: 14, lens: vec![4, 3] };
        let raw: Bytes = vec![0x5a; 10_000].into();
        let refs = vec![
            builder.push((Ino(7), 9, 131_072), (0x2A, 1), (Codec::Raw, None), 11, &parts),
            builder.push((Ino(8), 1, 0), (3, 1), (Codec::Lz4, None), 4096, &[Bytes::from_static(b"packed")]),
            builder.push(
                (Ino(9), 1, 0),
                (3, 1),
                (Codec::Lz4, Some(&frames)),
                20_000,
                &[Bytes::from_static(b"pack ed")],
            ),
            builder.push((Ino(9), 1, 32_768), (3, 1), (Codec::Raw, None), 10_000, &[raw]),
        ];
        let (parts, len) = builder.finish();
        let object = parts.concat();
        assert_eq!(object.len() as u64, len);
        (object, refs)
    }

    #[test]
    fn golden_object() {
        let (object, _) = sample();
        assert_eq!(object.len(), 64 + 24 + 10_000 + 4 * 64 + (1 + 2 * 10) + (1 + 2 * 8) + 48);
        assert_eq!(&object[..10], b"LARDRSEG\0\x02");
        assert_eq!(&object[64..88], b"hello worldpackedpack ed");
        // Any change of the format changes this number: then raise VERSION.
        assert_eq!(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&object)), GOLDEN);
    }
    const GOLDEN: &str = "95938fd42faf7eca";

    /// As the first programs wrote it: no table, no version 2.
    #[test]
    fn an_index_without_tables_is_read() {
        let id = SegmentId(0x2A);
        let mut builder = Builder::new(id, 1);
        let record = builder.push((Ino(7), 9, 0), (1, 1), (Codec::Raw, None), 5, &[Bytes::from_static(b"hello")]);
        let mut object = builder.finish().0.concat();
        object[9] = 1;
        let sum = checksum(place_seed(id, 0), &object[..HEADER_BYTES - 8]);
        object[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&object).unwrap()[0].record, record);
        object[9] = 3;
        let sum = checksum(place_seed(id, 0), &object[..HEADER_BYTES - 8]);
        object[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&object), Err("the version is unknown"));
    }

    #[test]
    fn raw_records_come_to_lie_on_blocks() {
        let mut builder = Builder::new(SegmentId(1), 1);
        let raw: Bytes = vec![7; 131_072].into();
        let mut push =
            |n: u64| builder.push((Ino(7), 1, n), (1, 1), (Codec::Raw, None), 131_072, std::slice::from_ref(&raw));
        let positions: Vec<u32> = (0..64).map(|n| push(n).position).collect();
        let aligned = positions.iter().filter(|at| at.is_multiple_of(1 << RAW_LOG2)).count();
        assert!(aligned >= 60, "{positions:?}");
        let (_, len) = builder.finish();
        assert!(len < 64 * 131_072 + 64 * (64 + 129) + 8192 + 112);
    }

    fn read(object: &[u8]) -> Result<Vec<IndexEntry>, &'static str> {
        let id = SegmentId(0x2A);
        verify_header(id, &object[..HEADER_BYTES])?;
        let footer = parse_footer(id, &object[object.len() - FOOTER_BYTES..], object.len() as u64)?;
        parse_index(id, &footer, &object[footer.index_at as usize..object.len() - FOOTER_BYTES])
    }

    #[test]
    fn the_index_reads_back_and_every_flipped_bit_is_found() {
        let (object, refs) = sample();
        let index = read(&object).unwrap();
        assert_eq!(index.iter().map(|entry| entry.record.clone()).collect::<Vec<_>>(), refs);
        assert_eq!((index[1].ino, index[1].order, index[0].offset), (Ino(8), 3, 131_072));
        for at in (0..64).chain(10_088..object.len()) {
            let mut damaged = object.clone();
            damaged[at] ^= 0x10;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }
}
