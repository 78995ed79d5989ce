//! The key by which clients know the server: made once, kept in a file of mode 0600.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, HashAlg, PrivateKey};

/// A private key in the form of OpenSSH is far smaller.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reasons for which there is no host key.
#[expect(missing_docs, reason = "each variant's message names its fields")]
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// It cannot be read or made.
    #[error("host key {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// Others than its owner may read it.
    #[error("host key {path} is readable by others (mode {mode:o}): whoever has read it can pass for this server")]
    Exposed { path: PathBuf, mode: u32 },
    /// It is no private key, or one with a passphrase.
    #[error("host key {path} cannot be used: {reason}")]
    Unusable { path: PathBuf, reason: String },
}

/// The server's key.
#[derive(Clone)]
pub struct HostKey(pub(super) PrivateKey);

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostKey({})", self.fingerprint())
    }
}

impl HostKey {
    /// Reads the key; makes an Ed25519 key, with mode 0600, where there is none.
    pub fn load_or_create(path: &Path) -> Result<HostKey, HostKeyError> {
        let failed = |source| HostKeyError::File { path: path.to_owned(), source };
        match File::open(path) {
            Ok(file) => Self::read(file, path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(e) => Err(failed(e)),
        }
    }

    /// What `ssh` shows of it: `SHA256:...`.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }

    fn read(file: File, path: &Path) -> Result<HostKey, HostKeyError> {
        let failed = |source| HostKeyError::File { path: path.to_owned(), source };
        let unusable = |reason: String| HostKeyError::Unusable { path: path.to_owned(), reason };
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(HostKeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let key = PrivateKey::from_openssh(&text).map_err(|e| unusable(e.to_string()))?;
        if key.is_encrypted() {
            return Err(unusable("it has a passphrase".to_owned()));
        }
        Ok(HostKey(key))
    }

    /// Written beside and renamed: a crash leaves no half of it.
    fn create(path: &Path) -> Result<HostKey, HostKeyError> {
        let failed = |source| HostKeyError::File { path: path.to_owned(), source };
        let unusable = |reason: String| HostKeyError::Unusable { path: path.to_owned(), reason };
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).map_err(|e| unusable(e.to_string()))?;
        let text = key.to_openssh(LineEnding::LF).map_err(|e| unusable(e.to_string()))?;
        let beside = path.with_extension("new");
        let write = || {
            let _ = std::fs::remove_file(&beside);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, path)?;
            match path.parent() {
                Some(folder) if folder != Path::new("") => File::open(folder)?.sync_all(),
                _ => File::open(".")?.sync_all(),
            }
        };
        write().map_err(failed)?;
        Ok(HostKey(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssh_host_key");
        let made = HostKey::load_or_create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(HostKey::load_or_create(&path).unwrap().fingerprint(), made.fingerprint());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(HostKey::load_or_create(&path), Err(HostKeyError::Exposed { mode: 0o644, .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(HostKey::load_or_create(&path), Err(HostKeyError::Unusable { .. })));
    }
}
