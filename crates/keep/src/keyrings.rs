//! Keyrings in the store of a pool, secrets that open them, and the keys that are unlocked in memory (`keys.memory_only`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_api::{Encrypt, Failure, FailureKind, VolumeSecret};
use larder_base::{boxed, task, wipe};
use larder_crypt::{
    Cipher, HalfSealed, Keyring, KeyringError, Keys, Master, RecoveryKey, Renewal, SealedLog, SealedStore, Secret, Work,
};
use larder_fs::{FsError, FsResult};
use larder_volume::{Beneath, Sealing, Seals, VolumeInfo};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::memory;

/// The name of a keyring beside the objects of its volume.
const KEYRING: &str = "keyring.json";
/// A keyring larger than this is not ours, nor is a key file.
pub const KEYRING_BYTES_MAX: u64 = 1 << 20;
/// People's name for the slot of the secret that a volume was made with.
const FIRST_SLOT: &str = "first";
pub const RECOVERY_SLOT: &str = "recovery";

/// The keys of the volumes of one pool that are unlocked.
#[derive(Default)]
pub struct Unlocked {
    pub keys: Mutex<HashMap<Uuid, Arc<Keys>>>,
    /// Locked by a person since the start (`keys.lock_stays`).
    pub locked: Mutex<HashSet<Uuid>>,
    /// The slot that each was opened with, where a secret opened it.
    pub slots: Mutex<HashMap<Uuid, Uuid>>,
}

impl Seals for Unlocked {
    fn are_unlocked(&self, volume: &VolumeInfo) -> bool {
        self.keys.lock().contains_key(&volume.id)
    }

    fn decorate(&self, volume: &VolumeInfo, beneath: Beneath) -> FsResult<Beneath> {
        let keys = self.keys.lock().get(&volume.id).cloned().ok_or(FsError::Locked)?;
        decorated(volume.id, beneath, keys, Mixture::of(volume))
    }

    fn share(&self, from: &VolumeInfo, to: &VolumeInfo) -> FsResult<()> {
        let mut known = self.keys.lock();
        let keys = known.get(&from.id).cloned().ok_or(FsError::Locked)?;
        known.insert(to.id, keys);
        Ok(())
    }

    fn renewed_keyring(&self, own: &[u8], came: &[u8]) -> FsResult<Option<Vec<u8>>> {
        let own = Keyring::decode(own).map_err(|error| FsError::Io(error.to_string().into()))?;
        let refused = |error: KeyringError| {
            FsError::Refused(format!("{error}: it is not taken, and what opens the replica stays as it is").into())
        };
        Ok(match own.renewed(&Keyring::decode(came).map_err(refused)?).map_err(refused)? {
            Renewal::Nothing => None,
            Renewal::Replaced(ring) | Renewal::Unproved(ring) => Some(ring.encode()),
        })
    }
}

impl Unlocked {
    pub fn of(&self, id: Uuid) -> Option<Arc<Keys>> {
        self.keys.lock().get(&id).cloned()
    }

    pub fn forget(&self, id: Uuid) {
        self.keys.lock().remove(&id);
        self.locked.lock().remove(&id);
        self.slots.lock().remove(&id);
    }

    pub fn put(&self, id: Uuid, keys: Arc<Keys>) {
        self.keys.lock().insert(id, keys);
    }
}

/// What lies in the store of an encrypted volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixture {
    /// Everything is sealed.
    Sealed,
    /// Some objects may still be in clear.
    Half,
    /// The same, for readers that rely on the lengths in lists.
    HalfExact,
}

impl Mixture {
    fn of(volume: &VolumeInfo) -> Self {
        if volume.sealing == Some(Sealing::Encrypt) { Self::Half } else { Self::Sealed }
    }
}

/// The store and the log of a volume, opened with its keys.
pub fn decorated(id: Uuid, beneath: Beneath, keys: Arc<Keys>, mixture: Mixture) -> FsResult<Beneath> {
    let failed = |error: larder_crypt::SealError| FsError::Io(error.to_string().into());
    let log = beneath.log.map(|log| SealedLog::new(log, Arc::clone(&keys))).transpose().map_err(failed)?;
    let store: Arc<dyn ObjectStore> = match mixture {
        Mixture::Sealed => Arc::new(SealedStore::new(beneath.store, folder_of(id), keys)),
        half => Arc::new(HalfSealed::new(beneath.store, folder_of(id), keys, half == Mixture::HalfExact)),
    };
    Ok(Beneath { store, log: log.map(|log| Arc::new(log) as _) })
}

pub(crate) fn folder_of(id: Uuid) -> Path {
    Path::from("volumes").join(id.to_string())
}

/// The keyring of a volume. `None`: there is none.
#[boxed]
pub async fn keyring(store: &dyn ObjectStore, id: Uuid) -> Result<Option<(Keyring, UpdateVersion)>, Failure> {
    let path = folder_of(id).join(KEYRING);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::unavailable(format!("the keyring of the volume cannot be read: {error}"))
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
#[boxed]
pub async fn keys_of(keyring: Keyring, secret: Secret) -> Result<Keys, Failure> {
    let Opened { ring, master, .. } = opened(keyring, secret).await?;
    ring.keys(&master).map_err(|error| keyring_error(&error))
}

/// A keyring that a secret has opened.
pub struct Opened {
    pub ring: Keyring,
    pub master: Master,
    /// The slot of the secret.
    pub slot: Uuid,
    /// The master key has proved, or dropped, a keyring that had arrived: it is to be written.
    pub is_settled: bool,
}

/// Opens a keyring on a thread of its own: a passphrase takes a second of a core, on purpose.
#[boxed]
pub async fn opened(mut ring: Keyring, secret: Secret) -> Result<Opened, Failure> {
    let work = move || {
        let (master, slot) = ring.unlock_slot(&secret)?;
        let is_settled = ring.settle(&master)?;
        Ok(Opened { ring, master, slot, is_settled })
    };
    let opened = slowly(work).await?;
    note_swappable();
    Ok(opened)
}

/// Says once that keys may reach the swap (`wipe.keys_stay_in_memory`).
fn note_swappable() {
    static NOTE: std::sync::Once = std::sync::Once::new();
    if wipe::are_keys_swappable() {
        NOTE.call_once(|| {
            tracing::warn!(
                "keys of encrypted volumes may reach the swap: the system does not let this process lock 16 KiB of memory; allow \
                 it with LimitMEMLOCK=64K in the unit, or ulimit -l 64"
            );
        });
    }
}

pub(crate) async fn slowly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeyringError> + Send + 'static,
) -> Result<T, Failure> {
    let done = task::blocking(work).await;
    done.map_err(|error| Failure::internal(error.to_string()))?.map_err(|error| keyring_error(&error))
}

pub fn keyring_error(error: &KeyringError) -> Failure {
    let kind = match error {
        KeyringError::Refused(_) => FailureKind::Denied,
        KeyringError::LastSlot | KeyringError::TooManySlots | KeyringError::Weak(_) | KeyringError::NoSecretFor(_) => {
            FailureKind::Invalid
        }
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
        KeyringError::NoSecretFor(_) => failure.action(
            "give its secret, too (a key file with --key-file FILE); or let it go with --drop LABEL, and make another one afterwards",
        ),
        KeyringError::UnknownFormat(_) => failure.action("install a newer larder"),
        _ => failure,
    }
}

/// A secret from a person or a file, as the keyring takes it.
pub fn secret_of(given: VolumeSecret) -> Result<Secret, Failure> {
    Ok(match given {
        VolumeSecret::Passphrase(text) => Secret::Passphrase(text.into()),
        VolumeSecret::KeyFile(bytes) => Secret::KeyFile(bytes.into()),
        VolumeSecret::Recovery(text) => Secret::Recovery(RecoveryKey::parse(&text).ok_or_else(|| {
            Failure::invalid("this is no recovery key: it has eleven groups of five; look for a typing error")
        })?),
    })
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

pub fn work() -> Work {
    Work::for_memory(memory::total_bytes().unwrap_or(u64::MAX))
}

/// A volume that needs keys, and has none in memory.
pub fn locked(volume: &str) -> Failure {
    Failure::locked(format!("the volume '{volume}' is locked"))
        .action(format!("open it with: larder volume unlock {volume}"))
}

#[boxed]
pub async fn write_keyring(store: &dyn ObjectStore, id: Uuid, ring: &Keyring, mode: PutMode) -> Result<(), Failure> {
    let payload = PutPayload::from(ring.encode());
    let put = store.put_opts(&folder_of(id).join(KEYRING), payload, mode.into()).await;
    put.map(drop).map_err(|error| Failure::unavailable(format!("the keyring of the volume cannot be written: {error}")))
}

pub(crate) fn cipher_named(name: &str) -> Result<Cipher, Failure> {
    Cipher::of_name(name).ok_or_else(|| {
        let names = Cipher::ALL.map(Cipher::name).join(", ");
        Failure::invalid(format!("'{name}' is not a cipher: use one of {names}"))
    })
}

/// A keyring for a volume that has none, with its recovery key, if one was asked for.
pub(crate) async fn new_keyring(encrypt: Encrypt) -> Result<(Keyring, Master, Option<String>), Failure> {
    let cipher = encrypt.cipher.as_deref().map_or_else(|| Ok(Cipher::for_this_machine()), cipher_named)?;
    let secret = secret_of(encrypt.secret)?;
    slowly(move || {
        let (mut ring, master) = Keyring::create(cipher, FIRST_SLOT, &secret, work(), now())?;
        let recovery = encrypt.recovery.then(|| add_recovery(&mut ring, &master, RECOVERY_SLOT, false)).transpose()?;
        Ok((ring, master, recovery))
    })
    .await
}

/// Of a replica, the recovery key opens it there alone.
pub fn add_recovery(ring: &mut Keyring, master: &Master, name: &str, is_replica: bool) -> Result<String, KeyringError> {
    let key = RecoveryKey::random()?;
    let text = key.text().to_string();
    let secret = Secret::Recovery(key);
    match is_replica {
        true => ring.add_slot_here(master, name, &secret, work(), now())?,
        false => ring.add_slot(master, name, &secret, work(), now())?,
    };
    Ok(text)
}
