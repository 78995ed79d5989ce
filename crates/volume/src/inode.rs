//! An inode in memory: the one place where its attributes are true while it is cached.
//!
//! - `inode.one_per_number`: at most one `Inode` per number exists at a time, because the inode
//!   table alone makes them. It is not evicted while anything else holds it, while it is open, or
//!   while `attr_dirty` is set. Dirty data keeps it by holding an `Arc`.
//! - `inode.lock_order`: first `namespace` of directories (by ascending number when several are
//!   taken), then the data locks in `file`, then `core` (by ascending number). `core` is held for
//!   moments only, never across an await.
//! - `inode.ahead_of_record`: `core.attr` may be ahead of the engine (`attr_dirty`) after unstable
//!   writes and changes of times. Each batch about the inode includes its record
//!   (`meta.records_at_submit`) and clears the mark.
//! - `inode.lost_is_another`: size, times and number of changes tell every two contents of a file apart that anybody has seen,
//!   over crashes too. In memory the number is even after each change. A record that is written while some data is unstable
//!   (`has_unstable`) has the odd number before that, and its times of change lie a second later: so the state that a crash
//!   leaves by taking this data is none that was seen before. A record with an even number has all data of its state.
//! - `inode.gone_is_final`: `gone` is set, under `core`, at the moment when the last link and the
//!   last open are gone. No record of the inode is written from then on: it would resurrect the
//!   file.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use larder_fs::{FileId, FileKind};
use parking_lot::Mutex;

use crate::data::FileState;
use crate::inode_core::InodeCore;

pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) core: Mutex<InodeCore>,
    /// Serialises changes of a directory's entries, from the look-up to the batch, not to its
    /// durability.
    pub(crate) namespace: tokio::sync::Mutex<()>,
    /// Dirty ranges, extents and the lock of a regular file's data.
    pub(crate) file: FileState,
    /// How many [`crate::OpenFile`]s hold it.
    pub(crate) opens: AtomicU32,
    /// Set by every use, cleared by the table's clock hand.
    pub(crate) used: AtomicBool,
    /// Of a directory: grows with every change of its entries, under `core`. A reader that fills
    /// the entry cache compares it, so that a stale entry is never cached.
    pub(crate) entries_version: AtomicU64,
    /// Of a volume that another process writes: there are newer rows than those it was made of, and the table has forgotten it
    /// (`follow.one_turn`).
    pub(crate) superseded: AtomicBool,
}

impl Inode {
    /// The user and group.
    pub(crate) fn ids(&self) -> (u32, u32) {
        let attr = &self.core.lock().attr;
        (attr.uid, attr.gid)
    }
}

pub(crate) fn kind_of(inode: &Inode) -> FileKind {
    inode.core.lock().attr.kind
}

pub(crate) fn new_inode(core: InodeCore, file: FileState) -> Inode {
    Inode {
        id: core.attr.id,
        core: Mutex::new(core),
        namespace: tokio::sync::Mutex::new(()),
        file,
        opens: AtomicU32::new(0),
        used: AtomicBool::new(true),
        entries_version: AtomicU64::new(0),
        superseded: AtomicBool::new(false),
    }
}
