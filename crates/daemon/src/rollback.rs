//! Taking a volume back to a snapshot while the daemon serves it.
//!
//! - `rollback.nobody_uses_it`: its shares and mounts are taken away, then it goes back, then they return. Clients that have files open
//!   get errors for those that were put back. Unless forced to, not while somebody writes, or a program uses a mount.

use larder_api::{Failure, SnapshotsStatus};

use super::volumes::Volumes;
use larder_config::VolumeName;

impl Volumes {
    pub async fn roll_back(
        &self,
        name: &str,
        snapshot: &str,
        destroy_later: bool,
        force: bool,
    ) -> Result<SnapshotsStatus, Failure> {
        let mut state = self.document.lock().await;
        let (pool, volume) = self.storage.find(name).await?;
        let of = VolumeName { pool: pool.name.clone(), volume: volume.clone() };
        pool.may_go_back(&volume, snapshot, destroy_later).await?;
        if !force {
            let anyway = format!("larder snap rollback {of}@{snapshot} --force");
            self.doors.check_unused(&pool, &of, "go back", anyway).await?;
        }
        let saved = pool.save_before(&volume).await;
        if saved.is_err() {
            self.doors.mount_again(&of, &of).await;
        }
        let saved = saved?;
        self.doors.close_doors(&mut state, &pool, &of).await;
        let went = pool.go_back(&volume, snapshot).await;
        if went.is_err() {
            pool.drop_saved(&volume, saved.as_deref()).await;
        }
        self.doors.open_doors(&mut state, &pool, &of, &of).await;
        went?;
        pool.gone_back(&volume, snapshot, destroy_later, saved).await
    }
}
