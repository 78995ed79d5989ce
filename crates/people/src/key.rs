//! Public keys of SSH that let users in.

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey};

use crate::PeopleError;

const RSA_BITS_MIN: u32 = 2048;

/// A public key that lets a user in.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorizedKey(KeyData);

impl std::str::FromStr for AuthorizedKey {
    type Err = PeopleError;

    /// A line of an authorized_keys file. Options before the key are refused: they would be ignored.
    fn from_str(line: &str) -> Result<Self, PeopleError> {
        public_key(line).map(Self)
    }
}

impl AuthorizedKey {
    /// As `ssh-keygen -l` shows it: `SHA256:...`.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Whether it is that key.
    pub(crate) fn is(&self, key: &PublicKey) -> bool {
        self.0 == *key.key_data()
    }

    /// The kind of key, as its line begins.
    pub fn kind(&self) -> String {
        self.0.algorithm().to_string()
    }
}

/// The key of a line; a weak one is refused.
pub fn public_key(line: &str) -> Result<KeyData, PeopleError> {
    let key = PublicKey::from_openssh(line.trim()).map_err(|e| PeopleError::Key(e.to_string()))?;
    check_strength(key.key_data())?;
    Ok(key.key_data().clone())
}

/// Refuses keys that are guessed by computing.
pub fn check_strength(key: &KeyData) -> Result<(), PeopleError> {
    match key.algorithm() {
        Algorithm::Dsa => Err(PeopleError::Key("DSA keys are too weak".to_owned())),
        Algorithm::Rsa { .. } if key.rsa().is_some_and(|rsa| rsa.key_size() < RSA_BITS_MIN) => {
            Err(PeopleError::Key(format!("an RSA key of fewer than {RSA_BITS_MIN} bits is too weak")))
        }
        _ => Ok(()),
    }
}

impl std::fmt::Debug for AuthorizedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorizedKey({})", self.0.algorithm())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_are_lines_of_authorized_keys() {
        let good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";
        let key: AuthorizedKey = good.parse().unwrap();
        let same: AuthorizedKey = good.trim_end_matches(" ann@laptop").parse().unwrap();
        assert!(key == same, "the comment is no part of it");
        for bad in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "hello", &format!("command=\"x\" {good}")] {
            assert!(bad.parse::<AuthorizedKey>().is_err(), "{bad}");
        }
    }
}
