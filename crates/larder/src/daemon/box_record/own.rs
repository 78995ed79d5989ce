//! `box.json` in the data folder: which box this is, and what opens its record.
//!
//! - `own.opens_by_itself`: the file has a key of its own, which is a slot of the keyring. So versions are written without anybody's
//!   password, by whoever may read the data folder, which has in clear all that the record seals.
//! - `own.slots_follow_logins`: the slot of an owner remembers the hash of the password that it was made with. A slot whose owner has
//!   another hash, is an owner no more or is gone is taken away, however that came about.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use larder_api::{Failure, FailureKind};
use larder_base::{hex, wipe};
use larder_crypt::{Cipher, Keyring, KeyringError, Keys, Master, Secret, Work};
use larder_keep::keyrings::{self, RECOVERY_SLOT};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::edit::replace_file;

pub(crate) const FILE: &str = "box.json";
const FORMAT: u32 = 1;
const KEY_BYTES: usize = 32;
/// The slot of the key in the file.
const MACHINE_SLOT: &str = "machine";
/// Names of users are not in clear on the disks.
const OWNER_SLOT: &str = "owner";
/// Twice the second recommendation of RFC 9106, section 4.
const WORK_KIB_MAX: u32 = 128 << 10;
/// More lives than a box has: the oldest are forgotten.
const FORMER_MAX: usize = 64;

/// One machine that the box was, or is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Life {
    pub(crate) number: u32,
    pub(crate) id: Uuid,
    pub(crate) began_secs: u64,
}

/// The slot of an owner of the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnerSlot {
    pub(crate) slot: Uuid,
    /// Of the hash of the password (`own.slots_follow_logins`).
    pub(crate) login: String,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    format: u32,
    pub(crate) id: Uuid,
    pub(crate) life: Life,
    /// Lives of before, whose versions are in the pools, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former: Vec<Life>,
    key: String,
    keyring: Keyring,
    #[serde(default)]
    pub(crate) owners: BTreeMap<String, OwnerSlot>,
    /// The number of the newest version, and a digest of what it says.
    #[serde(default)]
    pub(crate) newest: u64,
    #[serde(default)]
    pub(crate) digest: String,
    /// What each pool has: digests of the newest version and of the keyring, by the pool's id or the store's address.
    #[serde(default)]
    pub(crate) kept: BTreeMap<String, [String; 2]>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own").field("id", &self.id).field("life", &self.life).finish_non_exhaustive()
    }
}

impl Own {
    /// A new box.
    pub(crate) fn create() -> Result<Self, Failure> {
        let key = hex::encode(&rand::random::<[u8; KEY_BYTES]>());
        let made = wipe::without_contents(|| {
            let secret = secret_of(&key)?;
            Keyring::create(Cipher::Aes256Gcm, MACHINE_SLOT, &secret, work(), keyrings::now())
        });
        let (keyring, _) = made.map_err(|error| failure(&error))?;
        Ok(Self {
            format: FORMAT,
            id: Uuid::new_v4(),
            life: Life { number: 1, id: Uuid::new_v4(), began_secs: keyrings::now() },
            former: Vec::new(),
            key,
            keyring,
            owners: BTreeMap::new(),
            newest: 0,
            digest: String::new(),
            kept: BTreeMap::new(),
        })
    }

    /// The next life of a box whose record was opened.
    pub(crate) fn reborn(
        id: Uuid,
        (last, mut former): (Life, Vec<Life>),
        (mut keyring, master): (Keyring, &Master),
        owners: BTreeMap<String, OwnerSlot>,
        newest: u64,
    ) -> Result<Self, Failure> {
        let key = hex::encode(&rand::random::<[u8; KEY_BYTES]>());
        wipe::without_contents(|| {
            let machines: Vec<Uuid> = keyring.slots().filter(|slot| slot.name == MACHINE_SLOT).map(|s| s.id).collect();
            keyring.add_slot(master, MACHINE_SLOT, &secret_of(&key)?, work(), keyrings::now())?;
            machines.iter().try_for_each(|id| keyring.remove_slot(master, &id.to_string()).map(drop))
        })
        .map_err(|error| failure(&error))?;
        let number = last.number.saturating_add(1);
        former.push(last);
        let forgotten = former.len().saturating_sub(FORMER_MAX);
        former.drain(..forgotten);
        Ok(Self {
            format: FORMAT,
            id,
            life: Life { number, id: Uuid::new_v4(), began_secs: keyrings::now() },
            former,
            key,
            keyring,
            owners,
            newest,
            digest: String::new(),
            kept: BTreeMap::new(),
        })
    }

    /// `None`: the data folder is that of a new box, or of an older larder.
    pub(crate) fn load(folder: &Path) -> Result<Option<Self>, Failure> {
        let file = folder.join(FILE);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(format_args!("cannot read {}", file.display()), &error)),
        };
        Self::decode(&bytes).map(Some).map_err(|why| {
            Failure::new(FailureKind::Unavailable, format!("{} is damaged: {why}", file.display())).action(format!(
                "move it away, and larder begins a new record of this box: mv {0} {0}.damaged",
                larder_base::shell::word(&file)
            ))
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let own: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match (own.format, hex::decode(&own.key)) {
            (FORMAT, Some(key)) if key.len() == KEY_BYTES => Ok(own),
            (FORMAT, _) => Err("its key is none".to_owned()),
            (format, _) => Err(format!("it has format {format}, and this larder knows {FORMAT}")),
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, Failure> {
        serde_json::to_vec_pretty(self).map_err(|error| Failure::internal(error.to_string()))
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<(), Failure> {
        replace_file(&folder.join(FILE), &self.encode()?, 0o600)
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    fn master(&self) -> Result<Master, KeyringError> {
        self.keyring.unlock(&secret_of(&self.key)?)
    }

    /// What seals and opens its versions.
    pub(crate) fn keys(&self) -> Result<Arc<Keys>, Failure> {
        let keys = wipe::without_contents(|| self.keyring.keys(&self.master()?));
        keys.map(Arc::new).map_err(|error| failure(&error))
    }

    /// A new recovery key; the one before opens nothing any more.
    pub(crate) fn renew_recovery(&mut self) -> Result<String, Failure> {
        let renewed = wipe::without_contents(|| {
            let master = self.master()?;
            let before: Vec<Uuid> =
                self.keyring.slots().filter(|slot| slot.name == RECOVERY_SLOT).map(|s| s.id).collect();
            let text = keyrings::add_recovery(&mut self.keyring, &master, RECOVERY_SLOT, false)?;
            before.iter().try_for_each(|id| self.keyring.remove_slot(&master, &id.to_string()).map(drop))?;
            Ok(text)
        });
        renewed.map_err(|error: KeyringError| failure(&error))
    }

    pub(crate) fn has_recovery(&self) -> bool {
        self.keyring.slots().any(|slot| slot.name == RECOVERY_SLOT)
    }

    /// Lets an owner's password open the record. It takes a second of a core, on purpose.
    pub(crate) fn set_owner(&mut self, name: &str, password: &Secret, login: &str) -> Result<(), Failure> {
        let slot = wipe::without_contents(|| {
            let master = self.master()?;
            self.keyring.add_slot(&master, OWNER_SLOT, password, work(), keyrings::now())
        });
        let slot = slot.map_err(|error| failure(&error))?;
        self.drop_owner(name)?;
        self.owners.insert(name.to_owned(), OwnerSlot { slot, login: login.to_owned() });
        Ok(())
    }

    fn drop_owner(&mut self, name: &str) -> Result<(), Failure> {
        let Some(gone) = self.owners.remove(name) else { return Ok(()) };
        let removed = wipe::without_contents(|| self.keyring.remove_slot(&self.master()?, &gone.slot.to_string()));
        match removed {
            Ok(_) | Err(KeyringError::NoSuchSlot(_)) => Ok(()),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Takes away the slots that `logins`, the owners with the digests of their hashes, do not confirm
    /// (`own.slots_follow_logins`). Whether there were any.
    pub(crate) fn keep_owners(&mut self, logins: &BTreeMap<String, String>) -> Result<bool, Failure> {
        let is_stale = |(name, slot): &(&String, &OwnerSlot)| logins.get(*name) != Some(&slot.login);
        let stale: Vec<String> = self.owners.iter().filter(is_stale).map(|(name, _)| name.clone()).collect();
        stale.iter().try_for_each(|name| self.drop_owner(name))?;
        Ok(!stale.is_empty())
    }

    /// In words, for people.
    pub(crate) fn opens_with(&self) -> Vec<String> {
        let recovery = self.has_recovery().then(|| "the recovery key".to_owned());
        recovery.into_iter().chain(self.owners.keys().map(|name| format!("the password of {name}"))).collect()
    }
}

/// As for volumes, with less memory: an owner's slot is made beside clients that are served.
fn work() -> Work {
    let full = keyrings::work();
    Work { memory_kib: full.memory_kib.min(WORK_KIB_MAX), ..full }
}

fn secret_of(key: &str) -> Result<Secret, KeyringError> {
    let bytes = hex::decode(key).ok_or_else(|| KeyringError::Damaged("the key of this machine is none".into()))?;
    Ok(Secret::KeyFile(bytes.into()))
}

pub(super) fn failure(error: &KeyringError) -> Failure {
    let kind = match error {
        KeyringError::Refused(_) => FailureKind::Denied,
        KeyringError::Weak(_) | KeyringError::TooManySlots => FailureKind::Invalid,
        _ => FailureKind::Unavailable,
    };
    Failure::new(kind, format!("the record of this box: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_crypt::RecoveryKey;

    use super::*;

    fn password(text: &str) -> Secret {
        Secret::Passphrase(text.to_owned().into())
    }

    #[test]
    fn a_box_is_opened_by_its_machine_its_owners_and_its_recovery_key() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Own::load(folder.path()).unwrap().is_none());
        let mut own = Own::create().unwrap();
        let first = own.renew_recovery().unwrap();
        let recovery = own.renew_recovery().unwrap();
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        own.save(folder.path()).unwrap();
        let read = Own::load(folder.path()).unwrap().unwrap();
        assert_eq!((read.id, read.life.number), (own.id, 1));
        assert_eq!(read.opens_with(), ["the recovery key", "the password of ann"]);
        let opens = |secret: &Secret| read.keyring().unlock(secret).is_ok();
        assert!(opens(&password("Pantry-Shelf-42")) && !opens(&password("Pantry-Shelf-43")));
        assert!(opens(&Secret::Recovery(RecoveryKey::parse(&recovery).unwrap())));
        assert!(!opens(&Secret::Recovery(RecoveryKey::parse(&first).unwrap())), "it was renewed");
        assert!(read.keys().is_ok());
        std::fs::write(folder.path().join(FILE), "{\"format\": 7}").unwrap();
        assert!(Own::load(folder.path()).unwrap_err().message.contains("damaged"));
    }

    /// `own.slots_follow_logins`
    #[test]
    fn a_slot_goes_with_its_password() {
        let mut own = Own::create().unwrap();
        let logins = |login: &str| BTreeMap::from([("ann".to_owned(), login.to_owned())]);
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        assert!(!own.keep_owners(&logins("a")).unwrap());
        own.set_owner("ann", &password("Another-Shelf-42"), "b").unwrap();
        let opens = |own: &Own, text: &str| own.keyring().unlock(&password(text)).is_ok();
        assert!(!opens(&own, "Pantry-Shelf-42") && opens(&own, "Another-Shelf-42"));
        assert!(own.keep_owners(&logins("c")).unwrap(), "set without a word to the record");
        assert!(!opens(&own, "Another-Shelf-42") && own.keys().is_ok());
        assert_eq!(own.set_owner("ann", &password("short"), "d").unwrap_err().kind, FailureKind::Invalid);
    }

    #[test]
    fn the_next_life_has_the_keys_of_the_last_and_a_number_of_its_own() {
        let mut own = Own::create().unwrap();
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        let ring = own.keyring().clone();
        let master = ring.unlock(&password("Pantry-Shelf-42")).unwrap();
        let lives = (own.life.clone(), Vec::new());
        let next = Own::reborn(own.id, lives, (ring, &master), own.owners.clone(), 7).unwrap();
        assert_eq!((next.id, next.life.number, next.newest), (own.id, 2, 7));
        assert_eq!(next.former, [own.life.clone()]);
        assert_ne!(next.life.id, own.life.id);
        assert!(next.keys().is_ok());
        assert!(next.keyring().unlock(&secret_of(&own.key).unwrap()).is_err(), "the machine of before has no slot");
    }
}
