//! Passwords of SMB users: their NT hashes, sealed.
//!
//! NTLMv2 needs the NT hash (MD4 of the password in UTF-16LE) itself, and whoever has it can log in: it
//! is as good as the password. So it never lies on disk in clear. A key file of 32 random bytes, readable
//! by its owner alone, seals each hash with AES-256-GCM; the user's name is bound to it, so that one
//! user's hash cannot be copied over another's. A users file that leaks without its key file gives
//! nothing away. Neither does `Debug`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use larder_base::{hex, wipe};
use rand::TryRngCore;
use rand::rngs::OsRng;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const HASH_BYTES: usize = 16;
/// Format and version of a sealed hash: this, then nonce, ciphertext and tag in hexadecimal.
const PREFIX: &str = "nt1:";

/// Reasons for which a password cannot be sealed or unsealed.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The key file cannot be read or made.
    #[error("key file {path}: {source}")]
    KeyFile { path: PathBuf, source: io::Error },
    /// Others than its owner may read the key file.
    #[error("key file {path} is readable by others (mode {mode:o}): chmod 600 it, and change the passwords")]
    Exposed { path: PathBuf, mode: u32 },
    /// The key file has another length.
    #[error("key file {path} is not {KEY_BYTES} bytes long")]
    KeyLength { path: PathBuf },
    /// The sealed hash is damaged, belongs to another user, or was sealed with another key.
    #[error("the stored password of user {user} is damaged, or was sealed with another key file: set it anew")]
    Unsealable { user: String },
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// Seals and unseals NT hashes with the key of one key file.
pub struct SealKey {
    seal: LessSafeKey,
    derive: hmac::Key,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey")
    }
}

impl SealKey {
    /// Reads the key file; makes it, with mode 0600, where there is none.
    pub fn load_or_create(path: &Path) -> Result<SealKey, SecretError> {
        let failed = |source| SecretError::KeyFile { path: path.to_owned(), source };
        match File::open(path) {
            Ok(file) => Self::read(file, path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => match Self::create(path) {
                // Another process was first.
                Err(SecretError::KeyFile { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                    Self::read(File::open(path).map_err(failed)?, path)
                }
                made => made,
            },
            Err(e) => Err(failed(e)),
        }
    }

    /// Another key, for `what` alone: it tells nothing about this one.
    pub fn derive(&self, what: &str) -> [u8; 32] {
        hmac::sign(&self.derive, what.as_bytes()).as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// Seals an NT hash for `user`: a line of text that only this key opens, and only for this user (AES-256-GCM under a
    /// random nonce, with the name as associated data).
    pub fn seal(&self, user: &str, hash: &[u8; HASH_BYTES]) -> Result<String, SecretError> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        let mut sealed = hash.to_vec();
        self.seal
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(user), &mut sealed)
            .map_err(|_| SecretError::Unsealable { user: user.to_owned() })?;
        Ok(format!("{PREFIX}{}{}", hex::encode(&nonce), hex::encode(&sealed)))
    }

    /// Opens a sealed NT hash. [`SecretError::Unsealable`] if the text is damaged, or was sealed with another key or for
    /// another user.
    pub fn unseal(&self, user: &str, sealed: &str) -> Result<[u8; HASH_BYTES], SecretError> {
        self.try_unseal(user, sealed).ok_or_else(|| SecretError::Unsealable { user: user.to_owned() })
    }

    fn try_unseal(&self, user: &str, sealed: &str) -> Option<[u8; HASH_BYTES]> {
        let mut bytes = hex::decode(sealed.strip_prefix(PREFIX)?)?;
        if bytes.len() != NONCE_BYTES + HASH_BYTES + TAG_BYTES {
            return None;
        }
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let hash = self.seal.open_in_place(nonce, Aad::from(user), sealed).ok()?;
        (&*hash).try_into().ok()
    }

    fn read(mut file: File, path: &Path) -> Result<SealKey, SecretError> {
        let failed = |source| SecretError::KeyFile { path: path.to_owned(), source };
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut key = Vec::with_capacity(KEY_BYTES + 1);
        Read::take(&mut file, KEY_BYTES as u64 + 1).read_to_end(&mut key).map_err(failed)?;
        let made = Self::new(&key, path);
        wipe::wipe(&mut key);
        made
    }

    fn new(key: &[u8], path: &Path) -> Result<SealKey, SecretError> {
        match UnboundKey::new(&AES_256_GCM, key) {
            Ok(sealing) => {
                Ok(SealKey { seal: LessSafeKey::new(sealing), derive: hmac::Key::new(hmac::HMAC_SHA256, key) })
            }
            Err(_) => Err(SecretError::KeyLength { path: path.to_owned() }),
        }
    }

    fn create(path: &Path) -> Result<SealKey, SecretError> {
        let failed = |source| SecretError::KeyFile { path: path.to_owned(), source };
        let mut key = [0; KEY_BYTES];
        random(&mut key)?;
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(&key).and_then(|()| file.sync_all()))
            .and_then(|()| sync_parent(path));
        written.map_err(failed)?;
        Self::new(&key, path)
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if dir != Path::new("") => File::open(dir)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn random(out: &mut [u8]) -> Result<(), SecretError> {
    OsRng.try_fill_bytes(out).map_err(|e| SecretError::Random(e.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_smb_wire::auth::ntlm::nt_hash;

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_sealed_hash_opens_for_its_user_and_key_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = SealKey::load_or_create(&path).unwrap();
        let hash = nt_hash("secret");
        let sealed = key.seal("ann", &hash).unwrap();
        assert_ne!(sealed, key.seal("ann", &hash).unwrap());

        let again = SealKey::load_or_create(&path).unwrap();
        assert_eq!(again.unseal("ann", &sealed).unwrap(), hash);
        assert!(again.unseal("bob", &sealed).is_err());
        let other = SealKey::load_or_create(&dir.path().join("other")).unwrap();
        assert!(other.unseal("ann", &sealed).is_err());
        for damaged in ["", "nt1:", "nt1:zz", "nt1:abc", "ünt1:", &sealed[..sealed.len() - 2], &sealed[4..]] {
            assert!(again.unseal("ann", damaged).is_err());
        }
    }

    #[test]
    fn a_hash_sealed_by_another_implementation_opens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key: Vec<u8> = (0..32).collect();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(&key).unwrap();
        let sealed = "nt1:000102030405060708090a0be3f64a5ba0f57fd13bc3d96c72e6a03f83f46d78df526d1f398fa1b056ec14c9";
        let opened = SealKey::load_or_create(&path).unwrap().unseal("ann", sealed).unwrap();
        assert_eq!(opened, nt_hash("Password"));
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        SealKey::load_or_create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(SealKey::load_or_create(&path), Err(SecretError::Exposed { mode: 0o640, .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, b"short").unwrap();
        assert!(matches!(SealKey::load_or_create(&path), Err(SecretError::KeyLength { .. })));
    }
}
