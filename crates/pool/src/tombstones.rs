//! Deletes, made durable by the journal.
//!
//! A delete is acknowledged when its tombstone is in the journal; the files are unlinked
//! afterwards and no directory is synced for it. When the pool is opened the tombstones are
//! applied again, so that neither a crash nor a disk that was away brings a deleted object back.
//!
//! T1. A tombstone is trimmed only when the files it names are gone for good: unlinked, and all
//!     disks synced. While a disk is away they are kept as long as the journal has room.
//! T2. One tombstone holds a whole segment of the journal. So they are swept also when segments in use are
//!     many, whatever they are in use for, and before other users of the journal have to wait.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use larder_base::log::{LogError, LogStore};
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::PoolError;
use crate::index::Object;
use crate::journal::Journal;
use crate::shard::Reader;

const STREAM: &str = "larder-tombstones";
/// Tombstones are swept when there are so many, or when they take an eighth of the journal.
const ENTRIES_MAX: usize = 4096;
/// What one lone entry takes of the journal.
const ENTRY_BYTES: u64 = 4096;
/// Unlinks that may lag behind before deletes wait for them.
const BACKLOG_MAX: usize = 4096;

/// Percent of the journal in use from which tombstones are swept (T2), and while a disk is away.
const USED_MAX: u64 = 40;
const USED_MAX_DEGRADED: u64 = 70;
/// Until a sweep that a reader was in the way of is tried again.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

type Append = Pin<Box<dyn Future<Output = Result<(), LogError>> + Send>>;

pub struct Tombstones {
    log: Arc<dyn LogStore>,
    next: AtomicU64,
    recorded: Mutex<Vec<Weak<Object>>>,
    /// Held for reading from the record of a delete to its end, for writing by the sweep.
    order: tokio::sync::RwLock<()>,
}

impl Tombstones {
    /// Reads what was deleted: by path, the newest version that is gone.
    pub async fn open(log: Arc<dyn LogStore>) -> Result<(Self, BTreeMap<String, u64>), LogError> {
        let mut gone = BTreeMap::new();
        let mut last = 0;
        for entry in log.replay(STREAM, 0).await? {
            last = entry.id;
            let mut reader = Reader(&entry.payload);
            while let (Some(version), Some(length)) = (reader.u64(), reader.u32()) {
                let Some(path) = reader.text(length as usize) else { break };
                let newest = gone.entry(path).or_insert(version);
                *newest = version.max(*newest);
            }
        }
        let tombstones = Self {
            log,
            next: AtomicU64::new(last + 1),
            recorded: Mutex::default(),
            order: tokio::sync::RwLock::new(()),
        };
        Ok((tombstones, gone))
    }

    /// Records that these versions and all before them are gone, then takes them from the index.
    pub async fn delete(&self, core: &Arc<Core>, objects: Vec<Arc<Object>>) -> Result<(), PoolError> {
        if objects.is_empty() {
            return Ok(());
        }
        let recorded = {
            let _order = self.order.read().await;
            let recorded = self.record(&objects).await;
            let mut index = core.index.write();
            for object in &objects {
                // A version put meanwhile stays: the delete came before it.
                if index.is_current(object) {
                    index.remove(&object.path);
                }
            }
            recorded
        };
        drop(objects);
        core.members.iter().for_each(|member| member.unmark_full());
        if !recorded || core.graveyard.backlog() > BACKLOG_MAX || core.is_tight() {
            core.graveyard.barrier().await;
            core.members.iter().for_each(|member| member.forget_space());
        }
        if !recorded {
            core.blocking(sync_disks).await?;
            let lost = core.members.len() - core.writable();
            if lost > usize::from(core.layout.failures()) {
                let why = "neither the journal nor enough disks take the delete".to_owned();
                return Err(PoolError::CannotWrite { pool: core.name.clone(), object: "deletes".into(), why });
            }
        }
        if self.is_due(core) {
            self.sweep(core).await?;
        }
        Ok(())
    }

    /// `false` when the journal takes nothing: then the unlinks themselves have to be synced.
    async fn record(&self, objects: &[Arc<Object>]) -> bool {
        let mut payload = Vec::new();
        for object in objects {
            payload.extend_from_slice(&object.version.to_le_bytes());
            payload.extend_from_slice(&(object.path.len() as u32).to_le_bytes());
            payload.extend_from_slice(object.path.as_bytes());
        }
        let result = match self.hand_over(objects, payload) {
            Ok(result) => result,
            Err(append) => append.await,
        };
        self.settle(result).await
    }

    /// Gives an entry to the log; ids must reach it in order, so the first poll, which queues the
    /// entry, happens under the lock. Either it is done at once or the rest is to be awaited.
    fn hand_over(&self, objects: &[Arc<Object>], payload: Vec<u8>) -> Result<Result<(), LogError>, Append> {
        let mut recorded = self.recorded.lock();
        recorded.extend(objects.iter().map(Arc::downgrade));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let log = self.log.clone();
        let mut append: Append = Box::pin(async move { log.append(STREAM, id, vec![payload.into()]).await });
        match (&mut append).now_or_never() {
            Some(result) => Ok(result),
            None => Err(append),
        }
    }

    async fn settle(&self, result: Result<(), LogError>) -> bool {
        match result {
            Ok(()) => true,
            // The journal is full or failing: reading lifts the poison, the next delete tries again.
            Err(_) => {
                let _ = self.log.replay(STREAM, u64::MAX).await;
                false
            }
        }
    }

    fn is_due(&self, core: &Core) -> bool {
        let count = self.recorded.lock().len();
        let bytes = count as u64 * ENTRY_BYTES;
        let limit = self.log.usage().1 / 8;
        // Disks that come back as authorities (D2) must find out what was deleted.
        if core.is_faulted() {
            return false;
        }
        let whole = core.members.iter().all(|member| member.is_writable());
        if whole { count > ENTRIES_MAX || bytes > limit } else { bytes > 4 * limit }
    }

    /// T2.
    fn is_in_the_way(&self, core: &Core) -> bool {
        if core.is_faulted() || self.recorded.lock().is_empty() {
            return false;
        }
        let (used, total) = self.log.usage();
        let whole = core.members.iter().all(|member| member.is_writable());
        used.saturating_mul(100) >= total.saturating_mul(if whole { USED_MAX } else { USED_MAX_DEGRADED })
    }

    /// Trims the tombstones whose work is done (T1).
    pub async fn sweep(&self, core: &Arc<Core>) -> Result<(), PoolError> {
        let through = {
            let _order = self.order.write().await;
            self.next.load(Ordering::Relaxed) - 1
        };
        let recorded = std::mem::take(&mut *self.recorded.lock());
        core.graveyard.barrier().await;
        // Somebody still reads it: its files are still there.
        let pinned: Vec<Weak<Object>> = recorded.into_iter().filter(|object| object.strong_count() > 0).collect();
        if !pinned.is_empty() {
            self.recorded.lock().extend(pinned);
            return Ok(());
        }
        core.blocking(sync_disks).await?;
        let _ = self.log.trim(STREAM, through).await;
        Ok(())
    }
}

/// Sweeps whenever the journal fills up (T2), for as long as the pool is open.
pub async fn make_room(tombstones: Arc<Tombstones>, journal: Arc<Journal>, core: Arc<Core>) {
    loop {
        journal.begun().await;
        while tombstones.is_in_the_way(&core) {
            if let Err(error) = tombstones.sweep(&core).await {
                tracing::warn!(pool = %core.name, %error, "tombstones could not be swept");
            }
            if tombstones.is_in_the_way(&core) {
                tokio::time::sleep(SWEEP_AGAIN).await;
            }
        }
    }
}

fn sync_disks(core: &Arc<Core>) {
    for (slot, member) in core.members.iter().enumerate().filter(|(_, member)| member.is_writable()) {
        if let Err(error) = member.io().and_then(|io| io.sync_all()) {
            core.write_failed(slot as u8, &error);
        }
    }
}
