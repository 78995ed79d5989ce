//! Write intents: small durable writes in the engine, before their data is in a segment.
//!
//! - `intents.replay_in_order`: an intent ('W', inode, write, offset) holds the bytes (or zeros) of
//!   one write. Replayed in key order, intents give the acknowledged content: later writes lie over
//!   earlier ones.
//! - `intents.also_dirty`: while an intent stands, its content is also in the dirty map, or newer
//!   data over it is.
//! - `intents.removed_once_stored`: an intent goes only in a batch with or after which every byte
//!   of it is in extents, as it was or newer, or in a later intent. Newer data that lies over it in
//!   memory alone is not enough.
//! - `intents.masked_when_partial`: an intent must not be replayed over newer extents. When only a
//!   part of one is flushed, the same batch writes a mask (the intent's key, 'M') that lists the
//!   ranges that still count.
//! - `intents.zeros_whole`: zero intents need no mask, because the first flush after one was made
//!   applies it whole, before the data it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use larder_fs::*;

use super::dirty::Payload;
use crate::keys::{Reader, damaged, tag};

pub(crate) const INTENT_TAG: u8 = tag::INTENT;
const VERSION: u8 = 1;
const MASK_SUFFIX: u8 = b'M';
const KIND_DATA: u8 = 0;
const KIND_ZERO: u8 = 1;
pub(crate) fn prefix(tag: u8, ino: Ino) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(tag);
    out.put_u64(ino.0);
    out.freeze()
}

pub(crate) fn key(ino: Ino, seq: u64, offset: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(25);
    out.put_u8(INTENT_TAG);
    out.put_u64(ino.0);
    out.put_u64(seq);
    out.put_u64(offset);
    out.freeze()
}

pub(crate) fn encode_zero(len: u64) -> Bytes {
    assert!(len > 0, "an intent covers bytes");
    let mut out = BytesMut::with_capacity(10);
    out.put_u8(VERSION);
    out.put_u8(KIND_ZERO);
    out.put_u64(len);
    out.freeze()
}

pub(super) fn encode_data(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(2 + data.len());
    out.put_u8(VERSION);
    out.put_u8(KIND_DATA);
    out.put_slice(data);
    out.freeze()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) ino: Ino,
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) payload: Payload,
}

pub(crate) fn decode(key: &[u8], value: &Bytes) -> FsResult<Intent> {
    let (numbers, rest) = key.get(1..).unwrap_or_default().as_chunks::<8>();
    let ([ino, seq, offset], true) = (numbers, rest.is_empty()) else {
        return Err(damaged(key, "wrong key length"));
    };
    let [ino, seq, offset] = [ino, seq, offset].map(|bytes| u64::from_be_bytes(*bytes));
    let mut r = Reader::new(key, value)?;
    let (len, payload) = match r.u8()? {
        KIND_ZERO => {
            let len = r.u64()?;
            r.finish()?;
            (len, Payload::Zero)
        }
        KIND_DATA => {
            let data = r.remaining();
            let bytes = if data.is_empty() { Bytes::new() } else { value.slice_ref(data) };
            (bytes.len() as u64, Payload::Bytes(bytes))
        }
        _ => return Err(damaged(key, "the kind of intent is unknown")),
    };
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
        return Err(damaged(key, "the range is impossible"));
    }
    Ok(Intent { ino: Ino(ino), seq, offset, len, payload })
}

/// An intent in the engine.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) len: u64,
    pub(super) zero: bool,
    /// Of a zero intent: a flush under way applies it.
    pub(super) taken: bool,
    /// The parts that are not flushed. `None`: all of it (`intents.masked_when_partial`).
    pub(super) rest: Option<Vec<Range<u64>>>,
}

impl Standing {
    pub(super) fn new(len: u64, zero: bool) -> Self {
        Self { len, zero, taken: false, rest: None }
    }

    pub(super) fn replayed(len: u64, zero: bool, rest: Option<Vec<Range<u64>>>) -> Self {
        Self { rest, ..Self::new(len, zero) }
    }
}

/// The key of a zero intent (write, offset), and its range of the file.
pub(super) type Zeros = ((u64, u64), Range<u64>);

/// The standing intents of one inode, by (write, offset), and found by the ranges they cover.
#[derive(Default)]
pub(super) struct Intents {
    pub(super) map: BTreeMap<(u64, u64), Standing>,
    by_offset: BTreeSet<(u64, u64)>,
    /// Zero intents: few, of any length.
    zeros: BTreeSet<(u64, u64)>,
    /// The longest data intent. Bounds the search by offset.
    longest: u64,
}

impl Intents {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn has_zeros(&self) -> bool {
        !self.zeros.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn insert(&mut self, key: (u64, u64), standing: Standing) {
        if standing.zero {
            self.zeros.insert(key);
        } else {
            self.longest = self.longest.max(standing.len);
            self.by_offset.insert((key.1, key.0));
        }
        self.map.insert(key, standing);
    }

    pub(super) fn remove(&mut self, key: (u64, u64)) -> Option<Standing> {
        self.zeros.remove(&key);
        self.by_offset.remove(&(key.1, key.0));
        self.map.remove(&key)
    }

    /// Zero intents that no flush has taken yet; they are taken now.
    pub(super) fn take_zeros(&mut self) -> Vec<Zeros> {
        let mut taken = Vec::new();
        for key in &self.zeros {
            if let Some(standing) = self.map.get_mut(key).filter(|standing| !standing.taken) {
                standing.taken = true;
                taken.push((*key, key.1..key.1 + standing.len));
            }
        }
        taken
    }

    /// The intents that touch `range`: key and length.
    pub(super) fn touching(&self, range: &Range<u64>) -> Vec<((u64, u64), u64)> {
        let from = (range.start.saturating_sub(self.longest), 0);
        let near = self.by_offset.range(from..(range.end, 0)).map(|&(offset, seq)| (seq, offset));
        let all = near.chain(self.zeros.iter().copied());
        let with_len = all.filter_map(|key| Some((key, self.map.get(&key)?.len)));
        with_len.filter(|((_, offset), len)| *offset < range.end && range.start < offset + len).collect()
    }
}

pub(super) fn mask_key(ino: Ino, seq: u64, offset: u64) -> Bytes {
    let mut out = BytesMut::from(&key(ino, seq, offset)[..]);
    out.put_u8(MASK_SUFFIX);
    out.freeze()
}

pub(super) fn encode_mask(rest: &[Range<u64>]) -> Bytes {
    assert!(!rest.is_empty(), "`intents.masked_when_partial`: an intent that is stored whole is removed");
    let mut out = BytesMut::with_capacity(1 + 16 * rest.len());
    out.put_u8(VERSION);
    for range in rest {
        out.put_u64(range.start);
        out.put_u64(range.end);
    }
    out.freeze()
}

/// The ranges that still count of an intent, if `key` is a mask's.
pub(crate) fn decode_mask(key: &[u8], value: &[u8]) -> FsResult<Option<Vec<Range<u64>>>> {
    if key.len() != 26 || key.last() != Some(&MASK_SUFFIX) {
        return Ok(None);
    }
    let mut r = Reader::new(key, value)?;
    let (numbers, rest) = r.remaining().as_chunks::<16>();
    let ranges = numbers.iter().map(|pair| {
        let number = |half: &[u8]| half.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        number(&pair[..8])..number(&pair[8..])
    });
    let ranges: Vec<_> = ranges.collect();
    if !rest.is_empty() || ranges.iter().any(Range::is_empty) {
        return Err(damaged(key, "the ranges are impossible"));
    }
    Ok(Some(ranges))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let at = key(Ino(2), 3, 4096);
        assert_eq!(hex(&at), "57000000000000000200000000000000030000000000001000");
        assert_eq!(hex(&encode_data(b"ab")), "01006162");
        assert_eq!(hex(&encode_zero(16)), "01010000000000000010");
        let mask = mask_key(Ino(2), 3, 4096);
        assert_eq!(hex(&mask), format!("{}4d", hex(&at)));
        assert_eq!(hex(&encode_mask(std::slice::from_ref(&(1..3)))), "0100000000000000010000000000000003");
        assert_eq!(decode_mask(&mask, &encode_mask(&[1..3, 5..9])).unwrap(), Some(vec![1..3, 5..9]));
        let intent = decode(&at, &encode_data(b"ab")).unwrap();
        assert_eq!((intent.ino, intent.seq, intent.offset, intent.len), (Ino(2), 3, 4096, 2));
        assert!(decode(&at, &encode_zero(u64::MAX)).is_err());
        assert!(decode(&at[..20], &encode_zero(1)).is_err());
        assert!(decode(&at, &Bytes::from_static(b"\x01\x02")).is_err());
    }
}
