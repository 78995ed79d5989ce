//! How much room there is for names and data: the quota of the volume, and what the store has left.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::inode::Inode;
use crate::meta::Usage;
use crate::state::State;
use crate::types::*;

/// How often a writer at the quota waits until what others have written or removed is stored.
const QUOTA_WAITS_MAX: u32 = 100;
const METADATA_RESERVE_BYTES: u64 = 32 << 20;
/// What an inode with one name takes up in the store, about.
const BYTES_PER_INODE: u64 = 512;

impl State {
    /// Bytes that count against the quota; with what is in memory, so it may be too many.
    fn used_bytes(&self) -> u64 {
        self.stored_bytes().saturating_add(self.data.usage().dirty_bytes)
    }

    fn stored_bytes(&self) -> u64 {
        let Usage { logical_bytes, .. } = self.meta.usage();
        (logical_bytes.max(0) as u64).saturating_add(self.data.usage().reserved_bytes)
    }

    /// Before names or attributes are added: metadata needs room as well, and what frees room must never lack it.
    pub(crate) async fn admit_entry(&self) -> FsResult<()> {
        if self.admits_entry()? { Ok(()) } else { Box::pin(self.wait_for_quota(1)).await }
    }

    /// As [`State::admit_entry`]; `false` instead of waiting until something on its way is stored.
    pub(crate) fn admits_entry(&self) -> FsResult<bool> {
        let (total, available) = self.space.space();
        let available = available.saturating_sub(self.data.set_aside());
        if available < (total / 64).min(METADATA_RESERVE_BYTES) {
            return Err(FsError::NoSpace("the store is full; delete files or add disks".into()));
        }
        Ok(self.is_within_quota(self.used_bytes(), 1))
    }

    /// Before data is accepted over `range` of a file: is it within the quota? What is overwritten, cut off or removed counts
    /// until that is stored, and what overwrites it counts already: nobody is refused for that, but waits until it is stored.
    pub(crate) async fn admit_data(&self, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<()> {
        assert!(range.start <= range.end, "data is accepted over a range");
        let len = range.end - range.start;
        if self.is_within_quota(self.used_bytes(), len) {
            return Ok(());
        }
        let added = len - self.data.held_bytes(inode, range).await?.min(len);
        Box::pin(self.wait_for_quota(added)).await
    }

    fn is_within_quota(&self, used_bytes: u64, added_bytes: u64) -> bool {
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        quota == u64::MAX || used_bytes.saturating_add(added_bytes) <= quota
    }

    async fn wait_for_quota(&self, added_bytes: u64) -> FsResult<()> {
        // One after the other: those who wait share what is stored.
        let _turn = self.at_quota.lock().await;
        for waited in 0..QUOTA_WAITS_MAX {
            // In this order: what is on its way must not be missing in both.
            let (settled, removing) = (self.data.is_settled(), self.data.is_removing());
            if self.is_within_quota(self.used_bytes(), added_bytes) {
                return Ok(());
            }
            // Others may have written meanwhile. What is stored alone is too much, or there is nothing else.
            let full = waited > 0 && !self.is_within_quota(self.stored_bytes(), added_bytes);
            if !removing && (settled || full) {
                break;
            }
            self.data.settle().await?;
        }
        Err(FsError::Quota)
    }

    /// What files can still take, whatever the quota says, of a store with this room (total, available).
    pub(crate) fn writable(&self, (total, available): (u64, u64)) -> u64 {
        let data = self.data.usage();
        let later = available
            .saturating_sub(data.dirty_bytes)
            .saturating_sub(self.data.set_aside())
            .saturating_add(data.dead_bytes);
        self.data.writable((total, available)).min(later)
    }

    pub(crate) fn contents(&self) -> Contents {
        let usage = self.meta.usage();
        Contents { data_bytes: self.used_bytes(), stored_bytes: usage.stored_bytes.max(0) as u64 }
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let (total, available) = self.space.space();
        let writable = self.writable((total, available));
        let data = self.data.usage();
        let usage = self.meta.usage();
        let reclaimable = data.dead_bytes;
        // Dirty data will take up room that the store does not know of yet.
        let available = available.saturating_sub(data.dirty_bytes).saturating_sub(self.data.set_aside());
        let mut stat = StatFs {
            total_bytes: total,
            free_bytes: available.saturating_add(reclaimable).min(total),
            available_bytes: writable,
            total_files: 0,
            free_files: 0,
        };
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        if quota != u64::MAX {
            let left = quota.saturating_sub(self.used_bytes());
            stat.total_bytes = total.min(quota);
            stat.free_bytes = stat.free_bytes.min(left);
            stat.available_bytes = stat.available_bytes.min(left);
        }
        let files = usage.inodes.max(0) as u64;
        stat.free_files = available / BYTES_PER_INODE;
        stat.total_files = files.saturating_add(stat.free_files);
        stat
    }
}
