//! Log entries as a pool keeps them that answers for a bucket (FORMAT.md, "The journal before a bucket").

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::checksum::checksum;

const RECORD_VERSION: u8 = 1;
pub(crate) const RECORD_HEAD_BYTES: usize = 32;
const PARKED_MAGIC: &[u8; 8] = b"LRDWBCK1";

/// One entry as the journal keeps it.
///
/// ```text
///   0 version 1 | 1 zeros | 8 term u64 | 16 id u64 | 24 when it came, ms since 1970 u64 | 32 the entry      little-endian
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) term: u64,
    pub(crate) id: u64,
    pub(crate) ms: u64,
    pub(crate) payload: Vec<Bytes>,
}

impl Kept {
    fn head(&self) -> Bytes {
        let mut head = BytesMut::with_capacity(RECORD_HEAD_BYTES);
        head.put_slice(&[RECORD_VERSION, 0, 0, 0, 0, 0, 0, 0]);
        [self.term, self.id, self.ms].iter().for_each(|number| head.put_u64_le(*number));
        head.freeze()
    }

    pub(crate) fn record(&self) -> Vec<Bytes> {
        std::iter::once(self.head()).chain(self.payload.iter().cloned()).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }

    pub(crate) fn parse(mut record: Bytes) -> Option<Kept> {
        if record.len() < RECORD_HEAD_BYTES || record.first() != Some(&RECORD_VERSION) {
            return None;
        }
        let head = record.split_to(RECORD_HEAD_BYTES);
        let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        Some(Kept { term: number(8)?, id: number(16)?, ms: number(24)?, payload: vec![record] })
    }
}

/// Records in one object: each behind its length (u32), and the checksum of all at the end.
pub(crate) fn encode_parked<'a>(entries: impl Iterator<Item = &'a Kept>) -> Bytes {
    let mut out = BytesMut::from(&PARKED_MAGIC[..]);
    for entry in entries {
        out.put_u32_le(u32::try_from(entry.bytes()).unwrap_or(u32::MAX).saturating_add(RECORD_HEAD_BYTES as u32));
        entry.record().iter().for_each(|piece| out.put_slice(piece));
    }
    let sum = checksum(0, &out);
    out.put_u64_le(sum);
    out.freeze()
}

pub(crate) fn decode_parked(mut bytes: Bytes) -> Option<Vec<Kept>> {
    let body = bytes.len().checked_sub(8)?;
    let sum = bytes.split_off(body);
    if !bytes.starts_with(PARKED_MAGIC) || sum[..] != checksum(0, &bytes).to_le_bytes() {
        return None;
    }
    let mut rest = bytes.split_off(PARKED_MAGIC.len());
    let mut entries = Vec::new();
    while !rest.is_empty() {
        if rest.len() < 4 {
            return None;
        }
        let length = u32::from_le_bytes(rest.split_to(4)[..].try_into().ok()?) as usize;
        if rest.len() < length {
            return None;
        }
        entries.push(Kept::parse(rest.split_to(length))?);
    }
    Some(entries)
}
