//! The secret that seals the handles of NFS clients. It lives with the volume, so handles are good on any machine that opens it.
//!
//! - `handles.with_the_volume`: the secret is a record of the volume's own at its root, sealed as all records of an encrypted
//!   volume are. Clones, replicas and a volume that moves take it along. Going back to a snapshot keeps it.
//! - `handles.older_end`: a volume that had none gets one when it is opened. Handles that clients have from before are
//!   good for [`OLDER_HANDLES_SECS`], for inodes that were there: their generations can be guessed, those of later ones
//!   cannot ([`crate::numbers`]).

use larder_base::Timestamp;
use larder_fs::{FsResult, Ino};

use crate::inode_core::InodeCore;
use crate::keys;
use crate::meta::{Batch, Meta};
use crate::own_records;

/// Clients that mount rarely, as a laptop on holiday, are to find their mounts again. Longer, and guessed handles of old
/// inodes would be good for longer.
const OLDER_HANDLES_SECS: i64 = 90 * 24 * 3600;
const VERSION: u8 = 1;
const VALUE_BYTES: usize = 1 + 32 + 8 + 8;

/// The secret of a volume's handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleKey {
    /// Drawn at random.
    pub secret: [u8; 32],
    /// The first inode number of which no handle without a seal is good.
    pub older_end: Ino,
    /// The second (since 1970) from which on no handle without a seal is good.
    pub older_until_secs: i64,
}

impl HandleKey {
    pub(crate) fn new(next_ino: u64, now: Timestamp) -> HandleKey {
        let older_until_secs = now.secs.saturating_add(OLDER_HANDLES_SECS);
        HandleKey { secret: rand::random(), older_end: Ino(next_ino), older_until_secs }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.extend(self.secret);
        value.extend(self.older_end.0.to_be_bytes());
        value.extend(self.older_until_secs.to_be_bytes());
        value
    }

    /// `None` for a record of a later version, which is left alone.
    fn decode(value: &[u8]) -> Option<HandleKey> {
        if value.len() != VALUE_BYTES {
            return None;
        }
        let (version, rest) = value.split_first()?;
        let (secret, rest) = rest.split_first_chunk::<32>()?;
        let (end, rest) = rest.split_first_chunk::<8>()?;
        let until = rest.first_chunk::<8>()?;
        (*version == VERSION).then(|| HandleKey {
            secret: *secret,
            older_end: Ino(u64::from_be_bytes(*end)),
            older_until_secs: i64::from_be_bytes(*until),
        })
    }
}

pub(crate) fn row_key() -> bytes::Bytes {
    keys::xattr_key(Ino::ROOT, own_records::HANDLES)
}

/// Of a volume that is being formatted: no handles are older.
pub(crate) fn format(root: &mut InodeCore, batch: &mut Batch) {
    let key = HandleKey { secret: rand::random(), older_end: Ino(0), older_until_secs: 0 };
    batch.put(row_key(), keys::encode_xattr(&key.encode()));
    root.xattrs += 1;
}

/// `None`: an older larder made the volume.
pub(crate) async fn load(meta: &dyn Meta) -> FsResult<Option<HandleKey>> {
    let key = row_key();
    let Some(value) = meta.get(&key).await? else { return Ok(None) };
    Ok(HandleKey::decode(&keys::decode_xattr(&key, &value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let key = HandleKey { secret: [7; 32], older_end: Ino(0x0102), older_until_secs: 0x0304 };
        let mut want = vec![1];
        want.extend([7; 32]);
        want.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(key.encode(), want);
        assert_eq!(HandleKey::decode(&want), Some(key));
        for len in 0..want.len() {
            assert_eq!(HandleKey::decode(want.get(..len).unwrap_or_default()), None);
        }
        want[0] = 2;
        assert_eq!(HandleKey::decode(&want), None);
    }
}
