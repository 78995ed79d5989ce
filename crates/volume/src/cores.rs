//! Several inodes changed in one moment.
//!
//! - `volume.one_moment`: a change happens under the `core` locks of all inodes that it touches:
//!   attributes are changed, the batch is submitted and the caches are updated. A future that is
//!   dropped while it waits has done all of it or nothing.

use std::sync::Arc;

use larder_fs::{FsResult, Ino};
use parking_lot::MutexGuard;

use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::meta::{Batch, Meta, Ticket};

/// The `core` locks of several inodes, taken in ascending order (`inode.lock_order`), each inode
/// once.
pub(crate) struct Cores<'a> {
    guards: Vec<(Ino, MutexGuard<'a, InodeCore>)>,
}

impl<'a> Cores<'a> {
    pub(crate) fn lock(inodes: &[&'a Arc<Inode>]) -> Self {
        let mut sorted = inodes.to_vec();
        sorted.sort_by_key(|inode| inode.id.ino);
        sorted.dedup_by_key(|inode| inode.id.ino);
        Self { guards: sorted.into_iter().map(|inode| (inode.id.ino, inode.core.lock())).collect() }
    }

    /// Of an inode that was locked.
    pub(crate) fn of(&mut self, inode: &Inode) -> &mut InodeCore {
        let place = self.guards.iter().position(|(ino, _)| *ino == inode.id.ino);
        let place = place.expect("the inode is among those that were locked");
        &mut self.guards[place].1
    }

    /// Adds the records of all that still exist and submits (`volume.one_moment`).
    pub(crate) fn submit(&mut self, meta: &dyn Meta, mut batch: Batch) -> FsResult<Ticket> {
        for (ino, core) in self.guards.iter_mut().filter(|(_, core)| !core.gone) {
            batch.put_record(*ino, core);
        }
        let ticket = meta.submit(batch)?;
        for (_, core) in &mut self.guards {
            core.attr_dirty = false;
            core.ticket = ticket;
        }
        Ok(ticket)
    }
}
