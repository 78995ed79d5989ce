//! Counters of open volumes, raised where things happen.

use larder_base::metrics::{Counter, Latency};

/// Counters of one volume since it was opened.
#[derive(Debug, Default)]
pub(crate) struct VolumeCounts {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) commits: Counter,
    pub(crate) flushed_bytes: Counter,
    /// From the first attempt to put a segment until it is stored.
    pub(crate) flush: Latency,
    pub(crate) collected_bytes: Counter,
}

/// Records found in memory, and not.
#[derive(Debug, Default)]
pub(crate) struct CacheCounts {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
}
