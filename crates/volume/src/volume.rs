//! The public face: what a volume stands on, what it is, and its handle. The operations are in `attr`, `dir`,
//! `namespace`, `io` and `xattr`; the volumes of a store in `registry`.

use std::sync::Arc;

use larder_base::{Clock, LogStore};
use object_store::ObjectStore;
use tokio::sync::broadcast;

use crate::inode::Inode;
use crate::meta::Ticket;
use crate::state::State;
use crate::types::*;

/// What a volume stands on. Fixed for the time it is open.
pub struct Backing {
    pub store: Arc<dyn ObjectStore>,
    /// The pool's journal. Without one (S3) the metadata engine writes its own WAL objects.
    pub log: Option<Arc<dyn LogStore>>,
    pub space: Arc<dyn Space>,
    pub clock: Arc<dyn Clock>,
}

/// How much room the store has, in bytes of object data (after redundancy).
pub trait Space: Send + Sync + 'static {
    /// (total, available to write now).
    fn space(&self) -> (u64, u64);
}

/// Codec of new records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

/// When a metadata operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// When it is durable.
    Standard,
    /// When it is in memory; durable within 5 s, in order. fsync and COMMIT still wait.
    Relaxed,
}

/// What a person may change about a volume at any time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Properties {
    /// Bytes; a power of two from 4 KiB to 1 MiB. Applies to data written from now on.
    pub record_bytes: u32,
    pub compression: Compression,
    /// Bytes of file data and metadata, before compression and redundancy.
    pub quota_bytes: Option<u64>,
    pub sync: SyncMode,
}

impl Default for Properties {
    fn default() -> Self {
        Self { record_bytes: 128 << 10, compression: Compression::Lz4, quota_bytes: None, sync: SyncMode::Standard }
    }
}

/// Memory that one process gives to its volumes together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Caches and dirty data together, bytes. A quarter of RAM by default.
    pub total_bytes: u64,
}

/// A volume's entry in the registry of its store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    pub id: uuid::Uuid,
    pub properties: Properties,
}

impl VolumeInfo {
    /// What the paths of all its objects begin with.
    pub fn prefix(&self) -> String {
        format!("{}/", crate::registry::prefix_of(self.id))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckReport {
    pub inodes: u64,
    pub entries: u64,
    pub extents: u64,
    pub segments: u64,
    pub data_bytes: u64,
    /// One sentence each, naming the inode (and a path where one is known), what is wrong and what it means.
    pub problems: Vec<String>,
    /// Which of the problems begin with the number of an inode whose path is not in them yet.
    #[serde(skip)]
    pub(crate) of_inodes: Vec<(usize, Ino)>,
}

/// An open volume. Cheap to clone; all clones are one volume. Operations are linearizable
/// per inode. Dropping a future cancels the wait, never half of the change.
///
/// Fast path: an operation that finds all it needs in caches completes without suspending, so a
/// server may poll it once in place before it spawns.
#[derive(Clone)]
pub struct Volume {
    pub(crate) state: Arc<State>,
    pub(crate) origin: u32,
    pub(crate) answers: Answers,
    pub(crate) access_times: bool,
}

/// When an operation that changes names or attributes returns. `commit`, `sync` and stable writes always wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// When the change is durable: the contract of NFS and SMB. A volume that is `relaxed` overrides it.
    Durable,
    /// When the change is visible and has its place in the order of changes: the contract of a local filesystem.
    Ordered,
}

impl Volume {
    /// The same volume with another origin tag in the events that its operations send.
    pub fn with_origin(&self, origin: u32) -> Volume {
        Volume { origin, ..self.clone() }
    }

    /// The same volume with other answers.
    pub fn with_answers(&self, answers: Answers) -> Volume {
        Volume { answers, ..self.clone() }
    }

    /// The same volume, whose reads move access times (as relatime has it, the default) or leave them.
    pub fn with_access_times(&self, access_times: bool) -> Volume {
        Volume { access_times, ..self.clone() }
    }

    /// The wait before an answer (M3).
    pub(crate) async fn settle(&self, ticket: Ticket) -> FsResult<()> {
        match self.answers {
            Answers::Durable => self.state.settle(ticket).await,
            Answers::Ordered => Ok(()),
        }
    }

    /// The wait before an answer that changes nothing, and says of an inode what another's change made of it (M3).
    pub(crate) async fn settle_newest(&self, inode: &Inode) -> FsResult<()> {
        let ticket = inode.core.lock().ticket;
        self.settle(ticket).await
    }

    pub fn origin(&self) -> u32 {
        self.origin
    }

    pub fn id(&self) -> uuid::Uuid {
        self.state.id
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.state.events.subscribe()
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.state.verifier
    }

    pub fn statfs(&self) -> StatFs {
        self.state.statfs()
    }

    pub fn contents(&self) -> Contents {
        self.state.contents()
    }

    /// Everything acknowledged or not so far becomes durable.
    pub async fn sync(&self) -> FsResult<()> {
        self.state.data.sync_all().await?;
        self.state.meta.durable(self.state.meta.newest()).await
    }
}

/// Keeps an inode alive while it is open, also when its last name is removed.
pub struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) state: Arc<State>,
}

impl OpenFile {
    pub fn id(&self) -> FileId {
        self.inode.id
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.closed(&self.inode);
    }
}
