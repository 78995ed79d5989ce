//! The volumes that are exported, and what a client's open or delegation keeps of a file.
//!
//! - `exported.open_holds_inode`: each open and each delegation keeps its inode, so it can be used
//!   after its last name is gone, and dropping it leaves nothing behind.
//! - `exported.exports_only`: what a client opened by an export ends with that, or when the client is
//!   let in no more. Volumes without an export are forgotten at once: a client that says nothing
//!   keeps none open.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use larder_files::{Files, OpenInode};
use larder_fs::Ino;
use larder_opens::{Door, Reclaims};
use uuid::Uuid;

use super::super::handle::HANDLE_BYTES;
use super::file_key::FileKey;
use super::recalls::VolumeDelegations;
use super::server::NfsV4;
use super::types::SessionId;

/// An inode that a client holds.
pub struct HeldOpen {
    /// `exported.open_holds_inode`
    pub _inode: OpenInode,
    /// The user who opened it first, for people.
    pub uid: u32,
    /// From where it was opened.
    pub address: IpAddr,
    /// The directory and the name by which it was opened; `None`: by its handle alone.
    pub name: Option<(Ino, Box<[u8]>)>,
    /// The handle by which the client knows it.
    pub handle: [u8; HANDLE_BYTES],
    /// Of a delegation.
    pub granted: Option<Granted>,
}

/// The grant of a delegation.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The request that it answered, whose reply a recall may overtake (RFC 8881 2.10.6.3):
    /// session, slot, number.
    pub by: Option<(SessionId, u32, u32)>,
    /// The file as it was: a client that answers otherwise has changed it.
    pub change: u64,
    pub size: u64,
}

/// A volume that is exported.
struct Exported {
    files: Files,
    /// Asked by other doors as long as it is here, from the first open on: before it there is
    /// nothing to ask for.
    delegations: Arc<VolumeDelegations>,
    is_asked: bool,
    /// While its clients take back what they had.
    reclaims: Option<Reclaims>,
}

#[derive(Default)]
pub struct ExportedVolumes {
    /// The volumes that are exported, by their numbers here.
    trees: HashMap<u64, Exported>,
    numbers: HashMap<Uuid, u64>,
    next: u64,
}

impl ExportedVolumes {
    /// Takes the volumes of these services in place of those before. Returns the numbers of the
    /// ones that are gone, whose states the caller ends before it calls
    /// [`ExportedVolumes::forget`].
    pub fn set_trees<'f>(&mut self, exported: impl Iterator<Item = &'f Files>, v4: &Weak<NfsV4>) -> Vec<u64> {
        let mut kept = HashSet::new();
        for files in exported {
            let known = self.numbers.get(&files.id()).copied();
            // A volume that was closed and opened again is another one: what was held of it went
            // with the former.
            let is_same = |number: &u64| {
                self.trees.get(number).is_some_and(|exported| exported.files.verifier() == files.verifier())
            };
            let number = known.filter(is_same).unwrap_or_else(|| {
                self.next += 1;
                self.next
            });
            self.numbers.insert(files.id(), number);
            kept.insert(number);
            self.trees.entry(number).or_insert_with(|| {
                let delegations = Arc::new(VolumeDelegations { v4: v4.clone(), volume: number });
                Exported { files: files.clone(), delegations, is_asked: false, reclaims: None }
            });
        }
        self.trees.keys().copied().filter(|number| !kept.contains(number)).collect()
    }

    pub fn forget(&mut self, volume: u64) {
        self.trees.remove(&volume);
        self.numbers.retain(|_, number| *number != volume);
    }

    /// The number of a volume that is exported.
    pub fn number(&self, files: &Files) -> Option<u64> {
        self.numbers.get(&files.id()).copied()
    }

    /// `None`: nothing of the volume is exported any more.
    pub fn key(&self, files: &Files, ino: Ino) -> Option<FileKey> {
        self.numbers.get(&files.id()).map(|volume| FileKey { volume: *volume, inode: ino.0 })
    }

    /// The one that other doors have to ask from now on, until [`ExportedVolumes::is_asked`].
    pub fn to_be_asked(&self, files: &Files) -> Option<(u64, Weak<dyn Door>)> {
        let volume = self.numbers.get(&files.id())?;
        let exported = self.trees.get(volume).filter(|exported| !exported.is_asked)?;
        Some((*volume, Arc::downgrade(&exported.delegations) as _))
    }

    pub fn is_asked(&mut self, volume: u64) {
        if let Some(exported) = self.trees.get_mut(&volume) {
            exported.is_asked = true;
        }
    }

    /// Other doors wait for a volume's clients (`opens.reclaimed_first`).
    pub fn begin_reclaims(&mut self, volume: u64) {
        if let Some(exported) = self.trees.get_mut(&volume) {
            let (table, door) = exported.files.table();
            exported.reclaims.get_or_insert_with(|| table.begin_reclaims(door));
        }
    }

    pub fn end_reclaims(&mut self, volume: u64) {
        if let Some(exported) = self.trees.get_mut(&volume) {
            exported.reclaims = None;
        }
    }

    /// All volumes that are exported.
    pub fn all_files(&self) -> Vec<Files> {
        self.trees.values().map(|exported| exported.files.clone()).collect()
    }

    pub fn files_of(&self, volume: u64) -> Option<Files> {
        self.trees.get(&volume).map(|exported| exported.files.clone())
    }
}
