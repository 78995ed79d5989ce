//! A volume that another process writes, read from the store they share.
//!
//! ```text
//!   manifest (newest) ---> tables          rows up to sequence number L
//!   log behind its replay point -------->  rows after L, laid over them
//!                                             |
//!            look: newer entries? ----> turn: a new view, and the caches forget what changed
//! ```
//!
//! - `follow.bounded_age`: nothing is answered from a look that is older than the bound. The moment of a look is that before its
//!   first request left, by a clock that goes on while the machine sleeps ([`Tenure`]). Operations at half the bound start the
//!   next look and do not wait for it.
//! - `follow.rests_unasked`: there is no timer. A replica that nobody asks makes no request.
//! - `follow.consistent_prefix`: a view is the volume after some batch: all rows up to one sequence number and none after it. Rows
//!   of the log that the tables have already are left out, since tables may be ahead of the log's replay point.
//! - `follow.log_after_manifest`: entries are listed after the manifest was read. Entries that were trimmed meanwhile are noticed,
//!   and a newer manifest is read.
//! - `follow.one_turn`: view and caches turn under one lock. A row that was read before a turn enters no cache after it
//!   ([`Followed::still`]), and an inode that a turn made stale ([`crate::inode::Inode::superseded`]) loads no more extents. So no
//!   read mixes two views.
//! - `follow.gone_means_look`: the writer deletes what it needs no more, some time after it has moved it. Who misses an object looks
//!   at the newest manifest and tries again, [`READ_TRIES_MAX`] times.
//! - `follow.owes_a_turn`: changes that were read and not yet turned to are kept until they are, whatever fails in between.

mod parts;
mod refresh;
mod tail;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::clock::since_boot;
use larder_base::log::{LogError, Tenure};
use larder_base::task;
use larder_fs::{FsError, FsResult};
use parking_lot::RwLock;

use crate::meta::{Batch, EngineCounts, EngineState, Frozen, Meta, Still, Ticket, Usage};
use parts::Sight;
pub(crate) use parts::{Caches, Change, FollowParts};
use tail::Tail;

/// An operation that misses an object looks again so often (`follow.gone_means_look`).
pub(crate) const READ_TRIES_MAX: u32 = 2;

/// The metadata of a volume that another process writes.
pub(crate) struct Followed {
    parts: FollowParts,
    /// One look at a time.
    tail: tokio::sync::Mutex<Tail>,
    sight: RwLock<Arc<Sight>>,
    /// `follow.one_turn`
    turning: RwLock<()>,
    generation: AtomicU64,
    /// When the newest look began, in milliseconds since the boot.
    looked_ms: AtomicU64,
    /// When somebody asked for the newest look.
    pub(crate) asked_ms: AtomicU64,
    is_looking: AtomicBool,
    caches: OnceLock<Weak<dyn Caches>>,
    counts: EngineCounts,
    this: Weak<Followed>,
}

/// Why somebody looks.
enum Look {
    /// The newest look is older than this.
    Older(Duration),
    /// Something that this view needs is gone.
    Past(Arc<Sight>),
}

pub(crate) fn read_only() -> FsError {
    FsError::ReadOnly("another machine writes this volume; it is served read-only here".into())
}

/// For operations that hold an inode across a turn. They begin again.
pub(crate) fn superseded() -> FsError {
    FsError::Io("the file has changed on the machine that writes it; read it again".into())
}

pub(crate) fn boot_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

impl Followed {
    pub(crate) async fn open(parts: FollowParts) -> FsResult<Arc<Followed>> {
        let asked = boot_ms();
        let (tail, sight) = Tail::open(&parts).await?;
        Ok(Arc::new_cyclic(|this| Followed {
            parts,
            tail: tokio::sync::Mutex::new(tail),
            sight: RwLock::new(Arc::new(sight)),
            turning: RwLock::new(()),
            generation: AtomicU64::new(0),
            looked_ms: AtomicU64::new(asked),
            asked_ms: AtomicU64::new(asked),
            is_looking: AtomicBool::new(false),
            caches: OnceLock::new(),
            counts: EngineCounts::default(),
            this: this.clone(),
        }))
    }

    /// The caches turn with it from now on.
    pub(crate) fn serves(&self, caches: Weak<dyn Caches>) {
        let _ = self.caches.set(caches);
    }

    /// How old the newest look is.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_millis(boot_ms().saturating_sub(self.looked_ms.load(Ordering::Acquire)))
    }

    fn sight(&self) -> Arc<Sight> {
        Arc::clone(&self.sight.read())
    }

    /// Looks because an object was missing. Whether the caller should try again, within its `tries`.
    #[larder_base::boxed]
    pub(crate) async fn looks_again(&self, tries: &mut u32) -> bool {
        let sight = self.sight();
        self.looks_past(&sight, tries).await
    }

    async fn looks_past(&self, sight: &Arc<Sight>, tries: &mut u32) -> bool {
        *tries += 1;
        if *tries > READ_TRIES_MAX {
            return false;
        }
        match self.look(Look::Past(Arc::clone(sight))).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(stream = self.parts.stream, %error, "the volume cannot be followed");
                false
            }
        }
    }

    fn half(&self) -> Duration {
        self.parts.behind_max / 2
    }
}

#[async_trait]
impl Tenure for Followed {
    fn is_proven(&self) -> bool {
        self.age() < self.half()
    }

    async fn prove(&self) -> Result<(), LogError> {
        // `follow.bounded_age`
        if self.age() >= self.parts.behind_max {
            let looked = self.look(Look::Older(self.parts.behind_max)).await;
            return looked.map_err(|error| LogError::Io(Arc::new(std::io::Error::other(error.to_string()))));
        }
        if let Some(this) = self.this.upgrade()
            && !self.is_looking.swap(true, Ordering::AcqRel)
        {
            task::spawn(async move {
                if let Err(error) = this.look(Look::Older(this.half())).await {
                    tracing::debug!(stream = this.parts.stream, %error, "no newer look at the volume");
                }
                this.is_looking.store(false, Ordering::Release);
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Meta for Followed {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.counts.gets.add(1);
        let mut tries = 0;
        loop {
            let sight = self.sight();
            match sight.view.get(key).await {
                Err(_) if self.looks_past(&sight, &mut tries).await => {}
                read => return read,
            }
        }
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        self.counts.scans.add(1);
        let mut tries = 0;
        loop {
            let sight = self.sight();
            match sight.view.scan(from, to, limit).await {
                Err(_) if self.looks_past(&sight, &mut tries).await => {}
                read => return read,
            }
        }
    }

    async fn last(&self, _from: &[u8], _to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        Err(FsError::NotSupported)
    }

    async fn admit(&self) -> FsResult<()> {
        Err(read_only())
    }

    fn submit(&self, _batch: Batch) -> FsResult<Ticket> {
        Err(read_only())
    }

    async fn durable(&self, _ticket: Ticket) -> FsResult<()> {
        Ok(())
    }

    fn newest(&self) -> Ticket {
        Ticket(0)
    }

    fn usage(&self) -> Usage {
        self.sight().usage
    }

    fn fault(&self) -> Option<FsError> {
        None
    }

    fn engine(&self) -> Option<EngineState<'_>> {
        let (young_tables, runs) = self.sight().runs;
        Some(EngineState { counts: &self.counts, young_tables, runs })
    }

    fn tables(&self) -> Vec<(String, u64)> {
        self.sight().tables.clone()
    }

    async fn close(&self) -> FsResult<()> {
        let _ = self.parts.engine.cache.flush_scope(self.parts.cache_id).await;
        Ok(())
    }

    async fn frozen(&self, manifest_id: u64, manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
        self.parts.frozen(manifest_id, manifest).await
    }

    fn is_followed(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn still(&self, generation: u64) -> Option<Still<'_>> {
        let still = self.turning.read();
        (self.generation() == generation).then_some(Still(Some(still)))
    }
}
