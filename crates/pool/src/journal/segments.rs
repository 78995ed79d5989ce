//! Which segment files exist, which are in use, and which may be written over.

use std::collections::BTreeMap;

use super::format::ALIGN_BYTES;

pub const DIRECTORY: &str = "journal";
/// Segments in all; one is being written, one must be free to move on to.
const SEGMENTS: u64 = 16;
const JOURNAL_BYTES_DEFAULT: u64 = 256 << 20;
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// Kept free at the end of each segment for a checkpoint that lets another be written over
/// (`journal.checkpoint_before_reuse`).
pub const CHECKPOINT_ROOM_BYTES: u64 = 32 << 10;

const _: () = assert!(JOURNAL_BYTES_MIN / SEGMENTS >= 4 * CHECKPOINT_ROOM_BYTES);
const _: () = assert!(CHECKPOINT_ROOM_BYTES.is_multiple_of(ALIGN_BYTES));

pub fn size_default(smallest_disk_bytes: u64) -> u64 {
    (smallest_disk_bytes / 8).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_DEFAULT)
}

/// The segment that is written and the one to move on to.
pub fn usual_bytes(size_bytes: u64) -> u64 {
    size_bytes / SEGMENTS * 2
}

pub fn file_name(file: u32) -> String {
    format!("{DIRECTORY}/segment-{file:04}")
}

pub fn parse_file_name(name: &str) -> Option<u32> {
    name.strip_prefix("segment-")?.parse().ok()
}

#[derive(Clone, Debug)]
struct Segment {
    file: u32,
    bytes: u64,
    /// Entries that are not trimmed.
    live: u64,
    /// A durable checkpoint says that all its entries are trimmed
    /// (`journal.checkpoint_before_reuse`).
    covered: bool,
}

/// By sequence number.
#[derive(Debug)]
pub struct Segments {
    used: BTreeMap<u64, Segment>,
    /// Files that hold nothing, with their length.
    spare: BTreeMap<u32, u64>,
    /// The file that is being made ready, with the length it will have.
    preparing: Option<(u32, u64)>,
    capacity_bytes: u64,
    segment_bytes: u64,
    /// The disks that have copies.
    copies: Vec<u8>,
}

/// Where the next segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub file: u32,
    pub bytes: u64,
    /// The file exists and has this length already.
    pub ready: bool,
}

impl Segments {
    pub fn new(capacity_bytes: u64, copies: Vec<u8>) -> Self {
        let capacity_bytes = capacity_bytes.max(JOURNAL_BYTES_MIN);
        let segment_bytes = (capacity_bytes / SEGMENTS) / ALIGN_BYTES * ALIGN_BYTES;
        Self { used: BTreeMap::new(), spare: BTreeMap::new(), preparing: None, capacity_bytes, segment_bytes, copies }
    }

    pub fn copies(&self) -> &[u8] {
        &self.copies
    }

    /// Where no disk takes writes any more, the former copies are read, and nothing is written that
    /// they would miss.
    pub fn set_copies(&mut self, copies: Vec<u8>) {
        if !copies.is_empty() {
            self.copies = copies;
        }
    }

    /// A segment found when the pool was opened, or begun.
    pub fn add(&mut self, sequence: u64, file: u32, bytes: u64) {
        self.spare.remove(&file);
        self.used.insert(sequence, Segment { file, bytes, live: 0, covered: false });
    }

    pub fn add_spare(&mut self, file: u32, bytes: u64) {
        self.spare.insert(file, bytes);
    }

    pub fn remember(&mut self, sequence: u64) {
        let segment = self.used.get_mut(&sequence);
        assert!(segment.is_some(), "`journal.checkpoint_before_reuse`: the segment of an entry is in use");
        if let Some(segment) = segment {
            segment.live += 1;
            segment.covered = false;
        }
    }

    pub fn forget(&mut self, sequence: u64) {
        if let Some(segment) = self.used.get_mut(&sequence) {
            assert!(segment.live > 0, "`journal.checkpoint_before_reuse`: an entry is trimmed once");
            segment.live -= 1;
        }
    }

    pub fn file_of(&self, sequence: u64) -> Option<u32> {
        self.used.get(&sequence).map(|segment| segment.file)
    }

    pub fn files(&self) -> impl Iterator<Item = u32> + '_ {
        self.used.values().map(|segment| segment.file)
    }

    /// Sequence, file and length of the segments that something may still be needed of.
    pub fn in_use(&self) -> Vec<(u64, u32, u64)> {
        self.used.iter().filter(|(_, s)| !s.covered).map(|(sequence, s)| (*sequence, s.file, s.bytes)).collect()
    }

    /// Segments before `current` that a checkpoint written now would cover.
    pub fn coverable(&self, current: u64) -> Vec<u64> {
        self.used.iter().filter(|(seq, s)| **seq < current && s.live == 0 && !s.covered).map(|(seq, _)| *seq).collect()
    }

    pub fn cover(&mut self, sequences: &[u64]) {
        for sequence in sequences {
            if let Some(segment) = self.used.get_mut(sequence)
                && segment.live == 0
            {
                segment.covered = true;
            }
        }
    }

    /// A place for a segment with room for `need_bytes`.
    pub fn next(&mut self, need_bytes: u64) -> Option<Next> {
        let next = self.spare_or_grown(need_bytes)?;
        let is_free = self.used.values().all(|segment| segment.file != next.file);
        assert!(is_free, "`journal.checkpoint_before_reuse`: a file in use is not written over");
        assert!(next.bytes >= need_bytes, "the segment has room for its first batch");
        Some(next)
    }

    fn spare_or_grown(&mut self, need_bytes: u64) -> Option<Next> {
        let bytes = need_bytes.next_multiple_of(ALIGN_BYTES).max(self.segment_bytes);
        let covered: Vec<u64> = self.used.iter().filter(|(_, s)| s.covered).map(|(seq, _)| *seq).collect();
        for sequence in covered {
            if let Some(segment) = self.used.remove(&sequence) {
                self.spare.insert(segment.file, segment.bytes);
            }
        }
        if let Some((&file, &bytes)) = self.spare.iter().find(|(_, have)| **have >= bytes) {
            return Some(Next { file, bytes, ready: true });
        }
        self.grow(bytes)
    }

    /// A file of `bytes` to be made, if the journal may be that long.
    fn grow(&self, bytes: u64) -> Option<Next> {
        let lengths = self.used.values().map(|s| s.bytes).chain(self.spare.values().copied());
        let total: u64 = lengths.chain(self.preparing.map(|(_, bytes)| bytes)).sum();
        // A file that is too short is lengthened; its old length counts no more.
        let (file, given_back) = match self.spare.iter().find(|(_, have)| **have < bytes) {
            Some((&file, &have)) => (file, have),
            None => (self.file_unused(), 0),
        };
        (total - given_back + bytes <= self.capacity_bytes).then_some(Next { file, bytes, ready: false })
    }

    /// A file to be made ahead of its use, if none is ready. Followed by [`Self::prepared`].
    pub fn prepare(&mut self) -> Option<Next> {
        let ready = |bytes: u64| bytes >= self.segment_bytes;
        let is_enough = self.spare.values().any(|&bytes| ready(bytes))
            || self.used.values().any(|segment| segment.covered && ready(segment.bytes));
        if is_enough || self.preparing.is_some() {
            return None;
        }
        let next = self.grow(self.segment_bytes)?;
        self.spare.remove(&next.file);
        let is_free = self.used.values().all(|segment| segment.file != next.file);
        assert!(is_free, "`journal.checkpoint_before_reuse`: a file in use is not filled with zeros");
        self.preparing = Some((next.file, next.bytes));
        Some(next)
    }

    /// The file of [`Self::prepare`] is there on all copies, or not quite.
    pub fn prepared(&mut self, is_made: bool) {
        if let Some((file, bytes)) = self.preparing.take() {
            self.spare.insert(file, if is_made { bytes } else { 0 });
        }
    }

    fn file_unused(&self) -> u32 {
        let preparing = self.preparing.map(|(file, _)| file);
        let taken = |file: &u32| {
            self.spare.contains_key(file) || preparing == Some(*file) || self.used.values().any(|s| s.file == *file)
        };
        (0..).find(|file| !taken(file)).unwrap_or(0)
    }

    /// Bytes that a further copy would have.
    pub fn copied_bytes(&self) -> u64 {
        self.used.values().map(|segment| segment.bytes).sum()
    }

    /// Bytes in segments that are in use, and how many of them may be.
    pub fn usage(&self) -> (u64, u64) {
        let used = self.used_from(0);
        // The segment being written and the one to move on to are not the user's.
        (used, self.capacity_bytes - 2 * self.segment_bytes)
    }

    /// Bytes of the segments in use, from this one on.
    pub fn used_from(&self, sequence: u64) -> u64 {
        self.used.range(sequence..).filter(|(_, s)| s.live > 0).map(|(_, s)| s.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_file_is_made_ready_and_the_bound_holds() {
        let mut segments = Segments::new(JOURNAL_BYTES_MIN, vec![0, 1]);
        for sequence in 0..SEGMENTS - 1 {
            let next = segments.next(1).unwrap();
            assert_eq!(next.ready, sequence > 0);
            segments.add(sequence, next.file, next.bytes);
            let prepared = segments.prepare().unwrap();
            assert!(u64::from(prepared.file) == sequence + 1 && !prepared.ready);
            assert_eq!(segments.prepare(), None, "one at a time");
            assert_ne!(segments.next(1).map(|next| next.file), Some(prepared.file), "not while it is being made");
            segments.prepared(true);
            assert_eq!(segments.prepare(), None, "one is enough");
        }
        let last = segments.next(1).unwrap();
        segments.add(SEGMENTS, last.file, last.bytes);
        assert_eq!((segments.prepare(), segments.next(1)), (None, None), "the journal is full");
        segments.cover(&[3]);
        assert_eq!(segments.prepare(), None, "what is covered is ready");
        assert_eq!(segments.next(1), Some(Next { file: 3, bytes: last.bytes, ready: true }));
    }

    #[test]
    fn what_could_not_be_made_is_made_when_it_is_needed() {
        let mut segments = Segments::new(JOURNAL_BYTES_MIN, vec![0]);
        let next = segments.prepare().unwrap();
        segments.prepared(false);
        assert_eq!(segments.next(1), Some(next));
    }
}
