//! Quotas by owner: the count of what owners use, and the list of it. The quota of a volume needs the same count, of charges
//! for names and attributes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_fs::*;

use crate::keys;
use crate::properties::OwnerQuotas;
use crate::state::State;
use crate::volume::Volume;

const PAGE: usize = 4096;
/// A page that could not be read is read again after this.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl State {
    /// Called once the volume's own quota is set.
    pub(crate) fn set_owner_quotas(self: &Arc<Self>, quotas: &OwnerQuotas) {
        self.owner_quotas.set(quotas);
        if !quotas.is_empty() || self.quota_bytes.load(Ordering::Relaxed) != u64::MAX {
            self.count_owners();
        }
    }

    /// Begins to count what owners use, unless that was begun before.
    fn count_owners(self: &Arc<Self>) {
        if self.meta.owners().is_some_and(|owners| owners.want()) {
            let state = Arc::downgrade(self);
            self.spawn(async move {
                while let Some(state) = state.upgrade() {
                    match state.count_page().await {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(FsError::Poisoned(_)) => return,
                        Err(error) => {
                            tracing::warn!(volume = state.name, %error, "what owners use could not be counted");
                            drop(state);
                            tokio::time::sleep(RETRY_AFTER).await;
                        }
                    }
                }
            });
        }
    }

    /// Returns whether there are more.
    async fn count_page(&self) -> FsResult<bool> {
        let Some(owners) = self.meta.owners() else { return Ok(false) };
        let Some(first) = owners.begin() else { return Ok(false) };
        let (_, end) = keys::table_range(keys::tag::INODE);
        let rows = self.meta.scan(&keys::inode_key(first), &end, PAGE).await?;
        let next = match rows.last() {
            Some((key, _)) if rows.len() == PAGE => Some(Ino(keys::ino_of(key)?.0 + 1)),
            _ => None,
        };
        // A record that does not decode is found by `larder check`.
        let owned = |(key, value): &(bytes::Bytes, bytes::Bytes)| {
            let ino = keys::ino_of(key).ok()?;
            keys::decode_inode(ino, value).ok().map(|core| (ino, core.owned()))
        };
        owners.end(rows.iter().filter_map(owned), next);
        Ok(next.is_some())
    }
}

impl Volume {
    /// What the files of each user and group take up, and their quotas, in the order of numbers: those that have files or a quota.
    /// Stores what is in memory, and counts all inodes first where that was not yet done since the volume was opened.
    pub async fn owners(&self) -> FsResult<Vec<OwnerUse>> {
        let state = &self.state;
        state.count_owners();
        let owners = state.meta.owners().ok_or(FsError::NotSupported)?;
        owners.counted().await;
        state.data.settle().await?;
        Ok(self.owners_now())
    }

    /// As [`Volume::owners`], as far as it is known in memory: less than it is while inodes are being counted, and without what was
    /// written last. Does no I/O.
    pub fn owners_now(&self) -> Vec<OwnerUse> {
        let state = &self.state;
        let Some(owners) = state.meta.owners() else { return Vec::new() };
        let (users, groups) = owners.all();
        let quotas = state.owner_quotas.all();
        let mut list = Vec::new();
        for (used, quotas, is_group) in [(users, &quotas.users, false), (groups, &quotas.groups, true)] {
            let mut ids: Vec<u32> = used.iter().map(|(id, _)| *id).chain(quotas.iter().map(|quota| quota.id)).collect();
            ids.sort_unstable();
            ids.dedup();
            list.extend(ids.into_iter().map(|id| {
                let used = used.iter().find(|(other, _)| *other == id).map(|(_, used)| *used).unwrap_or_default();
                let (used_bytes, inodes) = (used.bytes.max(0) as u64, used.inodes.max(0) as u64);
                OwnerUse { is_group, id, used_bytes, inodes, quota_bytes: OwnerQuotas::of(quotas, id) }
            }));
        }
        list
    }
}
