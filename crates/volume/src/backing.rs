//! The surroundings of volumes: a store, its log, its room, a clock, memory.

use std::sync::Arc;

use larder_base::{Clock, LogStore};
use object_store::ObjectStore;

/// The surroundings that volumes stand on. Fixed while they are open.
pub struct Backing {
    /// Where all objects lie. Redundancy and encryption are below it.
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
}

/// Memory that one process gives to its volumes together.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Bytes of caches and dirty data together; a quarter of RAM by default. Less than 32 MiB
    /// counts as 32 MiB.
    pub total_bytes: u64,
}
