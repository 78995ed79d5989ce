//! The removal of a delete-pending file after its last open has closed.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{debug, warn};

use crate::door::open_name::EntryName;
use crate::error::SmbError;
use crate::share::ShareBindings;
use larder_base::task;

use super::lease::LeaseId;
use super::table::FileNode;

/// A delete-pending file whose last open has closed. Dropping it frees the
/// file in the table, whether or not the removal ran.
pub(crate) struct PendingDelete {
    pub(super) share: Arc<ShareBindings>,
    pub(super) node: Arc<FileNode>,
    pub(super) name: Arc<EntryName>,
    /// The directory's lease that the last open named (`dirlease.own_parent_key`).
    pub(super) spared: Option<LeaseId>,
}

impl PendingDelete {
    /// The file `base`, if it is closed and waits to be deleted for nothing
    /// but its stream `last`.
    pub(super) fn of_waiting_base(
        share: &Arc<ShareBindings>,
        files: &HashMap<u64, Arc<FileNode>>,
        base: u64,
        last: &Arc<FileNode>,
    ) -> Option<PendingDelete> {
        if share.files.streams_of(files, base).any(|stream| !Arc::ptr_eq(stream, last)) {
            return None;
        }
        let node = files.get(&base)?;
        let state = node.state();
        let name = state.delete_pending.clone().filter(|_| state.opens.is_empty())?;
        Some(PendingDelete { share: Arc::clone(share), node: Arc::clone(node), name, spared: None })
    }

    /// Removes the file from the share, then frees it in the table. A
    /// failed delete does not fail the close (MS-SMB2 3.3.4.17); a
    /// directory that gained entries stays (MS-FSA 2.1.5.5), and so does what
    /// has taken the name meanwhile.
    pub(crate) async fn run(self) {
        let (name, path) = (&self.name, self.name.opened_as());
        let dir = match self.share.files.has_leased_directories() && path.stream().is_none() {
            true => name.dir().await,
            false => None,
        };
        match name.remove().await {
            Ok(()) => {
                if let Some(dir) = dir {
                    self.share.files.entry_changed(dir, self.spared);
                }
            }
            Err(SmbError::NotEmpty) => debug!(path = %path, "delete-on-close skipped a non-empty directory"),
            Err(SmbError::NotFound) => debug!(path = %path, "delete-on-close of what somebody else has removed"),
            Err(e) => warn!(error = %e, path = %path, "delete-on-close failed"),
        }
    }
}

impl Drop for PendingDelete {
    fn drop(&mut self) {
        let table = &self.share.files;
        let mut files = table.files();
        table.remove_node(&mut files, &self.node);
        let base = PendingDelete::of_waiting_base(&self.share, &files, self.node.base, &self.node);
        drop(files);
        if let (Some(base), Ok(runtime)) = (base, tokio::runtime::Handle::try_current()) {
            task::spawn_on(&runtime, base.run());
        }
    }
}
