//! Encrypting a volume that is there, and giving an encrypted one a new key, while it is served.
//!
//! ```text
//! doors closed -> keyring and mark (`Registry::begin_sealing`) -> doors open -> passes over the objects -> old keys forgotten, mark gone
//! ```
//!
//! The passes themselves: [`crate::passes`].

use std::sync::Arc;

use larder_api::{Encrypt, Failure, Rekey};
use larder_base::boxed;
use larder_crypt::{Keyring, Keys};
use larder_fs::{FsError, FsResult};
use larder_volume::{Sealing, VolumeInfo};
use object_store::{ObjectStore, PutMode};
use uuid::Uuid;

use crate::keyrings::{self, RECOVERY_SLOT, Unlocked, add_recovery, keyring_error, secret_of, slowly};
use crate::passes::Work;
use crate::store::Store;
use crate::uses::Patience;

/// What a keyring becomes while its volume is closed.
pub struct NewKeys {
    ring: Keyring,
    keys: Keys,
    mode: PutMode,
    pub recovery: Option<String>,
}

impl NewKeys {
    async fn store(self, store: Arc<dyn ObjectStore>, unlocked: Arc<Unlocked>, id: Uuid) -> FsResult<()> {
        let written = keyrings::write_keyring(&*store, id, &self.ring, self.mode).await;
        written.map_err(|failure| FsError::Io(failure.message.into()))?;
        unlocked.put(id, Arc::new(self.keys));
        Ok(())
    }
}

impl Store {
    #[boxed]
    pub async fn info(&self, name: &str) -> Result<VolumeInfo, Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(name, &error))?;
        infos.into_iter().find(|info| info.name == name).ok_or_else(|| self.failure(name, &FsError::NotFound))
    }

    /// Goes on with the work on a volume whose keys are there (`passes.resumed_by_unlocking`).
    pub fn go_on_sealing(&self, info: &VolumeInfo) {
        if let (Some(_), Some(keys)) = (info.sealing, self.unlocked.of(info.id)) {
            self.passes.go_on(Work::new(&self.name, info, &self.registry, self.store(), keys));
        }
    }

    /// The keys of a volume that is not encrypted yet.
    #[boxed]
    pub async fn first_keys(&self, name: &str, encrypt: Encrypt) -> Result<NewKeys, Failure> {
        if self.info(name).await?.sealed {
            return Err(Failure::exists(format!("the volume '{}/{name}' is encrypted already", self.name))
                .action(format!("see how far it is with: larder volume key list {name}; give it a new key with: larder volume rekey {name}")));
        }
        let (ring, master, recovery) = keyrings::new_keyring(encrypt).await?;
        let keys = ring.keys(&master).map_err(|error| keyring_error(&error))?;
        Ok(NewKeys { ring, keys, mode: PutMode::Overwrite, recovery })
    }

    #[boxed]
    pub async fn next_keys(&self, name: &str, rekey: Rekey) -> Result<NewKeys, Failure> {
        let (info, ring, version) = self.sealed(name).await?;
        if self.is_locked(&info) {
            return Err(keyrings::locked(&format!("{}/{name}", self.name)));
        }
        let cipher = rekey.cipher.as_deref().map(keyrings::cipher_named).transpose()?;
        let secrets = rekey.secrets.into_iter().map(secret_of).collect::<Result<Vec<_>, _>>()?;
        let new = move || {
            let (mut ring, master) = ring.rekeyed(&secrets, &rekey.drop, cipher, keyrings::now())?;
            let recovery =
                rekey.new_recovery.then(|| add_recovery(&mut ring, &master, RECOVERY_SLOT, false)).transpose()?;
            Ok((ring, master, recovery))
        };
        let (ring, master, recovery) = slowly(new).await?;
        let keys = ring.keys(&master).map_err(|error| keyring_error(&error))?;
        Ok(NewKeys { ring, keys, mode: PutMode::Update(version), recovery })
    }

    /// Closes the volume as soon as nobody uses it, and opens it with its new keys.
    #[boxed]
    pub async fn change_over(&self, name: &str, sealing: Sealing, new: NewKeys) -> Result<(), Failure> {
        let id = self.info(name).await?.id;
        let patience = Patience::from_now();
        let mut new = Some(new);
        loop {
            // It is taken at most once: an error that comes before leaves it.
            let keyring = async {
                let Some(new) = new.take() else { return Err(FsError::Busy("the keys are being changed")) };
                new.store(self.store(), Arc::clone(&self.unlocked), id).await
            };
            let begun = self.registry.begin_sealing(name, sealing, keyring).await;
            match begun {
                Err(FsError::Busy(_)) if new.is_some() && patience.is_left() => patience.pause().await,
                Err(FsError::Busy(_)) => return Err(self.still_in_use(name, "it is as it was")),
                begun => return begun.map(drop).map_err(|error| self.failure(name, &error)),
            }
        }
    }
}

#[cfg(test)]
#[path = "sealing_tests.rs"]
mod tests;
