//! The change index: which inodes a batch changed first in which epoch. Rows `H` epoch inode.
//!
//! - `changed.with_the_batch`: a batch that writes or removes the record of an inode carries the row, if it is the first one of
//!   the epoch. Epoch and batch are taken under one lock, so a change before a cut is never counted after it.
//! - `changed.never_missing`: rows may be written twice, and may be there for an inode that is as it was; a row is never missing
//!   while a snapshot of an earlier epoch is there.

use std::collections::HashSet;

use bytes::{BufMut, Bytes, BytesMut};
use larder_fs::{FsResult, Ino};

use super::Batch;
use crate::keys::{self, MARK, damaged, tag};

/// Numbers that are remembered; then they may be written again.
const SEEN_MAX: usize = 1 << 20;

pub(crate) fn changed_key(epoch: u64, ino: Ino) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(tag::CHANGED);
    key.put_u64(epoch);
    key.put_u64(ino.0);
    key.freeze()
}

/// Epoch and inode.
pub(crate) fn decode_changed(key: &[u8]) -> FsResult<(u64, Ino)> {
    let numbers = key.get(1..).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let bytes = numbers.ok_or_else(|| damaged(key, "wrong key length"))?;
    let number = u128::from_be_bytes(bytes);
    Ok(((number >> 64) as u64, Ino(number as u64)))
}

/// What was changed in this epoch.
#[derive(Default)]
pub(super) struct Changed {
    /// `None`: there is no snapshot that a change could be compared with.
    epoch: Option<u64>,
    seen: HashSet<u64>,
}

impl Changed {
    pub(super) fn set_epoch(&mut self, epoch: Option<u64>) {
        self.epoch = epoch;
        self.seen = HashSet::new();
    }

    /// `changed.with_the_batch`
    pub(super) fn note(&mut self, batch: &mut Batch) {
        let Some(epoch) = self.epoch else { return };
        let mut rows = Vec::new();
        for (key, _) in batch.ops.iter().filter(|(key, _)| key.first() == Some(&tag::INODE)) {
            let Ok(ino) = keys::ino_of(key) else { continue };
            if self.seen.len() >= SEEN_MAX {
                self.seen = HashSet::new();
            }
            if self.seen.insert(ino.0) {
                rows.push((changed_key(epoch, ino), Some(MARK)));
            }
        }
        batch.ops.extend(rows);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_first_change_of_an_epoch_leaves_a_row() {
        let change = |changed: &mut Changed, ino: u64| {
            let mut batch = Batch::default();
            batch.put(keys::inode_key(Ino(ino)), MARK);
            changed.note(&mut batch);
            batch.ops.iter().filter_map(|(key, _)| decode_changed(key).ok()).collect::<Vec<_>>()
        };
        let mut changed = Changed::default();
        assert_eq!(change(&mut changed, 5), []);
        changed.set_epoch(Some(2));
        assert_eq!(change(&mut changed, 5), [(2, Ino(5))]);
        assert_eq!(change(&mut changed, 5), []);
        assert_eq!(change(&mut changed, 6), [(2, Ino(6))]);
        changed.set_epoch(Some(3));
        assert_eq!(change(&mut changed, 5), [(3, Ino(5))]);
        assert!(decode_changed(b"H123").is_err());
        assert_eq!(&changed_key(1, Ino(2))[..], b"H\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
    }
}
