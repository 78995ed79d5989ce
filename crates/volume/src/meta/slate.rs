//! The engine: SlateDB behind the [`Overlay`], with the pool's log as its WAL where there is one.
//!
//! ```text
//! submit -> overlay -> carrier task -> SlateDB -> WAL buffer -> committer -> log  => durable
//!                                         \-> memtable -> young tables -> compaction (objects)
//! ```
//!
//! - `engine.one_carrier`: the carrier is the only writer of batches with tickets, so SlateDB's
//!   sequence numbers follow tickets. A row without meaning (`wal.relieved_under_pressure`) may
//!   come in between.
//! - `engine.one_flusher`: without a log the flush coordinator is the only task that flushes: one
//!   WAL object per group of waiters.
//! - `engine.closed_stops_all`: when the database closes for whatever reason (fenced, panicked,
//!   failed log), the overlay stops and all waits fail (`meta.poison_after_failure`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use larder_base::traffic::{self, Wait};
use larder_base::{Clock, LogStore, task};
use larder_fs::{FsError, FsResult};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::{CheckpointOptions, CheckpointScope, Settings};
use slatedb::db_cache::DbCache;
use slatedb::{CheckpointHandle, CloseReason, Db, DbIterator, DbStatus, IterationOrder, WriteBatch};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use ulid::Ulid;

use super::cache;
use super::clock::EngineClock;
use super::engine::{engine_error, next_pair, scan_options};
use super::filter;
use super::frozen::{self, FrozenParts};
use super::load_pins::load_pins;
use super::maintain::{self, Maintenance};
use super::overlay::{Durability, Group, Overlay};
use super::pins::Pins;
use super::point::{Cut, Frozen, Point};
use super::staged::Staged;
use super::timed_store::TimedStore;
use super::wal::{self, BATCH_BYTES_MAX, LogWal};
use super::warm;
use super::{Batch, EngineCounts, EngineState, Meta, Owners, Ticket, Usage};
use crate::keys;

/// The parts that engines of one process share.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) cache: Arc<dyn DbCache>,
    /// See `wal.relieved_under_pressure`.
    pub(crate) pressure: Arc<Notify>,
    cache_bytes: u64,
    memtable_bytes: usize,
    /// The store lies behind a network.
    is_far: bool,
}

impl Engine {
    /// A reader of a manifest of an engine that is not open, as [`Meta::frozen`] has it.
    pub(crate) async fn frozen(
        &self,
        (store, path): (Arc<dyn ObjectStore>, Path),
        clock: Arc<dyn Clock>,
        cache_id: u64,
        (manifest_id, manifest): (u64, Bytes),
    ) -> FsResult<Arc<dyn Frozen>> {
        let (cache, clock) = (Arc::clone(&self.cache), Arc::new(EngineClock::new(clock)));
        let is_far = self.is_far;
        frozen::open(&FrozenParts { store, path, cache, cache_id, clock, is_far }, manifest_id, manifest).await
    }

    /// `cache_bytes` for blocks; the memtables (four of `memtable_bytes` at most per volume) come
    /// on top.
    pub(crate) fn new(cache_bytes: u64, memtable_bytes: u64) -> Self {
        Self {
            cache: cache::block_cache(cache_bytes),
            pressure: Arc::new(Notify::new()),
            cache_bytes,
            memtable_bytes: memtable_bytes.clamp(2 << 20, 64 << 20) as usize,
            is_far: false,
        }
    }

    /// For stores behind a network, if `is_far`.
    pub(crate) fn for_far(self, is_far: bool) -> Self {
        Self { is_far, ..self }
    }
}

pub(crate) struct SlateParts<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    /// The log and the name of the volume's stream.
    pub(crate) log: Option<(Arc<dyn LogStore>, String)>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Tells volumes apart in the shared cache.
    pub(crate) cache_id: u64,
    /// Tables that snapshots without a row read: their numbers, ids and lengths.
    pub(crate) pinned: Vec<(u64, Vec<(Ulid, u64)>)>,
}

pub(crate) struct SlateMeta {
    db: Db,
    overlay: Arc<Overlay>,
    durability: Arc<Durability>,
    carrier: parking_lot::Mutex<Option<JoinHandle<()>>>,
    tasks: Vec<JoinHandle<()>>,
    log: Option<Arc<TrimmedLog>>,
    counts: EngineCounts,
    pins: Arc<Pins>,
    frozen: FrozenParts,
    timed: Arc<TimedStore>,
    _warmed: Option<AbortOnDropHandle<()>>,
}

impl SlateMeta {
    pub(crate) fn open(parts: SlateParts<'_>) -> BoxFuture<'_, FsResult<Arc<SlateMeta>>> {
        Box::pin(async move {
            let clock = Arc::new(EngineClock::new(Arc::clone(&parts.clock)));
            let durability = Arc::new(Durability::default());
            let settings = settings(parts.engine.memtable_bytes);
            let whole_log = parts.log.as_ref().map(|(log, _)| Arc::clone(log));
            let timed = Arc::new(TimedStore::new(parts.store, whole_log.clone()));
            let store: Arc<dyn ObjectStore> = timed.clone();
            let staged = Arc::new(Staged::new(Arc::clone(&store)));
            let mut builder = Db::builder(parts.path.clone(), Arc::clone(&staged) as Arc<dyn ObjectStore>)
                .with_settings(settings)
                .with_system_clock(Arc::clone(&clock) as Arc<_>)
                .with_filter_policies(filter::policies())
                .with_block_cache_policy(cache::policy())
                .with_db_cache(Arc::clone(&parts.engine.cache), parts.cache_id);
            if let Some((log, stream)) = &parts.log {
                builder = builder.with_wal_writer(Box::new(LogWal {
                    log: Arc::clone(log),
                    stream: stream.clone(),
                    durability: Arc::clone(&durability),
                    clock: Arc::clone(&clock),
                }));
            }
            let db = builder.build().await.map_err(engine_error)?;
            let warmed = parts.engine.is_far.then(|| {
                let warm = warm::warm(&db, staged, &parts.path, parts.engine.cache_bytes);
                AbortOnDropHandle::new(task::spawn(warm))
            });
            let usage = match db.get(keys::USAGE_KEY).await.map_err(engine_error)? {
                Some(value) => keys::decode_usage(&value)?,
                None => Usage::default(),
            };
            let pins = Arc::new(Pins::default());
            load_pins(&db, &pins).await?;
            parts.pinned.into_iter().for_each(|(number, tables)| pins.add(number, tables));
            let frozen = FrozenParts {
                store: Arc::clone(&store),
                path: parts.path.clone(),
                cache: Arc::clone(&parts.engine.cache),
                cache_id: parts.cache_id,
                clock: Arc::clone(&clock),
                is_far: parts.engine.is_far,
            };
            let overlay = Arc::new(Overlay::new(usage));
            let gate = parts.log.as_ref().map(|(log, _)| (Arc::clone(log), Arc::clone(&parts.engine.pressure)));
            let carrier = task::spawn(carry(db.clone(), Arc::clone(&overlay), Arc::clone(&durability), gate));
            let log = parts.log.map(|(log, stream)| {
                let admin = AdminBuilder::new(parts.path.clone(), Arc::clone(&store)).build();
                Arc::new(TrimmedLog { admin, log, stream })
            });
            let maintenance =
                Maintenance { db: db.clone(), store, path: parts.path, clock, log: whole_log, pins: Arc::clone(&pins) };
            let mut tasks = vec![
                task::spawn(maintenance.run()),
                task::spawn(watch_status(db.clone(), Arc::clone(&overlay), Arc::clone(&durability))),
            ];
            match &log {
                None => tasks.push(task::spawn(coordinate_flushes(db.clone(), Arc::clone(&durability)))),
                Some(log) => {
                    let (trimmed, pressure) = (Arc::clone(&log.log), Arc::clone(&parts.engine.pressure));
                    tasks.push(task::spawn(maintain::relieve(db.clone(), trimmed, log.stream.clone(), pressure)));
                    tasks.push(task::spawn(keep_trimmed(db.clone(), Arc::clone(log))));
                }
            }
            let carrier = parking_lot::Mutex::new(Some(carrier));
            Ok(Arc::new(Self {
                db,
                overlay,
                durability,
                carrier,
                tasks,
                log,
                counts: EngineCounts::default(),
                pins,
                frozen,
                timed,
                _warmed: warmed,
            }))
        })
    }
}

impl Drop for SlateMeta {
    fn drop(&mut self) {
        for task in self.tasks.iter().chain(self.carrier.lock().iter()) {
            task.abort();
        }
    }
}

/// The manifest is refreshed by [`Maintenance`] while compactions run; otherwise only this process
/// changes it.
fn settings(memtable_bytes: usize) -> Settings {
    Settings {
        flush_interval: None,
        manifest_poll_interval: Duration::from_secs(24 * 3600),
        l0_sst_size_bytes: memtable_bytes,
        // Allow many tables of level 0 before writers stall: a compaction of a big tree takes a
        // while on a small board.
        l0_max_ssts: 64,
        l0_max_ssts_per_key: 64,
        l0_flush_parallelism: 2,
        max_unflushed_bytes: 6 * memtable_bytes,
        max_wal_flushes_before_l0_flush: 1 << 20,
        compactor_options: None,
        garbage_collector_options: None,
        ..Settings::default()
    }
}

// ---------------------------------------------------------------------------------------------- tasks

/// Carries groups from the overlay to the engine until the overlay is stopped and empty
/// (`engine.one_carrier`). While the log is nearly full they wait at the gate.
async fn carry(
    db: Db,
    overlay: Arc<Overlay>,
    durability: Arc<Durability>,
    gate: Option<(Arc<dyn LogStore>, Arc<Notify>)>,
) {
    while let Some(carried) = overlay.take().await {
        if let Some((log, pressure)) = &gate
            && let Err(error) = wal::hold(&**log, pressure).await
        {
            return poison(&overlay, &durability, &error.to_string());
        }
        if let Some(group) = carried.group {
            match db.write(write_batch(&group)).await {
                Ok(handle) => {
                    overlay.landed();
                    durability.applied(handle.seqnum(), group.newest);
                }
                Err(error) => {
                    // The group stays in the overlay, so readers keep seeing the changes that they
                    // were shown.
                    poison(&overlay, &durability, &error.to_string());
                    return;
                }
            }
        }
        if let Some(cut) = carried.cut {
            // A caller that is gone wants no point.
            let _ = cut.send(begin_checkpoint(&db).await);
        }
    }
}

/// Fixes the point behind everything written so far (`overlay.cut_between_groups`).
async fn begin_checkpoint(db: &Db) -> FsResult<CheckpointHandle> {
    let options = CheckpointOptions { lifetime: Some(POINT_LIFETIME), ..CheckpointOptions::default() };
    db.begin_checkpoint(CheckpointScope::All, &options).await.map_err(engine_error)
}

fn write_batch(group: &Group) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for (key, value) in &group.changes {
        match value {
            Some(value) => batch.put_bytes(key.clone(), value.clone()),
            None => batch.delete(key),
        }
    }
    batch
}

fn poison(overlay: &Overlay, durability: &Durability, why: &str) {
    let error = FsError::Poisoned(why.into());
    overlay.stop(error.clone());
    durability.fail(error);
}

/// Why the engine has closed. Its word for any failure of its own is "panic"; the cause is the error that it gives from then on.
async fn end_of(db: &Db, reason: CloseReason) -> String {
    match (reason, db.get(b"?").await) {
        (CloseReason::Clean, _) => "it was told to".to_owned(),
        (CloseReason::Fenced, _) => "another process has opened it".to_owned(),
        (_, Err(error)) => engine_error(error).to_string(),
        (reason, Ok(_)) => format!("{reason:?}"),
    }
}

/// Reports durable sequence numbers, and the end of the database (`engine.closed_stops_all`).
async fn watch_status(db: Db, overlay: Arc<Overlay>, durability: Arc<Durability>) {
    let mut status = db.subscribe();
    loop {
        let (durable_seq, closed) = {
            let status = status.borrow_and_update();
            (status.durable_seq, status.close_reason)
        };
        durability.flushed(durable_seq);
        if let Some(reason) = closed {
            let why = format!("the metadata engine closed: {}", end_of(&db, reason).await);
            if reason != CloseReason::Clean {
                tracing::error!(
                    why,
                    "metadata can no longer be stored; the volume refuses writes until it is reopened"
                );
            }
            return poison(&overlay, &durability, &why);
        }
        if status.changed().await.is_err() {
            return poison(&overlay, &durability, "the metadata engine is gone");
        }
    }
}

/// The log and the name of the volume's stream in it, trimmed as the tree takes over.
struct TrimmedLog {
    admin: Admin,
    log: Arc<dyn LogStore>,
    stream: String,
}

impl TrimmedLog {
    /// Trims up to the replay point of the stored manifest, and returns that point
    /// (`wal.trim_by_stored_manifest`).
    async fn trim(&self) -> FsResult<u64> {
        let manifest = self.admin.read_manifest(None).await.map_err(engine_error)?;
        let replay_after = manifest.map_or(0, |manifest| manifest.replay_after_wal_id());
        // The replay point itself is kept: ids must go on increasing after a restart.
        let trimmed = self.log.trim(&self.stream, replay_after.saturating_sub(1)).await;
        trimmed.map_err(|error| FsError::Io(error.to_string().into()))?;
        Ok(replay_after)
    }

    /// Whether no entry follows the replay point of the stored manifest.
    async fn is_carried(&self) -> FsResult<bool> {
        let manifest = self.admin.read_manifest(None).await.map_err(engine_error)?;
        let replay_after = manifest.map_or(0, |manifest| manifest.replay_after_wal_id());
        let left = self.log.replay(&self.stream, replay_after).await;
        left.map(|entries| entries.is_empty()).map_err(|error| FsError::Io(error.to_string().into()))
    }
}

/// Closing waits this long for the store. A hanging disk is given up after 30 s, and the others
/// then answer at once.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(45);

/// How often a caller that waits for a cut looks whether the engine is still there.
const CUT_PATIENCE: Duration = Duration::from_secs(5);
/// The engine keeps the tables of a point for this long, unless they are pinned before.
const POINT_LIFETIME: Duration = Duration::from_secs(3600);
/// A point waits this long for the store: shorter than its lifetime.
const POINT_WAIT_MAX: Duration = Duration::from_secs(600);

/// A failing read is tried this many times, each time with the newest manifest.
const READ_TRIES_MAX: u32 = 4;

/// The engine reports a table before the manifest that has it is stored: look again after this
/// time.
const TRIM_POLL: Duration = Duration::from_millis(50);

/// Trims the log when the replay point moves.
async fn keep_trimmed(db: Db, log: Arc<TrimmedLog>) {
    let mut status = db.subscribe();
    let mut trimmed = 0;
    loop {
        let moved = |s: &DbStatus| s.close_reason.is_some() || s.current_manifest.replay_after_wal_id() > trimmed;
        match status.wait_for(moved).await {
            Ok(status) if status.close_reason.is_none() => {}
            _ => return,
        }
        match log.trim().await {
            Ok(replay_after) => trimmed = replay_after,
            Err(error) => tracing::warn!(stream = %log.stream, %error, "the metadata log could not be trimmed"),
        }
        tokio::time::sleep(TRIM_POLL).await;
    }
}

/// Unasked, durability comes within this time (sync = relaxed).
const RELAXED_FLUSH: Duration = Duration::from_secs(2);

/// One flush at a time, for all waiting callers (`engine.one_flusher`).
async fn coordinate_flushes(db: Db, durability: Arc<Durability>) {
    let mut status = db.subscribe();
    loop {
        let wait = if status.has_changed().is_err() { return } else { durability.wanted.notified() };
        // Without a waiter there may still be something to flush: `Durability::applied` does not
        // wake us, so look.
        let asked = tokio::time::timeout(RELAXED_FLUSH, wait).await.is_ok();
        if !asked && !durability.has_unflushed() {
            durability.unflushed.notified().await;
            continue;
        }
        while durability.has_unflushed() {
            if let Err(error) = db.flush().await {
                tracing::error!(%error, "the metadata engine could not flush");
                return;
            }
            durability.flushed(status.borrow_and_update().durable_seq);
            if !durability.has_waiters() {
                break;
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------- face

impl SlateMeta {
    async fn iterate(&self, from: &[u8], to: &[u8], limit: usize, order: IterationOrder) -> FsResult<DbIterator> {
        use std::ops::Bound;
        let options = scan_options(limit, order, self.frozen.is_far);
        let iterator = match filter::within_inode(from, to) {
            Some((prefix, start, end)) => {
                let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                self.db.scan_prefix_with_options(prefix, (Bound::Included(start), end), &options).await
            }
            None => {
                let range = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
                self.db.scan_with_options(range, &options).await
            }
        };
        iterator.map_err(engine_error)
    }

    /// Whether to repeat a failed read, within its `tries`: it may have taken so long that tables
    /// of its manifest are gone ([`maintain`]). The next try sees the present ones.
    async fn reads_again(&self, tries: &mut u32) -> bool {
        *tries += 1;
        *tries < READ_TRIES_MAX && self.db.refresh_manifest().await.is_ok()
    }

    async fn scan_once(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        // Read the overlay first (`overlay.flies_until_applied`): a group that lands in between is
        // then seen twice, not missed.
        let mut changes = self.overlay.range(from, to).into_iter().peekable();
        let mut stored = self.iterate(from, to, limit, IterationOrder::Ascending).await?;
        let mut next = next_pair(&mut stored).await?;
        let mut pairs = Vec::new();
        while pairs.len() < limit {
            let changed_first = match (changes.peek(), &next) {
                (Some((changed, _)), Some((key, _))) => changed <= key,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            if !changed_first {
                pairs.extend(next.take());
                next = next_pair(&mut stored).await?;
            } else if let Some((changed, value)) = changes.next() {
                if next.as_ref().is_some_and(|(key, _)| *key == changed) {
                    next = next_pair(&mut stored).await?;
                }
                pairs.extend(value.map(|value| (changed, value)));
            }
        }
        Ok(pairs)
    }

    async fn last_once(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        let changes = self.overlay.range(from, to);
        let changed = changes.iter().rev().find_map(|(key, value)| Some((key.clone(), value.clone()?)));
        let mut stored = self.iterate(from, to, 1, IterationOrder::Descending).await?;
        while let Some(pair) = next_pair(&mut stored).await? {
            if !changes.contains_key(&pair.0) {
                return Ok(changed.into_iter().chain([pair]).max_by(|a, b| a.0.cmp(&b.0)));
            }
        }
        Ok(changed)
    }
}

#[async_trait]
impl Meta for SlateMeta {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        if let Some(value) = self.overlay.get(key) {
            return Ok(value);
        }
        self.counts.gets.add(1);
        let mut tries = 0;
        loop {
            match traffic::waiting(Wait::Disk, self.db.get(key)).await {
                Err(_) if self.reads_again(&mut tries).await => {}
                read => return read.map_err(engine_error),
            }
        }
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.counts.scans.add(1);
        let mut tries = 0;
        loop {
            match self.scan_once(from, to, limit).await {
                Err(_) if self.reads_again(&mut tries).await => {}
                scanned => return scanned,
            }
        }
    }

    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        if from >= to {
            return Ok(None);
        }
        let mut tries = 0;
        loop {
            match self.last_once(from, to).await {
                Err(_) if self.reads_again(&mut tries).await => {}
                found => return found,
            }
        }
    }

    async fn admit(&self) -> FsResult<()> {
        self.overlay.admit().await
    }

    fn submit(&self, batch: Batch) -> FsResult<Ticket> {
        let bytes: usize = batch.ops.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum();
        if bytes > BATCH_BYTES_MAX / 2 {
            return Err(FsError::Invalid("a metadata batch is too large"));
        }
        if batch.ops.iter().any(|(key, _)| key.is_empty() || key.len() > usize::from(u16::MAX)) {
            return Err(FsError::Invalid("a metadata key has an impossible length"));
        }
        self.counts.batches.add(1);
        self.overlay.submit(batch)
    }

    async fn durable(&self, ticket: Ticket) -> FsResult<()> {
        if self.durability.is_durable(ticket) {
            return Ok(());
        }
        let begun = Instant::now();
        let outcome = traffic::waiting(Wait::Durable, self.durability.wait(ticket)).await;
        self.counts.commit.add(begun.elapsed());
        outcome
    }

    fn newest(&self) -> Ticket {
        self.overlay.newest()
    }

    fn owners(&self) -> Option<&Owners> {
        Some(&self.overlay.owners)
    }

    fn usage(&self) -> Usage {
        self.overlay.usage()
    }

    fn fault(&self) -> Option<FsError> {
        self.durability.fault()
    }

    fn engine(&self) -> Option<EngineState<'_>> {
        let manifest = self.db.subscribe().borrow().current_manifest.clone();
        let (young_tables, runs) = (manifest.l0().len() as u64, manifest.compacted().len() as u64);
        Some(EngineState { counts: &self.counts, young_tables, runs })
    }

    fn tables(&self) -> Vec<(String, u64)> {
        let manifest = self.db.subscribe().borrow().current_manifest.clone();
        let tables =
            manifest.all_sst_views().map(|view| (format!("{}.sst", view.sst.id.value()), view.sst.estimate_size()));
        tables.collect()
    }

    fn cut(&self, first: Batch, epoch: u64) -> FsResult<Cut> {
        self.overlay.cut(first, epoch)
    }

    fn set_epoch(&self, epoch: Option<u64>) {
        self.overlay.set_epoch(epoch);
    }

    async fn store(&self, cut: Cut) -> FsResult<Point> {
        let gone = || FsError::Poisoned("the volume is closed".into());
        let mut begun = cut.begun;
        let handle = loop {
            match tokio::time::timeout(CUT_PATIENCE, &mut begun).await {
                Ok(begun) => break begun.map_err(|_| gone())??,
                // The carrier ended before it came to the cut.
                Err(_) if self.overlay.is_stopped() => return Err(gone()),
                Err(_) => {}
            }
        };
        let late = || FsError::Io("the store did not take the metadata of the snapshot in time".into());
        let stored = tokio::time::timeout(POINT_WAIT_MAX, handle.wait()).await.map_err(|_| late())?;
        let stored = stored.map_err(engine_error)?;
        let admin = AdminBuilder::new(self.frozen.path.clone(), Arc::clone(&self.frozen.store)).build();
        let lost = || FsError::Io("the engine's manifest of the snapshot is gone".into());
        let manifest = admin.read_manifest(Some(stored.manifest_id)).await.map_err(engine_error)?.ok_or_else(lost)?;
        let tables = manifest.all_sst_views().map(|view| (view.sst.id.value(), view.sst.estimate_size())).collect();
        let at = frozen::manifest_path(&self.frozen.path, stored.manifest_id);
        let read = async { self.frozen.store.get(&at).await?.bytes().await };
        let manifest = read.await.map_err(|error| FsError::Io(format!("reading {at}: {error}").into()))?;
        Ok(Point { checkpoint: stored.id, manifest_id: stored.manifest_id, manifest, tables })
    }

    async fn release(&self, point: &Point) {
        let admin = AdminBuilder::new(self.frozen.path.clone(), Arc::clone(&self.frozen.store)).build();
        if let Err(error) = admin.delete_checkpoint(point.checkpoint).await {
            tracing::debug!(%error, "a checkpoint of the engine stays until it expires");
        }
    }

    async fn frozen(&self, manifest_id: u64, manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
        frozen::open(&self.frozen, manifest_id, manifest).await
    }

    fn opened(&self) {
        self.timed.is_open();
    }

    fn pins(&self) -> Option<&Pins> {
        Some(&self.pins)
    }

    async fn close(&self) -> FsResult<()> {
        let newest = self.overlay.newest();
        self.overlay.stop(FsError::Poisoned("the volume is closed".into()));
        let carrier = self.carrier.lock().take();
        if let Some(carrier) = carrier {
            // It ends when all is carried; if it panicked, the wait below says so.
            let _ = carrier.await;
        }
        let durable = self.durability.wait(newest).await;
        for task in &self.tasks {
            task.abort();
        }
        // The engine tries for ever to store its last table, and every change in it is in the log
        // anyway.
        let closed = match tokio::time::timeout(CLOSE_WAIT_MAX, self.db.close()).await {
            Ok(closed) => closed.map_err(engine_error),
            Err(_) => Err(FsError::Io("the store did not take the last metadata table in time".into())),
        };
        if let (Some(log), Ok(())) = (&self.log, &closed) {
            // Untrimmed it is only longer.
            let _ = log.trim().await;
        }
        self.durability.fail(FsError::Poisoned("the volume is closed".into()));
        // The engines of a process share it, so no engine empties it.
        let _ = self.frozen.cache.flush_scope(self.frozen.cache_id).await;
        durable.and(closed)
    }

    async fn is_log_carried(&self) -> FsResult<bool> {
        match &self.log {
            Some(log) => log.is_carried().await,
            None => Ok(true),
        }
    }
}

#[cfg(test)]
#[path = "slate_tests.rs"]
mod tests;
