//! Extents: which bytes of a file lie where. The codec of their keys and values, and one inode's
//! map of them.
//!
//! - `extents.one_window`: extents of a file never overlap, and none crosses a multiple of
//!   [`WINDOW_BYTES`]. So a window can be loaded by itself, and the extent at an offset is found
//!   without looking further back.
//! - `extents.newer_over_older`: an extent stands for `len` bytes from `skip` on of one record.
//!   Overwriting a part of it lays the new extent over it and cuts the old one; nothing is read or
//!   rewritten.
//! - `extents.whole_windows`: the map holds whole windows only (`loaded`). Within them, a range
//!   that is not in the map is a hole.
//! - `extents.live_bytes_by_extent`: the bytes that an extent keeps alive of its segment
//!   ([`Extent::live_bytes`]) are a function of the extent alone, so sums kept by adding and
//!   subtracting stay exact.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use larder_fs::{FILE_BYTES_MAX, FsResult, Ino};

use super::pieces::{Codec, RecordRef, Sums};
pub(crate) use super::place::{SegmentId, WINDOW_BYTES};

use crate::keys::{Reader, damaged, tag};

pub(crate) const EXTENT_TAG: u8 = tag::EXTENT;
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Record(RecordRef),
    /// The content of a tiny file; `skip` and `len` cut it as they cut a record.
    Inline(Bytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) len: u32,
    pub(crate) skip: u32,
    pub(crate) place: Place,
}

impl Extent {
    pub(crate) fn record(&self) -> Option<&RecordRef> {
        match &self.place {
            Place::Record(record) => Some(record),
            Place::Inline(_) => None,
        }
    }

    /// `extents.live_bytes_by_extent`: its share of the stored record, rounded up.
    pub(crate) fn live_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline(_) => 0,
            Place::Record(r) => (u64::from(r.stored_len) * u64::from(self.len)).div_ceil(u64::from(r.raw_len.max(1))),
        }
    }

    /// The bytes of its segment that collection would have to keep for it: as `live_bytes`, of the
    /// record and its table of pieces. A table left out would look like garbage that no rewriting
    /// removes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline(_) => 0,
            Place::Record(r) => {
                let kept = u64::from(r.stored_len) + r.sums.table_bytes();
                (kept * u64::from(self.len)).div_ceil(u64::from(r.raw_len.max(1)))
            }
        }
    }

    /// Bytes that it takes up, as `stat` counts them.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline(bytes) => bytes.len() as u64,
            Place::Record(_) => self.live_bytes(),
        }
    }

    /// `from..to` of it.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Extent {
        assert!(from < to && to <= u64::from(self.len), "a part of an extent lies within it");
        let (from, len) = (from as u32, (to - from) as u32);
        match &self.place {
            Place::Record(_) => Extent { len, skip: self.skip + from, place: self.place.clone() },
            Place::Inline(bytes) => {
                let at = (self.skip + from) as usize;
                Extent { len, skip: 0, place: Place::Inline(bytes.slice(at..at + len as usize)) }
            }
        }
    }
}

// --------------------------------------------------------------------------------------------- codec

const VERSION: u8 = 1;
/// Of a record with pieces: their table follows in place of the checksum.
const VERSION_PIECES: u8 = 2;
const KIND_INLINE: u8 = 0xFF;
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
const _: () = assert!(INLINE_BYTES_MAX < WINDOW_BYTES as usize && WINDOW_BYTES.is_power_of_two());
pub(crate) const EXTENT_KEY_BYTES: usize = 17;
pub(crate) const EXTENT_VALUE_BYTES: usize = 38;

pub(crate) fn put_extent_key(out: &mut BytesMut, ino: Ino, offset: u64) {
    out.put_u8(EXTENT_TAG);
    out.put_u64(ino.0);
    out.put_u64(offset);
}

pub(crate) fn extent_key(ino: Ino, offset: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(EXTENT_KEY_BYTES);
    put_extent_key(&mut out, ino, offset);
    out.freeze()
}

/// Version, kind, len, skip; then of a record segment, position, stored and raw length and
/// checksum or table of pieces, of an inline extent its bytes.
pub(crate) fn put_extent(out: &mut BytesMut, extent: &Extent) {
    let has_pieces = extent.record().is_some_and(RecordRef::has_pieces);
    out.put_u8(if has_pieces { VERSION_PIECES } else { VERSION });
    match &extent.place {
        Place::Record(record) => {
            let end = u64::from(extent.skip) + u64::from(extent.len);
            assert!(extent.len > 0 && end <= u64::from(record.raw_len), "an extent lies within its record");
            out.put_u8(record.codec as u8);
            out.put_u32(extent.len);
            out.put_u32(extent.skip);
            out.put_u64(record.segment.0);
            out.put_u32(record.position);
            out.put_u32(record.stored_len);
            out.put_u32(record.raw_len);
            match &record.sums {
                Sums::Whole(sum) => out.put_u64(*sum),
                Sums::Pieces(table) => out.put_slice(table),
            }
        }
        Place::Inline(bytes) => {
            out.put_u8(KIND_INLINE);
            out.put_u32(extent.len);
            out.put_u32(extent.skip);
            out.put_slice(bytes);
        }
    }
}

/// Inode, offset and extent. Everything that later code relies on is checked here.
pub(crate) fn decode_extent(key: &[u8], value: &Bytes) -> FsResult<(Ino, u64, Extent)> {
    let bad = |why: &str| damaged(key, why);
    let numbers = key.get(1..EXTENT_KEY_BYTES).filter(|_| key.len() == EXTENT_KEY_BYTES);
    let (ino, offset) =
        numbers.and_then(|bytes| bytes.split_first_chunk::<8>()).ok_or_else(|| bad("wrong key length"))?;
    let offset = offset.first_chunk::<8>().map(|b| u64::from_be_bytes(*b)).ok_or_else(|| bad("wrong key length"))?;
    let has_pieces = value.first() == Some(&VERSION_PIECES);
    let mut r = if has_pieces { Reader::with_version(key, value, VERSION_PIECES)? } else { Reader::new(key, value)? };
    let (kind, len, skip) = (r.u8()?, r.u32()?, r.u32()?);
    let held = if kind == KIND_INLINE && !has_pieces {
        let bytes = r.remaining();
        if bytes.is_empty() || bytes.len() > INLINE_BYTES_MAX {
            return Err(bad("the inline content has an impossible length"));
        }
        (Place::Inline(value.slice_ref(bytes)), bytes.len() as u64)
    } else {
        let codec = Codec::from_u8(kind).ok_or_else(|| bad("the codec is unknown"))?;
        let (segment, position) = (SegmentId(r.u64()?), r.u32()?);
        let (stored_len, raw_len) = (r.u32()?, r.u32()?);
        let sums = if has_pieces {
            let table = Sums::from_table(r.remaining(), codec, stored_len, raw_len);
            table.ok_or_else(|| bad("the table of its record's pieces is impossible"))?
        } else {
            let sum = r.u64()?;
            r.finish()?;
            Sums::Whole(sum)
        };
        if u64::from(raw_len) > WINDOW_BYTES || stored_len > raw_len || stored_len == 0 {
            return Err(bad("the record has impossible lengths"));
        }
        if codec == Codec::Raw && stored_len != raw_len {
            return Err(bad("an uncompressed record has two lengths"));
        }
        (Place::Record(RecordRef { segment, position, stored_len, raw_len, codec, sums }), u64::from(raw_len))
    };
    let end = offset.checked_add(u64::from(len)).filter(|&end| end <= FILE_BYTES_MAX);
    let one_window = end.is_some_and(|end| len > 0 && offset / WINDOW_BYTES == (end - 1) / WINDOW_BYTES);
    if !one_window || u64::from(skip) + u64::from(len) > held.1 {
        return Err(bad("the extent reaches beyond its record or its window"));
    }
    Ok((Ino(u64::from_be_bytes(*ino)), offset, Extent { len, skip, place: held.0 }))
}

// ----------------------------------------------------------------------------------------------- map

/// Changes to the stored extents of an inode: the new extent at an offset, or its removal.
pub(crate) type ExtentOps = BTreeMap<u64, Option<Extent>>;

#[derive(Debug, Default)]
pub(crate) struct ExtentMap {
    extents: BTreeMap<u64, Extent>,
    /// Loaded ranges of whole windows, start to end, never touching each other
    /// (`extents.whole_windows`).
    loaded: BTreeMap<u64, u64>,
}

impl ExtentMap {
    /// Of a file that has no extents.
    pub(crate) fn complete() -> Self {
        Self { extents: BTreeMap::new(), loaded: BTreeMap::from([(0, u64::MAX)]) }
    }

    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// The map holds every extent of the file.
    pub(crate) fn is_complete(&self) -> bool {
        self.loaded.get(&0) == Some(&u64::MAX)
    }

    pub(crate) fn forget(&mut self) {
        self.extents = BTreeMap::new();
        self.loaded = BTreeMap::new();
    }

    /// The first offset of `range` that is not loaded.
    pub(crate) fn missing(&self, range: Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            match self.loaded.range(..=at).next_back() {
                Some((_, &end)) if end > at => at = end,
                _ => return Some(at),
            }
        }
        None
    }

    /// Where the loaded range that holds `at` ends.
    pub(crate) fn loaded_until(&self, at: u64) -> u64 {
        self.loaded.range(..=at).next_back().map_or(at, |(_, &end)| end.max(at))
    }

    /// Takes over the stored extents of `window` (whole windows). Loaded ranges are kept.
    pub(crate) fn load(&mut self, window: Range<u64>, extents: impl IntoIterator<Item = (u64, Extent)>) {
        for (offset, extent) in extents {
            if self.missing(offset..offset + 1).is_some() {
                self.extents.insert(offset, extent);
            }
        }
        let (mut start, mut end) = (window.start, window.end);
        while let Some((&at, &to)) = self.loaded.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.loaded.remove(&at);
            start = start.min(at);
            end = end.max(to);
        }
        self.loaded.insert(start, end);
    }

    /// The extents that touch `range`, cut to it: (start, end, begin of the extent, extent).
    pub(crate) fn view(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, u64, &Extent)> {
        let before = self.extents.range(..range.start).next_back();
        let from = before.filter(|(at, e)| *at + u64::from(e.len) > range.start).map_or(range.start, |(&at, _)| at);
        let (start, end) = (range.start, range.end);
        self.extents
            .range(from..end.max(from))
            .map(move |(&at, e)| (at.max(start), (at + u64::from(e.len)).min(end), at, e))
    }

    /// Lays `new` (or a hole) over `range`, which must be loaded (`extents.newer_over_older`). Adds
    /// the rows to store to `ops`. Calls `change` with false for each old extent that goes, and
    /// then with true for each remainder of it that stays as a new extent, and for `new`.
    pub(crate) fn overlay(
        &mut self,
        range: Range<u64>,
        new: Option<Extent>,
        ops: &mut ExtentOps,
        mut change: impl FnMut(&Extent, bool),
    ) {
        assert!(self.missing(range.clone()).is_none(), "`extents.whole_windows`: only a loaded range is changed");
        if let Some(new) = &new {
            assert_eq!(u64::from(new.len), range.end - range.start, "an extent covers the range that it is laid over");
            let (first, last) = (range.start / WINDOW_BYTES, (range.end - 1) / WINDOW_BYTES);
            assert_eq!(first, last, "`extents.one_window`");
        }
        let touched: Vec<u64> = self.view(range.clone()).map(|(_, _, at, _)| at).collect();
        for at in touched {
            let Some(old) = self.extents.remove(&at) else { continue };
            change(&old, false);
            ops.insert(at, None);
            let end = at + u64::from(old.len);
            if at < range.start {
                let head = old.cut(0, range.start - at);
                self.put(at, head, ops, &mut change);
            }
            if end > range.end {
                let tail = old.cut(range.end - at, end - at);
                self.put(range.end, tail, ops, &mut change);
            }
        }
        if let Some(new) = new {
            self.put(range.start, new, ops, &mut change);
        }
    }

    fn put(&mut self, at: u64, extent: Extent, ops: &mut ExtentOps, change: &mut impl FnMut(&Extent, bool)) {
        change(&extent, true);
        ops.insert(at, Some(extent.clone()));
        self.extents.insert(at, extent);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn record(segment: u64, raw_len: u32) -> Extent {
        let record = RecordRef {
            segment: SegmentId(segment),
            position: 64,
            stored_len: raw_len,
            raw_len,
            codec: Codec::Raw,
            sums: Sums::Whole(7),
        };
        Extent { len: raw_len, skip: 0, place: Place::Record(record) }
    }

    proptest! {
        #[test]
        fn overlays_behave_like_an_array(ops in prop::collection::vec((0u64..300, 1u64..80, any::<bool>()), 1..50)) {
            let mut map = ExtentMap::complete();
            let (mut model, mut stored): (Vec<Option<(u64, u64)>>, ExtentOps) = (vec![None; 400], BTreeMap::new());
            let mut live = 0i64;
            for (n, (offset, len, hole)) in ops.into_iter().enumerate() {
                let new = (!hole).then(|| record(n as u64, len as u32));
                let mut batch = ExtentOps::new();
                map.overlay(offset..offset + len, new, &mut batch, |extent, kept| {
                    live += if kept { 1 } else { -1 } * extent.live_bytes() as i64;
                });
                for (at, extent) in batch {
                    match extent {
                        Some(extent) => { stored.insert(at, Some(extent)); }
                        None => { stored.remove(&at); }
                    }
                }
                for i in 0..len {
                    model[(offset + i) as usize] = (!hole).then_some((n as u64, i));
                }
            }
            let mut seen = vec![None; 400];
            for (lo, hi, at, extent) in map.view(0..400) {
                for i in lo..hi {
                    seen[i as usize] = Some((extent.record().unwrap().segment.0, u64::from(extent.skip) + i - at));
                }
            }
            prop_assert_eq!(&seen, &model);
            prop_assert_eq!(live as usize, model.iter().flatten().count());
            let in_map: ExtentOps = map.extents.iter().map(|(&at, e)| (at, Some(e.clone()))).collect();
            prop_assert_eq!(in_map, stored);
        }

        #[test]
        fn values_round_trip(len in 1u32..4096, skip in 0u32..4096, segment: u64, position: u32, checksum: u64) {
            let raw_len = len + skip;
            let record = RecordRef { segment: SegmentId(segment), position, stored_len: 1, raw_len, codec: Codec::Lz4, sums: Sums::Whole(checksum) };
            let extent = Extent { len, skip, place: Place::Record(record) };
            let mut out = BytesMut::new();
            put_extent(&mut out, &extent);
            let got = decode_extent(&extent_key(Ino(3), WINDOW_BYTES), &out.freeze()).unwrap();
            prop_assert_eq!(got, (Ino(3), WINDOW_BYTES, extent));
        }

        #[test]
        fn garbage_is_refused_without_panic(key in prop::collection::vec(any::<u8>(), 0..20), value in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_extent(&key, &value.into());
        }
    }

    #[test]
    fn golden_bytes() {
        let mut out = BytesMut::new();
        let record = RecordRef {
            segment: SegmentId(0x0102),
            position: 0x40,
            stored_len: 0x1000,
            raw_len: 0x2_0000,
            codec: Codec::Lz4,
            sums: Sums::Whole(0x1122_3344_5566_7788),
        };
        put_extent(&mut out, &Extent { len: 0x8000, skip: 0x4000, place: Place::Record(record.clone()) });
        let golden = "01010000800000004000000000000000010200000040000010000002000011223344 55667788".replace(' ', "");
        assert_eq!(hex(&out), golden);
        assert_eq!(out.len(), EXTENT_VALUE_BYTES);
        assert_eq!(hex(&extent_key(Ino(5), 0x2_0000)), "4500000000000000050000000000020000");
        let table = [&[0x0e][..], &[0x02, 0x00, 1, 2, 3, 4, 5, 6, 7, 8].repeat(8)].concat();
        let sums = Sums::from_table(&table, Codec::Lz4, 0x1000, 0x2_0000).unwrap();
        let extent = Extent { len: 0x8000, skip: 0x4000, place: Place::Record(RecordRef { sums, ..record }) };
        let mut out = BytesMut::new();
        put_extent(&mut out, &extent);
        let golden = format!(
            "02010000800000004000000000000000010200000040000010000002 00000e{}",
            "02000102030405060708".repeat(8)
        );
        assert_eq!(hex(&out), golden.replace(' ', ""));
        assert_eq!(decode_extent(&extent_key(Ino(5), 0x2_0000), &out.freeze()).unwrap(), (Ino(5), 0x2_0000, extent));
        let mut out = BytesMut::new();
        put_extent(&mut out, &Extent { len: 2, skip: 0, place: Place::Inline(Bytes::from_static(b"hi")) });
        assert_eq!(hex(&out), "01ff00000002000000006869");
    }

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn windows_load_once_and_join() {
        let mut map = ExtentMap::default();
        assert_eq!(map.missing(0..1), Some(0));
        map.load(WINDOW_BYTES..2 * WINDOW_BYTES, [(WINDOW_BYTES, record(1, 10))]);
        assert_eq!(map.missing(0..3 * WINDOW_BYTES), Some(0));
        assert_eq!(map.missing(WINDOW_BYTES..3 * WINDOW_BYTES), Some(2 * WINDOW_BYTES));
        map.load(0..WINDOW_BYTES, []);
        map.load(0..u64::MAX, [(WINDOW_BYTES, record(2, 10)), (5 * WINDOW_BYTES, record(3, 10))]);
        assert!(map.is_complete());
        let segments: Vec<u64> = map.view(0..u64::MAX).map(|(_, _, _, e)| e.record().unwrap().segment.0).collect();
        assert_eq!(segments, [1, 3], "what was loaded before is kept");
    }
}
