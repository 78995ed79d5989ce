//! The errors of a pool, worded so that the reader knows the remedy.

use std::io;
use std::path::{Path, PathBuf};

use larder_base::units::ByteSize;

/// Every error of a pool. The message says what happened, to which thing, and what to do; it names
/// all fields.
#[expect(missing_docs, reason = "each variant's message names its fields")]
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The name given for a new pool.
    #[error("'{0}' is no name for a pool: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter")]
    BadName(String),
    /// More disks, or another layout, would do.
    #[error("{layout} needs at least {need} disks, {have} given: add disks or choose another layout")]
    TooFewDisks { layout: String, need: usize, have: usize },
    /// More than [`crate::DISKS_MAX`] disks.
    #[error("{have} disks given, a pool has at most {max}: make several pools", max = crate::object::layout::DISKS_MAX)]
    TooManyDisks { have: usize },
    /// The width asked for lies outside `min..=max` for these disks.
    #[error("width {width} does not fit {layout} on {disks} disks: use {min} to {max}, or leave it out")]
    BadWidth { layout: String, width: u8, disks: usize, min: usize, max: usize },
    /// Two paths with one identity.
    #[error("{0} and {1} are the same directory: give each disk once")]
    SameDisk(PathBuf, PathBuf),
    /// A new disk's directory holds files; one is named.
    #[error(
        "{path} is not empty (it holds '{found}'): a disk starts as an empty directory; move the files away or give another"
    )]
    NotEmpty { path: PathBuf, found: String },
    /// A new disk's directory has a label, of another pool or this one.
    #[error("{path} belongs to pool '{pool}' already: import that pool, or empty the directory to give it up")]
    AlreadyLabelled { path: PathBuf, pool: String },
    /// `room` and `need` are bytes.
    #[error("{path} has too little room: {room}, at least {need} needed", room = ByteSize(*.room), need = ByteSize(*.need))]
    TooSmall { path: PathBuf, room: u64, need: u64 },
    /// Directories of disks are never made, so that a mistyped path is noticed.
    #[error(
        "there is no folder {0}: make it where the new disk is mounted ({make}), or give another; a mistyped path would be a member on whatever disk it lies on",
        make = format_args!("mkdir {}", larder_base::shell::word(.0))
    )]
    NoFolder(PathBuf),
    /// A disk's own error, in `source`.
    #[error("cannot {what} {path}: check that the disk is connected, mounted and writable")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// Another process holds the lock of a disk.
    #[error("pool '{pool}' is in use by {holder} (lock on {path}): stop it first, or run the command there")]
    Locked { pool: String, path: PathBuf, holder: String },
    /// The last host did not export the pool, and may still have it open.
    #[error(
        "pool '{pool}' was last used by host '{host}' and not exported: export it there, or import with force if that host is gone for good"
    )]
    InUse { pool: String, host: String },
    /// Reading the pool needs a newer larder.
    #[error(
        "pool '{pool}' uses {features}, which this larder does not know: use the newer larder that made it, or one newer still"
    )]
    UnknownFeatures { pool: String, features: String },
    /// Writing the pool needs a newer larder.
    #[error(
        "pool '{pool}' uses {features}, which this larder can read around but not write: use a newer larder, or copy files out with `larder recover`"
    )]
    ReadOnlyFeatures { pool: String, features: String },
    /// No label was found in the directories.
    #[error("no larder pool found in {0}: name the directories of its disks")]
    NoPool(String),
    /// Labels of more than one pool were found.
    #[error("the directories hold several pools ({0}): name the one to open")]
    SeveralPools(String),
    /// More disks are out than the layout survives.
    #[error(
        "pool '{pool}' cannot be opened: {out} of its {disks} disks are not usable, {layout} survives {survives}. {names}. Reconnect them and import again"
    )]
    TooManyLost { pool: String, out: usize, disks: usize, layout: String, survives: u8, names: String },
    /// Disks that had everything are away, and could have gone on by themselves
    /// (`diverged.fewer_disks_asked`).
    #[error(
        "pool '{pool}' is not opened without {missing}: {why}. To go on without them would begin a second history of the pool, and one of the two has to be given up when they are back"
    )]
    FewerDisks { pool: String, missing: String, why: String },
    /// A segment of the journal that no disk can read, or no room to begin it anew.
    #[error("pool '{pool}': the journal cannot be read: {why}")]
    Journal { pool: String, why: String },
    /// The labels prove changes that the disks no longer hold (`journal.loss_refused`).
    #[error(
        "pool '{pool}' is not opened, because changes that were acknowledged would be lost for good: {why}. {help}"
    )]
    ChangesLost { pool: String, why: String, help: String },
    /// `need` and `available` are bytes.
    #[error("pool '{pool}' is full: {need} asked for, {available} available{disks}; delete files or snapshots, add disks, or take other files off their filesystems", need = ByteSize(*.need), available = ByteSize(*.available))]
    NoSpace { pool: String, need: u64, available: u64, disks: String, source: io::Error },
    /// Fewer intact shards than the object needs: `have` of `need`.
    #[error("object {object} of pool '{pool}' cannot be read: {have} of the {need} pieces it needs are intact. {why}")]
    Unavailable { pool: String, object: String, have: usize, need: usize, why: String },
    /// Too few disks take writes, or the object's name, attributes or size are out of bounds.
    #[error("pool '{pool}' cannot write {object}: {why}")]
    CannotWrite { pool: String, object: String, why: String },
    /// A request that would lose redundancy or data, or does not fit the pool's state.
    #[error("pool '{pool}': {why}")]
    Refused { pool: String, why: String },
    /// The pool was closed while the call was under way, or before.
    #[error("pool '{0}' is closed")]
    Closed(String),
    /// The runtime dropped the task.
    #[error("a task of pool '{0}' was cancelled: the runtime is shutting down")]
    Cancelled(String),
}

impl PoolError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn no_space(pool: &str, need: u64, available: u64, disks: String) -> Self {
        let source = io::ErrorKind::StorageFull.into();
        Self::NoSpace { pool: pool.to_owned(), need, available, disks, source }
    }

    /// Whether deleting something would help.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}

impl From<PoolError> for object_store::Error {
    fn from(error: PoolError) -> Self {
        Self::Generic { store: "larder-pool", source: Box::new(error) }
    }
}
