//! What a writer of long objects says with a put: it may be made durable together with others.

/// Goes into the extensions of a put. A store that flushes disks may hold the put back, written
/// but not flushed, until so much is written that one flush serves all; a store that does not know
/// it ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommit {
    /// Bytes of objects that may be held back together. Their writer keeps them in memory until then.
    pub bytes_max: u64,
    /// Somebody waits for this put: what is held back is flushed with it at once.
    pub is_awaited: bool,
}
