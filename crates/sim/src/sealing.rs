//! The keys of simulated volumes that are encrypted: all from the seed, so that a schedule writes the same bytes again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use larder_crypt::{Cipher, HalfSealed, Keys, Random, SealError, SealedLog, SealedStore, VolumeKey};
use larder_fs::{FsError, FsResult};
use larder_volume::{Beneath, Sealing, Seals, VolumeInfo};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};

use crate::chance;

/// Salts differ from one opening to the next, as they must.
struct Salts(Mutex<StdRng>);

impl Random for Salts {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SealError> {
        self.0.lock().fill_bytes(bytes);
        Ok(())
    }
}

/// The numbers of the volume's keys, across lives: a keyring that no disk loses.
pub struct Ring {
    oldest: AtomicU32,
    newest: AtomicU32,
}

impl Default for Ring {
    fn default() -> Self {
        Self { oldest: AtomicU32::new(1), newest: AtomicU32::new(1) }
    }
}

impl Ring {
    pub fn add(&self) {
        self.newest.fetch_add(1, Ordering::Relaxed);
    }

    pub fn forget_old(&self) {
        self.oldest.store(self.newest.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

pub struct SimKeys {
    salts: Arc<Salts>,
    seed: u64,
    ring: Arc<Ring>,
    cipher: Cipher,
}

impl SimKeys {
    /// `life` counts the openings.
    pub fn new(seed: u64, life: u32, ring: Arc<Ring>) -> Self {
        let salts = Arc::new(Salts(Mutex::new(chance::generator(seed ^ (u64::from(life) << 40), "salts"))));
        let mut random = chance::generator(seed, "key");
        Self { salts, seed, ring, cipher: Cipher::ALL[random.random_range(0..Cipher::ALL.len())] }
    }

    pub fn keys(&self) -> Arc<Keys> {
        let numbers = self.ring.oldest.load(Ordering::Relaxed)..=self.ring.newest.load(Ordering::Relaxed);
        let key = |number: u32| {
            let bytes: [u8; 32] = chance::generator(self.seed ^ (u64::from(number) << 32), "volume key").random();
            (number, VolumeKey::new(bytes))
        };
        let keys: BTreeMap<u32, VolumeKey> = numbers.map(key).collect();
        Arc::new(Keys::new(uuid::Uuid::nil(), self.cipher, keys).with_random(self.salts.clone()))
    }
}

impl Seals for SimKeys {
    fn are_unlocked(&self, _volume: &VolumeInfo) -> bool {
        true
    }

    fn decorate(&self, volume: &VolumeInfo, beneath: Beneath) -> FsResult<Beneath> {
        let keys = self.keys();
        let failed = |error: SealError| FsError::Io(error.to_string().into());
        let log = beneath.log.map(|log| SealedLog::new(log, keys.clone())).transpose().map_err(failed)?;
        let prefix = Path::from(volume.prefix().trim_end_matches('/'));
        let store: Arc<dyn ObjectStore> = match volume.sealing {
            Some(Sealing::Encrypt) => Arc::new(HalfSealed::new(beneath.store, prefix, keys, false)),
            _ => Arc::new(SealedStore::new(beneath.store, prefix, keys)),
        };
        Ok(Beneath { store, log: log.map(|log| Arc::new(log) as _) })
    }

    fn share(&self, _from: &VolumeInfo, _to: &VolumeInfo) -> FsResult<()> {
        Ok(())
    }

    fn renewed_keyring(&self, _own: &[u8], _came: &[u8]) -> FsResult<Option<Vec<u8>>> {
        Ok(None)
    }
}
