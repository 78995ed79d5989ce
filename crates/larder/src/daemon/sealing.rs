//! Encrypting a volume that is there, and giving an encrypted one a new key, while it is served.
//!
//! ```text
//! doors closed -> keyring and mark (`Registry::begin_sealing`) -> doors open -> passes over the objects -> old keys forgotten, mark gone
//! ```
//!
//! - `passes.resumed_by_unlocking`: the registry says that a volume is being sealed, and nothing else does. After a restart it is locked,
//!   and unlocking it goes on with the work.
//! - `passes.old_keys_last`: the keyring forgets keys once a pass found nothing to do, and only if its newest key is the one that the
//!   pass sealed with.
//! - `passes.stopped_first`: a pass ends before its volume is locked or its pool closes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Encrypt, Failure, FailureKind, KeysStatus, Rekey, SealingStatus};
use larder_crypt::{Keyring, Keys, Passed, Progress, Resealing};
use larder_volume::{FsError, FsResult, Registry, Sealing, VolumeInfo};
use object_store::{ObjectStore, PutMode};
use parking_lot::Mutex;
use uuid::Uuid;

use super::Daemon;
use super::keys::{self, RECOVERY_SLOT, Unlocked, add_recovery, failure, folder_of, secret_of, slowly};
use super::storage::OpenPool;
use crate::config::VolumeName;

/// Doors let go of a volume within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects that could not be sealed are tried again after this time, twice as long after each failure.
const AGAIN_MIN: Duration = Duration::from_secs(15);
const AGAIN_MAX: Duration = Duration::from_secs(3600);

/// The passes that are under way in one pool.
#[derive(Default)]
pub(super) struct Passes(Mutex<HashMap<Uuid, Pass>>);

struct Pass {
    task: tokio::task::AbortHandle,
    state: Arc<Mutex<PassState>>,
}

#[derive(Clone, Default)]
struct PassState {
    progress: Progress,
    fault: Option<String>,
}

impl Passes {
    pub(super) fn stop(&self, id: Uuid) {
        self.0.lock().remove(&id).into_iter().for_each(|pass| pass.task.abort());
    }

    pub(super) fn stop_all(&self) {
        self.0.lock().drain().for_each(|(_, pass)| pass.task.abort());
    }

    /// How far the volume has come; `None`: it is not being sealed.
    pub(super) fn status(&self, info: &VolumeInfo) -> Option<SealingStatus> {
        let work = info.sealing?;
        let state = self.0.lock().get(&info.id).map(|pass| pass.state.lock().clone());
        let running = state.is_some();
        let PassState { progress, fault } = state.unwrap_or_default();
        let Progress { done_bytes, total_bytes, .. } = progress;
        Some(SealingStatus { rekey: work == Sealing::Rekey, running, done_bytes, total_bytes, fault })
    }
}

/// The work on one volume.
struct Work {
    pool: String,
    info: VolumeInfo,
    registry: Arc<Registry>,
    store: Arc<dyn ObjectStore>,
    keys: Arc<Keys>,
    state: Arc<Mutex<PassState>>,
}

impl Work {
    async fn run(self) {
        let Self { pool, info, .. } = &self;
        let (name, word) = (&info.name, info.sealing.map_or("sealed", Sealing::word));
        tracing::info!("the volume '{pool}/{name}' is being {word}");
        let mut wait = AGAIN_MIN;
        loop {
            let fault = match self.pass().await {
                Ok(Passed { sealed: 0, faults }) if faults.is_empty() => match self.end().await {
                    Ok(()) => break,
                    Err(failure) => failure.message,
                },
                Ok(Passed { faults, .. }) if faults.is_empty() => {
                    wait = AGAIN_MIN;
                    continue;
                }
                Ok(Passed { faults, .. }) => faults.join("; "),
                Err(error) => error.to_string(),
            };
            if self.state.lock().fault.replace(fault.clone()).as_ref() != Some(&fault) {
                tracing::warn!("the volume '{pool}/{name}' is not {word} yet: {fault}");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN_MAX);
        }
        tracing::info!("the volume '{pool}/{name}' is {word}");
    }

    async fn pass(&self) -> object_store::Result<Passed> {
        let resealing = Resealing {
            store: Arc::clone(&self.store),
            prefix: folder_of(self.info.id),
            keys: Arc::clone(&self.keys),
            from_clear: self.info.sealing == Some(Sealing::Encrypt),
        };
        resealing.pass(|progress| self.state.lock().progress = progress).await
    }

    /// `passes.old_keys_last`
    async fn end(&self) -> Result<(), Failure> {
        let lost = || Failure::new(FailureKind::Unavailable, "its keyring is gone");
        let (mut ring, version) = keys::keyring(&*self.store, self.info.id).await?.ok_or_else(lost)?;
        if ring.newest() != self.keys.newest() {
            let name = &self.info.name;
            return Err(Failure::new(
                FailureKind::Unavailable,
                format!("its keyring has a newer key: larder volume lock {name}, then larder volume unlock {name}"),
            ));
        }
        if ring.has_old_keys() {
            ring.forget_old_keys();
            keys::write_keyring(&*self.store, self.info.id, &ring, PutMode::Update(version)).await?;
        }
        let ended = self.registry.end_sealing(self.info.id).await;
        ended.map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
    }
}

/// What a keyring becomes while its volume is closed.
struct NewKeys {
    ring: Keyring,
    keys: Keys,
    mode: PutMode,
    recovery: Option<String>,
}

impl NewKeys {
    async fn store(self, store: Arc<dyn ObjectStore>, unlocked: Arc<Unlocked>, id: Uuid) -> FsResult<()> {
        let written = keys::write_keyring(&*store, id, &self.ring, self.mode).await;
        written.map_err(|failure| FsError::Io(failure.message.into()))?;
        unlocked.put(id, Arc::new(self.keys));
        Ok(())
    }
}

impl OpenPool {
    async fn info(&self, name: &str) -> Result<VolumeInfo, Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(name, &error))?;
        infos.into_iter().find(|info| info.name == name).ok_or_else(|| self.failure(name, &FsError::NotFound))
    }

    /// Goes on with the work on a volume whose keys are there (`passes.resumed_by_unlocking`).
    pub(super) fn go_on_sealing(&self, info: &VolumeInfo) {
        let (Some(_), Some(keys)) = (info.sealing, self.unlocked.of(info.id)) else { return };
        let mut passes = self.passes.0.lock();
        if passes.get(&info.id).is_some_and(|pass| !pass.task.is_finished()) {
            return;
        }
        let state = Arc::<Mutex<PassState>>::default();
        let work = Work {
            pool: self.name.clone(),
            info: info.clone(),
            registry: Arc::clone(&self.registry),
            store: self.pool.store(),
            keys,
            state: Arc::clone(&state),
        };
        let task = tokio::spawn(work.run()).abort_handle();
        passes.insert(info.id, Pass { task, state });
    }

    /// The keys of a volume that is not encrypted yet.
    async fn first_keys(&self, name: &str, encrypt: Encrypt) -> Result<NewKeys, Failure> {
        if self.info(name).await?.sealed {
            return Err(Failure::new(FailureKind::Exists, format!("the volume '{}/{name}' is encrypted already", self.name))
                .action(format!("see how far it is with: larder volume key list {name}; give it a new key with: larder volume rekey {name}")));
        }
        let (ring, master, recovery) = keys::new_keyring(encrypt).await?;
        let keys = ring.keys(&master).map_err(|error| failure(&error))?;
        Ok(NewKeys { ring, keys, mode: PutMode::Overwrite, recovery })
    }

    async fn next_keys(&self, name: &str, rekey: Rekey) -> Result<NewKeys, Failure> {
        let (info, ring, version) = self.sealed(name).await?;
        if self.is_locked(&info) {
            return Err(keys::locked(&format!("{}/{name}", self.name)));
        }
        let cipher = rekey.cipher.as_deref().map(keys::cipher_named).transpose()?;
        let secrets = rekey.secrets.into_iter().map(secret_of).collect::<Result<Vec<_>, _>>()?;
        let new = move || {
            let (mut ring, master) = ring.rekeyed(&secrets, &rekey.drop, cipher, keys::now())?;
            let recovery = rekey.new_recovery.then(|| add_recovery(&mut ring, &master, RECOVERY_SLOT)).transpose()?;
            Ok((ring, master, recovery))
        };
        let (ring, master, recovery) = slowly(new).await?;
        let keys = ring.keys(&master).map_err(|error| failure(&error))?;
        Ok(NewKeys { ring, keys, mode: PutMode::Update(version), recovery })
    }

    /// Closes the volume as soon as nobody uses it, and opens it with its new keys.
    async fn change_over(&self, name: &str, sealing: Sealing, new: NewKeys) -> Result<(), Failure> {
        let id = self.info(name).await?.id;
        let began = tokio::time::Instant::now();
        let mut new = Some(new);
        loop {
            // It is taken at most once: an error that comes before leaves it.
            let keyring = async {
                let Some(new) = new.take() else { return Err(FsError::Busy("the keys are being changed")) };
                new.store(self.pool.store(), Arc::clone(&self.unlocked), id).await
            };
            let begun = self.registry.begin_sealing(name, sealing, keyring).await;
            match begun {
                Err(FsError::Busy(_)) if new.is_some() && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(FsError::Busy(_)) => {
                    return Err(Failure::new(
                        FailureKind::Busy,
                        format!("the volume '{}/{name}' is still in use; it is as it was", self.name),
                    )
                    .action("end what uses it (a snapshot that is being sent, too), then try again"));
                }
                begun => return begun.map(drop).map_err(|error| self.failure(name, &error)),
            }
        }
    }
}

impl Daemon {
    /// Lets the volume begin to be encrypted.
    pub(crate) async fn encrypt(&self, name: &str, encrypt: Encrypt, force: bool) -> Result<KeysStatus, Failure> {
        let (pool, volume) = self.storage.named(name)?;
        let new = pool.first_keys(&volume, encrypt).await?;
        self.seal_anew(&pool, &volume, Sealing::Encrypt, new, force).await
    }

    /// Lets a new key of the volume replace those of before.
    pub(crate) async fn rekey(&self, name: &str, rekey: Rekey) -> Result<KeysStatus, Failure> {
        let (pool, volume) = self.storage.named(name)?;
        let force = rekey.force;
        let new = pool.next_keys(&volume, rekey).await?;
        self.seal_anew(&pool, &volume, Sealing::Rekey, new, force).await
    }

    /// Takes the shares and mounts of the volume away, changes its keys, and serves it again.
    async fn seal_anew(
        &self,
        pool: &Arc<OpenPool>,
        volume: &str,
        sealing: Sealing,
        new: NewKeys,
        force: bool,
    ) -> Result<KeysStatus, Failure> {
        let mut state = self.state.lock().await;
        let of = VolumeName { pool: pool.name.clone(), volume: volume.to_owned() };
        if !force {
            let anyway = "the same command with --force";
            let writers = pool.files(volume).await.map_or(0, |files| files.writers());
            if writers > 0 {
                let message = format!("{writers} files of the volume '{of}' are open for writing, and it closes for a moment");
                return Err(Failure::new(FailureKind::Busy, message)
                    .action(format!("close them there; or lose what they have not sent: {anyway}")));
            }
            self.unmount_unused(|mounted| *mounted == of, anyway.to_owned()).await?;
        }
        let recovery = new.recovery.clone();
        pool.close_doors(volume);
        self.snapshot_runs.forget(|scheduled| *scheduled == of);
        self.apply_shares(&mut state).await;
        self.mounts.remove_of(|mounted| *mounted == of).await;
        let changed = pool.change_over(volume, sealing, new).await;
        pool.open_doors(volume);
        self.apply_shares(&mut state).await;
        let mounts: Vec<_> = state.config.mounts.iter().filter(|mount| mount.volume == of).cloned().collect();
        self.mount_those_of_file(&[], &mounts).await;
        self.snapshot_runs.wake();
        if let Ok(info) = pool.info(volume).await {
            // Also where the change was cut off: there may be little to do, and it ends the mark.
            pool.go_on_sealing(&info);
        }
        changed?;
        Ok(KeysStatus { recovery_key: recovery, ..pool.keys_status(volume).await? })
    }
}

#[cfg(test)]
#[path = "sealing_tests.rs"]
mod tests;
