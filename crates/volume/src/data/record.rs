//! The parts of an inode's record that follow from its data.

use std::sync::atomic::Ordering;

use super::file::FileData;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::meta::RecordChange;

/// Sets `attr.allocated`: stored bytes, and bytes that will be stored.
pub(super) fn count_allocated(state: &FileData, core: &mut InodeCore) {
    core.attr.allocated = core.stored_bytes + state.unstored_bytes();
}

impl FileData {
    /// Whether a batch about the inode may be submitted (`data.gone_stores_nothing`,
    /// `data.traces_before_batch`). `self` is its state, locked.
    pub(super) fn may_store(&self, inode: &Inode) -> bool {
        inode.file.traces.store(true, Ordering::SeqCst);
        !self.gone && !inode.core.lock().gone
    }

    /// Bytes of dirty data, without those that are counted as reserved.
    fn unstored_bytes(&self) -> u64 {
        self.dirty.data_bytes().saturating_sub(self.reserved.claimed())
    }

    /// The change of the record by a batch: the growth of extents and reserved ranges, and the
    /// resulting `allocated`.
    pub(super) fn record_change(&self, stored_bytes: i64) -> RecordChange {
        let has_reserved = self.reserved.ranges().map(|ranges| ranges.len() > 0);
        RecordChange { stored_bytes, unstored_bytes: self.unstored_bytes(), has_reserved }
    }
}
