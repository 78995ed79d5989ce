//! The machine's memory of the pools that it has run, in the data folder: `pool-lives`.
//!
//! - `lastlives.newest_is_remembered`: the newest life of each pool is there before a change is
//!   acknowledged in it, and the newest generation of labels once all disks in sync have it. So a
//!   daemon that starts without one of the disks knows whether the others have everything that it
//!   ever answered, and goes on without a person if they have.
//! - `lastlives.loss_asks`: without the file, or an entry in it, a person is asked. Nothing else
//!   depends on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_pool::{LastLife, LastLives};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use larder_config::edit::replace_file;

const FILE_NAME: &str = "pool-lives";
/// The file is read and replaced as a whole: one at a time.
static CHANGING: Mutex<()> = Mutex::new(());

/// The memory in one data folder.
#[derive(Debug)]
pub struct Remembered {
    file: PathBuf,
}

/// A pool that has run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Life {
    name: String,
    /// Hexadecimal: JSON's numbers are too short for some readers.
    mark: String,
    /// See [`LastLife`]. A generation counts label writes: it stays small.
    #[serde(default)]
    settled: u64,
}

type Lives = BTreeMap<Uuid, Life>;

impl Remembered {
    pub fn of(data: &Path) -> Arc<Self> {
        Arc::new(Self { file: data.join(FILE_NAME) })
    }

    fn read(&self) -> Lives {
        let text = match std::fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Lives::new(),
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "cannot be read: missing disks are asked about");
                return Lives::new();
            }
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(file = %self.file.display(), %error, "is damaged: missing disks are asked about");
            Lives::new()
        })
    }

    /// Whether the pool with this id has run here.
    pub fn knows(&self, pool: &str) -> bool {
        self.read().keys().any(|id| id.to_string() == pool)
    }

    /// The id of the pool that ran here under this name last.
    pub fn id_of(&self, name: &str) -> Option<String> {
        self.read().iter().find(|(_, life)| life.name == name).map(|(id, _)| id.to_string())
    }
}

impl LastLives for Remembered {
    fn last(&self, pool: Uuid) -> Option<LastLife> {
        let lives = self.read();
        let Life { mark, settled, .. } = lives.get(&pool)?;
        Some(LastLife { mark: u64::from_str_radix(mark, 16).ok()?, settled: *settled })
    }

    fn remember(&self, pool: Uuid, name: &str, LastLife { mark, settled }: LastLife) {
        let _one = CHANGING.lock();
        let mut lives = self.read();
        let life = Life { name: name.to_owned(), mark: format!("{mark:016x}"), settled };
        if lives.get(&pool) == Some(&life) {
            return;
        }
        lives.retain(|id, life| *id == pool || life.name != name);
        lives.insert(pool, life);
        let text = serde_json::to_vec_pretty(&lives).unwrap_or_default();
        if let Err(failure) = replace_file(&self.file, &text, 0o600) {
            let file = self.file.display();
            tracing::warn!(%file, %failure, "cannot be written: a start without one of the disks may need a person");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lives_are_remembered_by_id_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let memory = || Remembered::of(folder.path());
        let life = |mark| LastLife { mark, settled: 5 };
        assert_eq!(memory().last(a), None);
        memory().remember(a, "tank", life(u64::MAX));
        memory().remember(b, "old", life(7));
        memory().remember(a, "tank", life(8));
        assert_eq!((memory().last(a), memory().last(b)), (Some(life(8)), Some(life(7))));
        assert_eq!(memory().id_of("tank"), Some(a.to_string()));
        assert!(memory().knows(&b.to_string()));
        // Another pool has the name now.
        memory().remember(b, "tank", life(9));
        assert_eq!((memory().last(a), memory().id_of("tank")), (None, Some(b.to_string())));
        // An older program wrote it.
        let older = format!(r#"{{"{b}": {{"name": "tank", "mark": "000000000000000a"}}}}"#);
        std::fs::write(folder.path().join(FILE_NAME), older).unwrap();
        assert_eq!(memory().last(b), Some(LastLife { mark: 10, settled: 0 }));
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(memory().last(b), None);
    }
}
