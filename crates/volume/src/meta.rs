//! The narrow face of the metadata engine: ordered keys, atomic batches, awaited durability.
//!
//! M1. A batch is visible to every later `get` and `scan` when `submit` returns, whole.
//! M2. Batches become durable in the order in which they were submitted; none without all before it.
//! M3. Nothing is answered to a client before `durable` has returned for what the answer promises
//!     (unless the volume says sync = relaxed). Nobody flushes on their own: one coordinator commits groups.
//! M4. After a failed flush the engine is poisoned: every write and every wait fails. SlateDB then refuses reads as
//!     well; what the caches above hold can still be read.
//! M5. An inode's record enters a batch only through [`Batch::record`] (encoded while the batch is being
//!     submitted, under the inode's `core`) or under a `core` lock that is held until `submit` has returned.
//!     Encoded earlier, a stale record could land after a newer one: a link count undone, a file resurrected.

pub(crate) mod cache;
mod clock;
mod filter;
mod maintain;
#[cfg(test)]
pub(crate) mod mem;
pub(crate) mod overlay;
mod patience;
pub(crate) mod slate;
pub(crate) mod wal;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::metrics::{Counter, Latency};

use crate::inode::{Inode, InodeCore};
use crate::types::{FsResult, Ino};

/// What happened in an engine since it was opened.
#[derive(Debug, Default)]
pub(crate) struct EngineCounts {
    /// Rows that no cache above had, and ranges of rows.
    pub(crate) gets: Counter,
    pub(crate) scans: Counter,
    pub(crate) batches: Counter,
    /// Of waits for what was not durable yet.
    pub(crate) commit: Latency,
}

pub(crate) struct EngineState<'a> {
    pub(crate) counts: &'a EngineCounts,
    /// Tables that are not merged yet, and those that are, in runs.
    pub(crate) young_tables: u64,
    pub(crate) runs: u64,
}

/// Changes applied together. A key may occur once.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(crate) ops: Vec<(Bytes, Option<Bytes>)>,
    /// Whose records are encoded and added by [`Meta::write`] (M5).
    pub(crate) records: Vec<Arc<Inode>>,
    /// What becomes true of their records together with this batch.
    pub(crate) changes: BTreeMap<Ino, RecordChange>,
    /// What this batch adds to the volume's counters, durable together with it.
    pub(crate) usage: Usage,
}

impl Batch {
    pub(crate) fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push((key.into(), Some(value.into())));
    }

    pub(crate) fn delete(&mut self, key: impl Into<Bytes>) {
        self.ops.push((key.into(), None));
    }

    /// Adds the record of `inode`, as `change` makes it: a record that another batch takes along before shows none of it.
    pub(crate) fn change(&mut self, inode: &Arc<Inode>, change: RecordChange) {
        debug_assert!(!self.changes.contains_key(&inode.id.ino), "one change per batch");
        self.changes.insert(inode.id.ino, change);
        self.records.push(Arc::clone(inode));
    }

    /// Adds the record of `inode` as it is at the moment of submission, and clears its `attr_dirty`.
    /// The caller must not hold its `core`.
    pub(crate) fn record(&mut self, inode: &Arc<Inode>) {
        if !self.records.iter().any(|other| other.id.ino == inode.id.ino) {
            self.records.push(Arc::clone(inode));
        }
    }
}

/// How a batch changes what a record says about stored data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordChange {
    /// By how much extents and reserved ranges grow.
    pub(crate) stored_bytes: i64,
    /// What is in memory beyond them, afterwards.
    pub(crate) unstored_bytes: u64,
    /// `None`: as it was.
    pub(crate) has_reserved: Option<bool>,
}

impl RecordChange {
    /// What `attr.allocated` will be.
    pub(crate) fn allocated(&self, core: &InodeCore) -> u64 {
        core.stored_bytes.saturating_add_signed(self.stored_bytes).saturating_add(self.unstored_bytes)
    }

    fn apply(&self, core: &mut InodeCore) {
        core.attr.allocated = self.allocated(core);
        core.stored_bytes = core.stored_bytes.saturating_add_signed(self.stored_bytes);
        core.has_reserved = self.has_reserved.unwrap_or(core.has_reserved);
    }
}

/// The volume's counters: kept by the engine itself, so that every batch and its effect on them are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Inodes that exist (orphans too).
    pub(crate) inodes: i64,
    /// Bytes of file data that extents, intents and inline values stand for (holes excluded), before compression.
    pub(crate) logical_bytes: i64,
    /// Bytes of live records in segments, as stored.
    pub(crate) stored_bytes: i64,
    /// Bytes of files that are reserved and not written.
    pub(crate) reserved_bytes: i64,
}

impl Usage {
    pub(crate) fn is_zero(&self) -> bool {
        *self == Usage::default()
    }

    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add(other.inodes),
            logical_bytes: self.logical_bytes.saturating_add(other.logical_bytes),
            stored_bytes: self.stored_bytes.saturating_add(other.stored_bytes),
            reserved_bytes: self.reserved_bytes.saturating_add(other.reserved_bytes),
        }
    }
}

/// A place in the order of batches; `Ticket(0)` is durable from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

#[async_trait]
pub(crate) trait Meta: Send + Sync + 'static {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>>;
    /// Up to `limit` pairs with `from <= key < to`, in key order.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>>;
    /// The last pair with `from <= key < to`. Kept for snapshots: the newest epoch at or before another.
    #[allow(dead_code)]
    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>>;
    /// Waits while too much is on its way to the store. Before `submit`, and outside every lock.
    async fn admit(&self) -> FsResult<()>;
    /// Applies `ops` and `usage` (`records` must be empty) without waiting; may be called under locks.
    fn submit(&self, batch: Batch) -> FsResult<Ticket>;
    async fn durable(&self, ticket: Ticket) -> FsResult<()>;
    /// The newest ticket given out.
    fn newest(&self) -> Ticket;
    fn usage(&self) -> Usage;
    /// What the engine has to tell, if it is one that keeps tables.
    fn engine(&self) -> Option<EngineState<'_>> {
        None
    }
    /// Names of the engine's tables in its folder of tables, and their lengths.
    fn tables(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    /// Everything durable, then closed; later calls fail.
    async fn close(&self) -> FsResult<()>;

    /// `admit`, then `submit` with the records of `batch.records` encoded under their `core` locks.
    async fn write(&self, batch: Batch) -> FsResult<Ticket> {
        self.admit().await?;
        self.submit_with_records(batch)
    }

    /// [`Meta::write`] without the wait.
    fn submit_with_records(&self, mut batch: Batch) -> FsResult<Ticket> {
        let mut records = std::mem::take(&mut batch.records);
        let changes = std::mem::take(&mut batch.changes);
        // Ascending order: whoever locks several cores does so in this order (I2).
        records.sort_by_key(|inode| inode.id.ino);
        let mut cores: Vec<(Ino, parking_lot::MutexGuard<'_, InodeCore>)> =
            records.iter().map(|inode| (inode.id.ino, inode.core.lock())).collect();
        for (ino, core) in &mut cores {
            if let Some(change) = changes.get(ino) {
                change.apply(core);
            }
            let (key, value) = crate::keys::encode_inode(*ino, core);
            batch.put(key, value);
        }
        let ticket = self.submit(batch)?;
        for (_, core) in &mut cores {
            core.attr_dirty = false;
            core.ticket = ticket;
        }
        Ok(ticket)
    }
}
