//! Snapshots that are mounted stay, under their names.

use larder_api::{Failure, FailureKind, SnapshotsRequest, SnapshotsStatus};
use larder_keep::Store;
use larder_keep::snapshot_words::selected;

use super::Daemon;
use super::translate::as_failure;
use larder_config::VolumeName;

impl Daemon {
    pub(super) async fn change_snapshots(
        &self,
        name: &str,
        request: SnapshotsRequest,
    ) -> Result<SnapshotsStatus, Failure> {
        if let SnapshotsRequest::Rollback { name: snapshot, destroy_later, force } = request {
            return self.roll_back(name, &snapshot, destroy_later, force).await;
        }
        let (pool, volume) = self.storage.find(name).await.map_err(as_failure)?;
        self.not_mounted(&pool, &volume, &request).await?;
        let changed = pool.change_snapshots(&volume, request).await.map_err(as_failure)?;
        self.snapshots_changed();
        Ok(changed)
    }

    /// Fails for snapshots that are to go, or to have another name, and are mounted.
    async fn not_mounted(&self, pool: &Store, volume: &str, request: &SnapshotsRequest) -> Result<(), Failure> {
        let names = match request {
            SnapshotsRequest::Destroy { names, dry_run: false }
                if !pool.is_replica(volume).await.map_err(as_failure)? =>
            {
                // A name that there is not is refused later.
                selected(&pool.volume(volume).await.map_err(as_failure)?.snapshots(), names).unwrap_or_default()
            }
            SnapshotsRequest::Rename { name, .. } => vec![name.clone()],
            _ => return Ok(()),
        };
        let of = VolumeName { pool: pool.name.clone(), volume: volume.to_owned() };
        match self.mounts.of_snapshot(&of, &names) {
            None => Ok(()),
            Some((name, dir)) => {
                let message = format!("the snapshot {of}@{name} is mounted on {}", dir.display());
                let word = larder_base::shell::word(&dir);
                Err(Failure::new(FailureKind::Busy, message).action(format!("unmount it first: larder umount {word}")))
            }
        }
    }
}
