//! The keys of encrypted volumes: their keyrings in the pool, and those that are unlocked in memory.
//!
//! - `keys.memory_only`: unlocked keys are in memory alone. A restart locks every volume that the configuration does not open.
//! - `keys.lock_stays`: a volume that a person has locked is opened by a person or a restart, not by the key that the configuration
//!   names: that is read at every change of the configuration.
//! - `keys.locked_first`: locking forgets the keys before the volume closes, so that nobody opens it in between.
//! - `keys.keyring_after_entry`: a volume is entered in the registry, then its keyring is written, then it is formatted. One that was
//!   cut off between has no keyring, holds nothing, and can be destroyed.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_api::{Encrypt, Failure, FailureKind, KeySlot, KeysRequest, KeysStatus, VolumeSecret, VolumeStatus};
use larder_crypt::{Cipher, Keyring, KeyringError, Keys, Master, RecoveryKey, SealedLog, SealedStore, Secret, Work};
use larder_volume::{Beneath, FsError, FsResult, Properties, Seals, VolumeInfo};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use parking_lot::Mutex;
use uuid::Uuid;

use super::storage::{OpenPool, Storage};
use crate::config::{KeySource, VolumeConfig};
use crate::machine;

/// The name of a keyring beside the objects of its volume.
const KEYRING: &str = "keyring.json";
/// A keyring larger than this is not ours.
const KEYRING_BYTES_MAX: u64 = 1 << 20;
/// Requests of clients that are under way when a volume is locked have this long to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How long the program of a `key_command` may take.
const COMMAND_PATIENCE: Duration = Duration::from_secs(20);
/// People's name for the slot of the secret that a volume was made with.
const FIRST_SLOT: &str = "first";
const RECOVERY_SLOT: &str = "recovery";

/// The keys of the volumes of one pool that are unlocked.
#[derive(Default)]
pub(super) struct Unlocked {
    keys: Mutex<HashMap<Uuid, Arc<Keys>>>,
    /// Locked by a person since the start (`keys.lock_stays`).
    locked: Mutex<HashSet<Uuid>>,
}

impl Seals for Unlocked {
    fn are_unlocked(&self, volume: &VolumeInfo) -> bool {
        self.keys.lock().contains_key(&volume.id)
    }

    fn decorate(&self, volume: &VolumeInfo, beneath: Beneath) -> FsResult<Beneath> {
        let keys = self.keys.lock().get(&volume.id).cloned().ok_or(FsError::Locked)?;
        decorated(volume.id, beneath, keys)
    }

    fn share(&self, from: &VolumeInfo, to: &VolumeInfo) -> FsResult<()> {
        let mut known = self.keys.lock();
        let keys = known.get(&from.id).cloned().ok_or(FsError::Locked)?;
        known.insert(to.id, keys);
        Ok(())
    }
}

/// The store and the log of a volume, opened with its keys.
pub(crate) fn decorated(id: Uuid, beneath: Beneath, keys: Arc<Keys>) -> FsResult<Beneath> {
    let failed = |error: larder_crypt::SealError| FsError::Io(error.to_string().into());
    let log = beneath.log.map(|log| SealedLog::new(log, Arc::clone(&keys))).transpose().map_err(failed)?;
    let store = SealedStore::new(beneath.store, folder_of(id), keys);
    Ok(Beneath { store: Arc::new(store), log: log.map(|log| Arc::new(log) as _) })
}

fn folder_of(id: Uuid) -> Path {
    Path::from("volumes").join(id.to_string())
}

/// The keyring of a volume. `None`: there is none.
pub(crate) async fn keyring(store: &dyn ObjectStore, id: Uuid) -> Result<Option<(Keyring, UpdateVersion)>, Failure> {
    let path = folder_of(id).join(KEYRING);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(FailureKind::Unavailable, format!("the keyring of the volume cannot be read: {error}"))
    };
    let got = match store.get(&path).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    if got.meta.size > KEYRING_BYTES_MAX {
        return Err(failed(&format!("it has {} bytes", got.meta.size)));
    }
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let bytes = got.bytes().await.map_err(|error| failed(&error))?;
    Ok(Some((Keyring::decode(&bytes).map_err(|error| failed(&error))?, version)))
}

/// The keys that `secret` opens a keyring for.
pub(crate) async fn keys_of(keyring: Keyring, secret: Secret) -> Result<Keys, Failure> {
    let (keyring, master) = opened(keyring, secret).await?;
    keyring.keys(&master).map_err(|error| failure(&error))
}

/// Opens a keyring on a thread of its own: a passphrase takes a second of a core, on purpose.
async fn opened(keyring: Keyring, secret: Secret) -> Result<(Keyring, Master), Failure> {
    let work = move || {
        let master = keyring.unlock(&secret)?;
        Ok((keyring, master))
    };
    slowly(work).await
}

async fn slowly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeyringError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::internal(error.to_string()))?.map_err(|error| failure(&error))
}

fn failure(error: &KeyringError) -> Failure {
    let kind = match error {
        KeyringError::Refused(_) => FailureKind::Denied,
        KeyringError::LastSlot | KeyringError::TooManySlots | KeyringError::Weak(_) => FailureKind::Invalid,
        KeyringError::NoSuchSlot(_) | KeyringError::SeveralSlots(..) => FailureKind::NotFound,
        _ => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, error.to_string());
    match error {
        KeyringError::Refused(_) => {
            failure.action("try another way to open it: see them with: larder volume key list NAME")
        }
        KeyringError::NoSuchSlot(_) | KeyringError::SeveralSlots(..) => {
            failure.action("see which there are with: larder volume key list NAME")
        }
        KeyringError::UnknownFormat(_) => failure.action("install a newer larder"),
        _ => failure,
    }
}

/// A secret from a person or a file, as the keyring takes it.
pub(crate) fn secret_of(given: VolumeSecret) -> Result<Secret, Failure> {
    Ok(match given {
        VolumeSecret::Passphrase(text) => Secret::Passphrase(text.into()),
        VolumeSecret::KeyFile(bytes) => Secret::KeyFile(bytes.into()),
        VolumeSecret::Recovery(text) => Secret::Recovery(RecoveryKey::parse(&text).ok_or_else(|| {
            Failure::invalid("this is no recovery key: it has eleven groups of five; look for a typing error")
        })?),
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

fn work() -> Work {
    Work::for_memory(machine::memory_total().0)
}

/// A volume that needs keys, and has none in memory.
pub(crate) fn locked(volume: &str) -> Failure {
    Failure::new(FailureKind::Locked, format!("the volume '{volume}' is locked"))
        .action(format!("open it with: larder volume unlock {volume}"))
}

impl OpenPool {
    /// Makes an encrypted volume. With the recovery key in the answer, if one was asked for.
    pub(crate) async fn create_sealed(
        &self,
        name: &str,
        properties: Properties,
        encrypt: Encrypt,
    ) -> Result<VolumeStatus, Failure> {
        let cipher = match encrypt.cipher.as_deref() {
            None => Cipher::for_this_machine(),
            Some(name) => Cipher::of_name(name).ok_or_else(|| {
                let names = Cipher::ALL.map(Cipher::name).join(", ");
                Failure::invalid(format!("'{name}' is not a cipher: use one of {names}"))
            })?,
        };
        let secret = secret_of(encrypt.secret)?;
        let (ring, master, recovery) = slowly(move || {
            let (mut ring, master) = Keyring::create(cipher, FIRST_SLOT, &secret, work(), now())?;
            let recovery = encrypt.recovery.then(|| add_recovery(&mut ring, &master, RECOVERY_SLOT)).transpose()?;
            Ok((ring, master, recovery))
        })
        .await?;
        let keys = ring.keys(&master).map_err(|error| failure(&error))?;
        let info = self.registry.enter(name, properties, true).await.map_err(|error| self.failure(name, &error))?;
        let made = async {
            self.write_keyring(info.id, &ring, PutMode::Create).await?;
            self.unlocked.keys.lock().insert(info.id, Arc::new(keys));
            self.volume(name).await.map(drop)
        };
        if let Err(failure) = made.await {
            // Nothing is in it yet. What cannot be taken back now is shown as locked, and can be destroyed.
            self.unlocked.keys.lock().remove(&info.id);
            let _ = self.registry.destroy(name).await;
            return Err(failure);
        }
        Ok(VolumeStatus { recovery_key: recovery, ..self.status_of(&info).await })
    }

    async fn write_keyring(&self, id: Uuid, ring: &Keyring, mode: PutMode) -> Result<(), Failure> {
        let payload = PutPayload::from(ring.encode());
        let put = self.store().put_opts(&folder_of(id).join(KEYRING), payload, mode.into()).await;
        put.map(drop).map_err(|error| {
            Failure::new(FailureKind::Unavailable, format!("the keyring of the volume cannot be written: {error}"))
        })
    }

    /// The cipher of an encrypted volume, where its keyring can be read.
    pub(super) async fn cipher_of(&self, info: &VolumeInfo) -> Option<String> {
        if !info.sealed {
            return None;
        }
        let ring = keyring(&*self.store(), info.id).await.ok().flatten();
        Some(ring.map_or_else(|| "unknown".to_owned(), |(ring, _)| ring.cipher().name().to_owned()))
    }

    pub(super) fn is_locked(&self, info: &VolumeInfo) -> bool {
        info.sealed && !self.unlocked.are_unlocked(info)
    }

    async fn sealed(&self, name: &str) -> Result<(VolumeInfo, Keyring, UpdateVersion), Failure> {
        let infos = self.registry.list().await.map_err(|error| self.failure(name, &error))?;
        let info =
            infos.into_iter().find(|info| info.name == name).ok_or_else(|| self.failure(name, &FsError::NotFound))?;
        if !info.sealed {
            return Err(Failure::invalid(format!("the volume '{name}' is not encrypted"))
                .action("make an encrypted one with: larder volume create NAME --encrypt; then copy the files"));
        }
        let (ring, version) = keyring(&*self.store(), info.id).await?.ok_or_else(|| {
            Failure::new(FailureKind::Unavailable, format!("the volume '{name}' has no keyring: nothing opens it"))
                .action("look for the disk that has it: larder pool status; only a volume whose making was cut off never had one")
        })?;
        Ok((info, ring, version))
    }

    /// Opens the volume with `secret`.
    pub(crate) async fn unlock(&self, name: &str, secret: Secret) -> Result<(), Failure> {
        let (info, ring, _) = self.sealed(name).await?;
        let keys = keys_of(ring, secret).await?;
        if !self.is_locked(&info) {
            return Ok(());
        }
        self.unlocked.keys.lock().insert(info.id, Arc::new(keys));
        if info.replica {
            // There is nothing to open before it is promoted, which takes these keys.
            self.unlocked.locked.lock().remove(&info.id);
            return Ok(());
        }
        let volume = self.volume(name).await;
        if volume.is_err() {
            self.unlocked.keys.lock().remove(&info.id);
        }
        if volume.is_ok() {
            self.unlocked.locked.lock().remove(&info.id);
        }
        volume.map(drop)
    }

    /// Whether it is locked, and nobody meant it to be.
    async fn waits_for_key(&self, name: &str) -> Result<bool, Failure> {
        let (info, _, _) = self.sealed(name).await?;
        Ok(self.is_locked(&info) && !self.unlocked.locked.lock().contains(&info.id))
    }

    /// Nobody gets to the volume any more (`keys.locked_first`). Returns the keys, in case it cannot be closed.
    pub(crate) async fn forget_keys(&self, name: &str) -> Result<Option<Forgotten>, Failure> {
        let (info, _, _) = self.sealed(name).await?;
        self.unlocked.locked.lock().insert(info.id);
        let keys = self.unlocked.keys.lock().remove(&info.id);
        Ok(keys.map(|keys| Forgotten { id: info.id, keys }))
    }

    /// Closes the volume whose keys were forgotten. Somebody still uses it: the keys are back.
    pub(crate) async fn close_locked(&self, name: &str, forgotten: Forgotten) -> Result<(), Failure> {
        let began = tokio::time::Instant::now();
        loop {
            match self.registry.close_volume(name).await {
                Err(FsError::Busy(_)) if began.elapsed() < LOCK_PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.unlocked.keys.lock().insert(forgotten.id, forgotten.keys);
                    return Err(self.failure(name, &error));
                }
            }
        }
    }

    pub(crate) async fn keys_status(&self, name: &str) -> Result<KeysStatus, Failure> {
        let (info, ring, _) = self.sealed(name).await?;
        Ok(self.keys_shown(&info, &ring, None))
    }

    fn keys_shown(&self, info: &VolumeInfo, ring: &Keyring, recovery_key: Option<String>) -> KeysStatus {
        let slots = ring.slots().iter().map(|slot| KeySlot {
            id: slot.id.to_string(),
            kind: slot.kind.name().to_owned(),
            name: slot.name.clone(),
            created: slot.created,
        });
        KeysStatus {
            pool: self.name.clone(),
            volume: info.name.clone(),
            cipher: ring.cipher().name().to_owned(),
            locked: self.is_locked(info),
            slots: slots.collect(),
            recovery_key,
        }
    }

    /// Changes the ways to open the volume. `secret` is one of them now.
    pub(crate) async fn change_keys(&self, name: &str, request: KeysRequest) -> Result<KeysStatus, Failure> {
        let (info, ring, version) = self.sealed(name).await?;
        let (secret, change): (_, KeyringChange) = match request {
            KeysRequest::Add { secret, new, name } => {
                let new = secret_of(new)?;
                (secret, Box::new(move |ring, master| ring.add_slot(master, &name, &new, work(), now()).map(|_| None)))
            }
            KeysRequest::AddRecovery { secret, name } => {
                let name = if name.is_empty() { RECOVERY_SLOT.to_owned() } else { name };
                (secret, Box::new(move |ring, master| add_recovery(ring, master, &name).map(Some)))
            }
            KeysRequest::Remove { secret, slot } => {
                (secret, Box::new(move |ring, master| ring.remove_slot(master, &slot).map(|_| None)))
            }
            KeysRequest::Unlock { .. } | KeysRequest::Lock { .. } => {
                return Err(Failure::internal("this request changes no keys"));
            }
        };
        let (mut ring, master) = opened(ring, secret_of(secret)?).await?;
        let (ring, recovery) = slowly(move || {
            let recovery = change(&mut ring, &master)?;
            Ok((ring, recovery))
        })
        .await?;
        self.write_keyring(info.id, &ring, PutMode::Update(version)).await?;
        Ok(self.keys_shown(&info, &ring, recovery))
    }
}

/// Opens a volume of the configuration with the key that it names, and applies its properties.
pub(crate) async fn unlock_configured(
    storage: &Storage,
    volume: &VolumeConfig,
    key: &KeySource,
) -> Result<(), Failure> {
    let pool = storage.pool(Some(&volume.name.pool))?;
    pool.set(&volume.name.volume, &volume.change).await?;
    if !pool.waits_for_key(&volume.name.volume).await? {
        return Ok(());
    }
    let bytes = key_of(key).await?;
    pool.unlock(&volume.name.volume, Secret::KeyFile(bytes.into())).await
}

async fn key_of(key: &KeySource) -> Result<Vec<u8>, Failure> {
    match key {
        KeySource::File(file) => read_key_file(file),
        KeySource::Command(command) => {
            let command = command.clone();
            let done = tokio::task::spawn_blocking(move || run_key_command(&command)).await;
            done.map_err(|error| Failure::internal(error.to_string()))?
        }
    }
}

/// The standard output of the key program. A program that does not end is killed.
fn run_key_command(command: &[String]) -> Result<Vec<u8>, Failure> {
    let shown = command.join(" ");
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::invalid("key_command is empty"))?;
    let failed = |error: &std::io::Error| Failure::io(format_args!("cannot run '{shown}'"), error);
    let mut started = std::process::Command::new(program);
    started.args(arguments).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    // It may say more than a log should keep.
    started.stderr(std::process::Stdio::null());
    let mut child = started.spawn().map_err(|error| failed(&error))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut key = Vec::new();
        let read = output.map(|output| output.take(KEYRING_BYTES_MAX).read_to_end(&mut key));
        read.transpose().map(|_| key)
    });
    let began = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) => break status,
            None if began.elapsed() < COMMAND_PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = COMMAND_PATIENCE.as_secs();
                return Err(Failure::invalid(format!("'{shown}' gave no key within {seconds} s: it was ended")));
            }
        }
    };
    if !status.success() {
        return Err(Failure::invalid(format!("'{shown}' gave no key: it ended with {status}")));
    }
    reader.join().map_err(|_| Failure::internal("the reader of a key failed"))?.map_err(|error| failed(&error))
}

/// A key file, whole.
pub(crate) fn read_key_file(file: &std::path::Path) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: &std::io::Error| Failure::io(format_args!("cannot read the key file {}", file.display()), error);
    let metadata = std::fs::metadata(file).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Failure::invalid(format!("the key file {} is no regular file", file.display())));
    }
    let size = metadata.len();
    if size > KEYRING_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "the key file {} has {size} bytes: it is some other file",
            file.display()
        )));
    }
    let mut key = Vec::new();
    let open = std::fs::File::open(file).map_err(|error| failed(&error))?;
    open.take(KEYRING_BYTES_MAX + 1).read_to_end(&mut key).map_err(|error| failed(&error))?;
    Ok(key)
}

/// A change of a keyring, and the recovery key that it made.
type KeyringChange = Box<dyn FnOnce(&mut Keyring, &Master) -> Result<Option<String>, KeyringError> + Send>;

/// Keys that were taken out of memory for a volume that is still to be closed.
pub(crate) struct Forgotten {
    id: Uuid,
    keys: Arc<Keys>,
}

fn add_recovery(ring: &mut Keyring, master: &Master, name: &str) -> Result<String, KeyringError> {
    let key = RecoveryKey::random()?;
    let text = key.text().to_string();
    ring.add_slot(master, name, &Secret::Recovery(key), work(), now())?;
    Ok(text)
}
