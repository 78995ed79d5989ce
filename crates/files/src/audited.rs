//! What changes tell the audit of their share, afterwards ([`crate::audit`]).

use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::{Cred, Ino, NameMatch};

use crate::Files;
use crate::audit::{FileAct, FileAudit, FileOperation};
use crate::facts::{Act, Change, Duty, Outcome, does};
use crate::tree::Tree;

/// Folders between a file and the top of its share; a deeper path begins with dots.
const DEPTH_MAX: usize = 128;
/// Entries of a folder among which one of its folders is looked for by its number.
const SCANNED_MAX: usize = 10_000;
const PAGE: usize = 1000;

impl Files {
    /// The same door, which tells `audit` of its operations.
    pub fn audited(&self, audit: Arc<FileAudit>) -> Files {
        Files { audit: Some(audit), ..self.clone() }
    }

    /// While something is told: otherwise no name is kept either.
    pub(crate) fn auditing(&self) -> Option<&FileAudit> {
        self.audit.as_deref().filter(|audit| audit.tells())
    }
}

/// After a change that was made.
pub(crate) async fn after(files: &Files, change: &Change<'_>, done: &dyn Outcome) {
    let Some(audit) = files.auditing() else { return };
    let act = match change.act {
        Act::Create { .. } if !done.is_new() => return,
        Act::Create { .. } | Act::Make | Act::Link { .. } | Act::Relink { .. } => FileAct::Created,
        Act::Unlink | Act::Rmdir => FileAct::Removed,
        Act::Rename => FileAct::Renamed,
        Act::Attributes { permissions: true, .. } => FileAct::Permissions,
        // Contents, times and what has no name yet are not told of.
        Act::Attributes { .. } | Act::Write { .. } | Act::Append { .. } | Act::Allocate { .. } => return,
        Act::Share { .. } | Act::Unnamed => return,
    };
    does(Duty::Audit(act));
    let ino = match change.act {
        Act::Attributes { ino, .. } => Some(ino),
        _ => done.attr().map(|attr| attr.id.ino),
    };
    audit.tell_of(files, act, change, ino).await;
}

impl FileAudit {
    /// Keeps the names that it takes from the change, and tells of it.
    #[boxed]
    async fn tell_of(&self, files: &Files, act: FileAct, change: &Change<'_>, ino: Option<Ino>) {
        let (tree, [(dir, name), to]) = (&files.tree, &change.entries);
        match (act, ino) {
            (FileAct::Removed, Some(ino)) => self.names.lock().remove(ino),
            (FileAct::Created, Some(ino)) => self.names.lock().put(ino, *dir, name),
            (FileAct::Renamed, _) => {
                // Two may have changed places.
                for (dir, name) in &change.entries {
                    if let Ok(attr) = tree.lookup(&Cred::root(), *dir, name, NameMatch::Exact).await {
                        self.names.lock().put(attr.id.ino, *dir, name);
                    }
                }
            }
            _ => {}
        }
        if !self.has(act) {
            return;
        }
        let known = ino.and_then(|ino| self.names.lock().get(ino));
        let path = match (act, ino, known) {
            (FileAct::Permissions, Some(_), Some((dir, name))) => self.path(tree, dir, &name).await,
            (FileAct::Permissions, Some(ino), None) => self.folder(tree, ino).await,
            _ => self.path(tree, *dir, name).await,
        };
        let to = if act == FileAct::Renamed { Some(self.path(tree, to.0, &to.1).await) } else { None };
        let client = &change.cred.client;
        let user = client.user.as_ref().map_or_else(|| format!("uid {}", change.cred.uid), |user| user.to_string());
        (self.tell)(FileOperation { act, user, address: client.address, door: files.door, path, to });
    }

    async fn path(&self, tree: &Tree, dir: Ino, name: &[u8]) -> String {
        let (mut path, name) = (self.folder(tree, dir).await, String::from_utf8_lossy(name));
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&name);
        path
    }

    /// The path of a folder; of the top it is empty.
    async fn folder(&self, tree: &Tree, dir: Ino) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut at = dir;
        while at != self.top {
            if parts.len() >= DEPTH_MAX {
                parts.push("...".to_owned());
                break;
            }
            let known = self.names.lock().get(at);
            let Some((parent, name)) = (match known {
                Some(known) => Some(known),
                None => self.find_name(tree, at).await,
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
    async fn find_name(&self, tree: &Tree, dir: Ino) -> Option<(Ino, Bytes)> {
        let parent = tree.parent(dir).await.ok().filter(|parent| *parent != dir)?;
        let (mut cookie, mut scanned) = (0, 0);
        while scanned < SCANNED_MAX {
            let listing = tree.readdir(&Cred::root(), parent, cookie, PAGE, false).await.ok()?;
            if let Some(entry) = listing.entries.iter().find(|entry| entry.ino == dir) {
                self.names.lock().put(dir, parent, &entry.name);
                return Some((parent, entry.name.clone()));
            }
            cookie = listing.entries.last().filter(|_| !listing.eof)?.cookie;
            scanned += listing.entries.len();
        }
        None
    }
}

#[cfg(test)]
mod tests;
