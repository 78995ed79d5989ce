//! What file data contributes to an inode's record.

use std::sync::atomic::Ordering;

use super::file::FileData;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::meta::RecordChange;

/// `attr.allocated` is what is stored and what will be.
pub(super) fn count_allocated(state: &FileData, core: &mut InodeCore) {
    core.attr.allocated = core.stored_bytes + state.unstored_bytes();
}

impl FileData {
    /// `data.gone_stores_nothing`, `data.traces_before_batch`: may a batch about the inode be submitted? `self` is its state, locked.
    pub(super) fn may_store(&self, inode: &Inode) -> bool {
        inode.file.traces.store(true, Ordering::SeqCst);
        !self.gone && !inode.core.lock().gone
    }

    /// Bytes of dirty data, without those that are counted as reserved.
    fn unstored_bytes(&self) -> u64 {
        self.dirty.data_bytes().saturating_sub(self.reserved.claimed())
    }

    /// What a batch changes in the record: by how much extents and reserved ranges grow, and what follows for `allocated`.
    pub(super) fn record_change(&self, stored_bytes: i64) -> RecordChange {
        let has_reserved = self.reserved.ranges().map(|ranges| ranges.len() > 0);
        RecordChange { stored_bytes, unstored_bytes: self.unstored_bytes(), has_reserved }
    }
}
