//! The narrow face of the metadata engine: ordered keys, atomic batches, awaited durability.
//!
//! - `meta.visible_at_submit`: when `submit` returns, every later `get` and `scan` sees the whole
//!   batch.
//! - `meta.durable_in_order`: batches become durable in the order of submission, none without all
//!   before it.
//! - `meta.durable_before_answer`: a client is answered only after `durable` has returned for what
//!   the answer promises, unless the volume says sync = relaxed. No operation flushes by itself:
//!   one coordinator commits groups.
//! - `meta.poison_after_failure`: after a failed flush the engine is poisoned, and every write and
//!   every wait fails. SlateDB then refuses reads as well; what the caches above hold can still be
//!   read.
//! - `meta.records_at_submit`: an inode's record enters a batch only through [`Batch::record`],
//!   which encodes it during submission under the inode's `core`, or under a `core` lock that is
//!   held until `submit` has returned. A record encoded earlier could land after a newer one: a
//!   link count undone, a file resurrected.

mod batch;
pub(crate) mod cache;
pub(crate) mod changed;
mod clock;
pub(crate) mod engine;
mod filter;
mod frozen;
mod load_pins;
pub(crate) mod maintain;
#[cfg(test)]
pub(crate) mod mem;
pub(crate) mod overlay;
mod owners;
pub(crate) mod pins;
mod point;
pub(crate) mod slate;
mod staged;
mod ticket;
mod timed_store;
mod usage;
pub(crate) mod wal;
mod warm;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::metrics::{Counter, Latency};
use larder_fs::{FsError, FsResult, Ino};

use crate::inode_core::InodeCore;

pub(crate) use batch::{Batch, RecordChange};
pub(crate) use frozen::manifest_path;
pub(crate) use owners::{Owned, Owners, Used};
pub(crate) use point::{Cut, Frozen, Point};
pub(crate) use ticket::Ticket;
pub(crate) use usage::Usage;

/// Counters of an engine since it was opened.
#[derive(Debug, Default)]
pub(crate) struct EngineCounts {
    /// Rows and ranges of rows that no cache above had.
    pub(crate) gets: Counter,
    pub(crate) scans: Counter,
    pub(crate) batches: Counter,
    /// Waits for batches that were not durable yet.
    pub(crate) commit: Latency,
}

/// While it is held, rows stay as they were read, and may enter caches.
pub(crate) struct Still<'a>(#[allow(dead_code)] pub(crate) Option<parking_lot::RwLockReadGuard<'a, ()>>);

pub(crate) struct EngineState<'a> {
    pub(crate) counts: &'a EngineCounts,
    /// Tables that are not merged yet, and runs of merged ones.
    pub(crate) young_tables: u64,
    pub(crate) runs: u64,
}

#[async_trait]
pub(crate) trait Meta: Send + Sync + 'static {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>>;
    /// Up to `limit` pairs with `from <= key < to`, in key order.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>>;
    /// The last pair with `from <= key < to`.
    #[allow(dead_code)]
    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>>;
    /// Waits while too much is on its way to the store. Before `submit`, and outside every lock.
    async fn admit(&self) -> FsResult<()>;
    /// Applies `ops` and `usage` (`records` must be empty) without waiting; may be called under
    /// locks.
    fn submit(&self, batch: Batch) -> FsResult<Ticket>;
    async fn durable(&self, ticket: Ticket) -> FsResult<()>;
    /// The newest ticket given out.
    fn newest(&self) -> Ticket;
    fn usage(&self) -> Usage;
    /// Why nothing can be stored any more (`meta.poison_after_failure`). Does not wait.
    fn fault(&self) -> Option<FsError>;
    /// The state of an engine that keeps tables.
    fn engine(&self) -> Option<EngineState<'_>> {
        None
    }
    /// Names of the engine's tables in its folder of tables, and their lengths.
    fn tables(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    /// Everything durable, then closed; later calls fail.
    async fn close(&self) -> FsResult<()>;
    /// Once closed: whether the stored tables have every change, so that nothing would be replayed.
    async fn is_log_carried(&self) -> FsResult<bool> {
        Ok(true)
    }

    /// Marks the point between the batches submitted so far and all later ones, of which `first` is
    /// the first; `epoch` begins with it. Does not wait; may be called under locks. One point at a time.
    fn cut(&self, _first: Batch, _epoch: u64) -> FsResult<Cut> {
        Err(FsError::NotSupported)
    }
    /// Which epoch the change index counts for. `None`: it is not needed.
    fn set_epoch(&self, _epoch: Option<u64>) {}
    /// Waits until the point is stored.
    async fn store(&self, _cut: Cut) -> FsResult<Point> {
        Err(FsError::NotSupported)
    }
    /// The tables of the point are pinned by now, or no longer needed.
    async fn release(&self, _point: &Point) {}
    /// The rows at a point of before.
    async fn frozen(&self, _manifest_id: u64, _manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
        Err(FsError::NotSupported)
    }
    /// The volume is open: from now on reads wait a while for a disk that may come back. Before, that helps nobody.
    fn opened(&self) {}
    /// Whether another process writes the volume (`follow.one_turn`).
    fn is_followed(&self) -> bool {
        false
    }
    /// Changes when rows change in other ways than by batches of this process.
    fn generation(&self) -> u64 {
        0
    }
    /// `None`: rows that were read at `generation` are older than the volume is now.
    fn still(&self, _generation: u64) -> Option<Still<'_>> {
        Some(Still(None))
    }
    /// What owners' files take up. `None`: this engine does not count it.
    fn owners(&self) -> Option<&Owners> {
        None
    }
    /// The tables that snapshots read.
    fn pins(&self) -> Option<&pins::Pins> {
        None
    }

    /// `admit`, then `submit` with the records of `batch.records` encoded under their `core` locks.
    async fn write(&self, batch: Batch) -> FsResult<Ticket> {
        self.admit().await?;
        self.submit_with_records(batch)
    }

    /// [`Meta::write`] without the wait.
    fn submit_with_records(&self, mut batch: Batch) -> FsResult<Ticket> {
        let mut records = std::mem::take(&mut batch.records);
        let changes = std::mem::take(&mut batch.changes);
        // Cores are locked in ascending order (`inode.lock_order`).
        records.sort_by_key(|inode| inode.id.ino);
        let ascending = records.windows(2).all(|pair| pair[0].id.ino < pair[1].id.ino);
        assert!(ascending, "`inode.lock_order`: each record is locked once");
        let mut cores: Vec<(Ino, parking_lot::MutexGuard<'_, InodeCore>)> =
            records.iter().map(|inode| (inode.id.ino, inode.core.lock())).collect();
        for (ino, core) in &mut cores {
            if let Some(change) = changes.get(ino) {
                change.apply(core);
            }
            batch.put_record(*ino, core);
        }
        let ticket = self.submit(batch)?;
        for (_, core) in &mut cores {
            core.attr_dirty = false;
            core.ticket = ticket;
        }
        Ok(ticket)
    }
}
