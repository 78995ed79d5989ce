//! The volume as its callers see it.
#![allow(clippy::unwrap_used)]

mod acl;
mod charges;
mod clones;
mod copies;
mod crash;
mod durable;
mod hostile_replica;
mod lost;
mod model;
mod named;
mod names;
mod relay;
mod replica;
mod scale;
mod shared_extents;
mod snapshots;
mod year;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use larder_base::{LogStore, MemLog, SystemClock};
use larder_fs::*;
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::*;

pub(crate) struct Room {
    pub(crate) available: AtomicU64,
}

impl Space for Room {
    fn space(&self) -> (u64, u64) {
        (1 << 40, self.available.load(Ordering::Relaxed))
    }
}

/// Where volumes live, across openings.
#[derive(Clone)]
pub(crate) struct Box_ {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) log: Option<Arc<dyn LogStore>>,
    pub(crate) room: Arc<Room>,
}

impl Box_ {
    pub(crate) fn new() -> Self {
        let room = Arc::new(Room { available: AtomicU64::new(1 << 39) });
        Self { store: Arc::new(InMemory::new()), log: Some(Arc::new(MemLog::default())), room }
    }

    pub(crate) fn backing(&self) -> Backing {
        Backing {
            store: Arc::clone(&self.store),
            log: self.log.clone(),
            space: Arc::clone(&self.room) as Arc<_>,
            clock: Arc::new(SystemClock::default()),
        }
    }

    pub(crate) async fn registry(&self) -> Registry {
        // Small, so that caches miss; measurements ask for more.
        let mib: u64 = std::env::var("LARDER_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(64);
        Registry::open(self.backing(), MemoryBudget { total_bytes: mib << 20 }).await.unwrap()
    }

    /// Opens the volume `v`, made if need be. The registry must be kept.
    pub(crate) async fn open(&self) -> (Registry, Volume) {
        let registry = self.registry().await;
        match registry.create("v", Properties::default()).await {
            Ok(_) | Err(FsError::Exists) => {}
            Err(error) => panic!("{error}"),
        }
        let volume = registry.volume("v").await.unwrap();
        (registry, volume)
    }
}

pub(crate) async fn fresh() -> (Registry, Volume) {
    Box_::new().open().await
}

pub(crate) fn root() -> Cred {
    Cred::root()
}

pub(crate) async fn file(volume: &Volume, dir: Ino, name: &str) -> Ino {
    let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    volume.create(&root(), dir, name.as_bytes(), CreateMode::Guarded, set).await.unwrap().0.id.ino
}

pub(crate) async fn dir(volume: &Volume, parent: Ino, name: &str) -> Ino {
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    volume.mkdir(&root(), parent, name.as_bytes(), set).await.unwrap().0.id.ino
}

pub(crate) async fn list(volume: &Volume, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let page = volume.readdir(&root(), dir, cookie, 7, false).await.unwrap();
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        names.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
        if page.eof {
            return names;
        }
    }
}

pub(crate) async fn read_all(volume: &Volume, ino: Ino) -> Vec<u8> {
    volume.read(ino, 0, IO_BYTES_MAX).await.unwrap().chunks.concat()
}

pub(crate) async fn check_clean(registry: &Registry) {
    let report = registry.check("v", true).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

pub(crate) fn err<T>(result: FsResult<T>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn bytes(text: &str) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(text.as_bytes())]
}
