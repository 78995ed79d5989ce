//! A pool as its users see it: open, use, close.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larder_base::log::LogStore;
use object_store::ObjectStore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::core::Core;
use crate::disk::{DiskIo, DiskOpener, FileDisks, folder, timed_disk};
use crate::error::PoolError;
use crate::history::{self, Event, EventKind};
use crate::journal::Journal;
use crate::member::divergence::LastLives;
use crate::member::found::read_labels;
use crate::member::label::Usage;
use crate::member::member_disk::MemberDisk;
use crate::object::store::PoolStore;

/// How long closing waits for moves and repairs under way: one object at most, unless a disk hangs.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);
const CLOSE_STEP: Duration = Duration::from_millis(5);

/// The pool to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Directories that may be disks of the pool. Others that its labels name are tried too.
    pub disks: Vec<PathBuf>,
    /// Needed only where the directories hold several pools.
    pub name: Option<String>,
    /// Open a pool that another host did not export.
    pub force: bool,
    /// Open the pool although acknowledged changes are lost: the journal's copies do not reach the
    /// batch that the labels prove (`label.journal_batch_proven`), or disks are older copies of
    /// themselves (`label.settled_outlives`). A person decides that, for this opening alone; the
    /// labels record the consequences.
    pub accept_loss: bool,
    /// Open the pool although disks are away that had everything, and could have gone on by
    /// themselves (`diverged.fewer_disks_asked`). A person decides that, for this opening alone.
    pub degraded: bool,
    /// A person opens the pool: disks may come from another machine, which this one's memory does not
    /// know of.
    pub by_hand: bool,
    /// The memory of this machine, which lets it open a pool without a person after a disk has died
    /// (`diverged.fewer_disks_asked`).
    pub last_lives: Option<Arc<dyn LastLives>>,
    /// The pool has this name from now on.
    pub rename: Option<String>,
    /// Opens the directories: real ones, or those of a simulator.
    pub opener: Arc<dyn DiskOpener>,
}

impl OpenOptions {
    /// Options for a pool that was last open on this host, on real directories.
    pub fn new(disks: Vec<PathBuf>) -> Self {
        Self {
            disks,
            name: None,
            force: false,
            accept_loss: false,
            degraded: false,
            by_hand: false,
            last_lives: None,
            rename: None,
            opener: Arc::new(FileDisks),
        }
    }
}

/// An open pool. Dropping it without [`Pool::close`] is like a crash: nothing acknowledged is lost.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) store: PoolStore,
    pub(crate) tasks: Tasks,
    /// Held while it closes.
    pub(crate) closing: tokio::sync::Mutex<()>,
}

/// The background tasks of an open pool: repair, writing its history, scrubbing, sweeping
/// tombstones, moving.
pub struct Tasks(pub [tokio::task::JoinHandle<()>; 5]);

impl Tasks {
    fn abort(&self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.core.members.name)
    }
}

impl Pool {
    pub(crate) fn new(core: Arc<Core>, journal: Arc<Journal>, store: PoolStore, tasks: Tasks) -> Self {
        Self { core, journal, store, tasks, closing: tokio::sync::Mutex::default() }
    }

    /// The pool's name, which a person chose.
    pub fn name(&self) -> &str {
        &self.core.members.name
    }

    /// The pool's id, which stays when the pool is renamed or moved.
    pub fn id(&self) -> Uuid {
        self.core.members.id
    }

    /// The marks of the lives that it knows, newest first: a disk with another newest mark has diverged.
    pub fn lives(&self) -> Vec<u64> {
        self.core.members.label().lives.iter().map(|life| life.mark).collect()
    }

    /// Where its disks were last seen.
    pub fn disks(&self) -> Vec<PathBuf> {
        self.core.members.iter().map(|member| member.path.read().clone()).collect()
    }

    /// Where objects are kept.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.store.clone())
    }

    /// Where small records are kept.
    pub fn log(&self) -> Arc<dyn LogStore> {
        self.journal.clone()
    }

    /// Object bytes after redundancy: (stored + available, available).
    pub fn space(&self) -> (u64, u64) {
        self.core.space()
    }

    /// The pool's events, oldest first.
    pub fn history(&self) -> Vec<Event> {
        self.core.members.history.events()
    }

    /// Name and history of the pool on these disks, without opening it.
    pub fn history_of(disks: &[PathBuf]) -> Result<(String, Vec<Event>), PoolError> {
        let found = read_labels(&*timed_disk::over(Arc::new(FileDisks)), disks);
        let Some(name) = found.labelled.first().map(|disk| disk.label.name.clone()) else {
            let paths: Vec<String> = disks.iter().map(|path| path.display().to_string()).collect();
            return Err(PoolError::NoPool(paths.join(", ")));
        };
        let disks: Vec<Arc<dyn DiskIo>> = found.labelled.into_iter().map(|disk| disk.disk).collect();
        Ok((name, history::read(&disks).into()))
    }

    /// Sets all error counters to zero and looks for disks that came back.
    pub async fn clear(&self) -> Result<(), PoolError> {
        self.core.members.iter().for_each(MemberDisk::clear_errors);
        self.core.members.event(EventKind::Cleared, "error counters set to zero");
        self.core.forget_losses();
        self.core
            .blocking(|core| {
                core.reconnect(true);
                core.refresh_journal();
                core.repairs.room_again();
                if core.members.label().unproven {
                    core.members.write_labels(|label| label.unproven = false);
                }
            })
            .await
    }

    /// Disks of which errors were neither counted nor cleared since the pool was opened: counters do not outlive the process, so
    /// nobody knows whether the last one counted some.
    pub fn uncounted(&self) -> Vec<PathBuf> {
        let uncounted = self.core.members.iter().filter(|member| !member.has_count());
        uncounted.map(|member| member.path.read().clone()).collect()
    }

    /// Looks for disks that were out of use; those that are back are brought up to date. Returns
    /// how many.
    pub async fn reconnect(&self) -> Result<usize, PoolError> {
        self.core.blocking(|core| core.reconnect(false)).await
    }

    /// Finds out which disks are missing and which are back, for a status that is true now.
    pub async fn check(&self) -> Result<(), PoolError> {
        self.core
            .blocking(|core| {
                if core.members.look_at_disks() {
                    core.reconnect(false);
                    core.refresh_journal();
                }
            })
            .await
    }

    /// Why the pool stores nothing until it is opened anew, and since when (milliseconds of Unix time): no
    /// copy of its journal could be written, and nobody knows what the disks kept.
    pub fn stopped(&self) -> Option<(String, u64)> {
        self.journal.fault()
    }

    /// Whether enough disks take writes for all that is written to have its redundancy, or as much as the layout can spare.
    pub fn takes_writes(&self) -> bool {
        let members = &self.core.members;
        members.len() - members.writable() <= usize::from(members.failures())
    }

    /// Whether the object at this path is listed as owed redundancy (`repair.owed_until_given`).
    pub fn is_owed(&self, path: &str) -> bool {
        let index = self.core.objects.index();
        index.get(path).is_some_and(|object| index.is_owed(object))
    }

    /// Waits until nothing is left to repair, but for what waits for room.
    pub async fn repaired(&self) {
        while !self.core.repairs.is_idle() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops, marks the pool as cleanly closed and gives up the locks.
    pub async fn close(&self) -> Result<(), PoolError> {
        let (host, host_id) = folder::host();
        self.finish(Usage::Closed { host, host_id }).await
    }

    /// As `close`, and any host may open it next.
    pub async fn export(&self) -> Result<(), PoolError> {
        self.finish(Usage::Exported).await
    }

    async fn finish(&self, usage: Usage) -> Result<(), PoolError> {
        // Whoever asks meanwhile hears of the end, and not of the beginning.
        let _closing = self.closing.lock().await;
        if self.core.close() {
            return Ok(());
        }
        self.core.repairs.wake();
        self.core.mover.wake();
        self.core.stop_scrubbing().await;
        // A move that is cut off in the middle would look like a disk that fails.
        let since = Instant::now();
        while (self.core.mover.is_busy() || self.core.repairs.is_busy()) && since.elapsed() < CLOSE_WAIT_MAX {
            tokio::time::sleep(CLOSE_STEP).await;
        }
        // Holders of a permit finish first.
        let writers = self.core.objects.hold_writers().await;
        let journal = self.journal.clone();
        self.core.objects.graveyard.barrier().await;
        self.core
            .blocking(move |core| {
                journal.close();
                if usage == Usage::Exported {
                    core.members.event(EventKind::Exported, format!("by {}", core.members.owner));
                }
                let owing = core.owed_objects() > 0;
                core.members.write_labels(|label| (label.usage, label.owing) = (usage, owing));
                core.members.write_history();
                // There may be room again, and more than the next opening finds.
                core.reserves.make(&core.members);
                core.give_back_disks();
            })
            .await?;
        drop(writers);
        self.core.objects.graveyard.stop();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.core.close();
        self.core.scrubs.forget_users();
        self.tasks.abort();
        self.core.objects.graveyard.stop();
        self.journal.stop();
        self.core.give_back_disks();
    }
}
