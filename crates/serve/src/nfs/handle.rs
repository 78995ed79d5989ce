//! File handles: opaque to clients, valid for as long as the inode lives, across restarts.
//!
//! ```text
//!  0        4                 20         28       36           44          52
//!  +--------+-----------------+----------+--------+------------+-----------+
//!  | "LN31" | volume (UUID)   | fsid     | inode  | generation | checksum  |   big-endian
//!  +--------+-----------------+----------+--------+------------+-----------+
//! ```
//!
//! The checksum tells a damaged or made-up handle (BADHANDLE) from one whose file is gone (STALE). It is
//! no secret: an export is always a whole volume, and who may use it is checked on every call.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use larder_base::checksum::checksum;
use larder_volume::{FileId, Ino};

/// RFC 1813 2.4: NFS3_FHSIZE.
pub const HANDLE_BYTES_MAX: usize = 64;
pub const HANDLE_BYTES: usize = 52;
const MAGIC: [u8; 4] = *b"LN31";
const SEED: u64 = 0x6c61_7264_6572_6e66;

const _: () = assert!(HANDLE_BYTES <= HANDLE_BYTES_MAX && HANDLE_BYTES.is_multiple_of(4));

/// Which export of which volume a handle belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportKey {
    pub volume: [u8; 16],
    pub fsid: u64,
}

pub fn encode(key: &ExportKey, id: FileId) -> [u8; HANDLE_BYTES] {
    let mut handle = [0; HANDLE_BYTES];
    let fields: [&[u8]; 5] =
        [&MAGIC, &key.volume, &key.fsid.to_be_bytes(), &id.ino.0.to_be_bytes(), &id.generation.to_be_bytes()];
    let mut rest: &mut [u8] = &mut handle;
    for field in fields {
        let Some((place, behind)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) else { break };
        place.copy_from_slice(field);
        rest = behind;
    }
    if let Some((body, sum)) = handle.split_last_chunk_mut::<8>() {
        *sum = checksum(SEED, body).to_be_bytes();
    }
    handle
}

/// `None` for whatever [`encode`] did not make.
pub fn decode(handle: &[u8]) -> Option<(ExportKey, FileId)> {
    let handle: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
    let (body, sum) = handle.split_last_chunk::<8>()?;
    if checksum(SEED, body) != u64::from_be_bytes(*sum) {
        return None;
    }
    let (magic, rest) = body.split_first_chunk::<4>()?;
    let (volume, rest) = rest.split_first_chunk::<16>()?;
    let (fsid, rest) = rest.split_first_chunk::<8>()?;
    let (ino, rest) = rest.split_first_chunk::<8>()?;
    let (generation, _) = rest.split_first_chunk::<8>()?;
    let key = ExportKey { volume: *volume, fsid: u64::from_be_bytes(*fsid) };
    let id = FileId { ino: Ino(u64::from_be_bytes(*ino)), generation: u64::from_be_bytes(*generation) };
    (*magic == MAGIC).then_some((key, id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    const KEY: ExportKey = ExportKey { volume: [7; 16], fsid: 0x0102 };

    #[test]
    fn golden_handle() {
        let handle = encode(&KEY, FileId { ino: Ino(0x1122), generation: 5 });
        let mut want = b"LN31".to_vec();
        want.extend([7; 16]);
        want.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(handle[..44], want);
        assert_eq!(handle[44..], checksum(SEED, &want).to_be_bytes());
    }

    proptest! {
        #[test]
        fn only_whole_handles_decode(ino: u64, generation: u64, at in 0..HANDLE_BYTES, flip in 1u8..) {
            let id = FileId { ino: Ino(ino), generation };
            let mut handle = encode(&KEY, id);
            prop_assert_eq!(decode(&handle), Some((KEY, id)));
            prop_assert_eq!(decode(&handle[..at]), None);
            handle[at] ^= flip;
            prop_assert_eq!(decode(&handle), None);
        }
    }
}
