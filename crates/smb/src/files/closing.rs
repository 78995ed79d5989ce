//! Closing an open, on every path that ends one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use tokio::sync::RwLock;
use tokio::task::JoinSet;

use crate::conn::state::Open;
use crate::door::handle::FileHandle;
use larder_base::task;
use larder_smb_wire::file_info::FileInfo;
use larder_smb_wire::ntstatus;

use super::durable::DurableTable;
use super::file_ref::FileRef;
use super::watch::CONTENT_CHANGED;

impl Drop for Open {
    /// An open dropped without a CLOSE closes on the current runtime as a
    /// CLOSE would, delete-on-close included. Without a runtime the handle
    /// and the table entry are dropped and the file stays.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let wrote = self.wrote.load(Ordering::Acquire);
        let file = self.file.take();
        task::spawn_on(&runtime, finish_close(handle, file, self.delete_on_close, self.is_directory, wrote));
    }
}

/// Closes an open that is no longer reachable by FileId (MS-SMB2 3.3.4.17,
/// MS-FSA 2.1.5.5): ends the change notification watch still on it,
/// restores the times it fixed, closes the handle, drops its
/// byte-range locks and removes the file when this was the last open of a
/// delete-pending file.
/// With `want_attrs`, returns the file's attributes as they were before the
/// handle closed. Waits for requests still using the open.
pub(crate) async fn close_open(open_arc: &Arc<RwLock<Open>>, want_attrs: bool) -> Option<FileInfo> {
    let mut open = open_arc.write().await;
    // Requests waiting on the watch end with STATUS_NOTIFY_CLEANUP before
    // the close reports anything (MS-SMB2 3.3.5.10). CLOSE takes the watch
    // out first and ends it once its response is queued.
    drop(open.watch.take());
    let wrote = open.wrote.load(Ordering::Acquire);
    open.restore_fixed_times().await;
    let handle = open.handle.take()?;
    let info = if want_attrs { handle.stat().await.ok() } else { None };
    let file = open.file.take();
    open.slot.take();
    let delete_on_close = open.delete_on_close;
    let is_directory = open.is_directory;
    drop(open);
    finish_close(handle, file, delete_on_close, is_directory, wrote).await;
    info
}

/// Closes the handle of an open and takes the open out of its
/// share's file table. With `delete_on_close` the file becomes
/// delete-pending, unless it is a directory with entries (MS-FSA 2.1.5.5
/// phase 1), and is removed when this was its last open. An open that
/// wrote and leaves the file in place reports the new contents to the
/// share's watchers, once. A directory this leaves delete-pending, open
/// elsewhere, ends its watches with STATUS_DELETE_PENDING. Every path that
/// ends an open goes through here.
pub(crate) async fn finish_close(
    handle: Box<FileHandle>,
    file: Option<FileRef>,
    delete_on_close: bool,
    is_directory: bool,
    wrote: bool,
) {
    let share = file.as_ref().map(|f| Arc::clone(f.share()));
    // A directory is checked for entries and marked with no CREATE or
    // rename running, so it is still empty when it becomes delete-pending.
    let exclusive = match &share {
        Some(share) if delete_on_close && is_directory => Some(share.rename_lock().await),
        _ => None,
    };
    let delete_on_close = delete_on_close && (!is_directory || handle.dir_is_empty().await.unwrap_or(false));
    #[cfg(test)]
    let _ = handle.core.seam.pass(crate::tests::seam::Step::Close).await;
    drop(handle);
    let (Some(file), Some(share)) = (file, &share) else {
        return;
    };
    let marks_deleted = delete_on_close && is_directory;
    let dir = file.index();
    let reported = wrote && share.has_listeners();
    let told = reported.then(|| file.change_of_entry());
    match file.release(delete_on_close) {
        Some(pending) => {
            drop(exclusive);
            pending.run().await;
        }
        None => {
            if let Some(told) = told {
                told.tell(CONTENT_CHANGED).await;
            }
            // It stays delete-pending, open elsewhere, as FileDispositionInformation would leave it.
            if marks_deleted {
                share.watches.end(dir, ntstatus::STATUS_DELETE_PENDING);
            }
        }
    }
}

/// Opens of one session that are closed at a time. A session may have thousands, and the others'
/// requests run on the same threads.
const CLOSED_AT_ONCE: usize = 32;

/// Closes every open in `opens`, as [`end_opens`] does. Returns once all are
/// closed; the tasks finish even if the caller stops waiting.
pub(crate) async fn close_opens(opens: Vec<Arc<RwLock<Open>>>) {
    end_opens(opens, None).await;
}

/// Ends the opens of a session that is going away. One that waits for a slow
/// request does not hold up the others. With `keep`, a durable open that qualifies stays
/// in that table for its client (MS-SMB2 3.3.7.1, 3.3.5.6); every other
/// open is closed. `keep` carries the table's [`DurableTable::sweeps`]
/// from before the session left its connection.
pub(crate) async fn end_opens(opens: Vec<Arc<RwLock<Open>>>, keep: Option<(&Arc<DurableTable>, u64)>) {
    if opens.is_empty() {
        return;
    }
    let keep = keep.map(|(table, since)| (Arc::clone(table), since));
    let all = task::spawn(async move {
        let (mut at_once, mut busy) = (JoinSet::new(), Vec::new());
        for open in opens {
            // Opens with requests are few: a connection has only so many under way.
            if open.try_write().is_err() {
                busy.push(task::spawn(end_open(open, keep.clone())));
                continue;
            }
            if at_once.len() >= CLOSED_AT_ONCE {
                at_once.join_next().await;
            }
            at_once.spawn(end_open(open, keep.clone()).boxed());
        }
        while at_once.join_next().await.is_some() {}
        for task in busy {
            let _ = task.await;
        }
    });
    let _ = all.await;
}

async fn end_open(open: Arc<RwLock<Open>>, keep: Option<(Arc<DurableTable>, u64)>) {
    let open = match keep {
        Some((table, since)) => table.preserve(open, since).await,
        None => Some(open),
    };
    if let Some(open) = open {
        close_open(&open, false).await;
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::conn::state::{Connection, Session, TreeConnect};
    use crate::door::view::VisitedShare;
    use crate::error::SmbError;
    use crate::files::Sharing;
    use crate::share::{Share, ShareBindings};
    use crate::words::{FileTimes, OpenIntent, OpenOptions};
    use larder_smb_wire::access_mask::Access;
    use larder_smb_wire::access_mask::DELETE;
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::messages::FileId;
    use larder_smb_wire::path::SmbPath;

    async fn share() -> Arc<ShareBindings> {
        share_on(VisitedShare::in_memory().await)
    }

    fn share_on(view: VisitedShare) -> Arc<ShareBindings> {
        ShareBindings::from_share(Share::of("s", view).public())
    }

    /// Opens `path` with FILE_DELETE_ON_CLOSE, creating it if needed, and
    /// drops the open without a CLOSE.
    async fn drop_without_close(share: &Arc<ShareBindings>, path: &str, directory: bool) -> SmbPath {
        let path: SmbPath = path.parse().unwrap();
        let opts = OpenOptions { directory, intent: OpenIntent::OpenOrCreate, ..OpenOptions::default() };
        let (handle, _) = share.view().unwrap().open(&path, opts).await.unwrap();
        let info = handle.stat().await.unwrap();
        let sharing = Sharing { access: DELETE, share: 0 };
        let file = FileRef::register(share, &info, handle.name(), sharing.into()).unwrap().0;
        drop(Open {
            file_id: FileId::default(),
            handle: Some(handle),
            granted_access: DELETE,
            is_directory: directory,
            delete_on_close: true,
            search_state: None,
            fixed_times: FileTimes::default(),
            create_options: 0,
            file: Some(file),
            slot: None,
            durable: None,
            watch: None,
            wrote: Default::default(),
            create_action: 1,
            marked_deleted: Default::default(),
            begun: None,
            position: Default::default(),
            lock_sequences: Default::default(),
            channel_sequence: Arc::default(),
        });
        let in_table = || share.files.is_open(info.file_index) || share.files.delete_pending(info.file_index);
        for _ in 0..100 {
            if !in_table() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(!in_table());
        path
    }

    #[tokio::test]
    async fn a_dropped_delete_on_close_open_removes_the_file() {
        let s = share().await;
        let path = drop_without_close(&s, "f", false).await;
        let missing = s.view().unwrap().open(&path, OpenOptions::default()).await;
        assert!(matches!(missing, Err(SmbError::NotFound)));
    }

    #[tokio::test]
    async fn a_dropped_delete_on_close_open_keeps_a_directory_with_entries() {
        let s = share_on(VisitedShare::in_memory().await.with_file("d\\f", b"x").await);
        let path = drop_without_close(&s, "d", true).await;
        let opts = OpenOptions { directory: true, ..OpenOptions::default() };
        assert!(s.view().unwrap().open(&path, opts).await.is_ok());
    }

    #[tokio::test]
    async fn sweeps_match_the_share_not_its_name() {
        let removed = share().await;
        let added = share().await;
        let conn = Connection::new(uuid::Uuid::nil(), 1 << 16, 1 << 16);
        let session = Session::new(Identity::Anonymous, [0; 16], false);
        let tree = TreeConnect::new(1, Arc::clone(&added), Access::ReadWrite);
        session.trees.change().await.insert(1, Arc::new(tree));
        let session = Arc::new(session);
        conn.sessions.change().await.insert(1, Arc::clone(&session));

        assert!(conn.detach_trees_for_share(&removed).await.is_empty());
        assert_eq!(session.trees.len(), 1);
        conn.detach_trees_for_share(&added).await;
        assert!(session.trees.is_empty());
    }
}
