//! Directory leases: what clients cache of a directory's entries (MS-SMB2 3.3.5.9.11, MS-FSA 2.1.4.12 for a parent directory).
//!
//! - `dirlease.no_writes`: a version 2 lease of a directory caches reads and handles. Writes are never cached, and neither an
//!   oplock nor a version 1 lease caches a directory.
//! - `dirlease.change_then_break`: a change of an entry breaks the leases on its directory after it is made and before it is
//!   answered, so that a client that lists the directory again finds the change. The change waits for no acknowledgment: the
//!   client has nothing to write back.
//! - `dirlease.own_parent_key`: the lease that the changing open names as its parent's stays. Its client knows of the change.
//! - `dirlease.outside_breaks_all`: a change of a file's size, times or attributes outside the server names no directory, so it
//!   breaks every directory lease.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::lease::{LeaseId, Trigger};
use super::table::{FileNode, lock};

/// The directories of one store that have leases, by their ids.
#[derive(Default)]
pub(super) struct LeasedDirectories {
    nodes: Mutex<HashMap<u64, Arc<FileNode>>>,
    /// As many as `nodes`, to be read without its lock.
    count: AtomicUsize,
}

impl LeasedDirectories {
    /// A lease is granted on `node`.
    pub(super) fn add(&self, node: &Arc<FileNode>) {
        let mut nodes = lock(&self.nodes);
        nodes.insert(node.key, Arc::clone(node));
        self.count.store(nodes.len(), Ordering::Release);
    }

    /// The last lease on `node` has ended.
    pub(super) fn remove(&self, node: &Arc<FileNode>) {
        let mut nodes = lock(&self.nodes);
        if nodes.get(&node.key).is_some_and(|own| Arc::ptr_eq(own, node)) {
            nodes.remove(&node.key);
        }
        self.count.store(nodes.len(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Breaks the leases on the directory `dir`, an entry of which was changed, but for `spared`.
    pub(super) fn entry_changed(&self, dir: u64, spared: Option<LeaseId>) {
        if self.is_empty() {
            return;
        }
        let leased = lock(&self.nodes).get(&dir).cloned();
        if let Some(node) = leased {
            node.break_leases(Trigger::Write, spared);
        }
    }

    /// Breaks all of them: an entry of one, nobody knows which, was changed (`dirlease.outside_breaks_all`).
    pub(super) fn any_entry_changed(&self) {
        if self.is_empty() {
            return;
        }
        let leased: Vec<_> = lock(&self.nodes).values().cloned().collect();
        leased.iter().for_each(|node| node.break_leases(Trigger::Write, None));
    }
}
