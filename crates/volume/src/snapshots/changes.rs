//! The change index, read: which inodes may differ between two moments.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use larder_fs::*;

use super::catalog::Catalog;
use crate::keys;
use crate::meta::changed::{changed_key, decode_changed};
use crate::meta::{Batch, Meta};
use crate::state::State;

const PAGE: usize = 2048;

/// The inodes whose records were written or removed behind the snapshot `after`, up to the epoch `last`.
pub(crate) async fn changed(head: &dyn Meta, after: u64, last: u64) -> FsResult<BTreeSet<Ino>> {
    let rows = index(head, after, last).await?;
    rows.iter().map(|key| decode_changed(key).map(|(_, ino)| ino)).collect()
}

/// The keys of the change index behind the snapshot `after`, up to the epoch `last`.
pub(crate) async fn index(head: &dyn Meta, after: u64, last: u64) -> FsResult<Vec<Bytes>> {
    let (mut from, to) = (changed_key(after + 1, Ino(0)), changed_key(last + 1, Ino(0)));
    let mut rows = Vec::new();
    loop {
        let page = head.scan(&from, &to, PAGE).await?;
        let last = page.last().filter(|_| page.len() == PAGE).map(|(key, _)| keys::key_after(key));
        rows.extend(page.into_iter().map(|(key, _)| key));
        match last {
            Some(last) => from = last,
            None => return Ok(rows),
        }
    }
}

impl Catalog {
    /// Rows of the change index up to here serve no snapshot any more. `None`: no row does.
    fn index_begins(&self) -> Option<u64> {
        self.numbers().first().copied()
    }
}

impl State {
    /// Deletes rows of the change index that no snapshot needs (`changed.never_missing`).
    pub(super) async fn sweep_changes(self: Arc<Self>) {
        if let Err(error) = self.sweep_changes_now().await {
            tracing::debug!(%error, "rows of the change index stay until a snapshot is destroyed again");
        }
    }

    async fn sweep_changes_now(&self) -> FsResult<()> {
        loop {
            let last = self.catalog.index_begins().unwrap_or(u64::MAX - 1);
            let (from, to) = (changed_key(0, Ino(0)), changed_key(last + 1, Ino(0)));
            let page = self.catalog.head().scan(&from, &to, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut batch = Batch::default();
            page.into_iter().for_each(|(key, _)| batch.delete(key));
            self.meta.write(batch).await?;
        }
    }
}
