//! The keys of encrypted volumes: their keyrings in the pool, and those that are unlocked in memory.
//!
//! - `keys.memory_only`: unlocked keys are in memory alone. A restart locks every volume that the configuration does not open.
//! - `keys.lock_stays`: a volume that a person has locked is opened by a person or a restart, not by the key that the configuration
//!   names: that is read at every change of the configuration.
//! - `keys.locked_first`: locking forgets the keys before the volume closes, so that nobody opens it in between.
//! - `keys.keyring_after_entry`: a volume is entered in the registry, then its keyring is written, then it is formatted. One that was
//!   cut off between has no keyring, holds nothing, and can be destroyed.

use std::sync::Arc;

use larder_api::{Encrypt, Failure, KeySlot, KeysRequest, KeysStatus, VolumeStatus};
use larder_base::boxed;
use larder_crypt::{Keyring, KeyringError, Keys, Master, Secret};
use larder_fs::{FsError, FsResult};
use larder_volume::{Outdated, Properties, Seals, VolumeInfo};
use object_store::{PutMode, UpdateVersion};
use uuid::Uuid;

use crate::keyrings::{
    Opened, RECOVERY_SLOT, add_recovery, keyring, keyring_error, new_keyring, now, opened, secret_of, slowly, work,
    write_keyring,
};
use crate::store::Store;
use crate::uses::Patience;

impl Store {
    /// Makes an encrypted volume. With the recovery key in the answer, if one was asked for.
    pub(crate) async fn create_sealed(
        &self,
        name: &str,
        properties: Properties,
        encrypt: Encrypt,
    ) -> Result<VolumeStatus, Failure> {
        self.create_sealed_as(name, properties, encrypt, false).await
    }

    /// Makes an encrypted volume, or a copy as files.
    pub(crate) async fn create_sealed_as(
        &self,
        name: &str,
        properties: Properties,
        encrypt: Encrypt,
        as_copy: bool,
    ) -> Result<VolumeStatus, Failure> {
        let (ring, master, recovery) = new_keyring(encrypt).await?;
        let keys = ring.keys(&master).map_err(|error| keyring_error(&error))?;
        let entered = match as_copy {
            true => self.registry.enter_copy(name, properties, true).await,
            false => self.registry.enter(name, properties, true).await,
        };
        let info = entered.map_err(|error| self.failure(name, &error))?;
        let made = async {
            write_keyring(&*self.store(), info.id, &ring, PutMode::Create).await?;
            self.unlocked.keys.lock().insert(info.id, Arc::new(keys));
            match as_copy {
                true => self.registry.copied(name).await.map(drop).map_err(|error| self.failure(name, &error)),
                false => self.volume(name).await.map(drop),
            }
        };
        if let Err(failure) = made.await {
            // Nothing is in it yet. What cannot be taken back now is shown as locked, and can be destroyed.
            self.unlocked.keys.lock().remove(&info.id);
            let _ = self.registry.destroy(name).await;
            return Err(failure);
        }
        Ok(VolumeStatus { recovery_key: recovery, ..self.status_of(&info).await })
    }

    /// The cipher of an encrypted volume, where its keyring can be read.
    pub(crate) async fn cipher_of(&self, info: &VolumeInfo) -> Option<String> {
        if !info.sealed {
            return None;
        }
        let ring = keyring(&*self.store(), info.id).await.ok().flatten();
        Some(ring.map_or_else(|| "unknown".to_owned(), |(ring, _)| ring.cipher().name().to_owned()))
    }

    pub fn is_locked(&self, info: &VolumeInfo) -> bool {
        info.sealed && !self.unlocked.are_unlocked(info)
    }

    #[boxed]
    pub async fn sealed(&self, name: &str) -> Result<(VolumeInfo, Keyring, UpdateVersion), Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(name, &error))?;
        let info =
            infos.into_iter().find(|info| info.name == name).ok_or_else(|| self.failure(name, &FsError::NotFound))?;
        if !info.sealed {
            return Err(Failure::invalid(format!("the volume '{name}' is not encrypted"))
                .action(format!("encrypt it with: larder volume encrypt {name}")));
        }
        let (ring, version) = keyring(&*self.store(), info.id).await?.ok_or_else(|| {
            Failure::unavailable(format!("the volume '{name}' has no keyring: nothing opens it"))
                .action("look for the disk that has it: larder pool status; only a volume whose making was cut off never had one")
        })?;
        Ok((info, ring, version))
    }

    /// Opens the volume with `secret`.
    #[boxed]
    pub async fn unlock(&self, name: &str, secret: Secret) -> Result<(), Failure> {
        let (info, ring, version) = self.sealed(name).await?;
        let Opened { ring, master, slot, is_settled } = opened(ring, secret).await?;
        let keys = ring.keys(&master).map_err(|error| keyring_error(&error))?;
        let may_write = self.registry.behind().is_none();
        if is_settled
            && may_write
            && let Err(failure) = write_keyring(&*self.store(), info.id, &ring, PutMode::Update(version)).await
        {
            // The next unlocking proves it again.
            tracing::warn!("what opens '{}/{name}' was not brought up to date: {}", self.name, failure.message);
        }
        self.unlocked.slots.lock().insert(info.id, slot);
        if !self.is_locked(&info) {
            return Ok(());
        }
        self.unlocked.keys.lock().insert(info.id, Arc::new(keys));
        if info.replica && !info.copy {
            // There is nothing to open before it is promoted, which takes these keys.
            self.unlocked.locked.lock().remove(&info.id);
            return Ok(());
        }
        let volume = match info.copy {
            true => self.registry.copied(name).await.map_err(|error| self.failure(name, &error)),
            false => self.volume(name).await,
        };
        if volume.is_err() {
            self.unlocked.keys.lock().remove(&info.id);
        }
        if volume.is_ok() {
            self.unlocked.locked.lock().remove(&info.id);
            self.go_on_sealing(&info);
        }
        volume.map(drop)
    }

    /// Whether it is locked, and nobody meant it to be.
    #[boxed]
    pub async fn waits_for_key(&self, name: &str) -> Result<bool, Failure> {
        let (info, _, _) = self.sealed(name).await?;
        Ok(self.is_locked(&info) && !self.unlocked.locked.lock().contains(&info.id))
    }

    /// Nobody gets to the volume any more (`keys.locked_first`). Returns the keys, in case it cannot be closed.
    #[boxed]
    pub async fn forget_keys(&self, name: &str) -> Result<Option<Forgotten>, Failure> {
        let (info, _, _) = self.sealed(name).await?;
        self.passes.stop(info.id).await;
        self.unlocked.locked.lock().insert(info.id);
        let keys = self.unlocked.keys.lock().remove(&info.id);
        Ok(keys.map(|keys| Forgotten { info, keys }))
    }

    /// Closes the volume whose keys were forgotten. Somebody still uses it: the keys are back.
    #[boxed]
    pub async fn close_locked(&self, name: &str, forgotten: Forgotten) -> Result<(), Failure> {
        let patience = Patience::from_now();
        loop {
            match self.registry.close_volume(name).await {
                Err(FsError::Busy(_)) if patience.is_left() => patience.pause().await,
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.unlocked.put(forgotten.info.id, forgotten.keys);
                    self.go_on_sealing(&forgotten.info);
                    return Err(match error {
                        FsError::Busy(_) => self.still_in_use(name, "it is not locked"),
                        error => self.failure(name, &error),
                    });
                }
            }
        }
    }

    #[boxed]
    pub async fn keys_status(&self, name: &str) -> Result<KeysStatus, Failure> {
        let (info, ring, _) = self.sealed(name).await?;
        Ok(self.keys_shown(&info, &ring, None))
    }

    fn keys_shown(&self, info: &VolumeInfo, ring: &Keyring, recovery_key: Option<String>) -> KeysStatus {
        let slots = ring.slots().map(|slot| KeySlot {
            id: slot.id.to_string(),
            kind: slot.kind.name().to_owned(),
            name: slot.name.clone(),
            created: slot.created,
            here_only: info.replica && !info.copy && ring.is_here_only(slot.id),
        });
        let opened_with = self.unlocked.slots.lock().get(&info.id).copied();
        let is_locked = self.is_locked(info);
        let is_removed = |id: &Uuid| !is_locked && !ring.slots().any(|slot| slot.id == *id);
        KeysStatus {
            pool: self.name.clone(),
            volume: info.name.clone(),
            cipher: ring.cipher().name().to_owned(),
            locked: is_locked,
            slots: slots.collect(),
            opened_with: opened_with.filter(|_| !is_locked).map(|id| id.to_string()),
            opened_with_removed: opened_with.as_ref().is_some_and(is_removed),
            sealing: self.passes.status(info),
            recovery_key,
        }
    }

    /// Changes the ways to open the volume. `secret` is one of them now.
    #[boxed]
    pub async fn change_keys(&self, name: &str, request: KeysRequest) -> Result<KeysStatus, Failure> {
        let (info, ring, version) = self.sealed(name).await?;
        // `keyring.slots_here_are_apart`
        let is_replica = info.replica && !info.copy;
        let (secret, change): (_, KeyringChange) = match request {
            KeysRequest::Add { secret, new, name } => {
                let new = secret_of(new)?;
                let add = move |ring: &mut Keyring, master: &Master| match is_replica {
                    true => ring.add_slot_here(master, &name, &new, work(), now()),
                    false => ring.add_slot(master, &name, &new, work(), now()),
                };
                (secret, Box::new(move |ring, master| add(ring, master).map(|_| None)))
            }
            KeysRequest::AddRecovery { secret, name } => {
                let name = if name.is_empty() { RECOVERY_SLOT.to_owned() } else { name };
                (secret, Box::new(move |ring, master| add_recovery(ring, master, &name, is_replica).map(Some)))
            }
            KeysRequest::Remove { secret, slot } => {
                let remove = move |ring: &mut Keyring, master: &Master| match is_replica {
                    true => ring.remove_slot_here(&slot),
                    false => ring.remove_slot(master, &slot),
                };
                (secret, Box::new(move |ring, master| remove(ring, master).map(|_| None)))
            }
            KeysRequest::Unlock { .. }
            | KeysRequest::Lock { .. }
            | KeysRequest::Encrypt { .. }
            | KeysRequest::Rekey(_) => {
                return Err(Failure::internal("this request changes no keys"));
            }
        };
        let Opened { mut ring, master, .. } = opened(ring, secret_of(secret)?).await?;
        let (ring, recovery) = slowly(move || {
            let recovery = change(&mut ring, &master)?;
            Ok((ring, recovery))
        })
        .await?;
        write_keyring(&*self.store(), info.id, &ring, PutMode::Update(version)).await?;
        Ok(self.keys_shown(&info, &ring, recovery))
    }
}

/// A change of a keyring, and the recovery key that it made.
type KeyringChange = Box<dyn FnOnce(&mut Keyring, &Master) -> Result<Option<String>, KeyringError> + Send>;

/// Keys that were taken out of memory for a volume that is still to be closed.
pub struct Forgotten {
    info: VolumeInfo,
    keys: Arc<Keys>,
}

impl Store {
    /// Volumes whose keys in memory are not those of their keyrings any more, and whether one is being given others.
    #[boxed]
    pub async fn outgrown_keys(&self) -> FsResult<(Vec<Outdated>, bool)> {
        let (mut outdated, mut is_sealing) = (Vec::new(), false);
        for info in self.registry.list().await?.into_iter().filter(|info| info.sealed) {
            is_sealing |= info.sealing.is_some();
            let Some(keys) = self.unlocked.of(info.id) else { continue };
            // One that cannot be read now is looked at next time.
            let Ok(Some((ring, _))) = keyring(&*self.store(), info.id).await else { continue };
            if ring.domain() != keys.domain() || ring.newest() != keys.newest() || ring.cipher() != keys.cipher() {
                outdated.push(Outdated { id: info.id, name: info.name });
            }
        }
        Ok((outdated, is_sealing))
    }
}
