//! File handles: opaque to clients, valid for as long as the inode lives, across restarts.
//!
//! ```text
//!  0        4                 20         28       36           44          52
//!  +--------+-----------------+----------+--------+------------+-----------+
//!  | "LN31" | volume (UUID)   | fsid     | inode  | generation | checksum  |   big-endian
//!  +--------+-----------------+----------+--------+------------+-----------+
//! ```
//!
//! "LN3S" stands in front of a handle whose last field is a seal in place of the checksum: HMAC-SHA-256 with a key that
//! clients do not have, cut to 8 bytes. So nobody makes up the handle of what lies outside an exported folder, or behind
//! folders that he may not enter (`handle.sealed`). "LN31" is the form of older larders, with a checksum that anybody can
//! compute; it is taken for a while of volumes that were there before ([`Older`]).
//!
//! - `handle.sealed`: the seal covers volume, export, inode and generation: a handle of one export is none of another.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::time::SystemTime;

use aws_lc_rs::{constant_time, hmac};
use larder_base::checksum::checksum;
use larder_fs::{FileId, Ino};

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

/// Handles of older larders that are still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// None.
    Refused,
    /// All of the export, which nobody has given a key.
    Taken,
    /// Those of inodes below a number, until a moment.
    Below(Ino, SystemTime),
}

/// What the handles of an export are made with, and are checked against.
pub struct Seal {
    /// `None`: handles are made as older larders make them.
    key: Option<hmac::Key>,
    /// A key of before, whose handles are good.
    former: Option<hmac::Key>,
    older: Older,
}

impl Seal {
    pub fn new(key: Option<&[u8; 32]>, former: Option<&[u8; 32]>, older: Older) -> Self {
        let hmac_key = |key: &[u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { key: key.map(hmac_key), former: former.map(hmac_key), older }
    }

    /// Of an export whose volume has no key yet.
    #[cfg(any(test, fuzzing))]
    pub fn none() -> Self {
        Self { key: None, former: None, older: Older::Taken }
    }
}

fn seal_of(key: &hmac::Key, body: &[u8]) -> [u8; 8] {
    hmac::sign(key, body).as_ref().first_chunk().copied().unwrap_or_default()
}

pub fn encode(key: &ExportKey, seal: &Seal, id: FileId) -> [u8; HANDLE_BYTES] {
    let mut handle = [0; HANDLE_BYTES];
    let magic = if seal.key.is_some() { &MAGIC_SEALED } else { &MAGIC };
    let fields: [&[u8]; 5] =
        [magic, &key.volume, &key.fsid.to_be_bytes(), &id.ino.0.to_be_bytes(), &id.generation.to_be_bytes()];
    let mut rest: &mut [u8] = &mut handle;
    for field in fields {
        let Some((place, behind)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) else { break };
        place.copy_from_slice(field);
        rest = behind;
    }
    if let Some((body, sum)) = handle.split_last_chunk_mut::<8>() {
        *sum = seal.key.as_ref().map_or_else(|| checksum(SEED, body).to_be_bytes(), |key| seal_of(key, body));
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

/// Whether a handle that [`decode`] takes, of the inode `ino`, is good for an export with this seal.
pub fn is_of(handle: &[u8], ino: Ino, seal: &Seal) -> bool {
    let Some((body, sum)) = handle.split_last_chunk::<8>() else { return false };
    if body.starts_with(&MAGIC_SEALED) {
        let keys = [&seal.key, &seal.former];
        return keys
            .into_iter()
            .flatten()
            .any(|key| constant_time::verify_slices_are_equal(&seal_of(key, body), sum).is_ok());
    }
    match seal.older {
        Older::Refused => false,
        Older::Taken => true,
        Older::Below(end, until) => ino < end && SystemTime::now() < until,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    const KEY: ExportKey = ExportKey { volume: [7; 16], fsid: 0x0102 };

    fn sealed(key: u8) -> Seal {
        Seal::new(Some(&[key; 32]), None, Older::Refused)
    }

    #[test]
    fn golden_handle() {
        let id = FileId { ino: Ino(0x1122), generation: 5 };
        let handle = encode(&KEY, &Seal::none(), id);
        let mut want = b"LN31".to_vec();
        want.extend([7; 16]);
        want.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(handle[..44], want);
        assert_eq!(handle[44..], checksum(SEED, &want).to_be_bytes());
        let handle = encode(&KEY, &sealed(1), id);
        assert_eq!((&handle[..4], &handle[4..44]), (&b"LN3S"[..], &want[4..]));
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]), &handle[..44]);
        assert_eq!(handle[44..], mac.as_ref()[..8]);
    }

    #[test]
    fn handles_cannot_be_made_up() {
        let id = FileId { ino: Ino(9), generation: 5 };
        let (ours, other) = (sealed(1), sealed(2));
        let (made, plain) = (encode(&KEY, &ours, id), encode(&KEY, &Seal::none(), id));
        assert_eq!(decode(&made), Some((KEY, id)));
        let good = |handle: &[u8], seal: &Seal| is_of(handle, id.ino, seal);
        assert!(good(&made, &ours) && !good(&made, &other) && !good(&made, &Seal::none()));
        assert!(good(&plain, &Seal::none()) && !good(&plain, &ours));
        let former = Seal::new(Some(&[3; 32]), Some(&[1; 32]), Older::Refused);
        assert!(good(&made, &former) && !good(&made, &Seal::new(Some(&[3; 32]), None, Older::Refused)));
        for at in 0..HANDLE_BYTES {
            let mut moved = made;
            moved[at] ^= 1;
            assert!(decode(&moved).is_none() || !good(&moved, &ours), "byte {at}");
        }
    }

    #[test]
    fn older_handles_end() {
        let id = FileId { ino: Ino(9), generation: 5 };
        let plain = encode(&KEY, &Seal::none(), id);
        let (past, ahead) = (SystemTime::UNIX_EPOCH, SystemTime::now() + std::time::Duration::from_secs(3600));
        for (end, until, wanted) in [(10, ahead, true), (9, ahead, false), (10, past, false)] {
            let seal = Seal::new(Some(&[1; 32]), None, Older::Below(Ino(end), until));
            assert_eq!(is_of(&plain, id.ino, &seal), wanted, "below {end}");
        }
    }

    /// `cargo test --release -p larder -p larder-nfs --lib handle::tests::cost -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn cost() {
        const ROUNDS: u64 = 1_000_000;
        for (what, seal) in [("checksum", Seal::none()), ("seal", sealed(1))] {
            let began = std::time::Instant::now();
            let good = (0..ROUNDS).filter(|n| {
                let id = FileId { ino: Ino(*n), generation: *n };
                is_of(&encode(&KEY, &seal, id), id.ino, &seal)
            });
            assert_eq!(good.count() as u64, ROUNDS);
            println!("{what}: {} ns to make a handle and check it", began.elapsed().as_nanos() / u128::from(ROUNDS));
        }
    }

    proptest! {
        #[test]
        fn only_whole_handles_decode(ino: u64, generation: u64, at in 0..HANDLE_BYTES, flip in 1u8..) {
            let id = FileId { ino: Ino(ino), generation };
            let seal = Seal::none();
            let mut handle = encode(&KEY, &seal, id);
            prop_assert_eq!(decode(&handle), Some((KEY, id)));
            prop_assert_eq!(decode(&handle[..at]), None);
            handle[at] ^= flip;
            // With the other magic it is a sealed one, which this export has no key for.
            prop_assert!(decode(&handle).is_none() || !is_of(&handle, id.ino, &seal));
        }
    }
}
