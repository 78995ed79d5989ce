//! The keys of an unlocked volume, and the derivation of what seals its objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use larder_base::wipe::LockedKey;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::SealError;
use crate::cipher::{Cipher, FrameKey};

/// Random bytes that each object, and each session of a log, derives its key from (`crypt.fresh_key`).
pub const SALT_BYTES: usize = 32;

/// 256 random bits that all keys of one generation are derived from.
#[derive(Clone)]
pub struct VolumeKey(LockedKey);

impl VolumeKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        let (bytes, mut key) = (Zeroizing::new(bytes), LockedKey::zeroed());
        key.copy_from_slice(&*bytes);
        Self(key)
    }

    pub fn random() -> Result<Self, SealError> {
        let mut key = LockedKey::zeroed();
        fill_random(&mut *key)?;
        Ok(Self(key))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<LockedKey> for VolumeKey {
    fn from(key: LockedKey) -> Self {
        Self(key)
    }
}

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeKey")
    }
}

/// Where salts come from. The operating system, but in simulations.
pub trait Random: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SealError>;
}

/// The random numbers of the operating system.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SealError> {
        fill_random(bytes)
    }
}

/// What an unlocked volume seals and opens with. Generations are numbered from 1; new data uses the newest.
#[derive(Clone)]
pub struct Keys {
    random: Arc<dyn Random>,
    /// The identity of the volume as far as encryption goes. A replica has its original's; a clone has one of its own.
    domain: Uuid,
    cipher: Cipher,
    generations: BTreeMap<u32, VolumeKey>,
}

impl Keys {
    /// # Panics
    /// Without any key: a volume that has none is locked.
    pub fn new(domain: Uuid, cipher: Cipher, generations: BTreeMap<u32, VolumeKey>) -> Self {
        assert!(!generations.is_empty(), "an unlocked volume has a key");
        Self { random: Arc::new(SystemRandom), domain, cipher, generations }
    }

    /// The same with salts from `random`. Whoever gives one that repeats itself gives up `crypt.fresh_key`.
    pub fn with_random(self, random: Arc<dyn Random>) -> Self {
        Self { random, ..self }
    }

    pub(crate) fn salt(&self) -> Result<[u8; SALT_BYTES], SealError> {
        let mut salt = [0; SALT_BYTES];
        self.random.fill(&mut salt)?;
        Ok(salt)
    }

    pub fn domain(&self) -> Uuid {
        self.domain
    }

    /// The cipher of what is written now. What was written before names its own.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The generation that seals what is written now.
    pub fn newest(&self) -> u32 {
        self.generations.last_key_value().map_or(0, |(&number, _)| number)
    }

    /// The key of one object or log session. `purpose` and `place` are part of the derivation (`crypt.bound_to_place`).
    pub(crate) fn derive(
        &self,
        generation: u32,
        cipher: Cipher,
        salt: &[u8; SALT_BYTES],
        purpose: &str,
        place: &str,
    ) -> Result<FrameKey, SealError> {
        let key = self.generations.get(&generation).ok_or(SealError::UnknownKey(generation))?;
        // Every part has a fixed length but for the last, so that no two places give one input.
        let (code, domain) = ([cipher.code()], self.domain.into_bytes());
        let info = [purpose.as_bytes(), &[0], &code[..], &domain[..], place.as_bytes()];
        let derived = hkdf(salt, key.bytes(), &info, cipher.key_bytes());
        Ok(FrameKey::new(cipher, &derived))
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({}, {})", self.domain, self.cipher)
    }
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// RFC 5869 with SHA-256; at most 255 times 32 bytes.
pub(crate) fn hkdf(salt: &[u8], secret: &[u8], info: &[&[u8]], len: usize) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(vec![0; len]);
    let prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    let okm = prk.expand(info, Len(len)).expect("a key is far shorter than HKDF's limit");
    okm.fill(&mut out).expect("the buffer has the length that was asked for");
    out
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), SealError> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| SealError::NoRandomness)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869, A.1.
    #[test]
    fn the_derivation_is_hkdf() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let derived = hkdf(&salt, &[0x0b; 22], &[&info], 42);
        let shown: String = derived.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    }

    #[test]
    fn every_part_of_the_place_changes_the_key() {
        let keys = |domain: u128| {
            let generations = BTreeMap::from([(1, VolumeKey::new([1; 32])), (2, VolumeKey::new([2; 32]))]);
            Keys::new(Uuid::from_u128(domain), Cipher::Aes256Gcm, generations)
        };
        let tag = |domain, generation, cipher, salt: u8, purpose, place| {
            let key = keys(domain).derive(generation, cipher, &[salt; SALT_BYTES], purpose, place).expect("a key");
            key.seal(&mut [0; 16], 0, &[]).expect("seals")
        };
        let all = [
            tag(1, 1, Cipher::Aes256Gcm, 0, "object", "a"),
            tag(2, 1, Cipher::Aes256Gcm, 0, "object", "a"),
            tag(1, 2, Cipher::Aes256Gcm, 0, "object", "a"),
            tag(1, 1, Cipher::Aes128Gcm, 0, "object", "a"),
            tag(1, 1, Cipher::Aes256Gcm, 1, "object", "a"),
            tag(1, 1, Cipher::Aes256Gcm, 0, "log", "a"),
            tag(1, 1, Cipher::Aes256Gcm, 0, "object", "b"),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(keys(1).newest(), 2);
        let unknown = keys(1).derive(3, Cipher::Aes256Gcm, &[0; SALT_BYTES], "object", "a");
        assert_eq!(unknown.err(), Some(SealError::UnknownKey(3)));
    }
}
