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

use crate::path::SmbPath;
use crate::share::ShareBindings;

use super::lease::{LeaseId, Trigger};
use super::table::{FileNode, lock};

/// The directories of one store that have leases, by the address of their nodes.
#[derive(Default)]
pub(super) struct LeasedDirectories {
    nodes: Mutex<HashMap<usize, Arc<FileNode>>>,
    /// As many as `nodes`, to be read without its lock.
    count: AtomicUsize,
}

impl LeasedDirectories {
    /// A lease is granted on `node`.
    pub(super) fn add(&self, node: &Arc<FileNode>) {
        let mut nodes = lock(&self.nodes);
        nodes.insert(Arc::as_ptr(node).addr(), Arc::clone(node));
        self.count.store(nodes.len(), Ordering::Release);
    }

    /// The last lease on `node` has ended.
    pub(super) fn remove(&self, node: &Arc<FileNode>) {
        let mut nodes = lock(&self.nodes);
        nodes.remove(&Arc::as_ptr(node).addr());
        self.count.store(nodes.len(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Breaks the leases on the directories of `share` that hold the entry `path`, but for `spared`. A stream is no entry.
    pub(super) fn entry_changed(&self, share: &ShareBindings, path: &SmbPath, spared: Option<LeaseId>) {
        if path.stream().is_none()
            && let Some(dir) = path.parent()
        {
            self.break_where(|node| node.is_open_as(share, &dir), spared);
        }
    }

    /// Breaks all of them: an entry of one, nobody knows which, was changed (`dirlease.outside_breaks_all`).
    pub(super) fn any_entry_changed(&self) {
        self.break_where(|_| true, None);
    }

    fn break_where(&self, concerned: impl Fn(&FileNode) -> bool, spared: Option<LeaseId>) {
        if self.is_empty() {
            return;
        }
        let leased: Vec<_> = lock(&self.nodes).values().cloned().collect();
        for node in leased.iter().filter(|node| concerned(node)) {
            node.break_leases(Trigger::Write, spared);
        }
    }
}
