//! What clients do to names and rights, told to whoever audits a share.
//!
//! - `fileaudit.done_only`: an operation is told once it succeeded, by each door alike.
//! - `fileaudit.never_waits`: nobody waits for whoever is told. Paths come from names that clients used; only a folder that nobody came
//!   through since the start is looked for on the disk, once.
//! - `fileaudit.names_bounded`: the names of [`NAMES_MAX`] inodes are kept, in two generations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use bytes::Bytes;
use larder_fs::Ino;
use parking_lot::Mutex;

/// Names that are kept. A client works in few folders at once.
pub(crate) const NAMES_MAX: usize = 1 << 16;

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileAct {
    /// A file, folder, symbolic link or further name was made.
    Created = 1,
    /// A name was removed, into the bin of the share too.
    Removed = 2,
    /// A name became another one.
    Renamed = 4,
    /// The mode, the owner or the access control list was set.
    Permissions = 8,
}

impl FileAct {
    /// All of them.
    pub const ALL: [FileAct; 4] = [FileAct::Created, FileAct::Removed, FileAct::Renamed, FileAct::Permissions];

    /// In a configuration and in a record.
    pub fn word(self) -> &'static str {
        match self {
            FileAct::Created => "created",
            FileAct::Removed => "removed",
            FileAct::Renamed => "renamed",
            FileAct::Permissions => "permissions",
        }
    }
}

/// Some of [`FileAct::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileActs(u8);

impl FileActs {
    /// None of them.
    pub const NONE: FileActs = FileActs(0);

    /// These.
    pub fn of(acts: impl IntoIterator<Item = FileAct>) -> FileActs {
        FileActs(acts.into_iter().fold(0, |bits, act| bits | act as u8))
    }

    /// Whether `act` is one of them.
    pub fn has(self, act: FileAct) -> bool {
        self.0 & act as u8 != 0
    }
}

/// Something that a client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOperation {
    /// What it did.
    pub act: FileAct,
    /// The login, or `uid 1000` where the door knows numbers alone.
    pub user: String,
    /// `None`: this machine.
    pub address: Option<IpAddr>,
    /// The door ([`Files::for_door`]).
    pub door: u32,
    /// Below the top of the share, without a slash in front. Of a rename the old path.
    pub path: String,
    /// The new path of a rename.
    pub to: Option<String>,
}

/// Tells of the operations on one share.
pub struct FileAudit {
    acts: AtomicU8,
    pub(crate) top: Ino,
    pub(crate) names: Mutex<Names>,
    pub(crate) tell: Box<dyn Fn(FileOperation) + Send + Sync>,
}

/// The folder and the name of inodes that clients came by (`fileaudit.names_bounded`).
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) young: HashMap<Ino, (Ino, Bytes)>,
    pub(crate) old: HashMap<Ino, (Ino, Bytes)>,
}

impl Names {
    pub(crate) fn get(&self, ino: Ino) -> Option<(Ino, Bytes)> {
        self.young.get(&ino).or_else(|| self.old.get(&ino)).cloned()
    }

    pub(crate) fn put(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        if self.young.get(&ino).is_some_and(|(known, known_name)| *known == dir && *known_name == name) {
            return;
        }
        if self.young.len() >= NAMES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, (dir, Bytes::copy_from_slice(name)));
    }

    pub(crate) fn remove(&mut self, ino: Ino) {
        self.young.remove(&ino);
        self.old.remove(&ino);
    }
}

impl FileAudit {
    /// Of the share with the folder `top`, and of nothing yet. `tell` must not wait: a client's call waits for it.
    pub fn new(top: Ino, tell: impl Fn(FileOperation) + Send + Sync + 'static) -> Arc<FileAudit> {
        Arc::new(FileAudit { acts: AtomicU8::new(0), top, names: Mutex::default(), tell: Box::new(tell) })
    }

    /// What is told from now on.
    pub fn set_acts(&self, acts: FileActs) {
        if self.acts.swap(acts.0, Relaxed) != 0 && acts == FileActs::NONE {
            *self.names.lock() = Names::default();
        }
    }

    /// Whether anything is told.
    pub(crate) fn tells(&self) -> bool {
        self.acts.load(Relaxed) != 0
    }

    /// The folder that the share begins at.
    pub fn top(&self) -> Ino {
        self.top
    }

    /// A client was led to an inode by its name.
    pub(crate) fn met(&self, ino: Ino, dir: Ino, name: &[u8]) {
        if ino != self.top && !matches!(name, b"." | b"..") {
            self.names.lock().put(ino, dir, name);
        }
    }

    pub(crate) fn has(&self, act: FileAct) -> bool {
        FileActs(self.acts.load(Relaxed)).has(act)
    }
}

/// Whether an extended attribute is an access control list.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_") || name == b"system.nfs4_acl"
}
