//! What doors' calls tell the audit of their share, afterwards ([`crate::audit`]).

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::{Cred, Ino, NameMatch};

use crate::Files;
use crate::audit::{FileAct, FileAudit, FileOperation};

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

#[cfg(test)]
mod tests;
