//! The keys of simulated volumes that are encrypted: all from the seed, so that a schedule writes the same bytes again.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_crypt::{Cipher, Keys, Random, SealError, SealedLog, SealedStore, VolumeKey};
use larder_volume::{Beneath, FsError, FsResult, Seals, VolumeInfo};
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

pub struct SimKeys {
    salts: Arc<Salts>,
    key: [u8; 32],
    cipher: Cipher,
}

impl SimKeys {
    /// `life` counts the openings.
    pub fn new(seed: u64, life: u32) -> Self {
        let salts = Arc::new(Salts(Mutex::new(chance::generator(seed ^ (u64::from(life) << 40), "salts"))));
        let mut random = chance::generator(seed, "key");
        Self { salts, key: random.random(), cipher: Cipher::ALL[random.random_range(0..Cipher::ALL.len())] }
    }
}

impl Seals for SimKeys {
    fn are_unlocked(&self, _volume: &VolumeInfo) -> bool {
        true
    }

    fn decorate(&self, volume: &VolumeInfo, beneath: Beneath) -> FsResult<Beneath> {
        let keys = BTreeMap::from([(1, VolumeKey::new(self.key))]);
        let keys = Keys::new(uuid::Uuid::nil(), self.cipher, keys).with_random(self.salts.clone());
        let keys = Arc::new(keys);
        let failed = |error: SealError| FsError::Io(error.to_string().into());
        let log = beneath.log.map(|log| SealedLog::new(log, keys.clone())).transpose().map_err(failed)?;
        let prefix = Path::from(volume.prefix().trim_end_matches('/'));
        let store = SealedStore::new(beneath.store, prefix, keys);
        Ok(Beneath { store: Arc::new(store), log: log.map(|log| Arc::new(log) as _) })
    }

    fn share(&self, _from: &VolumeInfo, _to: &VolumeInfo) -> FsResult<()> {
        Ok(())
    }
}
