//! Records, and the pieces by which they are verified and packed.
//!
//! - `pieces.read_alone`: where a record has several pieces, the checksum of each (and its stored
//!   length, if it is packed) stands beside the record's place. A reader of a few bytes fetches,
//!   verifies and unpacks the pieces that hold them, and asks nobody first.
//! - `pieces.one_is_whole`: a record of one piece has one checksum, and so has every record of a
//!   volume from before pieces.
//! - `pieces.place_in_checksum`: the checksum of a piece is seeded with segment and position
//!   (`segment.place_in_checksum`).

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::checksum::{checksum, checksum_slices};

use super::compress::decompress_into;
pub(crate) use super::compress::{Codec, Frames};
use super::memory::{Record, RecordBuffer};
use super::place::{SegmentId, WINDOW_BYTES, place_seed};

/// The pieces of a record that is not packed: as long as a block of a pool.
pub(crate) const RAW_LOG2: u8 = 13;
/// Lengths of packed pieces have 16 bits.
const LOG2_MAX: u8 = 15;

/// A record within a segment object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordRef {
    pub(crate) segment: SegmentId,
    pub(crate) position: u32,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) codec: Codec,
    pub(crate) sums: Sums,
}

/// Checksums of stored bytes, seeded with their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// Of the record (`pieces.one_is_whole`).
    Whole(u64),
    /// Of each piece: a table as it is stored. The first byte says how long pieces are; then for
    /// each piece its stored length (2), if the record is packed, and its checksum (8).
    Pieces(Arc<[u8]>),
}

/// A piece, in bytes from the beginning of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stored: Range<u32>,
    pub(crate) raw: Range<u32>,
    codec: Codec,
    checksum: u64,
}

impl Sums {
    /// Of a record that is stored as `chunks`.
    pub(crate) fn of(
        (segment, position): (SegmentId, u32),
        (codec, raw_len): (Codec, u32),
        frames: Option<&Frames>,
        chunks: &[Bytes],
    ) -> Sums {
        let is_raw = codec == Codec::Raw;
        let log2 = frames.map_or(RAW_LOG2, |frames| frames.log2);
        let is_whole = if is_raw { raw_len <= 1 << RAW_LOG2 } else { frames.is_none() };
        if is_whole {
            let slices = chunks.iter().map(|chunk| &chunk[..]);
            return Sums::Whole(checksum_slices(place_seed(segment, position), slices));
        }
        let count = raw_len.div_ceil(1 << log2) as usize;
        let mut table = BytesMut::with_capacity(1 + count * entry_bytes(codec));
        table.put_u8(log2);
        let mut rest = Cursor::new(chunks);
        let mut at = position;
        for i in 0..count {
            let len = match frames {
                Some(frames) if !is_raw => frames.lens.get(i).copied().map_or(0, usize::from),
                _ => ((raw_len as usize) - (i << log2)).min(1 << log2),
            };
            if !is_raw {
                table.put_u16(len as u16);
            }
            table.put_u64(rest.checksum(place_seed(segment, at), len));
            at += len as u32;
        }
        assert!(rest.is_at_the_end(), "the pieces are the record");
        Sums::Pieces(Arc::from(&table[..]))
    }

    /// The length of the table.
    pub(crate) fn table_bytes(&self) -> u64 {
        match self {
            Sums::Whole(_) => 0,
            Sums::Pieces(table) => table.len() as u64,
        }
    }

    /// A table as it was stored; `None` if it is not one of this record.
    pub(crate) fn from_table(table: &[u8], codec: Codec, stored_len: u32, raw_len: u32) -> Option<Sums> {
        let (&log2, entries) = table.split_first()?;
        if !(RAW_LOG2..=LOG2_MAX).contains(&log2) || u64::from(raw_len) > WINDOW_BYTES {
            return None;
        }
        let count = raw_len.div_ceil(1 << log2) as usize;
        if count < 2 || entries.len() != count * entry_bytes(codec) || (codec == Codec::Raw && stored_len != raw_len) {
            return None;
        }
        let sums = Sums::Pieces(Arc::from(table));
        let record = RecordRef { segment: SegmentId(0), position: 0, stored_len, raw_len, codec, sums };
        let mut end = 0;
        for piece in record.pieces() {
            let (stored, raw) = (piece.stored.end - piece.stored.start, piece.raw.end - piece.raw.start);
            if stored == 0 || stored > raw {
                return None;
            }
            end = piece.stored.end;
        }
        (end == stored_len).then_some(record.sums)
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sums::Whole(sum) => write!(f, "checksum {sum:016x}"),
            Sums::Pieces(table) => {
                let log2 = table.first().copied().unwrap_or(RAW_LOG2);
                write!(f, "checksums of pieces of {} KiB", 1u32 << log2 >> 10)
            }
        }
    }
}

fn entry_bytes(codec: Codec) -> usize {
    if codec == Codec::Raw { 8 } else { 10 }
}

impl RecordRef {
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.sums, Sums::Pieces(_))
    }

    /// How its bytes fall into pieces, for a record that is stored again as it is.
    pub(crate) fn frames(&self) -> Option<Frames> {
        let Sums::Pieces(table) = &self.sums else { return None };
        let lens = self.pieces().map(|piece| (piece.stored.end - piece.stored.start) as u16).collect();
        Some(Frames { log2: *table.first()?, lens })
    }

    /// All pieces in order; the whole record where it has one checksum.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let (log2, entries, whole) = match &self.sums {
            Sums::Whole(sum) => (31, &[][..], Some(*sum)),
            Sums::Pieces(table) => table.split_first().map_or((31, &[][..], None), |(log2, rest)| (*log2, rest, None)),
        };
        let (codec, raw_len) = (self.codec, self.raw_len);
        let whole = whole.map(|checksum| Piece { stored: 0..self.stored_len, raw: 0..raw_len, codec, checksum });
        let mut stored = 0u32;
        let pieces = entries.chunks_exact(entry_bytes(codec)).zip(0u32..).filter_map(move |(entry, i)| {
            let raw = i << log2..raw_len.min((i + 1) << log2);
            let (sum, len) = match codec {
                Codec::Raw => (entry, raw.end.saturating_sub(raw.start)),
                _ => (entry.get(2..)?, u32::from(u16::from_be_bytes(*entry.first_chunk()?))),
            };
            let begin = stored;
            stored = stored.saturating_add(len);
            let codec = if len == raw.end.saturating_sub(raw.start) { Codec::Raw } else { codec };
            Some(Piece { stored: begin..stored, raw, codec, checksum: u64::from_be_bytes(*sum.first_chunk()?) })
        });
        whole.into_iter().chain(pieces)
    }

    /// The numbers of the pieces that hold `raw` bytes of the record.
    pub(crate) fn pieces_of(&self, raw: Range<u32>) -> Range<u16> {
        match &self.sums {
            Sums::Whole(_) => 0..1,
            Sums::Pieces(table) => {
                let log2 = table.first().copied().unwrap_or(RAW_LOG2);
                (raw.start >> log2) as u16..raw.end.div_ceil(1 << log2) as u16
            }
        }
    }

    /// The whole record, or one piece of it.
    pub(crate) fn part(&self, piece: Option<u16>) -> Part {
        let piece = piece.and_then(|number| Some((number, self.pieces().nth(usize::from(number))?)));
        let stored = piece.as_ref().map_or(0..self.stored_len, |(_, piece)| piece.stored.clone());
        Part { record: self.clone(), piece, stored }
    }

    /// The byte of the segment where the first piece lies that does not pass.
    pub(crate) fn first_damaged(&self, stored: &Bytes) -> Option<u64> {
        let passes = |piece: &Piece| {
            let bytes = stored.get(piece.stored.start as usize..piece.stored.end as usize);
            bytes.is_some_and(|bytes| checksum(self.seed_of(piece), bytes) == piece.checksum)
        };
        let damaged = self.pieces().find(|piece| !passes(piece))?;
        Some(u64::from(self.position) + u64::from(damaged.stored.start))
    }

    fn seed_of(&self, piece: &Piece) -> u64 {
        place_seed(self.segment, self.position.wrapping_add(piece.stored.start))
    }

    /// Verifies and unpacks; `pieces` lie in `stored` one after the other. What is not packed stays
    /// where it lies.
    fn unpack(&self, pieces: &[Piece], stored: &[Bytes]) -> Option<Record> {
        if self.codec == Codec::Raw {
            let mut rest = Cursor::new(stored);
            let length = |piece: &Piece| (piece.stored.end - piece.stored.start) as usize;
            let intact = pieces.iter().all(|piece| {
                length(piece) == (piece.raw.end - piece.raw.start) as usize
                    && rest.checksum(self.seed_of(piece), length(piece)) == piece.checksum
            });
            return (intact && rest.is_at_the_end()).then(|| Record::from_chunks(stored));
        }
        let raw_len: usize = pieces.iter().map(|piece| (piece.raw.end - piece.raw.start) as usize).sum();
        let mut content = RecordBuffer::of(raw_len);
        let mut room = content.bytes_mut();
        let mut rest = Cursor::new(stored);
        let mut gathered = Vec::new();
        for piece in pieces {
            let bytes = rest.take(&mut gathered, (piece.stored.end - piece.stored.start) as usize)?;
            if checksum(self.seed_of(piece), bytes) != piece.checksum {
                return None;
            }
            let (now, later) = std::mem::take(&mut room).split_at_mut((piece.raw.end - piece.raw.start) as usize);
            room = later;
            if !decompress_into(piece.codec, bytes, now) {
                return None;
            }
        }
        Some(Record::One(content.freeze()))
    }
}

/// A whole record or one of its pieces: the unit in which records are fetched and kept.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) record: RecordRef,
    piece: Option<(u16, Piece)>,
    stored: Range<u32>,
}

impl Part {
    /// The piece, or `None` for the whole record.
    pub(crate) fn number(&self) -> Option<u16> {
        self.piece.as_ref().map(|(number, _)| *number)
    }

    /// The same record as a whole.
    pub(crate) fn widened(&self) -> Part {
        self.record.part(None)
    }

    /// Where it lies in the segment.
    pub(crate) fn stored(&self) -> Range<u64> {
        let start = u64::from(self.record.position);
        start + u64::from(self.stored.start)..start + u64::from(self.stored.end)
    }

    /// Its bytes of the record.
    pub(crate) fn raw(&self) -> Range<u32> {
        self.piece.as_ref().map_or(0..self.record.raw_len, |(_, piece)| piece.raw.clone())
    }

    pub(crate) fn raw_len(&self) -> u32 {
        self.raw().end - self.raw().start
    }

    /// Verifies and unpacks. The record may share memory with others, as `stored` does.
    pub(crate) fn unpack(&self, stored: &[Bytes]) -> Option<Record> {
        match &self.piece {
            Some((_, piece)) => self.record.unpack(std::slice::from_ref(piece), stored),
            None => self.record.unpack(&self.record.pieces().collect::<Vec<_>>(), stored),
        }
    }
}

/// The record in `stored`, as a slice where it is not packed.
pub(crate) fn verify_and_unpack(record: &RecordRef, stored: &Bytes) -> Option<Bytes> {
    if stored.len() != record.stored_len as usize || record.first_damaged(stored).is_some() {
        return None;
    }
    if record.codec == Codec::Raw {
        return (stored.len() == record.raw_len as usize).then(|| stored.clone());
    }
    match record.part(None).unpack(std::slice::from_ref(stored))? {
        Record::One(bytes) => Some(bytes),
        Record::Rope(chunks) => Some(chunks.concat().into()),
    }
}

/// Takes bytes from the front of chunks.
struct Cursor<'a> {
    chunks: std::slice::Iter<'a, Bytes>,
    front: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn new(chunks: &'a [Bytes]) -> Self {
        Self { chunks: chunks.iter(), front: &[] }
    }

    /// At most `len` bytes, in one slice; none at the end.
    fn next(&mut self, len: usize) -> &'a [u8] {
        while self.front.is_empty() {
            let Some(chunk) = self.chunks.next() else { return &[] };
            self.front = chunk;
        }
        let (now, later) = self.front.split_at(len.min(self.front.len()));
        self.front = later;
        now
    }

    /// The checksum of the next `len` bytes; of fewer where the chunks end.
    fn checksum(&mut self, seed: u64, len: usize) -> u64 {
        let mut left = len;
        checksum_slices(
            seed,
            std::iter::from_fn(|| {
                let slice = if left == 0 { &[] } else { self.next(left) };
                left -= slice.len();
                (!slice.is_empty()).then_some(slice)
            }),
        )
    }

    /// The next `len` bytes, in `gathered` where they lie in several chunks.
    fn take<'b>(&mut self, gathered: &'b mut Vec<u8>, len: usize) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let first = self.next(len);
        if first.len() == len {
            return Some(first);
        }
        gathered.clear();
        gathered.extend_from_slice(first);
        while gathered.len() < len {
            let more = self.next(len - gathered.len());
            if more.is_empty() {
                return None;
            }
            gathered.extend_from_slice(more);
        }
        Some(gathered)
    }

    fn is_at_the_end(&mut self) -> bool {
        self.next(1).is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::compress::compress;
    use super::*;
    use crate::properties::Compression;

    fn noise(len: usize) -> Vec<u8> {
        let words = (0u64..).flat_map(|i| checksum(7, &i.to_le_bytes()).to_le_bytes());
        words.take(len).collect()
    }

    /// Text, then noise, then text: packed pieces and raw ones in one record.
    fn mixed() -> Bytes {
        let text = b"pantry shelf jar ".repeat(3500);
        [&text[..], &noise(80_000), &text[..40_000]].concat().into()
    }

    fn record(raw: &Bytes, compression: Compression) -> (RecordRef, Bytes) {
        let packed = compress(compression, std::slice::from_ref(raw), raw.len());
        let (codec, stored, frames) =
            packed.map_or((Codec::Raw, raw.clone(), None), |packed| (packed.codec, packed.bytes, packed.frames));
        let (segment, position, raw_len) = (SegmentId(7), 640, raw.len() as u32);
        let cut = stored.len() / 3;
        let chunks = [stored.slice(..cut), stored.slice(cut..cut + 1), stored.slice(cut + 1..)];
        let sums = Sums::of((segment, position), (codec, raw_len), frames.as_ref(), &chunks);
        let stored_len = stored.len() as u32;
        (RecordRef { segment, position, stored_len, raw_len, codec, sums }, stored)
    }

    fn samples() -> Vec<(RecordRef, Bytes, Bytes)> {
        let raws = [mixed(), noise(100_000).into(), noise(5000).into(), b"text ".repeat(2000).into()];
        let all = raws.iter().flat_map(|raw| {
            [Compression::None, Compression::Lz4, Compression::ZSTD].map(|compression| {
                let (record, stored) = record(raw, compression);
                (record, stored, raw.clone())
            })
        });
        all.collect()
    }

    #[test]
    fn each_piece_is_read_alone() {
        let samples = samples();
        assert!(samples.iter().any(|(record, ..)| record.codec == Codec::Lz4 && record.has_pieces()));
        assert!(samples.iter().any(|(record, ..)| record.codec == Codec::Zstd && record.has_pieces()));
        for (record, stored, raw) in samples {
            let cut = stored.len() / 3;
            let chunks = [stored.slice(..cut), stored.slice(cut..cut + 1), stored.slice(cut + 1..)];
            assert_eq!(record.part(None).unpack(&chunks).unwrap().chunks().concat(), raw);
            assert_eq!(verify_and_unpack(&record, &stored).unwrap(), raw);
            let pieces: Vec<Piece> = record.pieces().collect();
            assert_eq!(record.has_pieces(), pieces.len() > 1);
            assert_eq!(pieces.last().unwrap().raw.end, record.raw_len);
            for (number, piece) in (0..).zip(&pieces) {
                let part = record.part(Some(number));
                let place = part.stored();
                let own = stored.slice(place.start as usize - 640..place.end as usize - 640);
                let bytes = part.unpack(&[own.slice(..7), own.slice(7..)]).unwrap().chunks().concat();
                assert_eq!(bytes, raw[piece.raw.start as usize..piece.raw.end as usize]);
                assert_eq!(bytes.len(), part.raw_len() as usize);
                let numbers = record.pieces_of(piece.raw.start..piece.raw.end);
                assert_eq!(numbers, number..number + 1);
            }
        }
    }

    #[test]
    fn a_bit_that_flips_fails_its_piece_and_no_other() {
        for (record, stored, _) in samples() {
            for (hit, piece) in record.pieces().enumerate() {
                let mut bad = stored.to_vec();
                bad[piece.stored.end as usize - 1] ^= 4;
                let bad = Bytes::from(bad);
                assert!(verify_and_unpack(&record, &bad).is_none());
                assert!(record.part(None).unpack(std::slice::from_ref(&bad)).is_none());
                assert_eq!(record.first_damaged(&bad), Some(640 + u64::from(piece.stored.start)));
                for (number, other) in record.pieces().enumerate() {
                    let own = bad.slice(other.stored.start as usize..other.stored.end as usize);
                    assert_eq!(record.part(Some(number as u16)).unpack(&[own]).is_some(), number != hit);
                }
            }
            let short = stored.slice(..stored.len() - 1);
            assert!(record.part(None).unpack(std::slice::from_ref(&short)).is_none());
            assert!(verify_and_unpack(&record, &short).is_none());
        }
    }

    #[test]
    fn a_table_is_one_of_its_record_or_refused() {
        for (record, ..) in samples() {
            let Sums::Pieces(table) = &record.sums else { continue };
            let read = |table: &[u8], stored, raw| Sums::from_table(table, record.codec, stored, raw);
            let (stored, raw) = (record.stored_len, record.raw_len);
            assert_eq!(read(table, stored, raw).as_ref(), Some(&record.sums));
            assert_eq!(read(&table[..table.len() - 1], stored, raw), None);
            assert_eq!(read(table, stored - 1, raw), None);
            assert_eq!(read(table, stored, raw + (1 << 15)), None);
            assert_eq!(read(&[&[16], &table[1..]].concat(), stored, raw), None);
            if record.codec != Codec::Raw {
                assert_eq!(read(&[&table[..1], &[0, 0], &table[3..]].concat(), stored, raw), None);
            }
            let again = record.frames().unwrap();
            assert_eq!(again.lens.iter().map(|len| u32::from(*len)).sum::<u32>(), stored);
        }
    }

    #[test]
    fn golden_tables() {
        let raw: Bytes = noise(20_000).into();
        let (record, _) = record(&raw, Compression::None);
        let Sums::Pieces(table) = &record.sums else { panic!("it has pieces") };
        let hex: String = table.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0d37b52c72f624bb98ca2d89a66824a78a54ace52b38e9aed1");
        let sums = Sums::of(
            (SegmentId(7), 640),
            (Codec::Lz4, 20_000),
            Some(&Frames { log2: 14, lens: vec![6, 5] }),
            &[Bytes::from_static(b"hello world")],
        );
        let Sums::Pieces(table) = &sums else { panic!("it has pieces") };
        let hex: String = table.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0e0006e4b2d955554e96b200050a6ab32612865458");
    }
}
