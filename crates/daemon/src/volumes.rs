//! The volumes of this daemon: made, set, locked, sealed, taken back and destroyed, while it serves
//! them.

use std::sync::Arc;

use larder_api::{Failure, KeysRequest, KeysStatus, TakeAway, VolumeChange, VolumeCreate, VolumeStatus};
use larder_keep::keyrings::secret_of;
use larder_keep::snapshot_runs::SnapshotRuns;
use larder_keep::{Storage, Store};

use super::parts::volumes::create_volume;
use super::{owner_quotas, shares};
use larder_config::{VolumeName, check_name, check_share_name};
use larder_copies::replication::runs::Runs;
use larder_document::Document;
use larder_document::Look;
use larder_document::{Kind, Standings};
use larder_servers::Mounts;
use larder_servers::VolumeDoors;

pub struct Volumes {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
    pub doors: Arc<VolumeDoors>,
    pub schedules: Arc<SnapshotRuns>,
    pub replication: Arc<Runs>,
    pub standings: Standings,
}

impl Volumes {
    pub async fn create(&self, request: VolumeCreate) -> Result<VolumeStatus, Failure> {
        check_name(&request.name).map_err(Failure::invalid)?;
        let mut state = self.document.lock().await;
        let pool = self.storage.pool(request.pool.as_deref())?;
        let name = VolumeName { pool: pool.name.clone(), volume: request.name };
        let taken = state.config.shares.iter().any(|s| s.name.eq_ignore_ascii_case(&name.volume));
        if request.share && taken {
            return Err(Failure::exists(format!("a share named '{}' exists already", name.volume))
                .action("choose another name, or make the volume without a share: --no-share"));
        }
        let properties = owner_quotas::numbered(&request.properties, &state.config)?;
        if request.share {
            check_share_name(&name.volume).map_err(Failure::invalid)?;
        }
        let mut status = create_volume(&pool, &name.volume, &properties, request.encrypt).await?;
        if request.share {
            let share = shares::default_share(&name.volume, Some(name.clone()), &state.config);
            if let Err(failure) = self.document.edit(&mut state, |editor| editor.add_share(&share)).await {
                // Nobody has used it yet.
                return Err(match pool.destroy(&name.volume).await {
                    Ok(()) => failure,
                    Err(_) => failure.action(format!(
                        "the volume {name} was made, without a share; remove it with: larder volume destroy {name}"
                    )),
                });
            }
            status.shared =
                Some(Box::new(shares::status(&share, &state.config, &self.standings.of(Kind::Share, &share.name))));
        }
        self.schedules.wake();
        Ok(status)
    }

    /// Unlocks or locks a volume, with its shares and mounts, or changes what opens it.
    pub async fn change_keys(&self, name: &str, request: KeysRequest) -> Result<KeysStatus, Failure> {
        let request = match request {
            KeysRequest::Encrypt { encrypt, force } => return self.encrypt(name, encrypt, force).await,
            KeysRequest::Rekey(rekey) => return self.rekey(name, rekey).await,
            other => other,
        };
        let mut state = self.document.lock().await;
        let (pool, volume) = self.storage.find(name).await?;
        let of = VolumeName { pool: pool.name.clone(), volume: volume.clone() };
        match request {
            KeysRequest::Unlock { secret } => {
                pool.unlock(&volume, secret_of(secret)?).await?;
                state.reconcile(Look::Shares).await;
            }
            KeysRequest::Lock { force } => {
                if !force {
                    let anyway = format!("larder volume lock {name} --force");
                    self.doors.check_unused(&pool, &of, "lock it", anyway).await?;
                }
                if let Some(forgotten) = pool.forget_keys(&volume).await? {
                    self.doors.detach(&mut state, &of).await;
                    drop(self.mounts.take_aside(&of));
                    let closed = pool.close_locked(&volume, forgotten).await;
                    if closed.is_err() {
                        state.reconcile(Look::Shares).await;
                    }
                    // The schedule says from now on why it takes none.
                    self.schedules.wake();
                    closed?;
                }
            }
            other => {
                let changed = pool.change_keys(&volume, other).await;
                // Replicas get it at once (`replication.keys_follow`).
                self.replication.wake();
                return changed;
            }
        }
        pool.keys_status(&volume).await
    }

    pub async fn set(&self, name: &str, change: VolumeChange) -> Result<VolumeStatus, Failure> {
        let mut state = self.document.lock().await;
        let (pool, volume) = self.storage.find(name).await?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let staged = self.document.stage(|editor| editor.set_volume(&name, &change))?;
        let infos = pool.registry.list().await;
        let infos = infos.map_err(|error| pool.failure(&name.volume, &error))?;
        let before = infos.into_iter().find(|info| info.name == name.volume).map(|info| info.properties);
        let change = owner_quotas::numbered(&change, &state.config)?;
        let status = pool.set(&name.volume, &change).await?;
        match staged.commit() {
            Ok(config) => self.document.take(&mut state, config).await,
            Err(failure) => {
                if let Some(properties) = before
                    && let Err(error) = pool.registry.set(&name.volume, properties).await
                {
                    tracing::error!("the properties of {name} could not be taken back: {error}");
                }
                return Err(failure);
            }
        }
        Ok(status)
    }

    /// Takes the shares and mounts of the volume away, then the volume. Unless forced to, not while
    /// a program uses a mount.
    pub async fn destroy(&self, name: &str, request: TakeAway) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        let (pool, volume) = self.storage.find(name).await?;
        if !pool.volumes().await?.iter().any(|v| v.name == volume) {
            return Err(Failure::not_found(format!("there is no volume '{}/{volume}'", pool.name)));
        }
        pool.may_be_destroyed(&volume, request.with_snapshots).await?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let staged = self.document.stage(|editor| editor.remove_volume(&name))?;
        let anyway = (!request.force).then(|| format!("larder volume destroy {name} --force"));
        let config = self.mounts.commit_unmounted(staged, |mounted| *mounted == name, anyway).await?;
        self.document.take(&mut state, config).await;
        self.mounts.remove_of(|mounted| *mounted == name).await;
        self.schedules.forget(|scheduled| *scheduled == name);
        pool.destroy(&name.volume).await
    }
}

/// The volume that is meant where none is named.
pub async fn only_volume(storage: &Storage) -> Result<(Arc<Store>, String), Failure> {
    let volumes = storage.volumes().await?;
    match volumes.as_slice() {
        [one] => Ok((storage.pool(Some(&one.pool))?, one.name.clone())),
        [] => Err(Failure::not_found("there is no volume").action("make one with: larder volume create NAME")),
        many => {
            let names: Vec<String> = many.iter().map(|v| format!("{}/{}", v.pool, v.name)).collect();
            Err(Failure::invalid(format!("there are several volumes ({})", names.join(", ")))
                .action("name one with --volume POOL/VOLUME"))
        }
    }
}
