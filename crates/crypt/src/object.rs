//! One sealed object: its header, and sealing and opening its frames.
//!
//! ```text
//!   0 magic "LRDSEAL\0" | 8 format 1 | 9 cipher | 10 0 | 11 0 | 12 generation u32 | 16 salt [32]     48 bytes, little-endian
//!  48 frames ([`crate::frames`])
//! ```
//! The header needs no tag of its own: each field of it changes the key that the frames authenticate with.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use object_store::PutPayload;

use crate::SealError;
use crate::cipher::{Cipher, FrameKey, TAG_BYTES};
use crate::frames::{FRAME_BYTES, HEADER_BYTES, SEALED_FRAME_BYTES, frames_of};
use crate::keys::{Keys, SALT_BYTES};

const MAGIC: [u8; 8] = *b"LRDSEAL\0";
const FORMAT: u8 = 1;
const PURPOSE: &str = "larder object";
/// Sealed content is handed on in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// What the first 48 bytes of a sealed object say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cipher: Cipher,
    /// Which of the volume's keys.
    pub generation: u32,
    pub salt: [u8; SALT_BYTES],
}

impl Header {
    /// For an object that is written now.
    pub fn fresh(keys: &Keys) -> Result<Self, SealError> {
        Ok(Self { cipher: keys.cipher(), generation: keys.newest(), salt: keys.salt()? })
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = FORMAT;
        bytes[9] = self.cipher.code();
        bytes[12..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..].copy_from_slice(&self.salt);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, SealError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(SealError::NotSealed)?;
        if bytes[..8] != MAGIC {
            return Err(SealError::NotSealed);
        }
        if bytes[8] != FORMAT {
            return Err(SealError::UnknownFormat(bytes[8]));
        }
        let cipher = Cipher::of_code(bytes[9]).ok_or(SealError::UnknownFormat(bytes[9]))?;
        if bytes[10..12] != [0; 2] {
            return Err(SealError::Forged);
        }
        let generation = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&bytes[16..]);
        Ok(Self { cipher, generation, salt })
    }
}

/// The key of one object.
#[derive(Clone)]
pub(crate) struct ObjectKey(Arc<FrameKey>);

impl ObjectKey {
    /// `place` is the path of the object within its volume.
    pub fn derive(keys: &Keys, header: &Header, place: &str) -> Result<Self, SealError> {
        keys.derive(header.generation, header.cipher, &header.salt, PURPOSE, place).map(|key| Self(Arc::new(key)))
    }

    fn seal_frame(&self, number: u64, last: bool, content: &mut [u8]) -> Result<[u8; TAG_BYTES], SealError> {
        self.0.seal(content, nonce(number, last), &[])
    }

    /// Opens the frames from number `first` on that `sealed` holds whole, of an object with `content` bytes.
    pub fn open(&self, first: u64, content: u64, sealed: &[u8]) -> Result<BytesMut, SealError> {
        let count = sealed.len().div_ceil(SEALED_FRAME_BYTES as usize);
        let mut out = BytesMut::zeroed(sealed.len().checked_sub(count * TAG_BYTES).ok_or(SealError::Forged)?);
        let last = frames_of(content) - 1;
        let mut rest = &mut out[..];
        for (number, frame) in (first..).zip(sealed.chunks(SEALED_FRAME_BYTES as usize)) {
            let (sealed, tag) = frame.split_at_checked(frame.len().wrapping_sub(TAG_BYTES)).ok_or(SealError::Forged)?;
            let (content, left) = rest.split_at_mut_checked(sealed.len()).ok_or(SealError::Forged)?;
            self.0.open(sealed, tag, nonce(number, number == last), &[], content)?;
            rest = left;
        }
        Ok(out)
    }
}

/// A frame's number, and whether it is the last (`crypt.whole_or_error`).
fn nonce(number: u64, last: bool) -> u128 {
    u128::from(last) << 64 | u128::from(number)
}

/// Seals the content of one object, as it comes.
pub(crate) struct Sealer {
    key: ObjectKey,
    /// The number of the next frame.
    next: u64,
    /// Content that is not sealed yet: the last frame is known only at the end, so one frame at most stays behind.
    held: BytesMut,
    out: BytesMut,
    /// Room that is made at a time: as much as the content at hand needs.
    room_bytes: usize,
}

impl Sealer {
    /// The header is the first thing that is sealed.
    pub fn new(keys: &Keys, place: &str) -> Result<Self, SealError> {
        let header = Header::fresh(keys)?;
        let out = BytesMut::from(&header.encode()[..]);
        Ok(Self { key: ObjectKey::derive(keys, &header, place)?, next: 0, held: BytesMut::new(), out, room_bytes: 0 })
    }

    /// Takes content, and seals all full frames but the last.
    pub fn push(&mut self, content: &PutPayload) -> Result<PutPayload, SealError> {
        let mut pieces = Vec::new();
        self.room_bytes = content.content_length().min(PIECE_BYTES);
        for part in content {
            let mut part = part.clone();
            while !part.is_empty() {
                if self.held.len() == FRAME_BYTES as usize {
                    self.seal_held(false, &mut pieces)?;
                }
                let taken = part.len().min(FRAME_BYTES as usize - self.held.len());
                if self.held.is_empty() && taken == FRAME_BYTES as usize && part.len() > taken {
                    // A whole frame that is not the last goes its way without a stop.
                    self.seal(&part[..taken], false, &mut pieces)?;
                } else {
                    self.held.extend_from_slice(&part[..taken]);
                }
                part.advance(taken);
            }
        }
        if !self.out.is_empty() {
            pieces.push(self.out.split().freeze());
        }
        Ok(pieces.into_iter().collect())
    }

    /// Seals the last frame.
    pub fn finish(mut self) -> Result<PutPayload, SealError> {
        let mut pieces = Vec::new();
        self.seal_held(true, &mut pieces)?;
        pieces.push(self.out.split().freeze());
        Ok(pieces.into_iter().collect())
    }

    fn seal_held(&mut self, last: bool, pieces: &mut Vec<Bytes>) -> Result<(), SealError> {
        let held = std::mem::take(&mut self.held);
        self.seal(&held, last, pieces)?;
        self.held = held;
        self.held.clear();
        Ok(())
    }

    fn seal(&mut self, content: &[u8], last: bool, pieces: &mut Vec<Bytes>) -> Result<(), SealError> {
        if self.out.len() >= PIECE_BYTES {
            pieces.push(self.out.split().freeze());
        }
        if self.out.capacity() - self.out.len() < SEALED_FRAME_BYTES as usize {
            self.out.reserve(self.room_bytes + 2 * SEALED_FRAME_BYTES as usize);
        }
        let at = self.out.len();
        self.out.extend_from_slice(content);
        let tag = self.key.seal_frame(self.next, last, &mut self.out[at..])?;
        self.out.extend_from_slice(&tag);
        self.next += 1;
        Ok(())
    }
}

/// Seals a whole object.
pub(crate) fn seal(keys: &Keys, place: &str, content: &PutPayload) -> Result<PutPayload, SealError> {
    let mut sealer = Sealer::new(keys, place)?;
    let body = sealer.push(content)?;
    let end = sealer.finish()?;
    Ok(body.into_iter().chain(end).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::frames::{content_len, sealed_len};
    use crate::keys::VolumeKey;

    fn keys() -> Keys {
        Keys::new(Uuid::from_u128(5), Cipher::Aes256Gcm, BTreeMap::from([(1, VolumeKey::new([9; 32]))]))
    }

    fn sealed(place: &str, content: &[u8]) -> Vec<u8> {
        let payload = PutPayload::from(content.to_vec());
        seal(&keys(), place, &payload).expect("seals").iter().flat_map(|piece| piece.to_vec()).collect()
    }

    fn opened(place: &str, object: &[u8]) -> Result<Vec<u8>, SealError> {
        let header = Header::decode(object)?;
        let key = ObjectKey::derive(&keys(), &header, place)?;
        let content = content_len(object.len() as u64).ok_or(SealError::Forged)?;
        key.open(0, content, &object[HEADER_BYTES..]).map(|content| content.to_vec())
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 % 251) as u8).collect()
    }

    #[test]
    fn a_last_frame_shorter_than_its_tag_is_refused() {
        let object = sealed("data/1", &content(3 << 20));
        let header = Header::decode(&object).expect("decodes");
        let key = ObjectKey::derive(&keys(), &header, "data/1").expect("derives");
        let body = &object[HEADER_BYTES..];
        for tail in 1..TAG_BYTES {
            let torn = body.get(..SEALED_FRAME_BYTES as usize + tail).expect("there are more frames");
            assert_eq!(key.open(0, 3 << 20, torn), Err(SealError::Forged), "{tail}");
        }
    }

    #[test]
    fn what_is_sealed_is_opened_at_its_place_alone() {
        for len in [0, 1, 4095, 4096, 4097, 8192, 3 << 20] {
            let object = sealed("data/1", &content(len));
            assert_eq!(object.len() as u64, sealed_len(len as u64));
            assert_eq!(opened("data/1", &object).expect("opens"), content(len));
            assert_eq!(opened("data/2", &object), Err(SealError::Forged), "{len}");
        }
    }

    #[test]
    fn the_same_content_is_never_sealed_alike() {
        assert_ne!(sealed("a", &content(100)), sealed("a", &content(100)));
    }

    #[test]
    fn a_flipped_bit_in_any_byte_is_noticed() {
        let object = sealed("a", &content(5000));
        for at in 0..object.len() {
            for bit in [0, 7] {
                let mut changed = object.clone();
                changed[at] ^= 1 << bit;
                assert!(opened("a", &changed).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn frames_that_were_moved_dropped_or_cut_are_noticed() {
        let frame = SEALED_FRAME_BYTES as usize;
        let object = sealed("a", &content(3 * 4096));
        let mut swapped = object.clone();
        swapped[HEADER_BYTES..].rotate_left(frame);
        let without_middle = [&object[..HEADER_BYTES + frame], &object[HEADER_BYTES + 2 * frame..]].concat();
        let repeated = [&object[..], &object[HEADER_BYTES + 2 * frame..]].concat();
        for changed in [swapped, without_middle, repeated, object[..HEADER_BYTES + 2 * frame].to_vec()] {
            assert_eq!(opened("a", &changed), Err(SealError::Forged));
        }
        for cut in 0..object.len() {
            assert!(opened("a", &object[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_one_object(sizes in proptest::collection::vec(0_usize..9000, 0..12)) {
            let whole = content(sizes.iter().sum());
            let mut sealer = Sealer::new(&keys(), "a").expect("a sealer");
            let (mut object, mut at) = (Vec::new(), 0);
            for size in sizes {
                let part = sealer.push(&PutPayload::from(whole[at..at + size].to_vec())).expect("seals");
                object.extend(part.iter().flat_map(|piece| piece.to_vec()));
                at += size;
            }
            object.extend(sealer.finish().expect("seals").iter().flat_map(|piece| piece.to_vec()));
            prop_assert_eq!(opened("a", &object).expect("opens"), whole);
        }
    }
}
