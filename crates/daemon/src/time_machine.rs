//! A snapshot by itself after each finished backup of Time Machine.
//!
//! - `backups.end_by_history`: a Mac notes a finished backup in a file of its sparse bundle. Once that file changed and nobody writes any
//!   more (the Mac detaches the bundle), the backup is whole. A snapshot at another moment could hold half a backup.
//! - `backups.history_by_inode`: most doors tell of written bytes by the inode alone, so the inode of each bundle's history is known.
//! - `backups.none_missed`: a history that is newer than the newest snapshot, as a follower begins, is a backup that ended unseen.
//! - `backups.idle_is_quiet`: without a backup nothing is read or written; the events of the volume are in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use larder_api::SnapshotCounts;
use larder_base::{Timestamp, task};
use larder_files::{Files, Writers};
use larder_fs::{Attr, Cred, Event, FileKind, Ino, NameMatch};
use larder_keep::Storage;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::snapshot_schedule::Snapshots;
use larder_base::rounds;
use larder_config::VolumeName;
use larder_document::Document;

/// Volumes that were locked or elsewhere are tried again, and followers that ended begin anew.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// As macOS names the file in the bundle.
const FINISHED: &[u8] = b"com.apple.TimeMachine.SnapshotHistory.plist";
/// The Mac has closed everything for so long.
const QUIET: Duration = Duration::from_secs(10);
/// A Mac that keeps the bundle open, or another client that writes: after that the snapshot is taken all the same, as the backup is on
/// the volume.
const WRITERS_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Entries of a share's top that may be bundles, of which each Mac has one.
const BUNDLES_MAX: usize = 1000;
const HISTORIES_MAX: usize = 2 * BUNDLES_MAX;
/// Kept where the volume has no schedule of its own.
const KEPT: SnapshotCounts = SnapshotCounts { hourly: 0, daily: 14, weekly: 8, monthly: 0 };

/// The folders of each volume that Macs back up to.
type Targets = BTreeMap<VolumeName, BTreeSet<String>>;

pub struct Backups {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub snapshots: Arc<Snapshots>,
    /// Shares may have changed.
    pub wake_backups: Arc<Notify>,
}

/// Runs until the daemon stops.
pub async fn run(backups: Arc<Backups>) {
    let mut followed: BTreeMap<VolumeName, Follower> = BTreeMap::new();
    loop {
        let wanted = backups.targets();
        followed.retain(|name, follower| wanted.get(name) == Some(&follower.folders) && !follower.task.is_finished());
        for (name, folders) in wanted {
            if followed.contains_key(&name) {
                continue;
            }
            let Ok(files) = backups.storage.files(&name).await else { continue };
            // Listens before it looks: nothing falls between the two.
            let follow = Follow::begin(&backups, &name, &files);
            let task = task::spawn(follow.run(files, folders.clone()));
            followed.insert(name, Follower { folders, task });
        }
        tokio::select! {
            () = backups.wake_backups.notified() => {}
            () = rounds::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Ends with its value.
struct Follower {
    folders: BTreeSet<String>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows the backups on one volume, and does not keep it open.
struct Follow {
    backups: Arc<Backups>,
    name: VolumeName,
    events: tokio::sync::broadcast::Receiver<Event>,
    writers: Writers,
    histories: BTreeSet<Ino>,
}

impl Follow {
    fn begin(backups: &Arc<Backups>, name: &VolumeName, files: &Files) -> Follow {
        Follow {
            backups: Arc::clone(backups),
            name: name.clone(),
            events: files.events(),
            writers: files.writers_alone(),
            histories: BTreeSet::new(),
        }
    }

    async fn run(mut self, files: Files, folders: BTreeSet<String>) {
        let mut ended_unseen = false;
        let newest = files.snapshots().last().map(|newest| newest.created);
        for folder in &folders {
            for history in histories_in(&files, folder).await {
                self.remember(history.id.ino);
                ended_unseen |= is_after(newest, history.ctime);
            }
        }
        // The volume must be able to close.
        drop(files);
        loop {
            if !std::mem::take(&mut ended_unseen) {
                match self.events.recv().await {
                    Ok(event) => {
                        if !self.is_finish(&event).await {
                            continue;
                        }
                    }
                    // The end of a backup may be among them, and a snapshot too many does no harm.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
            // Begins before the wait: a backup that ends meanwhile is in the snapshot, or seen afterwards.
            if !self.until_quiet().await || !self.snapshot().await {
                return;
            }
        }
    }

    fn remember(&mut self, history: Ino) {
        if self.histories.len() < HISTORIES_MAX {
            self.histories.insert(history);
        }
    }

    /// Whether the event is that of a finished backup (`backups.end_by_history`).
    async fn is_finish(&mut self, event: &Event) -> bool {
        match event {
            Event::Data { ino, .. } => self.histories.contains(ino),
            Event::Modified { name, .. } => name == FINISHED,
            Event::Renamed { to_name, ino, .. } if to_name == FINISHED => {
                self.remember(*ino);
                true
            }
            Event::Added { dir, name, .. } if name == FINISHED => {
                if let Ok(files) = self.backups.storage.files(&self.name).await
                    && let Ok(history) = files.lookup(&Cred::root(), *dir, FINISHED, NameMatch::Exact).await
                {
                    self.remember(history.id.ino);
                }
                true
            }
            Event::Removed { ino, .. } => {
                self.histories.remove(ino);
                false
            }
            _ => false,
        }
    }

    /// `false`: nobody serves the volume any more.
    async fn until_quiet(&self) -> bool {
        const STEP: Duration = Duration::from_secs(1);
        let (mut waited, mut quiet) = (Duration::ZERO, Duration::ZERO);
        while quiet < QUIET && waited < WRITERS_WAIT_MAX {
            tokio::time::sleep(STEP).await;
            waited += STEP;
            quiet = match self.writers.count() {
                Some(0) => quiet + STEP,
                Some(_) => Duration::ZERO,
                None => return false,
            };
        }
        true
    }

    /// `false`: the volume is closed.
    async fn snapshot(&mut self) -> bool {
        // What was said until here is in the snapshot.
        self.events = self.events.resubscribe();
        for _ in 0..2 {
            match self.backups.snapshot(&self.name).await {
                Taken::Now => return true,
                Taken::NotServed => return false,
                Taken::EarlierInThisMinute => tokio::time::sleep(until_next_minute()).await,
            }
        }
        true
    }
}

/// A snapshot's name is its minute. Where the minute has one already, taken during the backup, the next minute is waited for.
fn until_next_minute() -> Duration {
    Duration::from_secs(61 - Utc::now().timestamp().rem_euclid(60).unsigned_abs())
}

/// The histories of the bundles in a folder of a volume.
async fn histories_in(files: &Files, folder: &str) -> Vec<Attr> {
    let root = Cred::root();
    let mut top = Ino::ROOT;
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        match files.lookup(&root, top, part.as_bytes(), NameMatch::Exact).await {
            Ok(found) => top = found.id.ino,
            Err(_) => return Vec::new(),
        }
    }
    let Ok(listing) = files.readdir(&root, top, 0, BUNDLES_MAX, false).await else { return Vec::new() };
    let mut found = Vec::new();
    for bundle in listing.entries.iter().filter(|entry| entry.kind == FileKind::Directory) {
        found.extend(files.lookup(&root, bundle.ino, FINISHED, NameMatch::Exact).await);
    }
    found
}

/// Whether a history changed behind the newest snapshot (`backups.none_missed`).
fn is_after(newest: Option<Timestamp>, changed: Timestamp) -> bool {
    newest.is_none_or(|newest| changed > newest)
}

enum Taken {
    Now,
    EarlierInThisMinute,
    /// Or it failed, which was logged.
    NotServed,
}

impl Backups {
    fn targets(&self) -> Targets {
        let config = self.document.config();
        let mut targets = Targets::new();
        for share in config.shares.iter().filter(|share| share.takes_backups()) {
            if let Some(volume) = &share.volume {
                targets.entry(volume.clone()).or_default().insert(share.folder.clone());
            }
        }
        targets
    }

    async fn snapshot(&self, name: &VolumeName) -> Taken {
        let config = self.document.config();
        let keep = config.volumes.iter().find(|volume| volume.name == *name).and_then(|volume| volume.snapshots);
        let Ok(volume) = self.storage.volume(name).await else { return Taken::NotServed };
        match self.snapshots.take_now(&volume, name, &keep.unwrap_or(KEPT), Utc::now()).await {
            Ok(true) => {
                tracing::info!("a backup in {name} has ended: a snapshot is taken");
                Taken::Now
            }
            Ok(false) => Taken::EarlierInThisMinute,
            Err(failure) => {
                tracing::error!("no snapshot after a backup in {name}: {}", failure.message);
                Taken::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_is_newer_than_the_newest_snapshot_is_a_backup_that_was_missed() {
        let changed = Timestamp::new(100, 5);
        assert!(is_after(None, changed) && is_after(Some(Timestamp::new(100, 4)), changed));
        assert!(!is_after(Some(changed), changed) && !is_after(Some(Timestamp::new(200, 0)), changed));
    }
}
