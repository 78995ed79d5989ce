//! The end of inodes that outlived their last name: named and extended attributes, then data, then
//! the record, in bounded batches.
//!
//! - `volume.orphan_marks`: an inode whose link count falls to 0 has an orphan mark from the same
//!   batch on, unless that batch removes the whole inode. The mark goes last, and opening a volume
//!   sweeps all marks: nothing leaks in a crash.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_fs::*;

use crate::inode::Inode;
use crate::keys;
use crate::meta::Batch;
use crate::reap_queue::REAPS_MAX;
use crate::state::State;

const SWEEP_PAGE: usize = 256;
const XATTR_PAGE: usize = 256;
/// After as many failures the mark waits for the next opening.
const TRIES_MAX: u32 = 8;

impl State {
    /// Closes an inode: called when the guard of an open file is dropped.
    pub(crate) fn closed(self: &Arc<Self>, inode: &Arc<Inode>) {
        let last = {
            let mut core = inode.core.lock();
            let opens = inode.opens.fetch_sub(1, Ordering::AcqRel);
            assert!(opens > 0, "every open is closed once");
            let others = opens > 1;
            let last = !others && core.attr.nlink == 0 && !core.gone && self.followed.is_none();
            core.gone |= last;
            last
        };
        if last {
            self.reap_later(inode);
        }
    }

    /// `gone` is set, the mark is written.
    pub(crate) fn reap_later(self: &Arc<Self>, inode: &Arc<Inode>) {
        assert!(inode.core.lock().gone, "`inode.gone_is_final`: only a dead inode is reaped");
        self.data.forget(inode);
        self.data.removal_begins();
        self.reaps.waiting.fetch_add(1, Ordering::AcqRel);
        let (state, inode, reaps) = (Arc::downgrade(self), Arc::clone(inode), Arc::clone(&self.reaps));
        self.spawn(async move {
            // Never closed, so never an error.
            let permit = reaps.at_once.acquire().await;
            reap_with_retries(&state, inode).await;
            if let Some(state) = state.upgrade() {
                state.data.removal_ends();
            }
            drop(permit);
            let waiting = reaps.waiting.fetch_sub(1, Ordering::AcqRel);
            assert!(waiting > 0, "an inode waits until it is reaped");
            if waiting == REAPS_MAX {
                reaps.fewer.notify_waiters();
            }
        });
    }

    /// Called before a name is removed, outside every lock.
    pub(crate) async fn admit_removal(&self) -> FsResult<()> {
        loop {
            let fewer = self.reaps.fewer.notified();
            if self.reaps.waiting.load(Ordering::Acquire) < REAPS_MAX {
                return self.meta.admit().await;
            }
            fewer.await;
        }
    }

    async fn reap(self: &Arc<Self>, inode: &Arc<Inode>) -> FsResult<()> {
        assert!(inode.core.lock().gone, "`inode.gone_is_final`: only a dead inode is reaped");
        let ino = inode.id.ino;
        self.reap_named(inode).await?;
        let (from, to) = keys::range_of(keys::tag::XATTR, ino);
        while inode.core.lock().xattrs > 0 {
            let pairs = self.meta.scan(&from, &to, XATTR_PAGE).await?;
            if pairs.is_empty() {
                break;
            }
            let mut batch = Batch::default();
            for (key, _) in pairs {
                batch.delete(key);
            }
            self.meta.write(batch).await?;
        }
        let mut batch = Batch::default();
        batch.delete(keys::orphan_key(ino));
        batch.usage.inodes = -1;
        self.data.reap(inode, batch).await?;
        self.inodes.remove(ino);
        Ok(())
    }
}

async fn reap_with_retries(state: &Weak<State>, inode: Arc<Inode>) {
    for attempt in 0..TRIES_MAX {
        let Some(state) = state.upgrade() else { return };
        match state.reap(&inode).await {
            Ok(()) => return,
            Err(FsError::Poisoned(_)) => return,
            Err(error) if attempt + 1 == TRIES_MAX => {
                tracing::warn!(ino = inode.id.ino.0, %error, "a deleted file's space is freed when the volume is next opened");
            }
            Err(_) => {}
        }
        drop(state);
        tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
    }
}

/// Reaps the orphans of the last run, once, at opening.
pub(crate) async fn sweep(state: Weak<State>) {
    let (mut from, to) = keys::table_range(keys::tag::ORPHAN);
    loop {
        let Some(state) = state.upgrade() else { return };
        let page = match state.meta.scan(&from, &to, SWEEP_PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "the orphans of the volume could not be listed");
                return;
            }
        };
        let Some((last, _)) = page.last() else { return };
        from = keys::key_after(last);
        for (key, _) in &page {
            if let Err(error) = sweep_one(&state, key).await {
                tracing::warn!(%error, "an orphan could not be removed");
            }
        }
    }
}

async fn sweep_one(state: &Arc<State>, key: &[u8]) -> FsResult<()> {
    let ino = keys::ino_of(key)?;
    let inode = match state.inode(ino).await {
        Ok(inode) => inode,
        Err(FsError::Stale) => {
            // The mark alone is left of it.
            let mut batch = Batch::default();
            batch.delete(keys::orphan_key(ino));
            return state.meta.write(batch).await.map(|_| ());
        }
        Err(error) => return Err(error),
    };
    let ours = {
        let mut core = inode.core.lock();
        // Opened again by its handle, or unlinked in this run: its own task sees to it.
        let ours = core.attr.nlink == 0 && !core.gone && inode.opens.load(Ordering::Acquire) == 0;
        core.gone |= ours;
        ours
    };
    if !ours {
        return Ok(());
    }
    state.data.forget(&inode);
    state.reap(&inode).await
}
