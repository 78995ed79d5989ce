//! The content of a file: ranges laid over each other, later ones on top.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use crate::data::RecordRef;

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Zero,
    Bytes(Bytes),
    /// From `skip` on of a record.
    Record {
        record: RecordRef,
        skip: u64,
    },
}

impl Source {
    fn after(&self, bytes: u64) -> Source {
        match self {
            Source::Zero => Source::Zero,
            Source::Bytes(held) => Source::Bytes(held.slice((bytes as usize).min(held.len())..)),
            Source::Record { record, skip } => Source::Record { record: record.clone(), skip: skip + bytes },
        }
    }
}

/// A range of a file and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    pub(crate) source: Source,
}

impl Piece {
    /// The bytes of the file that it stands for.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// Whether it is known to be zeros: a truncated or punched range.
    pub fn is_zero(&self) -> bool {
        self.source == Source::Zero
    }
}

/// Ranges that never overlap, by start.
#[derive(Debug, Default)]
pub(super) struct Painter {
    ranges: BTreeMap<u64, (u64, Source)>,
}

impl Painter {
    /// Lays `source` over `range`.
    pub(super) fn paint(&mut self, range: Range<u64>, source: Source) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let covered: Vec<u64> = self.ranges.range(range.clone()).map(|(start, _)| *start).collect();
        for start in covered {
            self.ranges.remove(&start);
        }
        self.ranges.insert(range.start, (range.end, source));
    }

    /// Afterwards no range reaches over `at`.
    fn split(&mut self, at: u64) {
        let Some((&start, (end, _))) = self.ranges.range(..at).next_back() else { return };
        if *end <= at {
            return;
        }
        if let Some((end, source)) = self.ranges.remove(&start) {
            let tail = source.after(at - start);
            self.ranges.insert(start, (at, source));
            self.ranges.insert(at, (end, tail));
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, (end, _))| *end)
    }

    /// The pieces below `size`.
    pub(super) fn finish(mut self, size: u64) -> Vec<Piece> {
        self.split(size);
        let below = self.ranges.into_iter().take_while(|(start, _)| *start < size);
        below.map(|(offset, (end, source))| Piece { offset, len: end - offset, source }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside a file in memory.
        #[test]
        fn later_ranges_lie_on_top(writes in prop::collection::vec((0u64..200, 0u64..60), 0..40), size in 0u64..260) {
            let mut painter = Painter::default();
            let mut model = vec![0u8; 300];
            for (n, (offset, len)) in writes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|i| (n as u64 * 7 + i + 1) as u8).collect();
                model[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
                painter.paint(offset..offset + len, Source::Bytes(bytes.into()));
            }
            let mut got = vec![0u8; size as usize];
            let mut before = 0;
            for piece in painter.finish(size) {
                prop_assert!(piece.offset >= before && piece.len > 0);
                before = piece.offset + piece.len;
                let Source::Bytes(bytes) = piece.source else { continue };
                got[piece.offset as usize..before as usize].copy_from_slice(&bytes[..piece.len as usize]);
            }
            prop_assert_eq!(&got[..], &model[..size as usize]);
        }
    }
}
