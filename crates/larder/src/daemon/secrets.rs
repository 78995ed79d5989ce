//! Passwords: as NT hashes, sealed, and as Argon2id hashes, in a file of mode 0600. Never in clear, never in a log.
//!
//! - `secrets.hash_or_generated`: of a password that a person chose only the hash is kept. A
//!   password that larder generated is kept sealed beside its hash, so that a script may ask for it
//!   again with `up --json`. It is removed when a person sets another. (The sealed bytes are the 16
//!   random bytes that spell it.)
//! - `secrets.hash_is_a_password`: the NT hash is as good as the password, so it leaves this module
//!   only for the SMB server. Doors whose clients send the password itself use the Argon2id hash. One that
//!   was set by an older larder has none: its user logs in to them once the password is set again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_api::{Failure, FailureKind};
use larder_people::{PasswordHash, PeopleError};
use larder_serve::smb::secret::{SealKey, SecretError, nt_hash};
use serde::{Deserialize, Serialize};

use crate::config::edit::{check_replaceable, replace_file};

/// Letters and digits that nobody confuses when reading them: 31, almost 5 bits each, 79 in a password.
const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
/// The longest password that is taken; SMB clients allow 256 characters at most.
pub(crate) const PASSWORD_BYTES_MAX: usize = 256;

pub(crate) struct Secrets {
    file: PathBuf,
    key: SealKey,
    users: BTreeMap<String, Secret>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    nt_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generated: Option<String>,
}

/// What is kept of a user, or that nothing is.
pub(crate) struct Kept {
    user: String,
    secret: Option<Secret>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    users: BTreeMap<String, Secret>,
}

/// A file that decodes is encoded and decoded again without change.
#[cfg(test)]
pub(crate) fn fuzz_file(data: &[u8]) {
    let Ok(file) = serde_json::from_slice::<SecretsFile>(data) else { return };
    let once = serde_json::to_value(&file).ok();
    assert!(once.is_some_and(|once| serde_json::from_value::<SecretsFile>(once).is_ok()));
}

impl Secrets {
    /// Reads `secrets` in the data folder; makes the sealing key on the first call.
    pub(crate) fn open(folder: &Path) -> Result<Secrets, Failure> {
        let file = folder.join("secrets");
        let key = SealKey::load_or_create(&folder.join("secrets.key")).map_err(|e| failure(&e))?;
        let users = match std::fs::read(&file) {
            Ok(bytes) => {
                let parsed: SecretsFile = serde_json::from_slice(&bytes).map_err(|e| damaged(&file, &e.to_string()))?;
                parsed.users
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(Failure::io(format_args!("cannot read {}", file.display()), &e)),
        };
        let mut secrets = Secrets { file, key, users };
        secrets.hash_generated()?;
        Ok(secrets)
    }

    /// A password that larder generated is known: its Argon2id hash is made where an older larder made none.
    fn hash_generated(&mut self) -> Result<(), Failure> {
        let lacking = |secret: &Secret| secret.generated.is_some() && secret.argon2id.is_none();
        let names: Vec<String> = self.users.iter().filter(|(_, s)| lacking(s)).map(|(name, _)| name.clone()).collect();
        for name in names {
            // A seed that cannot be unsealed is said where it is needed.
            let Ok(Some(password)) = self.generated(&name) else { continue };
            let hash = slow_hash(&password)?;
            if let Some(secret) = self.users.get(&name).cloned() {
                self.put(&name, Secret { argon2id: Some(hash), ..secret })?;
            }
        }
        Ok(())
    }

    pub(crate) fn has(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// `None`: no password was ever set.
    pub(crate) fn nt_hash(&self, user: &str) -> Result<Option<[u8; 16]>, Failure> {
        let Some(secret) = self.users.get(user) else { return Ok(None) };
        self.key.unseal(user, &secret.nt_hash).map(Some).map_err(|e| failure(&e))
    }

    /// `None`: no password was ever set, or an older larder set it.
    pub(crate) fn password_hash(&self, user: &str) -> Result<Option<PasswordHash>, Failure> {
        let text = self.users.get(user).and_then(|secret| secret.argon2id.as_ref());
        text.map(|text| PasswordHash::parse(text)).transpose().map_err(|e| hash_failure(&e))
    }

    /// The password, if larder generated it (`secrets.hash_or_generated`).
    pub(crate) fn generated(&self, user: &str) -> Result<Option<String>, Failure> {
        let Some(sealed) = self.users.get(user).and_then(|s| s.generated.as_ref()) else { return Ok(None) };
        let seed = self.key.unseal(&seed_label(user), sealed).map_err(|e| failure(&e))?;
        Ok(Some(spell(seed)))
    }

    /// A key of this data folder for `what`, the same at every start.
    pub(crate) fn derive(&self, what: &str) -> [u8; 32] {
        self.key.derive(what)
    }

    /// Sets a password that a person chose.
    pub(crate) fn set(&mut self, user: &str, password: &str) -> Result<(), Failure> {
        self.set_hashed(user, password, &hash_of(password)?)
    }

    /// The same, of a password whose hash is made already.
    pub(crate) fn set_hashed(&mut self, user: &str, password: &str, hash: &PasswordHash) -> Result<(), Failure> {
        check_password(password)?;
        let nt_hash = self.key.seal(user, &nt_hash(password)).map_err(|e| failure(&e))?;
        self.put(user, Secret { nt_hash, argon2id: Some(hash.to_text()), generated: None })
    }

    /// Sets and returns a new random password.
    pub(crate) fn generate(&mut self, user: &str) -> Result<String, Failure> {
        let seed: [u8; 16] = rand::random();
        let password = spell(seed);
        let hash = self.key.seal(user, &nt_hash(&password)).map_err(|e| failure(&e))?;
        let sealed = self.key.seal(&seed_label(user), &seed).map_err(|e| failure(&e))?;
        let argon2id = Some(slow_hash(&password)?);
        self.put(user, Secret { nt_hash: hash, argon2id, generated: Some(sealed) })?;
        Ok(password)
    }

    /// Is this the password?
    pub(crate) fn matches(&self, user: &str, password: &str) -> Result<bool, Failure> {
        Ok(self.nt_hash(user)? == Some(nt_hash(password)))
    }

    /// The password of a user as it is kept, for [`Secrets::put_back`].
    pub(crate) fn kept(&self, user: &str) -> Kept {
        Kept { user: user.to_owned(), secret: self.users.get(user).cloned() }
    }

    /// A change that came with a new password was not made after all.
    pub(crate) fn put_back(&mut self, kept: Kept) -> Result<(), Failure> {
        match kept.secret {
            Some(secret) => self.put(&kept.user, secret),
            None => self.remove(&kept.user),
        }
    }

    pub(crate) fn remove(&mut self, user: &str) -> Result<(), Failure> {
        match self.users.remove(user) {
            Some(_) => self.save(),
            None => Ok(()),
        }
    }

    /// The file first: what is in memory is never ahead of what a restart finds.
    fn put(&mut self, user: &str, secret: Secret) -> Result<(), Failure> {
        let old = self.users.insert(user.to_owned(), secret);
        let saved = self.save();
        if saved.is_err() {
            match old {
                Some(old) => self.users.insert(user.to_owned(), old),
                None => self.users.remove(user),
            };
        }
        saved
    }

    fn save(&self) -> Result<(), Failure> {
        replace_file(&self.file, &self.bytes()?, 0o600)
    }

    /// Refuses what comes before a password that could not be kept.
    pub(crate) fn check_writable(&self) -> Result<(), Failure> {
        check_replaceable(&self.file, &self.bytes()?)
    }

    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let file = SecretsFile { users: self.users.clone() };
        serde_json::to_vec_pretty(&file).map_err(|e| Failure::internal(e.to_string()))
    }
}

/// Under what the seed of a user's password is sealed. No user name contains a blank.
fn seed_label(user: &str) -> String {
    format!("generated {user}")
}

/// A password in groups of four, easy to read and to type.
fn spell(seed: [u8; 16]) -> String {
    let mut rest = u128::from_le_bytes(seed);
    let mut password = String::new();
    for place in 0..16 {
        if place > 0 && place % 4 == 0 {
            password.push('-');
        }
        password.push(char::from(ALPHABET[(rest % ALPHABET.len() as u128) as usize]));
        rest /= ALPHABET.len() as u128;
    }
    password
}

/// A new password, of nobody yet.
pub(crate) fn random_password() -> String {
    spell(rand::random())
}

/// The Argon2id hash that doors compare with: a tenth of a second of a core.
pub(crate) fn hash_of(password: &str) -> Result<PasswordHash, Failure> {
    PasswordHash::new(password).map_err(|e| hash_failure(&e))
}

fn slow_hash(password: &str) -> Result<String, Failure> {
    hash_of(password).map(|hash| hash.to_text())
}

fn hash_failure(error: &PeopleError) -> Failure {
    Failure::new(FailureKind::Unavailable, error.to_string())
}

fn failure(error: &SecretError) -> Failure {
    Failure::new(FailureKind::Unavailable, error.to_string())
}

fn damaged(file: &Path, why: &str) -> Failure {
    Failure::new(FailureKind::Unavailable, format!("{} is damaged: {why}", file.display()))
        .action("restore it with its .key from a backup, or delete both and set every password again with: larder user passwd NAME")
}

pub(crate) fn check_password(password: &str) -> Result<(), Failure> {
    if password.len() > PASSWORD_BYTES_MAX || password.contains(['\0', '\n', '\r']) {
        return Err(Failure::invalid(format!("the password must be one line of at most {PASSWORD_BYTES_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn generated_passwords_can_be_asked_for_until_a_person_sets_another() {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::open(folder.path()).unwrap();
        let password = secrets.generate("ann").unwrap();
        assert_eq!(password.len(), 19);
        let mut again = Secrets::open(folder.path()).unwrap();
        assert_eq!(again.generated("ann").unwrap().as_ref(), Some(&password));
        assert!(again.matches("ann", &password).unwrap());
        let text = std::fs::read_to_string(folder.path().join("secrets")).unwrap();
        assert!(!text.contains(&password), "{text}");

        assert!(again.password_hash("ann").unwrap().is_some());

        again.set("ann", "s3cret ä").unwrap();
        let set = again.password_hash("ann").unwrap();
        assert!(set.is_some() && set == Secrets::open(folder.path()).unwrap().password_hash("ann").unwrap());
        assert!(again.matches("ann", "s3cret ä").unwrap() && !again.matches("ann", &password).unwrap());
        assert_eq!(again.generated("ann").unwrap(), None);
        again.remove("ann").unwrap();
        assert_eq!(Secrets::open(folder.path()).unwrap().nt_hash("ann").unwrap(), None);
    }

    #[test]
    fn a_password_of_an_older_larder_has_no_slow_hash_unless_it_was_generated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets");
        let mut secrets = Secrets::open(folder.path()).unwrap();
        secrets.generate("ann").unwrap();
        secrets.set("bob", "hidden").unwrap();
        let mut old: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for user in ["ann", "bob"] {
            assert!(old["users"][user].as_object_mut().unwrap().remove("argon2id").is_some());
        }
        std::fs::write(&file, old.to_string()).unwrap();
        let read = Secrets::open(folder.path()).unwrap();
        assert!(read.password_hash("ann").unwrap().is_some() && read.password_hash("bob").unwrap().is_none());
        assert!(read.matches("bob", "hidden").unwrap());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secrets"), "{").unwrap();
        let failure = Secrets::open(folder.path()).err().unwrap();
        assert!(failure.message.contains("secrets is damaged"), "{failure}");
        for bad in [
            "a
b", "\0",
        ] {
            assert!(check_password(bad).is_err());
        }
    }
}
