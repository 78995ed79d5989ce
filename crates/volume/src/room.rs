//! Room for names and data: the quota of the volume, those of owners, and the rest of the store.
//!
//! - `room.names_count`: quotas count the charges for names and attributes ([`crate::charge`]) beside data. A change that adds
//!   no charge and no data is never refused, whatever is used.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_fs::*;

use crate::charge;
use crate::data::reservable;
use crate::inode::Inode;
use crate::meta::{Owned, Owners, Usage, Used};
use crate::state::State;

/// A writer at the quota gives up after waiting this many times for the writes and removals of
/// others to be stored.
const QUOTA_WAITS_MAX: u32 = 100;
const METADATA_RESERVE_BYTES: u64 = 32 << 20;
/// Bytes that an inode with one name takes up in the store, about.
const BYTES_PER_INODE: u64 = 512;

/// What has to fit into quotas.
struct Wanted {
    bytes: u64,
    /// Of the file, where owners have quotas.
    owner: Option<Owned>,
}

impl State {
    /// Bytes that count against the quota, with those in memory; so it may be too many.
    fn used_bytes(&self) -> u64 {
        self.stored_bytes().saturating_add(self.data.usage().dirty_bytes)
    }

    fn stored_bytes(&self) -> u64 {
        self.stored_data_bytes().saturating_add(self.metadata_bytes())
    }

    fn stored_data_bytes(&self) -> u64 {
        let Usage { logical_bytes, .. } = self.meta.usage();
        (logical_bytes.max(0) as u64).saturating_add(self.data.usage().reserved_bytes)
    }

    /// The charges for names and attributes. Until they are counted, the least that this many inodes come to.
    fn metadata_bytes(&self) -> u64 {
        let least = (self.meta.usage().inodes.max(0) as u64).saturating_mul(charge::INODE_BYTES);
        self.meta.owners().map_or(0, Owners::metadata_bytes).max(least)
    }

    /// Called before names or attributes are added: metadata needs room as well, and a removal must
    /// never lack it. `asked`: the charge that is added, and who bears it.
    pub(crate) async fn admit_entry(&self, asked: Owned) -> FsResult<()> {
        if self.admits_entry(asked)? { Ok(()) } else { self.wait_for_quota(self.wanted_for(asked)).await }
    }

    fn wanted_for(&self, asked: Owned) -> Wanted {
        Wanted { bytes: asked.bytes(), owner: self.owner_quotas.any().then_some(asked) }
    }

    /// As [`State::admit_entry`]; `false` instead of waiting until something on its way is stored.
    pub(crate) fn admits_entry(&self, asked: Owned) -> FsResult<bool> {
        let (total, available) = self.space.space();
        let available = available.saturating_sub(self.data.set_aside());
        if available < (total / 64).min(METADATA_RESERVE_BYTES) {
            return Err(match self.space.is_away() {
                true => FsError::Io("too few disks of the store take writes".into()),
                false => FsError::NoSpace("the store is full; delete files or add disks".into()),
            });
        }
        Ok(self.has_quota_for(&self.wanted_for(asked), self.data.usage().dirty_bytes))
    }

    /// Called before data is accepted over `range` of a file. Overwritten, truncated or removed
    /// bytes count until that is stored, and the bytes that overwrite them count already. No write
    /// is refused for that: it waits until they are stored.
    pub(crate) async fn admit_data(&self, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<()> {
        assert!(range.start <= range.end, "data is accepted over a range");
        let len = range.end - range.start;
        let owner = self.owner_quotas.any().then(|| inode.core.lock().owned());
        let mut wanted = Wanted { bytes: len, owner };
        if self.has_quota_for(&wanted, self.data.usage().dirty_bytes) {
            return Ok(());
        }
        wanted.bytes = len - self.data.held_bytes(inode, range).await?.min(len);
        self.wait_for_quota(wanted).await
    }

    /// Called before a range of a file takes the place of one of another. The bytes of it that may be data
    /// (`share.holes_are_free`).
    pub(crate) async fn admit_clone(
        &self,
        (source, from): (&Arc<Inode>, Range<u64>),
        (target, to): (&Arc<Inode>, Range<u64>),
    ) -> FsResult<u64> {
        assert!(from.start <= from.end && to.end - to.start == from.end - from.start, "ranges of one length");
        let owner = self.owner_quotas.any().then(|| target.core.lock().owned());
        let mut wanted = Wanted { bytes: to.end - to.start, owner };
        let has_quota = self.has_quota_for(&wanted, self.data.usage().dirty_bytes);
        if has_quota && self.data.has_room_to_clone(wanted.bytes) {
            return Ok(wanted.bytes);
        }
        let data = Box::pin(self.data.data_bytes(source, from)).await?;
        if !has_quota {
            wanted.bytes = data.saturating_sub(self.data.held_bytes(target, to).await?);
            self.wait_for_quota(wanted).await?;
        }
        Ok(data)
    }

    /// Called before the bytes of an inode become another owner's. Data in memory is counted once it is stored.
    pub(crate) fn admit_owner(&self, before: Owned, after: Owned) -> FsResult<()> {
        let owner = Owned {
            uid: if before.uid == after.uid { 0 } else { after.uid },
            gid: if before.gid == after.gid { 0 } else { after.gid },
            ..after
        };
        if self.owner_left(owner, 0).is_none_or(|left| after.bytes() <= left) { Ok(()) } else { Err(FsError::Quota) }
    }

    /// Called before an inode is handed over: removals on their way may make the room that the next owner lacks.
    pub(crate) async fn await_owner(&self, before: Owned, after: Owned) -> FsResult<()> {
        if self.admit_owner(before, after).is_ok() {
            return Ok(());
        }
        let _turn = self.at_quota.lock().await;
        for _ in 0..QUOTA_WAITS_MAX {
            let removing = self.data.is_removing();
            if self.admit_owner(before, after).is_ok() || !removing {
                break;
            }
            self.data.settle().await?;
        }
        Ok(())
    }

    /// `unstored_bytes`: bytes in memory that may be anybody's, and are on the safe side taken to be this owner's.
    fn has_quota_for(&self, wanted: &Wanted, unstored_bytes: u64) -> bool {
        if wanted.bytes == 0 {
            return true;
        }
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        let used = || self.stored_bytes().saturating_add(unstored_bytes).saturating_add(wanted.bytes);
        if quota != u64::MAX && used() > quota {
            return false;
        }
        let left = wanted.owner.and_then(|owner| self.owner_left(owner, unstored_bytes));
        left.is_none_or(|left| wanted.bytes <= left)
    }

    /// What the quotas of this user and this group leave. `None`: neither has one.
    fn owner_left(&self, owner: Owned, unstored_bytes: u64) -> Option<u64> {
        let (user, group) = self.owner_quotas.of(owner.uid, owner.gid);
        let left =
            |quota: u64, used: Used| quota.saturating_sub((used.bytes.max(0) as u64).saturating_add(unstored_bytes));
        let owners = self.meta.owners()?;
        let user = user.map(|quota| left(quota, owners.user(owner.uid)));
        let group = group.map(|quota| left(quota, owners.group(owner.gid)));
        user.into_iter().chain(group).min()
    }

    #[larder_base::boxed]
    async fn wait_for_quota(&self, wanted: Wanted) -> FsResult<()> {
        // One after the other, because waiting writers share the bytes that become free.
        let _turn = self.at_quota.lock().await;
        for waited in 0..QUOTA_WAITS_MAX {
            // In this order: data on its way must not be missing in both.
            let (settled, removing) = (self.data.is_settled(), self.data.is_removing());
            if self.has_quota_for(&wanted, self.data.usage().dirty_bytes) {
                return Ok(());
            }
            // Others may have written in the meantime. Either the stored bytes alone exceed the
            // quota, or nothing else is left.
            let full = waited > 0 && !self.has_quota_for(&wanted, 0);
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
        Contents {
            data_bytes: self.stored_data_bytes().saturating_add(self.data.usage().dirty_bytes),
            charged_bytes: self.used_bytes(),
            stored_bytes: usage.stored_bytes.max(0) as u64,
        }
    }

    /// Bytes that count against the narrowest quota of `cred`: those of the user, of its group, or else of the volume.
    pub(crate) fn quota_used(&self, cred: &Cred) -> u64 {
        let (user, group) = self.owner_quotas.of(cred.uid, cred.gid);
        let of = |used: Used| used.bytes.max(0) as u64;
        match (self.meta.owners(), user, group) {
            (Some(owners), Some(_), _) => of(owners.user(cred.uid)),
            (Some(owners), None, Some(_)) => of(owners.group(cred.gid)),
            _ => self.used_bytes(),
        }
    }

    /// As `cred` sees it, whose own quotas count as well.
    pub(crate) fn statfs(&self, cred: &Cred) -> StatFs {
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
            // What fallocate gets of it, and plain writes too.
            available_bytes: reservable(writable),
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
        let (user, group) = self.owner_quotas.of(cred.uid, cred.gid);
        let owner = Owned { uid: cred.uid, gid: cred.gid, data_bytes: 0, metadata_bytes: 0 };
        if let Some(left) = self.owner_left(owner, data.dirty_bytes) {
            let quota = user.into_iter().chain(group).min().unwrap_or(u64::MAX);
            stat.total_bytes = stat.total_bytes.min(quota);
            stat.free_bytes = stat.free_bytes.min(left);
            stat.available_bytes = stat.available_bytes.min(left);
        }
        let files = usage.inodes.max(0) as u64;
        stat.free_files = available / BYTES_PER_INODE;
        stat.total_files = files.saturating_add(stat.free_files);
        stat
    }
}
