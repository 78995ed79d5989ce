//! A record on its way from the store, and its waiting readers.

use std::sync::OnceLock;

use larder_base::traffic::{self, Wait};
use larder_fs::FsResult;
use tokio::sync::Notify;

use super::memory::Record;

/// A record on its way.
#[derive(Default)]
pub(super) struct Fetch {
    pub(super) done: OnceLock<FsResult<Record>>,
    notify: Notify,
}

impl Fetch {
    pub(super) fn finish(&self, result: FsResult<Record>) {
        let _ = self.done.set(result);
        self.notify.notify_waiters();
    }

    pub(super) async fn wait(&self) -> FsResult<Record> {
        loop {
            let mut notified = std::pin::pin!(self.notify.notified());
            notified.as_mut().enable();
            if let Some(result) = self.done.get() {
                return result.clone();
            }
            traffic::waiting(Wait::Disk, notified).await;
        }
    }
}
