//! What volumes stand on: a store, its log, its room, a clock, memory.

use std::sync::Arc;

use larder_base::{Clock, LogStore};
use object_store::ObjectStore;

use crate::properties::VolumeInfo;
use crate::types::FsResult;

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
}

/// What one volume reads and writes.
#[derive(Clone)]
pub struct Beneath {
    pub store: Arc<dyn ObjectStore>,
    pub log: Option<Arc<dyn LogStore>>,
}

/// For programs that open no encrypted volume: all of them are locked.
pub struct NoKeys;

impl Seals for NoKeys {
    fn are_unlocked(&self, _volume: &VolumeInfo) -> bool {
        false
    }

    fn decorate(&self, _volume: &VolumeInfo, _beneath: Beneath) -> FsResult<Beneath> {
        Err(crate::types::FsError::Locked)
    }
}

/// Memory that one process gives to its volumes together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Caches and dirty data together, bytes. A quarter of RAM by default.
    pub total_bytes: u64,
}
