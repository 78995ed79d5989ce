//! What may be wrong with a disk, and the bugs that tests plant.

use std::time::Duration;

/// Kinds of faults, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    Rot,
    Misdirected,
    Lost,
    Stale,
    ReadError,
    WriteError,
    SyncError,
    Full,
    Slow,
    LyingFlush,
    ClockStep,
    Gone,
    Hang,
}

impl Fault {
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Rot, "bit rot"),
        (Self::Misdirected, "misdirected writes"),
        (Self::Lost, "lost writes"),
        (Self::Stale, "stale disks"),
        (Self::ReadError, "read errors"),
        (Self::WriteError, "write errors"),
        (Self::SyncError, "sync errors"),
        (Self::Full, "full disks"),
        (Self::Slow, "slow operations"),
        (Self::LyingFlush, "flushes lied about"),
        (Self::ClockStep, "clock steps"),
        (Self::Gone, "disks gone"),
        (Self::Hang, "calls that hang"),
    ];
}

/// What happened to the disks so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub crashes: u64,
    pub operations: u64,
    pub faults: [u64; Fault::ALL.len()],
}

impl Counts {
    pub fn add(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub fn plus(mut self, other: Self) -> Self {
        self.crashes += other.crashes;
        self.operations += other.operations;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
        self
    }
}

/// The state of a disk. Chances are out of 65,536, per operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its folder is not there, and what is open fails.
    pub is_gone: bool,
    pub is_read_only: bool,
    /// No call returns: each ends when the pool waits no longer, and may be done when the disk is well again.
    pub hangs: bool,
    /// Says that a sync is done and does nothing.
    pub lies: bool,
    pub read_errors: u16,
    pub write_errors: u16,
    pub sync_errors: u16,
    /// Of writes: acknowledged and dropped; or put elsewhere.
    pub lost: u16,
    pub misdirected: u16,
    /// Of what makes a file or lengthens one: there is no room for it, whatever was said of the room before.
    pub full: u16,
    /// Of any operation: a bit flips somewhere.
    pub rot: u16,
    /// Of its filesystem's room, by others.
    pub taken_bytes: u64,
    pub delay: Duration,
}

/// A bug that a test plants, to see that the simulator finds it. The disks make the first ones, the store between volume and
/// pool the next (`store.rs`), the pool the last, when its simulator tells it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Syncs of these files do nothing.
    NoJournalSync,
    NoShardSync,
    NoLabelSync,
    /// Syncs of directories do nothing.
    NoDirectorySync,
    /// Syncs of whole disks do nothing, but for those of a new pool.
    NoDiskSync,
    /// A file is renamed durably before its bytes are.
    RenameFirst,
    /// A segment counts as stored before it is.
    EarlySegment,
    /// The metadata log is trimmed before the tree in the store has what it holds: what a manifest that is not read back does.
    EarlyTrim,
    /// Blocks are read without a look at their checksums.
    TrustBlocks,
}

impl Plant {
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::NoJournalSync, "no-journal-sync"),
        (Self::NoShardSync, "no-shard-sync"),
        (Self::NoLabelSync, "no-label-sync"),
        (Self::NoDirectorySync, "no-directory-sync"),
        (Self::NoDiskSync, "no-disk-sync"),
        (Self::RenameFirst, "rename-first"),
        (Self::EarlySegment, "early-segment"),
        (Self::EarlyTrim, "early-trim"),
        (Self::TrustBlocks, "trust-blocks"),
    ];

    /// Whether a sync of this file is left out.
    pub fn skips_sync(self, name: &str) -> bool {
        match self {
            Self::NoJournalSync => name.starts_with("journal/"),
            Self::NoShardSync => name.starts_with("objects/"),
            Self::NoLabelSync => name.starts_with("larder.label"),
            _ => false,
        }
    }
}
