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
use larder_fs::{Cred, Ino, NameMatch};
use parking_lot::Mutex;

use crate::Files;

/// Names that are kept. A client works in few folders at once.
const NAMES_MAX: usize = 1 << 16;
/// Folders between a file and the top of its share; a deeper path begins with dots.
const DEPTH_MAX: usize = 128;
/// Entries of a folder among which one of its folders is looked for by its number.
const SCANNED_MAX: usize = 10_000;
const PAGE: usize = 1000;

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
    top: Ino,
    names: Mutex<Names>,
    tell: Box<dyn Fn(FileOperation) + Send + Sync>,
}

/// The folder and the name of inodes that clients came by (`fileaudit.names_bounded`).
#[derive(Default)]
struct Names {
    young: HashMap<Ino, (Ino, Bytes)>,
    old: HashMap<Ino, (Ino, Bytes)>,
}

impl Names {
    fn get(&self, ino: Ino) -> Option<(Ino, Bytes)> {
        self.young.get(&ino).or_else(|| self.old.get(&ino)).cloned()
    }

    fn put(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        if self.young.get(&ino).is_some_and(|(known, known_name)| *known == dir && *known_name == name) {
            return;
        }
        if self.young.len() >= NAMES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, (dir, Bytes::copy_from_slice(name)));
    }

    fn remove(&mut self, ino: Ino) {
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

    /// The folder that the share begins at.
    pub fn top(&self) -> Ino {
        self.top
    }

    fn has(&self, act: FileAct) -> bool {
        FileActs(self.acts.load(Relaxed)).has(act)
    }
}

impl Files {
    /// The same door, which tells `audit` of its operations.
    pub fn audited(&self, audit: Arc<FileAudit>) -> Files {
        Files { audit: Some(audit), ..self.clone() }
    }

    /// While something is told: otherwise no name is kept either.
    pub(crate) fn auditing(&self) -> Option<&FileAudit> {
        self.audit.as_deref().filter(|audit| audit.acts.load(Relaxed) != 0)
    }

    /// A client was led to an inode by its name.
    pub(crate) fn met(&self, ino: Ino, dir: Ino, name: &[u8]) {
        if let Some(audit) = self.auditing()
            && ino != audit.top
            && !matches!(name, b"." | b"..")
        {
            audit.names.lock().put(ino, dir, name);
        }
    }

    /// An entry of `dir` was made, or lost its name.
    pub(crate) async fn audit_entry(&self, act: FileAct, cred: &Cred, dir: Ino, name: &[u8], ino: Option<Ino>) {
        let Some(audit) = self.auditing() else { return };
        if let Some(ino) = ino {
            match act {
                FileAct::Removed => audit.names.lock().remove(ino),
                _ => audit.names.lock().put(ino, dir, name),
            }
        }
        if audit.has(act) {
            let path = self.audit_path(audit, dir, name).await;
            self.tell_of(audit, act, cred, path, None);
        }
    }

    /// An entry was renamed, or two changed places.
    pub(crate) async fn audit_renamed(&self, cred: &Cred, from: (Ino, &[u8]), to: (Ino, &[u8])) {
        let Some(audit) = self.auditing() else { return };
        for (dir, name) in [from, to] {
            if let Ok(attr) = self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact).await {
                audit.names.lock().put(attr.id.ino, dir, name);
            }
        }
        if audit.has(FileAct::Renamed) {
            let path = self.audit_path(audit, from.0, from.1).await;
            let new = self.audit_path(audit, to.0, to.1).await;
            self.tell_of(audit, FileAct::Renamed, cred, path, Some(new));
        }
    }

    pub(crate) async fn audit_permissions(&self, cred: &Cred, ino: Ino) {
        let Some(audit) = self.auditing().filter(|audit| audit.has(FileAct::Permissions)) else { return };
        let known = audit.names.lock().get(ino);
        let path = match known {
            Some((dir, name)) => self.audit_path(audit, dir, &name).await,
            None => self.audit_folder(audit, ino).await,
        };
        self.tell_of(audit, FileAct::Permissions, cred, path, None);
    }

    fn tell_of(&self, audit: &FileAudit, act: FileAct, cred: &Cred, path: String, to: Option<String>) {
        let user = cred.client.user.as_ref().map_or_else(|| format!("uid {}", cred.uid), |user| user.to_string());
        (audit.tell)(FileOperation { act, user, address: cred.client.address, door: self.door, path, to });
    }

    async fn audit_path(&self, audit: &FileAudit, dir: Ino, name: &[u8]) -> String {
        let (mut path, name) = (self.audit_folder(audit, dir).await, String::from_utf8_lossy(name));
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&name);
        path
    }

    /// The path of a folder; of the top it is empty.
    async fn audit_folder(&self, audit: &FileAudit, dir: Ino) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = dir;
        while at != audit.top {
            if parts.len() >= DEPTH_MAX {
                parts.push("...".to_owned());
                break;
            }
            let known = audit.names.lock().get(at);
            let Some((parent, name)) = (match known {
                Some(known) => Some(known),
                None => self.find_name(audit, at).await,
            }) else {
                parts.push(format!("<inode {}>", at.0));
                break;
            };
            parts.push(String::from_utf8_lossy(&name).into_owned());
            at = parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Looks for the name of a folder in the one above, as a client does that kept a handle over a restart.
    async fn find_name(&self, audit: &FileAudit, dir: Ino) -> Option<(Ino, Bytes)> {
        let parent = self.tree.parent(dir).await.ok().filter(|parent| *parent != dir)?;
        let (mut cookie, mut scanned) = (0, 0);
        while scanned < SCANNED_MAX {
            let listing = self.tree.readdir(&Cred::root(), parent, cookie, PAGE, false).await.ok()?;
            if let Some(entry) = listing.entries.iter().find(|entry| entry.ino == dir) {
                audit.names.lock().put(dir, parent, &entry.name);
                return Some((parent, entry.name.clone()));
            }
            cookie = listing.entries.last().filter(|_| !listing.eof)?.cookie;
            scanned += listing.entries.len();
        }
        None
    }
}

/// Whether an extended attribute is an access control list.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_") || name == b"system.nfs4_acl"
}

#[cfg(test)]
mod tests;
