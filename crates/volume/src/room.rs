//! Room for names and data: the quota of the volume, and the rest of the store.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::inode::Inode;
use crate::meta::Usage;
use crate::state::State;
use crate::types::*;

/// A writer at the quota gives up after waiting this many times for the writes and removals of
/// others to be stored.
const QUOTA_WAITS_MAX: u32 = 100;
const METADATA_RESERVE_BYTES: u64 = 32 << 20;
/// Bytes that an inode with one name takes up in the store, about.
const BYTES_PER_INODE: u64 = 512;

impl State {
    /// Bytes that count against the quota, with those in memory; so it may be too many.
    fn used_bytes(&self) -> u64 {
        self.stored_bytes().saturating_add(self.data.usage().dirty_bytes)
    }

    fn stored_bytes(&self) -> u64 {
        let Usage { logical_bytes, .. } = self.meta.usage();
        (logical_bytes.max(0) as u64).saturating_add(self.data.usage().reserved_bytes)
    }

    /// Called before names or attributes are added: metadata needs room as well, and a removal must
    /// never lack it.
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

    /// Called before data is accepted over `range` of a file. Overwritten, truncated or removed
    /// bytes count until that is stored, and the bytes that overwrite them count already. No write
    /// is refused for that: it waits until they are stored.
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
        // One after the other, because waiting writers share the bytes that become free.
        let _turn = self.at_quota.lock().await;
        for waited in 0..QUOTA_WAITS_MAX {
            // In this order: data on its way must not be missing in both.
            let (settled, removing) = (self.data.is_settled(), self.data.is_removing());
            if self.is_within_quota(self.used_bytes(), added_bytes) {
                return Ok(());
            }
            // Others may have written in the meantime. Either the stored bytes alone exceed the
            // quota, or nothing else is left.
            let full = waited > 0 && !self.is_within_quota(self.stored_bytes(), added_bytes);
            if !removing && (settled || full) {
                break;
            }
            self.data.settle().await?;
        }
        Err(FsError::Quota)
    }

    /// Bytes that files can still take, whatever the quota, of a store with this room (total,
    /// available).
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
