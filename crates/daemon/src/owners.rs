//! What the files of each user and group take up.

use larder_api::{Failure, OwnerKind, OwnerUse};

use super::Daemon;
use super::translate::as_failure;
use larder_config::user::Accounts;

impl Daemon {
    /// What owners use of a volume.
    pub(super) async fn owners_of(&self, name: &str) -> Result<Vec<OwnerUse>, Failure> {
        let (pool, volume) = self.storage.find(name).await.map_err(as_failure)?;
        let mut owners = pool.owners(&volume).await.map_err(as_failure)?;
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
