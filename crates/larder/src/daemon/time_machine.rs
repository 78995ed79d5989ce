//! A snapshot by itself after each finished backup of Time Machine.
//!
//! - `backups.end_by_name`: a Mac notes a finished backup in a file of its sparse bundle. Once that changed and nobody writes any more
//!   (the Mac detaches the bundle), the backup is whole. A snapshot at another moment could hold half a backup.
//! - `backups.idle_is_quiet`: without a backup nothing is read or written; the events of the volume are in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use larder_api::SnapshotCounts;
use larder_files::Files;
use larder_fs::Event;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::Daemon;
use crate::config::VolumeName;
use crate::rounds;

/// The configuration is looked at for new shares.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// As macOS names the file in the bundle.
const FINISHED: &[u8] = b"com.apple.TimeMachine.SnapshotHistory.plist";
/// The Mac has closed everything for so long.
const QUIET: Duration = Duration::from_secs(10);
/// A Mac that keeps the bundle open, or another client that writes: after that the snapshot is taken all the same, as the backup is on
/// the volume.
const WRITERS_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Kept where the volume has no schedule of its own.
const KEPT: SnapshotCounts = SnapshotCounts { hourly: 0, daily: 14, weekly: 8, monthly: 0 };

/// Runs until the daemon stops.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut followed: BTreeMap<VolumeName, Follower> = BTreeMap::new();
    loop {
        let wanted = daemon.backup_volumes().await;
        followed.retain(|name, follower| wanted.contains(name) && !follower.0.is_finished());
        for name in wanted {
            if followed.contains_key(&name) {
                continue;
            }
            // A volume that is locked or elsewhere is tried again.
            let Ok(files) = daemon.storage.files(&name).await else { continue };
            followed.insert(name.clone(), Follower(tokio::spawn(follow(Arc::clone(&daemon), name, files))));
        }
        rounds::sleep(LOOK_EVERY).await;
    }
}

/// Ends with its value.
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(daemon: Arc<Daemon>, name: VolumeName, files: Files) {
    let mut events = files.events();
    // The volume must be able to close.
    let writers = files.writers_alone();
    drop(files);
    loop {
        let finished = match events.recv().await {
            Ok(event) => is_finish(&event),
            Err(RecvError::Lagged(_)) => false,
            Err(RecvError::Closed) => return,
        };
        if !finished {
            continue;
        }
        let (mut waited, mut quiet) = (Duration::ZERO, Duration::ZERO);
        while quiet < QUIET && waited < WRITERS_WAIT_MAX {
            const STEP: Duration = Duration::from_secs(1);
            tokio::time::sleep(STEP).await;
            waited += STEP;
            quiet = match writers.count() {
                Some(0) => quiet + STEP,
                Some(_) => Duration::ZERO,
                None => return,
            };
        }
        events = events.resubscribe();
        daemon.snapshot_of_backup(&name).await;
    }
}

fn is_finish(event: &Event) -> bool {
    match event {
        Event::Added { name, .. } | Event::Modified { name, .. } => name == FINISHED,
        Event::Renamed { to_name, .. } => to_name == FINISHED,
        _ => false,
    }
}

impl Daemon {
    async fn backup_volumes(&self) -> Vec<VolumeName> {
        let state = self.state.lock().await;
        let shares = state.config.shares.iter().filter(|share| share.time_machine.is_some());
        shares.filter_map(|share| share.volume.clone()).collect()
    }

    async fn snapshot_of_backup(&self, name: &VolumeName) {
        let keep = {
            let state = self.state.lock().await;
            state.config.volumes.iter().find(|volume| volume.name == *name).and_then(|volume| volume.snapshots)
        };
        let Ok(volume) = self.storage.volume(name).await else { return };
        match self.take_now(&volume, name, &keep.unwrap_or(KEPT), Utc::now()).await {
            Ok(()) => tracing::info!("a backup in {name} has ended: a snapshot is taken"),
            Err(failure) => tracing::error!("no snapshot after a backup in {name}: {}", failure.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use larder_fs::{FileKind, Ino};

    #[test]
    fn a_backup_ends_when_its_history_is_written() {
        let added = |name: &'static [u8]| Event::Added {
            origin: 1,
            dir: Ino(5),
            name: Bytes::from_static(name),
            kind: FileKind::File,
        };
        assert!(is_finish(&added(FINISHED)));
        assert!(!is_finish(&added(b"1a")) && !is_finish(&Event::Lost { origin: 1 }));
    }
}
