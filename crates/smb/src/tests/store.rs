//! Shares of a volume in memory.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::SystemClock;
use larder_files::Files;
use larder_fs::{Cred, Ino, SetAttr};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, SyncMode, Volume};
use object_store::memory::InMemory;

use crate::door::VolumeDoors;
use crate::door::open_name::EntryName;
use crate::door::view::{Core, VisitedShare};
use crate::words::{OpenIntent, OpenOptions};

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// A volume in memory that everybody writes, and its registry, which has to be kept.
pub(crate) async fn volume() -> (Volume, Registry) {
    let backing = Backing {
        store: Arc::new(InMemory::new()),
        log: None,
        space: Arc::new(Plenty),
        clock: Arc::new(SystemClock::default()),
    };
    let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
    registry.create("v", Properties { sync: SyncMode::Relaxed, ..Properties::default() }).await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    let open_to_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    volume.setattr(&Cred::root(), Ino::ROOT, open_to_all).await.unwrap();
    (volume, registry)
}

/// A share of a directory of the volume.
pub(crate) fn core_of(volume: &Volume, root: Ino) -> Core {
    let part = VolumeDoors::default().part(&Files::alone(volume.clone()));
    let core = Core::new(part.files, root, (part.feed, part.notices), Arc::default());
    let _ = core.seam.table.set(part.table);
    core
}

impl VisitedShare {
    /// A share of a new volume, as root sees it.
    pub(crate) async fn in_memory() -> VisitedShare {
        let (volume, registry) = volume().await;
        let core = core_of(&volume, Ino::ROOT);
        core.seam.keep(registry);
        VisitedShare::new(Arc::new(core), Cred::root(), true)
    }

    /// With a file, and the directories above it.
    pub(crate) async fn with_file(self, path: &str, contents: &[u8]) -> VisitedShare {
        let make = async |path: &str, directory| {
            let opts = OpenOptions { directory, intent: OpenIntent::OpenOrCreate, ..OpenOptions::default() };
            self.open(&path.parse().unwrap(), opts).await.unwrap().0
        };
        for (at, _) in path.match_indices('\\') {
            make(&path[..at], true).await;
        }
        make(path, false).await.write_bytes(0, Bytes::copy_from_slice(contents)).await.unwrap();
        self
    }

    /// A name that leads to nothing, of an open of `path` that a test has made up.
    pub(crate) fn name_at(&self, path: &str) -> Arc<EntryName> {
        Arc::new(EntryName::new((self.clone(), Ino(0)), path.parse().unwrap(), None, None, 0, None))
    }

    /// Handles opened and not yet closed.
    pub(crate) fn open_handles(&self) -> usize {
        self.core.seam.open_handles()
    }
}
