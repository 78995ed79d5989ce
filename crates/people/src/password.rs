//! Passwords as Argon2id hashes (RFC 9106), for protocols in which the client sends the password itself.
//!
//! - `password.costly_guess`: a hash that leaks gives a password away only to a person who computes
//!   each guess with [`WORK`]. Each hash carries its own salt and work, so that both can change.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use larder_base::hex;
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::PeopleError;

/// What a hash costs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Work {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// 19 MiB, two passes: the least that is recommended for servers, about 25 ms of a core.
const WORK: Work = Work { memory_kib: 19 << 10, passes: 2, lanes: 1 };
/// More than this in a file of hashes is damage.
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 16;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
const PREFIX: &str = "argon2id";

/// The hash of a password: what a server keeps.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    work: Work,
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash")
    }
}

impl PasswordHash {
    /// Hashes a password under a salt of its own. Takes about 25 ms.
    pub fn new(password: &str) -> Result<Self, PeopleError> {
        let mut salt = [0; SALT_BYTES];
        OsRng.try_fill_bytes(&mut salt).map_err(|e| PeopleError::Random(e.to_string()))?;
        let hash = derive(password, &salt, WORK).ok_or(PeopleError::DamagedHash)?;
        Ok(Self { work: WORK, salt, hash })
    }

    /// A line of text: `argon2id$KIB$PASSES$LANES$SALT$HASH`.
    pub fn to_text(&self) -> String {
        let Work { memory_kib, passes, lanes } = self.work;
        format!("{PREFIX}${memory_kib}${passes}${lanes}${}${}", hex::encode(&self.salt), hex::encode(&self.hash))
    }

    /// Reads what [`PasswordHash::to_text`] wrote.
    pub fn parse(text: &str) -> Result<Self, PeopleError> {
        Self::try_parse(text).ok_or(PeopleError::DamagedHash)
    }

    fn try_parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('$').collect();
        let [PREFIX, memory, passes, lanes, salt, hash] = fields.as_slice() else { return None };
        let work = Work { memory_kib: memory.parse().ok()?, passes: passes.parse().ok()?, lanes: lanes.parse().ok()? };
        let is_sane = (8..=MEMORY_KIB_MAX).contains(&work.memory_kib)
            && (1..=PASSES_MAX).contains(&work.passes)
            && (1..=8).contains(&work.lanes);
        is_sane.then_some(Self { work, salt: array(salt)?, hash: array(hash)? })
    }

    /// The hash of no password, which costs as much to compare with as any.
    pub fn of_nobody() -> Self {
        Self { work: WORK, salt: [0; SALT_BYTES], hash: [0; HASH_BYTES] }
    }

    /// Whether `password` is the one that was hashed. Takes about 25 ms.
    pub fn matches(&self, password: &str) -> bool {
        derive(password, &self.salt, self.work).is_some_and(|hash| verify_slices_are_equal(&hash, &self.hash).is_ok())
    }
}

fn derive(password: &str, salt: &[u8], work: Work) -> Option<[u8; HASH_BYTES]> {
    let params = Params::new(work.memory_kib, work.passes, work.lanes, Some(HASH_BYTES)).ok()?;
    let mut hash = [0; HASH_BYTES];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

fn array<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hash_knows_its_password_alone() {
        let hash = PasswordHash::new("s3cret ä").unwrap();
        let text = hash.to_text();
        assert!(!text.contains("s3cret") && format!("{hash:?}") == "PasswordHash");
        let read = PasswordHash::parse(&text).unwrap();
        assert!(read.matches("s3cret ä") && !read.matches("s3cret a"));
        assert_ne!(PasswordHash::new("s3cret ä").unwrap().to_text(), text, "each has a salt of its own");
    }

    #[test]
    fn a_hash_of_another_implementation_is_understood() {
        // The reference implementation: echo -n password | argon2 somesaltsomesalt -id -t 2 -k 65536 -p 1
        let text = format!("argon2id$65536$2$1${}$", hex::encode(b"somesaltsomesalt"));
        let hash = derive("password", b"somesaltsomesalt", Work { memory_kib: 65536, passes: 2, lanes: 1 }).unwrap();
        assert!(PasswordHash::parse(&(text + &hex::encode(&hash))).unwrap().matches("password"));
    }

    #[test]
    fn damaged_hashes_are_named() {
        let good = PasswordHash::new("x").unwrap().to_text();
        let huge = good.replace("$19456$", "$4294967295$");
        for bad in [
            "",
            "argon2id",
            "nt1:00",
            &good[..good.len() - 1],
            &huge,
            &good.replace("$2$", "$0$"),
            &(good.clone() + "00"),
        ] {
            assert_eq!(PasswordHash::parse(bad), Err(PeopleError::DamagedHash), "{bad}");
        }
    }
}
