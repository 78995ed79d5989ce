//! Reserved ranges: room that fallocate set aside for bytes of a file that are not written yet.
//!
//! ```text
//!         allocate                   write accepted                 flush committed
//!  hole ------------> reserved -----------------------> claimed -----------------------> extent
//!    ^                   | ^                               |
//!    +--- punch, --------+ +--- a crash loses the write ---+
//!         truncate, removal
//! ```
//!
//! - `reserved.one_row`: a range has one row (`R`, inode, offset) whatever its length, so a
//!   reservation costs the same for a KiB and for a TiB. The rows of an inode neither overlap nor
//!   touch.
//! - `reserved.row_ends_with_extent`: a row ends in the batch that stores an extent over it, or
//!   that punches, truncates or removes. Once everything is flushed, no reserved range overlaps an
//!   extent. Until then one may: over an extent that a zero range is about to take away.
//! - `reserved.promise_moves`: the volume promises room to reserved bytes over which no dirty data
//!   lies. Dirty data has a promise of its own (`memory.charge_before_accept`). So accepting a
//!   write moves the promise, and losing the write in a crash moves it back.
//! - `reserved.promise_grows_in_allocate`: the promise grows in `allocate` alone, one call at a
//!   time per store, after the room was found; and by no more than dirty data gives up when it goes
//!   without becoming an extent. `Inner::promise` keeps the sums exact.
//! - `reserved.rows_under_state`: rows change under `state`, in a batch that is submitted under it.
//!   All rows are in memory before data is laid over the file (`Inner::ensure_reserved`). An inode
//!   without rows says so in its record, and is never looked up.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use larder_fs::*;

use crate::keys::{Reader, damaged, tag};

pub(crate) const RESERVED_TAG: u8 = tag::RESERVED;
const VERSION: u8 = 1;
const KEY_BYTES: usize = 17;
/// Reserved ranges of one file, all in memory while it is written to. A write into the middle of
/// one makes two; beyond this the shorter of them is given up.
pub(super) const RANGES_MAX: usize = 1 << 16;

pub(crate) fn reserved_key(ino: Ino, offset: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(KEY_BYTES);
    out.put_u8(RESERVED_TAG);
    out.put_u64(ino.0);
    out.put_u64(offset);
    out.freeze()
}

/// Version, length.
pub(crate) fn encode_reserved(len: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(VERSION);
    out.put_u64(len);
    out.freeze()
}

pub(crate) fn decode_reserved(key: &[u8], value: &[u8]) -> FsResult<(Ino, Range<u64>)> {
    let (numbers, rest) = key.get(1..).unwrap_or_default().as_chunks::<8>();
    let ([ino, offset], true) = (numbers, rest.is_empty()) else { return Err(damaged(key, "wrong key length")) };
    let [ino, offset] = [ino, offset].map(|bytes| u64::from_be_bytes(*bytes));
    let mut r = Reader::new(key, value)?;
    let len = r.u64()?;
    r.finish()?;
    let end = offset.checked_add(len).filter(|&end| len > 0 && end <= FILE_BYTES_MAX);
    let end = end.ok_or_else(|| damaged(key, "the reserved range is impossible"))?;
    Ok((Ino(ino), offset..end))
}

/// A change to the rows of an inode: the length of the range that begins at an offset from now on.
pub(super) type RangeOps = BTreeMap<u64, Option<u64>>;

/// The reserved ranges of one inode, start to end.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    map: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn starts(&self) -> impl Iterator<Item = u64> {
        self.map.keys().copied()
    }

    /// The reserved ranges within `range`, cut to it, in order.
    pub(super) fn view(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.map.range(..range.start).next_back().filter(|(_, end)| **end > range.start);
        let from = before.map_or(range.start, |(&start, _)| start);
        let (start, end) = (range.start, range.end);
        self.map.range(from..end.max(from)).map(move |(&at, &to)| at.max(start)..to.min(end))
    }

    /// Takes over a row.
    pub(super) fn load(&mut self, range: Range<u64>) {
        self.bytes += range.end - range.start;
        self.map.insert(range.start, range.end);
    }

    pub(super) fn insert(&mut self, range: Range<u64>, ops: &mut RangeOps) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Back to front; what touches the range is joined with it.
        while let Some((&at, &to)) = self.map.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            if at <= range.start && to >= range.end {
                return;
            }
            self.take(at, to, ops);
            start = start.min(at);
            end = end.max(to);
        }
        self.put(start..end, ops);
    }

    pub(super) fn remove(&mut self, range: Range<u64>, ops: &mut RangeOps) {
        while let Some((&at, &to)) = self.map.range(..range.end).next_back().filter(|(_, to)| **to > range.start) {
            self.take(at, to, ops);
            let (mut head, mut tail) = (at..range.start.max(at), range.end.min(to)..to);
            if !head.is_empty() && !tail.is_empty() && self.map.len() + 2 > RANGES_MAX {
                let shorter = if head.end - head.start < tail.end - tail.start { &mut head } else { &mut tail };
                shorter.end = shorter.start;
            }
            for rest in [head, tail] {
                if !rest.is_empty() {
                    self.put(rest, ops);
                }
            }
        }
    }

    fn take(&mut self, start: u64, end: u64, ops: &mut RangeOps) {
        self.map.remove(&start);
        assert!(self.bytes >= end - start, "the ranges count every byte that they hold");
        self.bytes -= end - start;
        ops.insert(start, None);
    }

    fn put(&mut self, range: Range<u64>, ops: &mut RangeOps) {
        ops.insert(range.start, Some(range.end - range.start));
        self.load(range);
    }
}

/// The reserved ranges of one inode, and how much of them is promised.
#[derive(Default)]
pub(super) struct Reserved {
    /// `None`: there are some, and they have not been read yet (`reserved.rows_under_state`).
    pub(super) ranges: Option<Ranges>,
    /// Bytes of them over which no dirty data lies (`reserved.promise_moves`).
    pub(super) unclaimed: u64,
}

impl Reserved {
    /// Of an inode whose record says that it has none.
    pub(super) fn none() -> Self {
        Self { ranges: Some(Ranges::default()), unclaimed: 0 }
    }

    pub(super) fn ranges(&self) -> Option<&Ranges> {
        self.ranges.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.as_ref().is_none_or(|ranges| ranges.map.is_empty())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges.as_ref().map_or(0, Ranges::bytes)
    }

    /// Reserved bytes that dirty data has claimed: they are in both.
    pub(super) fn claimed(&self) -> u64 {
        assert!(self.unclaimed <= self.bytes(), "`reserved.promise_moves`: only reserved bytes are promised");
        self.bytes() - self.unclaimed
    }

    pub(super) fn insert(&mut self, range: Range<u64>, ops: &mut RangeOps) {
        assert!(self.ranges.is_some(), "`reserved.rows_under_state`: rows are read before they change");
        self.ranges.get_or_insert_default().insert(range, ops);
    }

    pub(super) fn remove(&mut self, range: Range<u64>, ops: &mut RangeOps) {
        assert!(self.ranges.is_some(), "`reserved.rows_under_state`: rows are read before they change");
        if let Some(ranges) = &mut self.ranges {
            ranges.remove(range, ops);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_behave_like_an_array(ops in prop::collection::vec((0u64..300, 1u64..80, any::<bool>()), 1..60)) {
            let (mut ranges, mut model) = (Ranges::default(), vec![false; 400]);
            let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
            for (offset, len, inserted) in ops {
                let mut batch = RangeOps::new();
                let range = offset..offset + len;
                if inserted { ranges.insert(range.clone(), &mut batch) } else { ranges.remove(range.clone(), &mut batch) }
                model[offset as usize..(offset + len) as usize].fill(inserted);
                for (at, len) in batch {
                    match len {
                        Some(len) => { rows.insert(at, at + len); }
                        None => { rows.remove(&at); }
                    }
                }
                prop_assert_eq!(&rows, &ranges.map);
                let mut seen = vec![false; 400];
                ranges.view(0..400).for_each(|r| seen[r.start as usize..r.end as usize].fill(true));
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(ranges.bytes() as usize, model.iter().filter(|set| **set).count());
                let apart = ranges.map.iter().zip(ranges.map.iter().skip(1)).all(|((_, end), (start, _))| end < start);
                prop_assert!(apart, "they touch: {:?}", ranges.map);
            }
        }

        #[test]
        fn garbage_is_refused_without_panic(key in prop::collection::vec(any::<u8>(), 0..20), value in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = decode_reserved(&key, &value);
        }
    }

    #[test]
    fn golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (key, value) = (reserved_key(Ino(5), 0x2_0000), encode_reserved(1 << 40));
        assert_eq!(hex(&key), "5200000000000000050000000000020000");
        assert_eq!(hex(&value), "010000010000000000");
        assert_eq!(decode_reserved(&key, &value).unwrap(), (Ino(5), 0x2_0000..0x2_0000 + (1 << 40)));
        assert!(decode_reserved(&key, &encode_reserved(0)).is_err());
        assert!(decode_reserved(&key, &encode_reserved(u64::MAX)).is_err());
        assert!(decode_reserved(&key[..16], &value).is_err());
    }

    #[test]
    fn a_file_has_a_bounded_number_of_ranges() {
        let (mut ranges, mut ops) = (Ranges::default(), RangeOps::new());
        ranges.insert(0..4 * RANGES_MAX as u64, &mut ops);
        for n in 1..2 * RANGES_MAX as u64 {
            ranges.remove(2 * n..2 * n + 1, &mut ops);
        }
        assert_eq!(ranges.len(), RANGES_MAX);
        assert_eq!(ranges.view(0..u64::MAX).next(), Some(0..2));
    }
}
