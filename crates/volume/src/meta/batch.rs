//! A change to the metadata, applied as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_fs::Ino;

use super::owners::{Owned, OwnedChange};
use super::usage::Usage;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::keys;

/// Changes applied together. Of several changes of a key the last one counts.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(crate) ops: Vec<(Bytes, Option<Bytes>)>,
    /// Inodes whose records [`Meta::write`](super::Meta::write) encodes and adds
    /// (`meta.records_at_submit`).
    pub(crate) records: Vec<Arc<Inode>>,
    /// Changes of their records that become true with this batch.
    pub(crate) changes: BTreeMap<Ino, RecordChange>,
    /// The changes of the volume's counters, durable together with this batch.
    pub(crate) usage: Usage,
    /// Records that stand for other bytes than before, or for those of another owner.
    pub(crate) owned: Vec<OwnedChange>,
}

impl Batch {
    pub(crate) fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push((key.into(), Some(value.into())));
    }

    pub(crate) fn delete(&mut self, key: impl Into<Bytes>) {
        self.ops.push((key.into(), None));
    }

    /// Adds the record of an inode as it is now. The caller holds its `core` until the batch is submitted
    /// (`meta.records_at_submit`), or is alone with it.
    pub(crate) fn put_record(&mut self, ino: Ino, core: &mut InodeCore) {
        let (key, value) = keys::encode_inode(ino, core);
        self.put(key, value);
        self.own(ino, core, Some(core.owned()));
    }

    /// Removes the record of an inode; otherwise as [`Batch::put_record`].
    pub(crate) fn delete_record(&mut self, ino: Ino, core: &mut InodeCore) {
        self.delete(keys::inode_key(ino));
        self.own(ino, core, None);
    }

    fn own(&mut self, ino: Ino, core: &mut InodeCore, after: Option<Owned>) {
        let before = std::mem::replace(&mut core.recorded, after);
        if before != after {
            self.owned.push(OwnedChange { ino, before, after });
        }
    }

    /// Adds the record of `inode`, as `change` makes it: a record that another batch takes along
    /// before shows none of it.
    pub(crate) fn change(&mut self, inode: &Arc<Inode>, change: RecordChange) {
        let before = self.changes.insert(inode.id.ino, change);
        assert!(before.is_none(), "a batch changes a record once");
        self.records.push(Arc::clone(inode));
    }

    /// Adds the record of `inode` as it is at the moment of submission, and clears its
    /// `attr_dirty`. The caller must not hold its `core`.
    pub(crate) fn record(&mut self, inode: &Arc<Inode>) {
        if !self.records.iter().any(|other| other.id.ino == inode.id.ino) {
            self.records.push(Arc::clone(inode));
        }
    }
}

/// How a batch changes the stored bytes of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordChange {
    /// By how much extents and reserved ranges grow.
    pub(crate) stored_bytes: i64,
    /// Bytes in memory beyond them, afterwards.
    pub(crate) unstored_bytes: u64,
    /// `None`: as it was.
    pub(crate) has_reserved: Option<bool>,
}

impl RecordChange {
    /// The next `attr.allocated`.
    pub(crate) fn allocated(&self, core: &InodeCore) -> u64 {
        core.stored_bytes.saturating_add_signed(self.stored_bytes).saturating_add(self.unstored_bytes)
    }

    pub(super) fn apply(&self, core: &mut InodeCore) {
        core.attr.allocated = self.allocated(core);
        core.stored_bytes = core.stored_bytes.saturating_add_signed(self.stored_bytes);
        core.has_reserved = self.has_reserved.unwrap_or(core.has_reserved);
    }
}
