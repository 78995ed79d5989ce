//! Opens that hold an inode, and what the tree's doors ask about those of others
//! ([`larder_opens`]).
//!
//! - `files.kept_opens_close`: an open or a denial that another door's open is in the way of has
//!   clients close what they keep open for later. Only then is it refused.

use std::sync::Arc;

use larder_base::boxed;
use larder_fs::Ino;
use larder_opens::{Caches, Entry, Refused, Table, Uses};

use crate::Files;
use crate::tree::OpenNode;

/// A file or directory that a door has open: it can be used after its last name is gone.
pub struct Open {
    entry: Entry,
    file: OpenNode,
}

/// An inode that is held open.
pub struct OpenInode {
    _file: OpenNode,
}

impl Open {
    /// Gives the file back if another door's open denies it.
    pub(crate) fn new(file: OpenNode, opens: &Arc<Table>, door: u32, does: Uses) -> Result<Self, OpenNode> {
        match opens.enter(file.ino(), door, does) {
            Some(entry) => Ok(Self { entry, file }),
            None => Err(file),
        }
    }

    /// The open in the table of all doors, and the inode that it holds.
    pub fn into_parts(self) -> (Entry, OpenInode) {
        (self.entry, OpenInode { _file: self.file })
    }

    /// Gives the open these uses and denials in place of its former ones (`opens.one_judge`). With
    /// `was_there` clients of other doors may have had the file open before a restart
    /// (`opens.reclaimed_first`).
    pub fn claim(&self, does: Uses, denies: Uses, was_there: bool) -> Result<(), Refused> {
        self.entry.claim(does, denies, was_there)
    }

    /// As [`Open::claim`], after `files.kept_opens_close`.
    #[boxed]
    pub async fn claim_asking(&self, files: &Files, does: Uses, denies: Uses, was_there: bool) -> Result<(), Refused> {
        if self.claim(does, denies, was_there).is_ok() {
            return Ok(());
        }
        files.recall(self.entry.ino(), Caches::HANDLES).await;
        self.claim(does, denies, was_there)
    }
}

impl Files {
    /// The opens and locks of all doors of the tree, and the number of this door among them: for a
    /// door that keeps more of its opens than [`Open`] does.
    pub fn table(&self) -> (&Arc<Table>, u32) {
        (&self.shared.opens, self.door)
    }

    /// Whether an open of another door denies this use of a file, after `files.kept_opens_close`.
    #[boxed]
    pub async fn is_denied_elsewhere(&self, ino: Ino, does: Uses) -> bool {
        if !self.denies_elsewhere(ino, does) {
            return false;
        }
        self.recall(ino, Caches::HANDLES).await;
        self.denies_elsewhere(ino, does)
    }

    /// As [`Files::is_denied_elsewhere`], at this moment: no client is asked.
    pub fn denies_elsewhere(&self, ino: Ino, does: Uses) -> bool {
        self.shared.opens.denied(ino, self.door, does)
    }
}
