//! A place in the store at which a test stops an operation, has it fail, or counts it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::error::SmbResult;
use crate::files::FileTable;
use crate::words::{FileTimes, OpenIntent};
use larder_smb_wire::path::SmbPath;

/// What is about to happen, or has happened.
pub(crate) enum Step<'s> {
    /// An open of this path begins.
    Open(&'s SmbPath, OpenIntent),
    /// What an open is of is about to be told; its name.
    Stat(&'s str),
    /// A rename has ended.
    Renamed,
    /// An open ends.
    Close,
}

type Hook = Arc<dyn Fn(Step<'_>) -> BoxFuture<'static, SmbResult<()>> + Send + Sync>;

#[derive(Default)]
pub(crate) struct Seam {
    hook: Mutex<Option<Hook>>,
    /// As many as there are handles, and this one.
    handles: Arc<()>,
    pub drops_creation: AtomicBool,
    /// The open files of the store.
    pub table: OnceLock<Arc<FileTable>>,
    kept: Mutex<Vec<Box<dyn Send>>>,
}

impl Seam {
    /// Has `hook` run at each step from now on.
    pub(crate) fn set(&self, hook: impl Fn(Step<'_>) -> BoxFuture<'static, SmbResult<()>> + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    pub(crate) async fn pass(&self, step: Step<'_>) -> SmbResult<()> {
        let hook = self.hook.lock().clone();
        match hook {
            Some(hook) => hook(step).await,
            None => Ok(()),
        }
    }

    /// The times that the store keeps.
    pub(crate) fn kept(&self, times: FileTimes) -> FileTimes {
        let creation_time = times.creation_time.filter(|_| !self.drops_creation.load(Ordering::Relaxed));
        FileTimes { creation_time, ..times }
    }

    /// A handle is opened; it keeps the result.
    pub(crate) fn count(&self) -> Arc<()> {
        Arc::clone(&self.handles)
    }

    /// Handles opened and not yet closed.
    pub(crate) fn open_handles(&self) -> usize {
        Arc::strong_count(&self.handles) - 1
    }

    /// Keeps the store itself.
    pub(crate) fn keep(&self, store: impl Send + 'static) {
        self.kept.lock().push(Box::new(store));
    }
}
