//! The removal of a delete-pending file after its last open has closed.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{debug, warn};

use crate::error::SmbError;

use super::lease::LeaseId;
use super::table::{FileKey, FileNode, FileTable, Named};

impl FileTable {
    /// The file `base`, if it is closed and waits to be deleted for nothing
    /// but its stream `last`.
    pub(super) fn waiting_base(
        &self,
        files: &HashMap<FileKey, Arc<FileNode>>,
        base: u64,
        last: &Arc<FileNode>,
    ) -> Option<PendingDelete> {
        if self.streams_of(files, base).any(|stream| !Arc::ptr_eq(stream, last)) {
            return None;
        }
        let node = files.get(&FileKey::Index(base))?;
        let state = node.state();
        let name = state.delete_pending.clone().filter(|_| state.opens.is_empty())?;
        Some(PendingDelete { node: Arc::clone(node), name, spared: None })
    }
}

/// A delete-pending file whose last open has closed. Dropping it frees the
/// name in the table, whether or not the removal ran.
pub(crate) struct PendingDelete {
    pub(super) node: Arc<FileNode>,
    pub(super) name: Named,
    /// The directory's lease that the last open named (`dirlease.own_parent_key`).
    pub(super) spared: Option<LeaseId>,
}

impl PendingDelete {
    /// Removes the file from the share, then frees its name in the table. A
    /// failed delete does not fail the close (MS-SMB2 3.3.4.17); a
    /// directory that gained entries stays (MS-FSA 2.1.5.5).
    pub(crate) async fn run(self) {
        let share = &self.name.share;
        let _names = share.names_lock().await;
        // A rename that ran while this waited moved the name.
        let path = self.node.state().delete_pending.as_ref().unwrap_or(&self.name).path.clone();
        let file_index = self.node.state().key.index();
        if path.stream().is_some() {
            if let Err(e) = share.backend.unlink_opened(&path, file_index).await {
                warn!(error = %e, path = %path, "delete-on-close of a stream failed");
            }
            return;
        }
        match share.backend.unlink_opened(&path, file_index).await {
            Ok(()) => share.files.entry_changed(share, &path, self.spared),
            Err(SmbError::NotEmpty) => {
                debug!(path = %path, "delete-on-close skipped a non-empty directory");
            }
            Err(e) => warn!(error = %e, path = %path, "delete-on-close failed"),
        }
    }
}

impl Drop for PendingDelete {
    fn drop(&mut self) {
        let table = &self.name.share.files;
        let mut files = table.files();
        let key = self.node.state().key.clone();
        table.remove_node(&mut files, &key, &self.node);
        let base = table.waiting_base(&files, self.node.base, &self.node);
        drop(files);
        if let (Some(base), Ok(runtime)) = (base, tokio::runtime::Handle::try_current()) {
            runtime.spawn(base.run());
        }
    }
}
