//! Passwords: as NT hashes, sealed, and as Argon2id hashes, in a file of mode 0600. Never in clear, never in a log.
//!
//! - `secrets.hash_or_generated`: of a password that a person chose only the hash is kept. A
//!   password that larder generated is kept sealed beside its hash, so that a script may ask for it
//!   again with `up --json`. It is removed when a person sets another. (The sealed bytes are the 16
//!   random bytes that spell it.)
//! - `secrets.hash_is_a_password`: the NT hash is as good as the password, so it leaves this module
//!   only for the SMB server. Doors whose clients send the password itself use the Argon2id hash. One that
//!   was set by an older larder has none: its user logs in to them once the password is set again.
//! - `secrets.nt_hash_for_smb_alone`: an NT hash is quick to guess from, so it is made only where the configuration has a door for
//!   SMB, and the record of the box has none where there is no such door. The hashes that are here stay when the door is closed:
//!   it may be closed for a moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_api::Failure;
use larder_people::{PasswordHash, PeopleError};
use larder_smb_wire::auth::ntlm::nt_hash;
use serde::{Deserialize, Serialize};

use crate::seal::{SealKey, SecretError};
use larder_config::Config;
use larder_config::edit::{check_replaceable, replace_file};

/// Letters and digits that nobody confuses when reading them: 31, almost 5 bits each, 79 in a password.
const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
/// The longest password that is taken; SMB clients allow 256 characters at most.
pub const PASSWORD_BYTES_MAX: usize = 256;

pub struct Secrets {
    file: PathBuf,
    key: SealKey,
    users: BTreeMap<String, Secret>,
}

/// Whether NT hashes are made and passed on (`secrets.nt_hash_for_smb_alone`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NtHashes {
    Kept,
    LeftOut,
}

impl NtHashes {
    /// By the configuration that runs, with the options of this run, and by the file: a door that is closed for one run is
    /// open again in the next.
    pub fn of(config: &Config, file: &Path) -> Self {
        let of_file = || Config::load(file).is_ok_and(|config| config.listen.smb.is_some());
        if config.listen.smb.is_some() || of_file() { Self::Kept } else { Self::LeftOut }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nt_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generated: Option<String>,
}

/// What is kept of a user, or that nothing is.
pub struct Kept {
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
pub fn fuzz_file(data: &[u8]) {
    let Ok(file) = serde_json::from_slice::<SecretsFile>(data) else { return };
    let once = serde_json::to_value(&file).ok();
    assert!(once.is_some_and(|once| serde_json::from_value::<SecretsFile>(once).is_ok()));
}

/// The file without NT hashes, for places where none belong.
pub fn without_nt_hashes(bytes: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut file: SecretsFile = serde_json::from_slice(bytes)?;
    file.users.values_mut().for_each(|secret| secret.nt_hash = None);
    serde_json::to_vec_pretty(&file)
}

impl Secrets {
    /// Reads `secrets` in the data folder; makes the sealing key on the first call.
    pub fn open(folder: &Path) -> Result<Secrets, Failure> {
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

    pub fn has(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// `None`: no password was ever set, or it was set where SMB was not served.
    pub fn nt_hash(&self, user: &str) -> Result<Option<[u8; 16]>, Failure> {
        match self.users.get(user).and_then(|secret| secret.nt_hash.as_ref()) {
            Some(sealed) => self.key.unseal(user, sealed).map(Some).map_err(|e| failure(&e)),
            // A password that is known makes its hash.
            None => Ok(self.generated(user)?.map(|password| nt_hash(&password))),
        }
    }

    /// Has a password that does not open SMB, since its NT hash was not kept.
    pub fn lacks_nt_hash(&self, user: &str) -> bool {
        self.has(user) && matches!(self.nt_hash(user), Ok(None))
    }

    /// `None`: no password was ever set, or an older larder set it.
    pub fn password_hash(&self, user: &str) -> Result<Option<PasswordHash>, Failure> {
        let text = self.users.get(user).and_then(|secret| secret.argon2id.as_ref());
        text.map(|text| PasswordHash::parse(text)).transpose().map_err(|e| hash_failure(&e))
    }

    /// The password, if larder generated it (`secrets.hash_or_generated`).
    pub fn generated(&self, user: &str) -> Result<Option<String>, Failure> {
        let Some(sealed) = self.users.get(user).and_then(|s| s.generated.as_ref()) else { return Ok(None) };
        let seed = self.key.unseal(&seed_label(user), sealed).map_err(|e| failure(&e))?;
        Ok(Some(spell(seed)))
    }

    /// A key of this data folder for `what`, the same at every start.
    pub fn derive(&self, what: &str) -> [u8; 32] {
        self.key.derive(what)
    }

    /// Sets a password that a person chose.
    pub fn set(&mut self, user: &str, password: &str, nt_hashes: NtHashes) -> Result<(), Failure> {
        self.set_hashed(user, (password, &hash_of(password)?), nt_hashes)
    }

    /// The same, of a password whose hash is made already.
    pub fn set_hashed(
        &mut self,
        user: &str,
        (password, hash): (&str, &PasswordHash),
        nt_hashes: NtHashes,
    ) -> Result<(), Failure> {
        check_password(password)?;
        let nt_hash = self.sealed_nt_hash(user, password, nt_hashes)?;
        self.put(user, Secret { nt_hash, argon2id: Some(hash.to_text()), generated: None })
    }

    fn sealed_nt_hash(&self, user: &str, password: &str, nt_hashes: NtHashes) -> Result<Option<String>, Failure> {
        match nt_hashes {
            NtHashes::Kept => self.key.seal(user, &nt_hash(password)).map(Some).map_err(|e| failure(&e)),
            NtHashes::LeftOut => Ok(None),
        }
    }

    /// Makes the NT hash of a password that is said again, where it is lacking.
    pub fn complete(&mut self, user: &str, password: &str, nt_hashes: NtHashes) -> Result<(), Failure> {
        if nt_hashes == NtHashes::LeftOut || !self.lacks_nt_hash(user) {
            return Ok(());
        }
        let nt_hash = self.sealed_nt_hash(user, password, nt_hashes)?;
        match self.users.get(user).cloned() {
            Some(secret) => self.put(user, Secret { nt_hash, ..secret }),
            None => Ok(()),
        }
    }

    /// An older version of the file, from a record without NT hashes, was put back: passwords that are the same as before keep
    /// theirs.
    pub fn take_nt_hashes_of(&mut self, before: &Secrets) -> Result<(), Failure> {
        let is_same = |user: &str, secret: &Secret| {
            secret.nt_hash.is_none()
                && secret.argon2id.is_some()
                && before.users.get(user).is_some_and(|was| was.argon2id == secret.argon2id)
        };
        let names: Vec<String> =
            self.users.iter().filter(|(user, secret)| is_same(user, secret)).map(|(user, _)| user.clone()).collect();
        for user in names {
            let Ok(Some(hash)) = before.nt_hash(&user) else { continue };
            let sealed = self.key.seal(&user, &hash).map_err(|e| failure(&e))?;
            if let Some(secret) = self.users.get(&user).cloned() {
                self.put(&user, Secret { nt_hash: Some(sealed), ..secret })?;
            }
        }
        Ok(())
    }

    /// Sets and returns a new random password.
    pub fn generate(&mut self, user: &str, nt_hashes: NtHashes) -> Result<String, Failure> {
        let seed: [u8; 16] = rand::random();
        let password = spell(seed);
        let nt_hash = self.sealed_nt_hash(user, &password, nt_hashes)?;
        let sealed = self.key.seal(&seed_label(user), &seed).map_err(|e| failure(&e))?;
        let argon2id = Some(slow_hash(&password)?);
        self.put(user, Secret { nt_hash, argon2id, generated: Some(sealed) })?;
        Ok(password)
    }

    /// Is this the password? Without an NT hash the answer takes as long as a log-in.
    pub fn matches(&self, user: &str, password: &str) -> Result<bool, Failure> {
        match self.nt_hash(user)? {
            Some(hash) => Ok(hash == nt_hash(password)),
            None => Ok(self.password_hash(user)?.is_some_and(|hash| hash.matches(password))),
        }
    }

    /// The password of a user as it is kept, for [`Secrets::put_back`].
    pub fn kept(&self, user: &str) -> Kept {
        Kept { user: user.to_owned(), secret: self.users.get(user).cloned() }
    }

    /// A change that came with a new password was not made after all.
    pub fn put_back(&mut self, kept: Kept) -> Result<(), Failure> {
        match kept.secret {
            Some(secret) => self.put(&kept.user, secret),
            None => self.remove(&kept.user),
        }
    }

    pub fn remove(&mut self, user: &str) -> Result<(), Failure> {
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
    pub fn check_writable(&self) -> Result<(), Failure> {
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
pub fn random_password() -> String {
    spell(rand::random())
}

/// The Argon2id hash that doors compare with: a tenth of a second of a core.
pub fn hash_of(password: &str) -> Result<PasswordHash, Failure> {
    PasswordHash::new(password).map_err(|e| hash_failure(&e))
}

fn slow_hash(password: &str) -> Result<String, Failure> {
    hash_of(password).map(|hash| hash.to_text())
}

fn hash_failure(error: &PeopleError) -> Failure {
    Failure::unavailable(error.to_string())
}

fn failure(error: &SecretError) -> Failure {
    Failure::unavailable(error.to_string())
}

fn damaged(file: &Path, why: &str) -> Failure {
    Failure::unavailable(format!("{} is damaged: {why}", file.display()))
        .action("restore it with its .key from a backup, or delete both and set every password again with: larder user passwd NAME")
}

pub fn check_password(password: &str) -> Result<(), Failure> {
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
        let password = secrets.generate("ann", NtHashes::Kept).unwrap();
        assert_eq!(password.len(), 19);
        let mut again = Secrets::open(folder.path()).unwrap();
        assert_eq!(again.generated("ann").unwrap().as_ref(), Some(&password));
        assert!(again.matches("ann", &password).unwrap());
        let text = std::fs::read_to_string(folder.path().join("secrets")).unwrap();
        assert!(!text.contains(&password), "{text}");

        assert!(again.password_hash("ann").unwrap().is_some());

        again.set("ann", "s3cret ä", NtHashes::Kept).unwrap();
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
        secrets.generate("ann", NtHashes::Kept).unwrap();
        secrets.set("bob", "hidden", NtHashes::Kept).unwrap();
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
    fn nt_hashes_are_kept_for_smb_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::open(folder.path()).unwrap();
        secrets.set("ann", "Pantry-Shelf-42", NtHashes::LeftOut).unwrap();
        secrets.set("bob", "Pantry-Shelf-43", NtHashes::Kept).unwrap();
        let generated = secrets.generate("eve", NtHashes::LeftOut).unwrap();
        let mut read = Secrets::open(folder.path()).unwrap();
        assert_eq!(["ann", "bob", "eve", "nobody"].map(|name| read.lacks_nt_hash(name)), [true, false, false, false]);
        assert!(read.matches("ann", "Pantry-Shelf-42").unwrap() && !read.matches("ann", "Pantry-Shelf-43").unwrap());
        assert!(read.matches("eve", &generated).unwrap() && read.nt_hash("eve").unwrap() == Some(nt_hash(&generated)));
        assert!(!read.matches("nobody", "").unwrap());

        read.complete("ann", "Pantry-Shelf-42", NtHashes::LeftOut).unwrap();
        assert_eq!(read.nt_hash("ann").unwrap(), None);
        let before = read.password_hash("ann").unwrap();
        read.complete("ann", "Pantry-Shelf-42", NtHashes::Kept).unwrap();
        assert_eq!(read.nt_hash("ann").unwrap(), Some(nt_hash("Pantry-Shelf-42")));
        assert!(read.password_hash("ann").unwrap() == before, "sessions go on");
    }

    #[test]
    fn a_file_without_nt_hashes_takes_those_of_the_same_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets");
        let mut secrets = Secrets::open(folder.path()).unwrap();
        for user in ["ann", "bob"] {
            secrets.set(user, "Pantry-Shelf-42", NtHashes::Kept).unwrap();
        }
        let sent = without_nt_hashes(&std::fs::read(&file).unwrap()).unwrap();
        let text = String::from_utf8(sent.clone()).unwrap();
        assert!(!text.contains("nt_hash") && text.matches("argon2id$").count() == 2, "{text}");
        assert!(without_nt_hashes(b"{").is_err());

        secrets.set("bob", "Pantry-Shelf-43", NtHashes::Kept).unwrap();
        std::fs::write(&file, sent).unwrap();
        let mut back = Secrets::open(folder.path()).unwrap();
        back.take_nt_hashes_of(&secrets).unwrap();
        let read = Secrets::open(folder.path()).unwrap();
        assert_eq!(read.nt_hash("ann").unwrap(), Some(nt_hash("Pantry-Shelf-42")));
        assert!(read.lacks_nt_hash("bob") && read.matches("bob", "Pantry-Shelf-42").unwrap());
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
