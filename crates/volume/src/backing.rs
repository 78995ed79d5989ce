//! The surroundings of volumes: a store, its log, its room, a clock, memory.

use std::sync::Arc;

use larder_base::{Clock, LogStore};
use larder_fs::FsResult;
use object_store::ObjectStore;

use crate::properties::VolumeInfo;

/// The surroundings that volumes stand on. Fixed while they are open.
pub struct Backing {
    /// Where all objects lie. Redundancy is below it; encryption lies between it and a volume ([`Seals`]).
    pub store: Arc<dyn ObjectStore>,
    /// The pool's journal. Without one (on S3) the metadata engine writes its own WAL objects.
    pub log: Option<Arc<dyn LogStore>>,
    /// Answers how much room `store` has. Asked before every write is accepted.
    pub space: Arc<dyn Space>,
    /// The time of timestamps and pauses. Injected, so that a simulator can set it.
    pub clock: Arc<dyn Clock>,
}

/// How much room a store has, in bytes of object data, that is after redundancy.
pub trait Space: Send + Sync + 'static {
    /// Total bytes, and bytes that can be written now. May be asked often: it must not block.
    fn space(&self) -> (u64, u64);

    /// Whether too few disks take writes for anything to be stored: then there is no room, and nothing is full.
    fn is_away(&self) -> bool {
        false
    }
}

/// The keys of encrypted volumes, as decorators. A volume knows none itself.
///
/// - `sealed.all_or_nothing`: an encrypted volume reads and writes its objects and its log through its decorators alone. The
///   registry of volumes is in clear.
/// - `sealed.locked_is_closed`: a volume whose keys are not there is [`FsError::Locked`](crate::FsError::Locked): it is neither
///   opened nor formatted, and counts as no damage.
pub trait Seals: Send + Sync + 'static {
    /// Whether the keys of the volume are there.
    fn are_unlocked(&self, volume: &VolumeInfo) -> bool;

    /// The store and the log as the volume sees them. [`FsError::Locked`](crate::FsError::Locked) without its keys.
    fn decorate(&self, volume: &VolumeInfo, beneath: Beneath) -> FsResult<Beneath>;

    /// The clone `to` has the keys of the volume `from`. [`FsError::Locked`](crate::FsError::Locked) without them.
    fn share(&self, from: &VolumeInfo, to: &VolumeInfo) -> FsResult<()>;

    /// The keyring of a replica once another one has arrived, in the bytes of both; `None`: as it is. Nobody trusts the sender, and no
    /// key need be there. [`FsError::Refused`](crate::FsError::Refused) for a keyring that is not the same volume's.
    fn renewed_keyring(&self, own: &[u8], came: &[u8]) -> FsResult<Option<Vec<u8>>>;
}

/// What one volume reads and writes.
#[derive(Clone)]
pub struct Beneath {
    /// Its objects, below its prefix.
    pub store: Arc<dyn ObjectStore>,
    /// The log, whose stream of the volume it reads and writes.
    pub log: Option<Arc<dyn LogStore>>,
}

/// For programs that open no encrypted volume: all of them are locked.
pub struct NoKeys;

impl Seals for NoKeys {
    fn are_unlocked(&self, _volume: &VolumeInfo) -> bool {
        false
    }

    fn decorate(&self, _volume: &VolumeInfo, _beneath: Beneath) -> FsResult<Beneath> {
        Err(larder_fs::FsError::Locked)
    }

    fn share(&self, _from: &VolumeInfo, _to: &VolumeInfo) -> FsResult<()> {
        Err(larder_fs::FsError::Locked)
    }

    fn renewed_keyring(&self, _own: &[u8], _came: &[u8]) -> FsResult<Option<Vec<u8>>> {
        Err(larder_fs::FsError::Refused("this program opens no encrypted volume, so it takes no keyring".into()))
    }
}

/// Memory that one process gives to its volumes together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Bytes of caches and dirty data together; a quarter of RAM by default. Less than 32 MiB
    /// counts as 32 MiB.
    pub total_bytes: u64,
}
