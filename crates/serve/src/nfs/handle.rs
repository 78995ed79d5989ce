//! File handles: opaque to clients, valid for as long as the inode lives, across restarts.
//!
//! ```text
//!  0        4                 20         28       36           44          52
//!  +--------+-----------------+----------+--------+------------+-----------+
//!  | "LN31" | volume (UUID)   | fsid     | inode  | generation | checksum  |   big-endian
//!  +--------+-----------------+----------+--------+------------+-----------+
//! ```
//!
//! The checksum tells a damaged or made-up handle (BADHANDLE) from one whose file is gone (STALE). Where an
//! export is a whole volume it is no secret: who may use the export is checked on every call. Where an export
//! is a folder, "LN3S" stands in front and a seal in place of the checksum: HMAC-SHA-256 with a key that
//! clients do not have, cut to 8 bytes. So nobody makes up handles of what lies outside the folder.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use aws_lc_rs::{constant_time, hmac};
use larder_base::checksum::checksum;
use larder_volume::{FileId, Ino};

/// RFC 1813 2.4: NFS3_FHSIZE.
pub const HANDLE_BYTES_MAX: usize = 64;
pub const HANDLE_BYTES: usize = 52;
const MAGIC: [u8; 4] = *b"LN31";
const MAGIC_SEALED: [u8; 4] = *b"LN3S";
const SEED: u64 = 0x6c61_7264_6572_6e66;

const _: () = assert!(HANDLE_BYTES <= HANDLE_BYTES_MAX && HANDLE_BYTES.is_multiple_of(4));

/// Which export of which volume a handle belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportKey {
    pub volume: [u8; 16],
    pub fsid: u64,
}

/// Seals the handles of an export that is a folder.
pub struct Seal(hmac::Key);

impl Seal {
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    fn of(&self, body: &[u8]) -> [u8; 8] {
        hmac::sign(&self.0, body).as_ref().first_chunk().copied().unwrap_or_default()
    }
}

pub fn encode(key: &ExportKey, seal: Option<&Seal>, id: FileId) -> [u8; HANDLE_BYTES] {
    let mut handle = [0; HANDLE_BYTES];
    let magic = if seal.is_some() { &MAGIC_SEALED } else { &MAGIC };
    let fields: [&[u8]; 5] =
        [magic, &key.volume, &key.fsid.to_be_bytes(), &id.ino.0.to_be_bytes(), &id.generation.to_be_bytes()];
    let mut rest: &mut [u8] = &mut handle;
    for field in fields {
        let Some((place, behind)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) else { break };
        place.copy_from_slice(field);
        rest = behind;
    }
    if let Some((body, sum)) = handle.split_last_chunk_mut::<8>() {
        *sum = seal.map_or_else(|| checksum(SEED, body).to_be_bytes(), |seal| seal.of(body));
    }
    handle
}

/// `None` for whatever [`encode`] did not make. A sealed handle is believed only after [`is_of`].
pub fn decode(handle: &[u8]) -> Option<(ExportKey, FileId)> {
    let handle: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
    let (body, sum) = handle.split_last_chunk::<8>()?;
    let (magic, rest) = body.split_first_chunk::<4>()?;
    let is_whole = *magic == MAGIC && checksum(SEED, body) == u64::from_be_bytes(*sum);
    if !is_whole && *magic != MAGIC_SEALED {
        return None;
    }
    let (volume, rest) = rest.split_first_chunk::<16>()?;
    let (fsid, rest) = rest.split_first_chunk::<8>()?;
    let (ino, rest) = rest.split_first_chunk::<8>()?;
    let (generation, _) = rest.split_first_chunk::<8>()?;
    let key = ExportKey { volume: *volume, fsid: u64::from_be_bytes(*fsid) };
    let id = FileId { ino: Ino(u64::from_be_bytes(*ino)), generation: u64::from_be_bytes(*generation) };
    Some((key, id))
}

/// Whether a handle that [`decode`] takes was made for an export with this seal, or without one.
pub fn is_of(handle: &[u8], seal: Option<&Seal>) -> bool {
    let Some((body, sum)) = handle.split_last_chunk::<8>() else { return false };
    match seal {
        None => body.starts_with(&MAGIC),
        Some(seal) => {
            body.starts_with(&MAGIC_SEALED) && constant_time::verify_slices_are_equal(&seal.of(body), sum).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    const KEY: ExportKey = ExportKey { volume: [7; 16], fsid: 0x0102 };

    #[test]
    fn golden_handle() {
        let handle = encode(&KEY, None, FileId { ino: Ino(0x1122), generation: 5 });
        let mut want = b"LN31".to_vec();
        want.extend([7; 16]);
        want.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(handle[..44], want);
        assert_eq!(handle[44..], checksum(SEED, &want).to_be_bytes());
    }

    #[test]
    fn handles_of_a_folder_cannot_be_made_up() {
        let id = FileId { ino: Ino(9), generation: 5 };
        let (ours, other) = (Seal::new(&[1; 32]), Seal::new(&[2; 32]));
        let (sealed, plain) = (encode(&KEY, Some(&ours), id), encode(&KEY, None, id));
        assert_eq!(decode(&sealed), Some((KEY, id)));
        assert!(is_of(&sealed, Some(&ours)) && !is_of(&sealed, Some(&other)) && !is_of(&sealed, None));
        assert!(is_of(&plain, None) && !is_of(&plain, Some(&ours)));
        let mut moved = sealed;
        moved[35] ^= 1;
        assert!(!is_of(&moved, Some(&ours)));
    }

    proptest! {
        #[test]
        fn only_whole_handles_decode(ino: u64, generation: u64, at in 0..HANDLE_BYTES, flip in 1u8..) {
            let id = FileId { ino: Ino(ino), generation };
            let mut handle = encode(&KEY, None, id);
            prop_assert_eq!(decode(&handle), Some((KEY, id)));
            prop_assert_eq!(decode(&handle[..at]), None);
            handle[at] ^= flip;
            prop_assert!(decode(&handle).is_none() || !is_of(&handle, None));
        }
    }
}
