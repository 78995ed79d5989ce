//! Keeps the engine's tree in shape, only while there is something to do.
//!
//! The engine's own pollers read the store every second for ever; then disks never sleep. So its
//! manifest poll is set to hours, and its compactor and garbage collector are not started with it.
//! This task wakes when the manifest changes or a snapshot is gone, and runs them while they have
//! work. An idle volume does no I/O at all.
//!
//! - `maintain.snapshots_room_returns`: tables that only destroyed snapshots needed are collected
//!   soon after these, whether anything is written or not. What a life leaves behind is collected
//!   once after the next opening; in a bucket, where that costs requests, with the next change.
//! - `maintain.failed_merges_pause`: the engine tries a merge that failed again at its next look at the store, and writes small
//!   objects each time. Where tables find no room, these would take the last of it. So after a few attempts in vain the compactor
//!   rests for [`REST`].
//! - `maintain.grace_of_replicas`: where other machines can read the store, tables and segments that nothing needs any more stay for
//!   [`REPLICA_GRACE`], longer than a read-only replica may be behind ([`crate::follow`]). One that is slower than that reads again.

use std::sync::Arc;
use std::time::Duration;

use larder_base::{LogStore, task};
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::admin::AdminBuilder;
use slatedb::compactor::Compactor;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions, GarbageCollectorOptions,
};
use slatedb::{CompactorBuilder, Db, DbStatus, GarbageCollectorBuilder};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use ulid::Ulid;

use super::clock::EngineClock;
use super::pins::{Collectable, Pins};
use crate::keys;

/// This many tables of level 0 start a compaction: the threshold of the engine's size-tiered
/// scheduler.
const L0_COMPACT_MIN: usize = 4;
const POLL: Duration = Duration::from_millis(200);
/// The time between looks at whether merges get on.
const LOOK: Duration = Duration::from_secs(1);
/// The compactor is stopped after this long without work.
const LINGER: Duration = Duration::from_secs(3);
/// `maintain.failed_merges_pause`: a merge that gets on has shown something after fewer versions of the list of compactions. It writes
/// half a dozen when it starts, then one in ten seconds.
const VERSIONS_IN_VAIN: u64 = 20;
const REST: Duration = Duration::from_secs(30);
/// Unreferenced tables are kept for this long: longer than a scan of ours takes, unless a disk
/// hangs (then the scan reads again). They take room that a full volume lacks: random overwriting
/// makes a MB of them a second. Tables that the engine is still writing are not collected whatever
/// their age, because they are newer than its manifest.
const GARBAGE_AGE_MIN: Duration = Duration::from_secs(5);
/// `maintain.grace_of_replicas`
pub(crate) const REPLICA_GRACE: Duration = Duration::from_secs(25);
/// Garbage that gathers in a long burst is collected this often.
const GARBAGE_INTERVAL: Duration = Duration::from_secs(3);

pub(crate) struct Maintenance {
    pub(crate) db: Db,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    pub(crate) clock: Arc<EngineClock>,
    /// Without one the engine's own WAL objects need collecting, too.
    pub(crate) log: Option<Arc<dyn LogStore>>,
    pub(crate) pins: Arc<Pins>,
}

impl Maintenance {
    /// Runs until the database is closed (or the task is aborted).
    pub(crate) async fn run(self) {
        let mut status = self.db.subscribe();
        // `maintain.snapshots_room_returns`
        let mut garbage_of = self.is_shared().then(|| status.borrow().current_manifest.id());
        loop {
            let seen = {
                let now = status.borrow_and_update();
                // Neither what is written nor what is merged would ever be read.
                if now.close_reason.is_some() {
                    return;
                }
                now.current_manifest.id()
            };
            if l0_len(&status) >= L0_COMPACT_MIN {
                self.compact(&mut status).await;
                continue;
            }
            if garbage_of == Some(seen) {
                tokio::select! {
                    changed = wait_for_change(&mut status, seen) => if changed.is_err() {
                        return;
                    },
                    () = self.pins.removed() => garbage_of = None,
                }
                continue;
            }
            // Something changed: the tables that it made obsolete are old enough after a while.
            let quiet = self.garbage_age() + GARBAGE_INTERVAL;
            let quiet = tokio::time::timeout(quiet, needs_compaction(&mut status)).await;
            match quiet {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => return,
                Err(_) => {
                    garbage_of = Some(status.borrow().current_manifest.id());
                    self.collect_garbage().await;
                }
            }
        }
    }

    /// Whether other machines can read the store.
    fn is_shared(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_shared())
    }

    fn garbage_age(&self) -> Duration {
        if self.is_shared() { REPLICA_GRACE } else { GARBAGE_AGE_MIN }
    }

    /// Runs the compactor until it has nothing to do.
    async fn compact(&self, status: &mut watch::Receiver<DbStatus>) {
        let compactor = CompactorBuilder::new(self.path.clone(), Arc::clone(&self.store))
            .with_options(compactor_options())
            .with_filter_policies(super::filter::policies())
            .with_system_clock(Arc::clone(&self.clock) as Arc<_>)
            .build();
        let compactor = Arc::new(compactor);
        let running = Arc::clone(&compactor);
        let task = task::spawn_for(async move { running.run().await });
        let mut run = Running { compactor, task: Some(task), runtime: Handle::current() };
        let admin = AdminBuilder::new(self.path.clone(), Arc::clone(&self.store)).build();
        let mut idle = Duration::ZERO;
        let mut since_garbage = Duration::ZERO;
        let mut manifest = 0;
        let mut since_look = Duration::ZERO;
        let mut progress = Progress::default();
        while idle < LINGER && !progress.has_stopped() {
            tokio::time::sleep(POLL).await;
            since_garbage += POLL;
            if status.borrow().close_reason.is_some() {
                break;
            }
            if let Some(task) = run.task.take_if(|task| task.is_finished()) {
                let result = task.await;
                tracing::warn!(path = %self.path, ?result, "metadata compaction stopped; it starts again with the next change");
                tokio::time::sleep(LINGER).await;
                return;
            }
            if let Err(error) = self.db.refresh_manifest().await {
                tracing::warn!(path = %self.path, %error, "the manifest could not be read");
            }
            let now = status.borrow_and_update().current_manifest.id();
            let changed = std::mem::replace(&mut manifest, now) != now;
            let mut busy = changed || l0_len(status) >= L0_COMPACT_MIN;
            since_look += POLL;
            if !busy || since_look >= LOOK {
                since_look = Duration::ZERO;
                let (is_active, version, merged_bytes) = look(&admin).await;
                progress.note(tree_of(status), version, merged_bytes);
                busy |= is_active;
            }
            idle = if busy { Duration::ZERO } else { idle + POLL };
            if since_garbage >= GARBAGE_INTERVAL {
                since_garbage = Duration::ZERO;
                self.collect_garbage().await;
            }
        }
        if let Err(error) = run.compactor.stop().await {
            tracing::debug!(path = %self.path, %error, "the compactor did not stop cleanly");
        }
        run.task = None;
        if progress.has_stopped() {
            tracing::warn!(path = %self.path, "metadata tables cannot be merged; it is tried again in {} s", REST.as_secs());
            self.collect_garbage().await;
            let closed = status.wait_for(|status| status.close_reason.is_some());
            let _ = tokio::time::timeout(REST, closed).await;
        }
    }

    async fn collect_garbage(&self) {
        if self.log.as_ref().is_some_and(|log| !log.is_proven()) {
            // Unreferenced tables may hold changes that the log has lost.
            return;
        }
        // The manifest that readers see must be among those that are kept.
        if let Err(error) = self.db.refresh_manifest().await {
            tracing::warn!(path = %self.path, %error, "the manifest could not be read; nothing is collected");
            return;
        }
        let aged = |age| Some(GarbageCollectorDirectoryOptions { interval: None, min_age: age, dry_run: false });
        let age = self.garbage_age();
        let options = GarbageCollectorOptions {
            manifest_options: aged(age),
            wal_options: if self.log.is_none() { aged(age) } else { None },
            wal_fence_options: None,
            compacted_options: aged(age),
            compactions_options: aged(age),
            detach_options: None,
            ..GarbageCollectorOptions::default()
        };
        GarbageCollectorBuilder::new(self.path.clone(), Arc::clone(&self.store))
            .with_options(options)
            .with_gc_filter(Arc::new(Collectable { pins: Arc::clone(&self.pins), log: self.log.clone() }))
            .with_system_clock(Arc::clone(&self.clock) as Arc<_>)
            .build()
            .run_gc_once()
            .await;
    }
}

/// A compactor, which goes on by tasks of its own: whoever aborts the task that runs it has not stopped it. A volume that was closed
/// while tables were merged would be looked after for ever.
struct Running {
    compactor: Arc<Compactor>,
    /// `None`: it has ended.
    task: Option<JoinHandle<Result<(), slatedb::Error>>>,
    runtime: Handle,
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let compactor = Arc::clone(&self.compactor);
        task::spawn_on(&self.runtime, async move {
            task.abort();
            // Either it has ended, or its tasks are all there by now.
            let _ = task.await;
            if let Err(error) = compactor.stop().await {
                tracing::debug!(%error, "the compactor of a volume that was closed did not stop cleanly");
            }
        });
    }
}

fn l0_len(status: &watch::Receiver<DbStatus>) -> usize {
    status.borrow().current_manifest.l0().len()
}

async fn wait_for_change(status: &mut watch::Receiver<DbStatus>, seen: u64) -> Result<(), ()> {
    let changed = |s: &DbStatus| s.current_manifest.id() != seen || s.close_reason.is_some();
    let now = status.wait_for(changed).await.map_err(|_| ())?;
    if now.close_reason.is_some() { Err(()) } else { Ok(()) }
}

async fn needs_compaction(status: &mut watch::Receiver<DbStatus>) -> Result<(), ()> {
    let needs = |s: &DbStatus| s.current_manifest.l0().len() >= L0_COMPACT_MIN || s.close_reason.is_some();
    let now = status.wait_for(needs).await.map_err(|_| ())?;
    if now.close_reason.is_some() { Err(()) } else { Ok(()) }
}

/// Whether something is to be merged, the version of the list of compactions, and the bytes that those under way have read.
async fn look(admin: &slatedb::admin::Admin) -> (bool, u64, u64) {
    let Ok(Some(list)) = admin.read_compactions(None).await else { return (false, 0, 0) };
    let active = list.recent_compactions().filter(|compaction| compaction.active());
    let (count, bytes) =
        active.fold((0, 0), |(count, bytes), compaction| (count + 1, bytes + compaction.bytes_processed()));
    (count > 0, list.id(), bytes)
}

/// What a merge changes: the tables of level 0, and the runs with how many tables each has.
type Tree = (Vec<Ulid>, Vec<(u32, usize)>);

fn tree_of(status: &watch::Receiver<DbStatus>) -> Tree {
    let manifest = &status.borrow().current_manifest;
    let runs = manifest.compacted().iter().map(|run| (run.id, run.sst_views().len())).collect();
    (manifest.l0().iter().map(|table| table.id).collect(), runs)
}

/// Whether merges get on: the tree changes, or they have read more than before.
#[derive(Default)]
struct Progress {
    tree: Tree,
    merged_bytes: u64,
    /// Of the list of compactions: now, and when there was progress last.
    version: u64,
    version_then: u64,
}

impl Progress {
    fn note(&mut self, tree: Tree, version: u64, merged_bytes: u64) {
        self.version = version.max(self.version);
        if tree != self.tree {
            (self.tree, self.merged_bytes, self.version_then) = (tree, merged_bytes, self.version);
        } else if merged_bytes > self.merged_bytes {
            (self.merged_bytes, self.version_then) = (merged_bytes, self.version);
        }
    }

    fn has_stopped(&self) -> bool {
        self.version - self.version_then >= VERSIONS_IN_VAIN
    }
}

/// Small fetches and few workers: a compaction must neither take the memory nor the two cores of a
/// small board.
fn compactor_options() -> CompactorOptions {
    CompactorOptions {
        poll_interval: POLL,
        max_concurrent_compactions: 2,
        commit_compacted_interval: POLL,
        checkpoint_lifetime: GARBAGE_AGE_MIN,
        worker: Some(CompactionWorkerOptions {
            max_concurrent_compactions: 2,
            compactions_poll_interval: POLL,
            // Index and filter of one table must fit a shard of the cache.
            max_sst_size: 16 << 20,
            max_fetch_tasks: 2,
            bytes_to_fetch: 512 << 10,
            max_subcompactions: 1,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// Moves the memtable to the tree whenever the shared log fills up (`wal.relieved_under_pressure`).
/// An empty one moves no replay point, though the entries that opening appended hold the log: then
/// there is nothing to move, and so nothing is written.
pub(crate) async fn relieve(db: Db, log: Arc<dyn LogStore>, stream: String, pressure: Arc<Notify>) {
    use slatedb::config::{FlushOptions, FlushType};
    loop {
        pressure.notified().await;
        if log.held_bytes(&stream).saturating_mul(2) >= log.usage().0 && db.delete(keys::NOTHING_KEY).await.is_err() {
            return;
        }
        if db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.is_err() {
            return;
        }
        // One table per second at most: moving next to nothing again and again makes many tiny
        // tables.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
