//! Encrypting a volume that is there, and giving an encrypted one a new key, while it is served: its doors are closed meanwhile.

use std::sync::Arc;

use larder_api::{Encrypt, Failure, KeysStatus, Rekey};
use larder_keep::Store;
use larder_keep::sealing::NewKeys;
use larder_volume::Sealing;

use super::volumes::Volumes;
use larder_config::VolumeName;

impl Volumes {
    /// Lets the volume begin to be encrypted.
    pub async fn encrypt(&self, name: &str, encrypt: Encrypt, force: bool) -> Result<KeysStatus, Failure> {
        let (pool, volume) = self.storage.find(name).await?;
        let new = pool.first_keys(&volume, encrypt).await?;
        self.seal_anew(&pool, &volume, Sealing::Encrypt, new, force).await
    }

    /// Lets a new key of the volume replace those of before.
    pub async fn rekey(&self, name: &str, rekey: Rekey) -> Result<KeysStatus, Failure> {
        let (pool, volume) = self.storage.find(name).await?;
        let force = rekey.force;
        let new = pool.next_keys(&volume, rekey).await?;
        self.seal_anew(&pool, &volume, Sealing::Rekey, new, force).await
    }

    /// Takes the shares and mounts of the volume away, changes its keys, and serves it again.
    async fn seal_anew(
        &self,
        pool: &Arc<Store>,
        volume: &str,
        sealing: Sealing,
        new: NewKeys,
        force: bool,
    ) -> Result<KeysStatus, Failure> {
        let mut state = self.document.lock().await;
        let of = VolumeName { pool: pool.name.clone(), volume: volume.to_owned() };
        if !force {
            let command = if sealing == Sealing::Encrypt { "encrypt" } else { "rekey" };
            let anyway = format!("larder volume {command} {of} --force");
            self.doors.check_unused(pool, &of, "close it for a moment", anyway).await?;
        }
        let recovery = new.recovery.clone();
        self.doors.close_doors(&mut state, pool, &of).await;
        let changed = pool.change_over(volume, sealing, new).await;
        self.doors.open_doors(&mut state, pool, &of, &of).await;
        if let Ok(info) = pool.info(volume).await {
            // Also where the change was cut off: there may be little to do, and it ends the mark.
            pool.go_on_sealing(&info);
        }
        changed?;
        Ok(KeysStatus { recovery_key: recovery, ..pool.keys_status(volume).await? })
    }
}
