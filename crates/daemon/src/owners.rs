//! What the files of each user and group take up.

use larder_api::{Failure, OwnerKind, OwnerUse};

use super::volumes::Volumes;
use larder_config::user::Accounts;

impl Volumes {
    /// What owners use of a volume.
    pub async fn owners(&self, name: &str) -> Result<Vec<OwnerUse>, Failure> {
        let (pool, volume) = self.storage.find(name).await?;
        let mut owners = pool.owners(&volume).await?;
        let (host, names) = (Accounts::of_machine(), self.document.owners());
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
