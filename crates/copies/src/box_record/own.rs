//! `box.json` in the data folder: which box this is, and what opens its record.
//!
//! - `own.opens_by_itself`: the file has a key of its own, which is a slot of the keyring. So versions are written without anybody's
//!   password, by whoever may read the data folder, which has in clear all that the record seals.
//! - `own.slots_follow_logins`: the slot of an owner remembers the hash of the password that it was made with. A slot whose owner has
//!   another hash, is an owner no more or is gone is taken away, however that came about.
//! - `own.slot_before_password`: the slot of a new password is on disk before the password is in force, beside the slot of the
//!   one before. Which of the two goes is decided by the hash that the next look finds. So one opens the record at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use larder_api::{Failure, FailureKind};
use larder_base::{hex, wipe};
use larder_crypt::{Cipher, Keyring, KeyringError, Keys, Master, Secret, Work};
use larder_keep::keyrings::{self, RECOVERY_SLOT};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use larder_config::edit::replace_file;

pub const FILE: &str = "box.json";
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
pub struct Life {
    pub number: u32,
    pub id: Uuid,
    pub began_secs: u64,
}

/// The slot of an owner of the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerSlot {
    pub slot: Uuid,
    /// Of the hash of the password (`own.slots_follow_logins`).
    pub login: String,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    format: u32,
    pub id: Uuid,
    pub life: Life,
    /// Lives of before, whose versions are in the pools, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Life>,
    key: String,
    keyring: Keyring,
    #[serde(default)]
    pub owners: BTreeMap<String, OwnerSlot>,
    /// Slots of passwords that are being set (`own.slot_before_password`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    coming: BTreeMap<String, OwnerSlot>,
    /// The number of the newest version, and a digest of what it says.
    #[serde(default)]
    pub newest: u64,
    #[serde(default)]
    pub digest: String,
    /// What each pool has: digests of the newest version and of the keyring, by the pool's id or the store's address.
    #[serde(default)]
    pub kept: BTreeMap<String, [String; 2]>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own").field("id", &self.id).field("life", &self.life).finish_non_exhaustive()
    }
}

impl Own {
    /// A new box.
    pub fn create() -> Result<Self, Failure> {
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
            coming: BTreeMap::new(),
            newest: 0,
            digest: String::new(),
            kept: BTreeMap::new(),
        })
    }

    /// The next life of a box whose record was opened.
    pub fn reborn(
        id: Uuid,
        (last, mut former): (Life, Vec<Life>),
        (mut keyring, master): (Keyring, &Master),
        mut owners: BTreeMap<String, OwnerSlot>,
        newest: u64,
    ) -> Result<Self, Failure> {
        // Beside a replica the passwords of owners have no slots.
        owners.retain(|_, owner| keyring.slots().any(|slot| slot.id == owner.slot));
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
            coming: BTreeMap::new(),
            newest,
            digest: String::new(),
            kept: BTreeMap::new(),
        })
    }

    /// `None`: the data folder is that of a new box, or of an older larder.
    pub fn load(folder: &Path) -> Result<Option<Self>, Failure> {
        let file = folder.join(FILE);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(format_args!("cannot read {}", file.display()), &error)),
        };
        Self::decode(&bytes).map(Some).map_err(|why| {
            Failure::unavailable(format!("{} is damaged: {why}", file.display())).action(format!(
                "move it away, and larder begins a new record of this box: mv {0} {0}.damaged",
                larder_base::shell::word(&file)
            ))
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let own: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match (own.format, hex::decode(&own.key)) {
            (FORMAT, Some(key)) if key.len() == KEY_BYTES => Ok(own),
            (FORMAT, _) => Err("its key is none".to_owned()),
            (format, _) => Err(format!("it has format {format}, and this larder knows {FORMAT}")),
        }
    }

    pub fn encode(&self) -> Result<Vec<u8>, Failure> {
        serde_json::to_vec_pretty(self).map_err(|error| Failure::internal(error.to_string()))
    }

    pub fn save(&self, folder: &Path) -> Result<(), Failure> {
        replace_file(&folder.join(FILE), &self.encode()?, 0o600)
    }

    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The keyring for another machine (`sent.recovery_key_alone`): the passwords of owners open nothing there.
    pub fn keyring_for_others(&self) -> Result<Keyring, Failure> {
        let mut keyring = self.keyring.clone();
        let of_owners: Vec<Uuid> = keyring.slots().filter(|slot| slot.name == OWNER_SLOT).map(|slot| slot.id).collect();
        let removed = wipe::without_contents(|| {
            let master = self.master()?;
            of_owners.iter().try_for_each(|id| keyring.remove_slot(&master, &id.to_string()).map(drop))
        });
        removed.map(|()| keyring).map_err(|error| failure(&error))
    }

    fn master(&self) -> Result<Master, KeyringError> {
        self.keyring.unlock(&secret_of(&self.key)?)
    }

    /// What seals and opens its versions.
    pub fn keys(&self) -> Result<Arc<Keys>, Failure> {
        let keys = wipe::without_contents(|| self.keyring.keys(&self.master()?));
        keys.map(Arc::new).map_err(|error| failure(&error))
    }

    /// A new recovery key; the one before opens nothing any more.
    pub fn renew_recovery(&mut self) -> Result<String, Failure> {
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

    pub fn has_recovery(&self) -> bool {
        self.keyring.slots().any(|slot| slot.name == RECOVERY_SLOT)
    }

    /// Lets the password that an owner has open the record. It takes a second of a core, on purpose.
    pub fn set_owner(&mut self, name: &str, password: &Secret, login: &str) -> Result<(), Failure> {
        let slot = self.new_slot(password, login)?;
        let before = self.owners.insert(name.to_owned(), slot);
        before.map_or(Ok(()), |before| self.drop_slot(&before))
    }

    /// As [`Own::set_owner`], for a password that is about to be set (`own.slot_before_password`).
    pub fn expect_owner(&mut self, name: &str, password: &Secret, login: &str) -> Result<(), Failure> {
        let slot = self.new_slot(password, login)?;
        let before = self.coming.insert(name.to_owned(), slot);
        before.map_or(Ok(()), |before| self.drop_slot(&before))
    }

    fn new_slot(&mut self, password: &Secret, login: &str) -> Result<OwnerSlot, Failure> {
        let slot = wipe::without_contents(|| {
            let master = self.master()?;
            self.keyring.add_slot(&master, OWNER_SLOT, password, work(), keyrings::now())
        });
        Ok(OwnerSlot { slot: slot.map_err(|error| failure(&error))?, login: login.to_owned() })
    }

    fn drop_slot(&mut self, gone: &OwnerSlot) -> Result<(), Failure> {
        let removed = wipe::without_contents(|| self.keyring.remove_slot(&self.master()?, &gone.slot.to_string()));
        match removed {
            Ok(_) | Err(KeyringError::NoSuchSlot(_)) => Ok(()),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Takes away the slots that `logins`, the owners with the digests of their hashes, do not confirm
    /// (`own.slots_follow_logins`), but not what comes for those in `held`, whose passwords are being set. Whether there was
    /// anything to do.
    pub fn keep_owners(&mut self, logins: &BTreeMap<String, String>, held: &BTreeSet<String>) -> Result<bool, Failure> {
        let (mut gone, mut came) = (Vec::new(), false);
        for (name, slot) in std::mem::take(&mut self.coming) {
            if logins.get(&name) == Some(&slot.login) {
                came = true;
                gone.extend(self.owners.insert(name, slot));
            } else if held.contains(&name) {
                self.coming.insert(name, slot);
            } else {
                gone.push(slot);
            }
        }
        let is_stale = |name: &String, slot: &OwnerSlot| logins.get(name) != Some(&slot.login);
        let stale: Vec<String> =
            self.owners.iter().filter(|(name, slot)| is_stale(name, slot)).map(|(name, _)| name.clone()).collect();
        gone.extend(stale.iter().filter_map(|name| self.owners.remove(name)));
        gone.iter().try_for_each(|slot| self.drop_slot(slot))?;
        Ok(came || !gone.is_empty())
    }

    /// In words, for people.
    pub fn opens_with(&self) -> Vec<String> {
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
        let nobody = BTreeSet::new();
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        assert!(!own.keep_owners(&logins("a"), &nobody).unwrap());
        own.set_owner("ann", &password("Another-Shelf-42"), "b").unwrap();
        let opens = |own: &Own, text: &str| own.keyring().unlock(&password(text)).is_ok();
        assert!(!opens(&own, "Pantry-Shelf-42") && opens(&own, "Another-Shelf-42"));
        assert!(own.keep_owners(&logins("c"), &nobody).unwrap(), "set without a word to the record");
        assert!(!opens(&own, "Another-Shelf-42") && own.keys().is_ok());
        assert_eq!(own.set_owner("ann", &password("short"), "d").unwrap_err().kind, FailureKind::Invalid);
    }

    /// `sent.recovery_key_alone`
    #[test]
    fn passwords_of_owners_open_nothing_on_other_machines() {
        let mut own = Own::create().unwrap();
        let recovery = Secret::Recovery(RecoveryKey::parse(&own.renew_recovery().unwrap()).unwrap());
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        let sent = own.keyring_for_others().unwrap();
        assert!(sent.unlock(&password("Pantry-Shelf-42")).is_err() && sent.unlock(&recovery).is_ok());
        assert!(own.keyring().unlock(&password("Pantry-Shelf-42")).is_ok());
        // What is sent later is newer, whoever became an owner or is none any more.
        own.set_owner("bob", &password("Another-Shelf-42"), "b").unwrap();
        let later = own.keyring_for_others().unwrap();
        own.keep_owners(&BTreeMap::new(), &BTreeSet::new()).unwrap();
        let last = own.keyring_for_others().unwrap();
        assert!(sent.changes() <= later.changes() && later.changes() <= last.changes());
    }

    /// `own.slot_before_password`
    #[test]
    fn one_password_opens_the_record_at_every_moment_of_a_change() {
        let logins = |login: &str| BTreeMap::from([("ann".to_owned(), login.to_owned())]);
        let (nobody, held) = (BTreeSet::new(), BTreeSet::from(["ann".to_owned()]));
        let opens = |own: &Own, text: &str| own.keyring().unlock(&password(text)).is_ok();
        let mut own = Own::create().unwrap();
        own.set_owner("ann", &password("Pantry-Shelf-42"), "a").unwrap();
        own.expect_owner("ann", &password("Another-Shelf-42"), "b").unwrap();
        let file = own.encode().unwrap();
        assert!(!own.keep_owners(&logins("a"), &held).unwrap(), "a look meanwhile takes nothing away");
        assert!(opens(&own, "Pantry-Shelf-42") && opens(&own, "Another-Shelf-42"));
        // A crash before the password was set, and one afterwards.
        for (login, works, is_over) in
            [("a", "Pantry-Shelf-42", "Another-Shelf-42"), ("b", "Another-Shelf-42", "Pantry-Shelf-42")]
        {
            let mut found = Own::decode(&file).unwrap();
            assert!(found.keep_owners(&logins(login), &nobody).unwrap());
            assert!(opens(&found, works) && !opens(&found, is_over), "{login}");
            assert_eq!(found.opens_with(), ["the password of ann"]);
            assert!(!found.keep_owners(&logins(login), &nobody).unwrap());
        }
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
