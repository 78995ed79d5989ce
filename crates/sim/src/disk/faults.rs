//! Faults of disks, and the bugs that tests plant.

use std::time::Duration;

use crate::front::Answer;

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
    Journal,
}

impl Fault {
    pub const ALL: [(Self, &'static str); 14] = [
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
        (Self::Journal, "damaged journals"),
    ];
}

/// Damage to the journal's copy on one disk, done while the pool is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalDamage {
    /// Its folder is gone.
    Removed,
    /// Nothing is left in it.
    Emptied,
    /// All bytes of its files are zeros.
    Zeroed,
}

/// Events of the disks so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub crashes: u64,
    /// The process was killed, or ended well, and began again.
    pub restarts: u64,
    pub operations: u64,
    pub faults: [u64; Fault::ALL.len()],
}

impl Counts {
    pub fn add(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub fn plus(mut self, other: Self) -> Self {
        self.crashes += other.crashes;
        self.restarts += other.restarts;
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
    /// It takes no new files, whatever it says of its room: it has no inodes, or there is a quota.
    pub no_files: bool,
    /// Of its filesystem's room, by others.
    pub taken_bytes: u64,
    pub delay: Duration,
}

/// A bug that a test plants, to see that the simulator finds it. The disks make the first ones, what lies between the pool and its
/// users the next (`early.rs`), the pool `TrustBlocks`, when its simulator tells it to, and the front of the volume the last.
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
    /// A journal that is opened is not flushed: who was killed may have written and not flushed what is read. Nor is it by the flush of
    /// the whole disk that follows soon, and would hide it.
    NoOpeningFlush,
    /// A file is renamed durably before its bytes are.
    RenameFirst,
    /// A segment counts as stored before it is.
    EarlySegment,
    /// The metadata log is trimmed before the tree in the store has what it holds: what a manifest that is not read back does.
    EarlyTrim,
    /// The journal answers when it has taken an entry.
    EarlyReceipt,
    /// The pool answers a put, a copy or a delete before it is done.
    EarlyPut,
    EarlyCopy,
    EarlyDelete,
    /// Blocks are read without a look at their checksums.
    TrustBlocks,
    /// A volume is given to another seat before it is closed.
    EarlyHandover,
    /// Machines at the second seat replace the registry whatever it is by then.
    BlindRegistry,
    /// A volume answers before it should.
    Answer(Answer),
}

impl Plant {
    const BELOW: [(Self, &'static str); 16] = [
        (Self::NoJournalSync, "no-journal-sync"),
        (Self::NoShardSync, "no-shard-sync"),
        (Self::NoLabelSync, "no-label-sync"),
        (Self::NoDirectorySync, "no-directory-sync"),
        (Self::NoDiskSync, "no-disk-sync"),
        (Self::NoOpeningFlush, "no-opening-flush"),
        (Self::RenameFirst, "rename-first"),
        (Self::EarlySegment, "early-segment"),
        (Self::EarlyTrim, "early-trim"),
        (Self::EarlyReceipt, "early-receipt"),
        (Self::EarlyPut, "early-put"),
        (Self::EarlyCopy, "early-copy"),
        (Self::EarlyDelete, "early-delete"),
        (Self::TrustBlocks, "trust-blocks"),
        (Self::EarlyHandover, "early-handover"),
        (Self::BlindRegistry, "blind-registry"),
    ];

    /// All bugs, and their names.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        Self::BELOW.into_iter().chain(Answer::ALL.map(|(answer, name)| (Self::Answer(answer), name)))
    }

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
