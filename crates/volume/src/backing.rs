//! What volumes stand on: a store, its log, its room, a clock, memory.

use std::sync::Arc;

use larder_base::{Clock, LogStore};
use object_store::ObjectStore;

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

/// Memory that one process gives to its volumes together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Caches and dirty data together, bytes. A quarter of RAM by default.
    pub total_bytes: u64,
}
