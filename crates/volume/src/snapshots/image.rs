//! The image of a snapshot: one object with what the engine's tables do not have.
//!
//! ```text
//! LARDSNAP | version 4 | 0 4 | epoch 8 | id of the manifest 8 | length of the manifest 8 | count of rows 8 |
//! manifest | rows: length of the key 2, kind 1 (0: deleted, 1: value), length of the value 4, key, value | checksum 8
//! ```
//!
//! The manifest is the engine's own, byte for byte. The rows lie over it: data that was dirty, and the records of its inodes.
//! In a replica an image may lie over that of another snapshot instead: then the version is 2, the id is the number of that
//! snapshot, and there is no manifest.
//! The checksum covers all before it and is seeded with the epoch.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use larder_base::checksum::checksum;
use larder_fs::{FsError, FsResult};
use object_store::path::Path;

use crate::meta::overlay::Changes;

const MAGIC: &[u8; 8] = b"LARDSNAP";
const VERSION: u32 = 1;
const VERSION_OVER: u32 = 2;
const HEADER_BYTES: usize = 48;
const SUM_BYTES: usize = 8;
/// A larger object is no image of ours.
const IMAGE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) ground: Ground,
    pub(crate) rows: Changes,
}

/// What the rows of an image lie over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The engine as one of its manifests has it.
    Engine { manifest_id: u64, manifest: Bytes },
    /// The snapshot of this number.
    Snapshot(u64),
}

/// Where it lies: `<volume>/snap/<epoch, 16 hex digits>`.
pub(crate) fn image_path(prefix: &Path, epoch: u64) -> Path {
    folder(prefix).join(format!("{epoch:016x}"))
}

pub(crate) fn folder(prefix: &Path) -> Path {
    prefix.clone().join("snap")
}

/// The epoch in the name of an image.
pub(crate) fn epoch_of(path: &Path) -> Option<u64> {
    path.filename().filter(|name| name.len() == 16).and_then(|name| u64::from_str_radix(name, 16).ok())
}

pub(crate) fn encode(epoch: u64, image: &Image) -> Bytes {
    let (version, id, manifest) = match &image.ground {
        Ground::Engine { manifest_id, manifest } => (VERSION, *manifest_id, &manifest[..]),
        Ground::Snapshot(number) => (VERSION_OVER, *number, &[][..]),
    };
    let mut out = BytesMut::with_capacity(HEADER_BYTES + manifest.len() + image.rows.len() * 96 + SUM_BYTES);
    out.put_slice(MAGIC);
    out.put_u32(version);
    out.put_u32(0);
    out.put_u64(epoch);
    out.put_u64(id);
    out.put_u64(manifest.len() as u64);
    out.put_u64(image.rows.len() as u64);
    out.put_slice(manifest);
    for (key, value) in &image.rows {
        out.put_u16(key.len() as u16);
        out.put_u8(u8::from(value.is_some()));
        out.put_u32(value.as_ref().map_or(0, Bytes::len) as u32);
        out.put_slice(key);
        out.put_slice(value.as_deref().unwrap_or_default());
    }
    let sum = checksum(epoch, &out);
    out.put_u64(sum);
    out.freeze()
}

pub(crate) fn decode(epoch: u64, mut bytes: Bytes) -> FsResult<Image> {
    let bad = |why: &str| FsError::Io(format!("the image of snapshot {epoch} is damaged: {why}").into());
    if bytes.len() < HEADER_BYTES + SUM_BYTES || bytes.len() as u64 > IMAGE_BYTES_MAX {
        return Err(bad("it has an impossible length"));
    }
    let mut sum = bytes.split_off(bytes.len() - SUM_BYTES);
    if sum.get_u64() != checksum(epoch, &bytes) {
        return Err(bad("its checksum is wrong"));
    }
    if bytes.split_to(8) != MAGIC[..] {
        return Err(bad("the magic is not an image's"));
    }
    let version = bytes.get_u32();
    if version != VERSION && version != VERSION_OVER {
        return Err(bad(&format!("version {version} is unknown to this program")));
    }
    bytes.advance(4);
    if bytes.get_u64() != epoch {
        return Err(bad("it belongs to another snapshot"));
    }
    let (id, manifest_len, count) = (bytes.get_u64(), bytes.get_u64(), bytes.get_u64());
    if manifest_len > bytes.len() as u64 {
        return Err(bad("it is cut short"));
    }
    let manifest = bytes.split_to(manifest_len as usize);
    let ground = match version {
        VERSION => Ground::Engine { manifest_id: id, manifest },
        // A snapshot lies over an earlier one, or a chain would have no end.
        _ if manifest.is_empty() && id < epoch => Ground::Snapshot(id),
        _ => return Err(bad("it lies over an impossible snapshot")),
    };
    let mut rows = Changes::new();
    for _ in 0..count {
        if bytes.len() < 7 {
            return Err(bad("it is cut short"));
        }
        let (key_len, kind, value_len) = (usize::from(bytes.get_u16()), bytes.get_u8(), bytes.get_u32() as usize);
        if kind > 1 || bytes.len() < key_len.saturating_add(value_len) {
            return Err(bad("a row is damaged"));
        }
        let (key, value) = (bytes.split_to(key_len), bytes.split_to(value_len));
        rows.insert(key, (kind == 1).then_some(value));
    }
    if bytes.has_remaining() {
        return Err(bad("there are bytes behind its end"));
    }
    Ok(Image { ground, rows })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn image() -> Image {
        let rows = [(&b"I1"[..], Some(&b"record"[..])), (&b"W1"[..], None)];
        let rows = rows.map(|(key, value)| (Bytes::from_static(key), value.map(Bytes::from_static)));
        let ground = Ground::Engine { manifest_id: 7, manifest: Bytes::from_static(b"manifest") };
        Image { ground, rows: rows.into() }
    }

    #[test]
    fn golden_bytes() {
        let bytes = encode(3, &image());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let want = "4c415244534e4150 00000001 00000000 0000000000000003 0000000000000007 0000000000000008 0000000000000002 \
                    6d616e6966657374 0002 01 00000006 4931 7265636f7264 0002 00 00000000 5731";
        let want = want.replace([' ', '\n'], "");
        assert_eq!(hex[..want.len()], want);
        assert_eq!(hex.len(), want.len() + 16);
        assert_eq!(decode(3, bytes).unwrap(), image());
    }

    #[test]
    fn an_image_over_an_earlier_one() {
        let over = |number| Image { ground: Ground::Snapshot(number), ..image() };
        let bytes = encode(3, &over(2));
        let hex: String = bytes[8..48].iter().map(|byte| format!("{byte:02x}")).collect();
        let want = "00000002 00000000 0000000000000003 0000000000000002 0000000000000000 0000000000000002";
        assert_eq!(hex, want.replace(' ', ""));
        assert_eq!(decode(3, bytes).unwrap(), over(2));
        assert!(decode(3, encode(3, &over(3))).is_err(), "over itself");
    }

    #[test]
    fn a_flipped_bit_or_another_epoch_is_noticed() {
        let bytes = encode(3, &image());
        assert!(decode(4, bytes.clone()).is_err());
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1 << (at % 8);
            assert!(decode(3, bad.into()).is_err(), "byte {at}");
            assert!(decode(3, bytes.slice(..at)).is_err());
        }
    }
}
