//! Counters of a volume that change with its batches.

/// The volume's counters: kept by the engine itself, so that every batch and its effect on them are
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Inodes that exist (orphans too).
    pub(crate) inodes: i64,
    /// Bytes of file data that extents, intents and inline values stand for (holes excluded),
    /// before compression.
    pub(crate) logical_bytes: i64,
    /// Bytes of live records in segments, as stored.
    pub(crate) stored_bytes: i64,
    /// Bytes of files that are reserved and not written.
    pub(crate) reserved_bytes: i64,
}

impl Usage {
    pub(crate) fn is_zero(&self) -> bool {
        *self == Usage::default()
    }

    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add(other.inodes),
            logical_bytes: self.logical_bytes.saturating_add(other.logical_bytes),
            stored_bytes: self.stored_bytes.saturating_add(other.stored_bytes),
            reserved_bytes: self.reserved_bytes.saturating_add(other.reserved_bytes),
        }
    }
}
