//! What the files of each user and group take up.

use larder_api::{Failure, OwnerKind, OwnerUse};

use super::Daemon;
use super::storage::Store;
use crate::config::user::Accounts;

impl Store {
    /// What owners use of a volume, without their names.
    pub(crate) async fn owners(&self, name: &str) -> Result<Vec<OwnerUse>, Failure> {
        let owners = self.volume(name).await?.owners().await.map_err(|error| self.failure(name, &error))?;
        let kind = |is_group| if is_group { OwnerKind::Group } else { OwnerKind::User };
        let owner = |owner: larder_fs::OwnerUse| OwnerUse {
            kind: kind(owner.is_group),
            id: owner.id,
            name: None,
            used_bytes: owner.used_bytes,
            inodes: owner.inodes,
            quota_bytes: owner.quota_bytes,
        };
        Ok(owners.into_iter().map(owner).collect())
    }
}

impl Daemon {
    /// What owners use of a volume.
    pub(super) async fn owners_of(&self, name: &str) -> Result<Vec<OwnerUse>, Failure> {
        let (pool, volume) = self.storage.find(name).await?;
        let mut owners = pool.owners(&volume).await?;
        let (host, names) = (Accounts::of_machine(), self.owners().await);
        for owner in &mut owners {
            let (ours, accounts) = match owner.kind {
                OwnerKind::User => (&names.users, host.name_of_user(owner.id)),
                OwnerKind::Group => (&names.groups, host.name_of_group(owner.id)),
            };
            owner.name = ours.get(&owner.id).cloned().or(accounts);
        }
        Ok(owners)
    }
}
