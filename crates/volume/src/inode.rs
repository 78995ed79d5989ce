//! An inode in memory: the one place where its attributes are true while it is cached.
//!
//! I1. At most one `Inode` per number exists at a time (the inode table hands it out), and it is
//!     not evicted while somebody else holds it, while it is open or `attr_dirty`. Whoever needs it kept
//!     (dirty data above all) holds an `Arc` of it.
//! I2. Lock order: `namespace` of directories (by ascending number when several are taken), then the data
//!     lock in `file`, then `core` (by ascending number). `core` is held for moments only, never across an await.
//! I3. `core.attr` may be ahead of the engine (`attr_dirty`): unstable writes and times. Whoever writes
//!     a batch about this inode includes its record (M5) and clears the mark.
//! I4. `gone` is set, under `core`, in the moment in which the last link and the last open are gone. From then
//!     on no record of it may be written: a batch about it would resurrect it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::acl::{self, Acl, Guarded};
use crate::data::FileState;
use crate::known::Known;
use crate::meta::Ticket;
use crate::types::{Attr, FileId, Ino, SetAttr};

pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) core: Mutex<InodeCore>,
    /// Serialises changes of a directory's entries, from the look-up to the batch, not to its durability.
    pub(crate) namespace: tokio::sync::Mutex<()>,
    /// Dirty ranges, extents and the lock of a regular file's data.
    pub(crate) file: FileState,
    /// How many [`crate::OpenFile`]s hold it.
    pub(crate) opens: AtomicU32,
    /// Set by every use, cleared by the table's clock hand.
    pub(crate) used: AtomicBool,
    /// Of a directory: grows with every change of its entries, under `core`. A reader that fills the
    /// entry cache compares it, so that a stale entry is never cached.
    pub(crate) entries_version: AtomicU64,
}

pub(crate) struct InodeCore {
    pub(crate) attr: Attr,
    /// `attr` is ahead of the engine.
    pub(crate) attr_dirty: bool,
    /// What the record says about the size when it is less than `attr.size`: unstable data beyond it is not
    /// in the engine yet, and a crash must not leave a file of zeros. `None`: the record says `attr.size`.
    pub(crate) size_stored: Option<u64>,
    /// Bytes that the extents in the engine take up, and reserved bytes: the record's `allocated`. `attr.allocated` adds what is
    /// dirty and not reserved.
    pub(crate) stored_bytes: u64,
    /// There are reserved ranges.
    pub(crate) has_reserved: bool,
    /// The newest batch that carries the record.
    pub(crate) ticket: Ticket,
    /// Last link and last open are gone (I4).
    pub(crate) gone: bool,
    /// The directory that holds a directory; of other inodes a hint.
    pub(crate) parent: Ino,
    /// Verifier of an exclusive create, until the first SETATTR.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Of a directory: the cookie of the next entry.
    pub(crate) next_cookie: u64,
    /// Of a directory: how many entries it has.
    pub(crate) entries: u64,
    /// Of a directory that was empty since it is in memory: its names.
    pub(crate) known: Option<Box<Known>>,
    /// How many extended attributes there are: the common answer "none" needs no look-up.
    pub(crate) xattrs: u32,
    /// Of a symbolic link.
    pub(crate) target: Bytes,
    /// Rules that decide in place of the mode bits.
    pub(crate) acl: Option<Arc<Acl>>,
}

impl InodeCore {
    /// What decides who may use it.
    pub(crate) fn guarded(&self) -> Guarded {
        Guarded { attr: self.attr, acl: self.acl.clone() }
    }

    /// What becomes of the list after `set` was applied, which found the permission bits `before` (`acl.chmod_discards`).
    pub(crate) fn follow_list(&mut self, set: &SetAttr, before: u32) {
        let Some(list) = self.acl.clone() else { return };
        // An exclusive create carries no mode: the client sets it next.
        let is_being_made = self.verifier.is_some();
        let is_discarded = set.mode.is_some_and(|mode| match is_being_made {
            true => acl::is_private(mode),
            false => mode & 0o777 != before & 0o777,
        });
        if is_discarded {
            self.acl = None;
            return;
        }
        self.attr.mode = list.mode(&self.attr);
    }
}
