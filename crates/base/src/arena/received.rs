//! Bytes of a file on their way in, in slots that end where its records end.
//!
//! The volume cuts files into records at multiples of their size. A slot that holds bytes of one
//! record alone becomes dirty data and then the cache's record, and nothing is copied.

use bytes::Bytes;

use super::Slot;

/// The size of most records: bytes on either side of a multiple of it never share a slot.
pub const RECORD_BYTES: usize = 128 << 10;
/// The slots that are used, and the fewest bytes for which each is.
const SLOTS: [(usize, usize); 3] = [(RECORD_BYTES, 96 << 10), (32 << 10, 24 << 10), (8 << 10, 0)];

/// Bytes at a place of a file that are being received.
#[derive(Debug)]
pub struct Received {
    offset: u64,
    /// Bytes still to come behind the slot that is being filled.
    left: usize,
    chunks: Vec<Bytes>,
    space: Option<Space>,
    filled: usize,
}

#[derive(Debug)]
enum Space {
    Slot(Slot),
    /// The system has no memory for slots.
    Heap(Vec<u8>),
}

impl Received {
    /// Of `length` bytes that belong at `offset`.
    pub fn new(offset: u64, length: usize) -> Received {
        Received { offset, left: length, chunks: Vec::with_capacity(2 + length / RECORD_BYTES), space: None, filled: 0 }
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.left + self.space.as_ref().map_or(0, |space| space.len() - self.filled)
    }

    /// Bytes of memory that it holds now.
    pub fn held_bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum::<usize>() + self.space.as_ref().map_or(0, Space::len)
    }

    /// Bytes that it has no memory for yet.
    pub fn to_come(&self) -> usize {
        self.left
    }

    /// Memory for the next bytes, with old contents; empty if none are missing.
    pub fn space(&mut self) -> &mut [u8] {
        if self.space.is_none() && self.left > 0 {
            let length = next_length(self.offset, self.left);
            self.offset = self.offset.wrapping_add(length as u64);
            self.left -= length;
            self.space = Some(super::take(length).map_or_else(|| Space::Heap(vec![0; length]), Space::Slot));
        }
        match &mut self.space {
            Some(Space::Slot(slot)) => slot.get_mut(self.filled..).unwrap_or_default(),
            Some(Space::Heap(bytes)) => bytes.get_mut(self.filled..).unwrap_or_default(),
            None => &mut [],
        }
    }

    /// So many bytes of the last [`Self::space`] were filled.
    pub fn advance(&mut self, count: usize) {
        self.filled += count;
        let length = self.space.as_ref().map_or(0, Space::len);
        assert!(self.filled <= length, "no more was filled than there was");
        if self.filled == length {
            self.filled = 0;
            self.chunks.extend(self.space.take().map(|space| match space {
                Space::Slot(slot) => slot.freeze(),
                Space::Heap(bytes) => bytes.into(),
            }));
        }
    }

    /// Takes from the front of `bytes` what is missing. Returns how many.
    pub fn fill_from(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let space = self.space();
            if space.is_empty() {
                break;
            }
            let count = rest.len().min(space.len());
            let (now, _) = space.split_at_mut(count);
            now.copy_from_slice(rest.get(..count).unwrap_or_default());
            self.advance(count);
            taken += count;
        }
        taken
    }

    /// All of it, in order, once nothing is missing.
    pub fn into_chunks(self) -> Vec<Bytes> {
        assert_eq!(self.missing(), 0, "what is missing is waited for");
        self.chunks
    }
}

impl Space {
    fn len(&self) -> usize {
        match self {
            Space::Slot(slot) => slot.len(),
            Space::Heap(bytes) => bytes.len(),
        }
    }
}

/// Lengths of slots that `length` bytes fill well, one behind the other.
pub fn cut(length: usize) -> impl Iterator<Item = usize> {
    let mut left = length;
    std::iter::from_fn(move || {
        let next = next_length(0, left);
        left -= next;
        (next > 0).then_some(next)
    })
}

/// How many of `left` bytes at `offset` the next slot takes.
fn next_length(offset: u64, left: usize) -> usize {
    let until_end = RECORD_BYTES - (offset % RECORD_BYTES as u64) as usize;
    let length = left.min(until_end);
    let slot = SLOTS.iter().find(|(_, least)| length >= *least);
    slot.map_or(length, |(slot, _)| length.min(*slot))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn receive(offset: u64, length: usize, step: usize) -> Vec<Bytes> {
        let sent: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
        let mut received = Received::new(offset, length);
        let mut at = 0;
        while at < length {
            assert_eq!(received.missing(), length - at);
            if at % 2 == 0 {
                at += received.fill_from(&sent[at..length.min(at + step)]);
                continue;
            }
            let space = received.space();
            let count = step.min(space.len());
            space[..count].copy_from_slice(&sent[at..at + count]);
            received.advance(count);
            at += count;
        }
        assert!(received.space().is_empty() && received.fill_from(b"more") == 0);
        let chunks = received.into_chunks();
        assert!(chunks.concat() == sent);
        chunks
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in_cut_where_records_are(
            offset in 0u64..1 << 20, length in 0usize..600_000, step in 1000usize..300_000
        ) {
            let mut at = offset;
            for chunk in receive(offset, length, step) {
                let end = at + chunk.len() as u64;
                prop_assert_eq!(at / RECORD_BYTES as u64, (end - 1) / RECORD_BYTES as u64);
                at = end;
            }
        }
    }

    #[test]
    fn slots_are_well_filled() {
        let lengths = |offset, length| receive(offset, length, 70_000).iter().map(Bytes::len).collect::<Vec<_>>();
        assert_eq!(lengths(0, 1 << 20), [RECORD_BYTES; 8]);
        assert_eq!(lengths(5 << 20, 64 << 10), [32 << 10; 2]);
        assert_eq!(lengths(96 << 10, 64 << 10), [32 << 10; 2]);
        assert_eq!(lengths(100, 128 << 10), [RECORD_BYTES - 100, 100]);
        assert_eq!(lengths(0, 20_000), [8192, 8192, 3616]);
        assert_eq!(lengths(0, 0), [0; 0]);
        assert_eq!(
            cut(520 << 10).collect::<Vec<_>>(),
            [RECORD_BYTES, RECORD_BYTES, RECORD_BYTES, RECORD_BYTES, 8 << 10]
        );
        assert_eq!(cut((32 << 10) + 4096).collect::<Vec<_>>(), [32 << 10, 4096]);
        assert_eq!(cut(0).count(), 0);
    }
}
