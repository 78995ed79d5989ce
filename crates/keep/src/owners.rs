//! What the files of each user and group take up.

use larder_api::{Failure, OwnerKind, OwnerUse};
use larder_base::boxed;

use crate::store::Store;

impl Store {
    /// What owners use of a volume, without their names.
    #[boxed]
    pub async fn owners(&self, name: &str) -> Result<Vec<OwnerUse>, Failure> {
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
