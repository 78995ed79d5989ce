//! Snapshots that the daemon takes by itself, as `snapshots = { hourly = 24, ... }` of a volume asks for.
//!
//! The clock is looked at once an hour, just after the full hour of UTC, and at once when the configuration or a key has changed. A machine that was
//! off or asleep finds the present period without a snapshot, and takes one. Taking and destroying them:
//! [`larder_keep::snapshot_schedule`].

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_api::{Failure, SnapshotCounts, SnapshotSchedule};
use larder_base::passed;
use larder_keep::KeepError;
use larder_keep::snapshot_runs::Run;
use larder_keep::snapshot_schedule::{AFTER_THE_HOUR, check_late, shown, take, take_due, thin};
use larder_volume::Volume;

use super::Daemon;
use super::translate::as_failure;
use larder_config::VolumeName;

/// Runs until the daemon stops.
pub async fn run(daemon: Arc<Daemon>) {
    let mut woken = true;
    loop {
        daemon.keep_schedules(woken).await;
        woken = tokio::select! {
            () = daemon.snapshot_runs.woken() => true,
            () = tokio::time::sleep(until_next_hour(Utc::now()) + AFTER_THE_HOUR) => false,
        };
    }
}

fn until_next_hour(now: DateTime<Utc>) -> Duration {
    Duration::from_secs(3600 - now.timestamp().rem_euclid(3600).unsigned_abs())
}

impl Daemon {
    /// The schedules of the configuration.
    async fn schedules_of_file(&self) -> Vec<(VolumeName, SnapshotCounts)> {
        let state = self.state.lock().await;
        let volumes = state.config.volumes.iter();
        volumes.filter_map(|volume| Some((volume.name.clone(), volume.snapshots?))).collect()
    }

    async fn keep_schedules(&self, woken: bool) {
        let schedules = self.schedules_of_file().await;
        self.snapshot_runs.forget(|name| schedules.iter().all(|(wanted, _)| wanted != name));
        for (name, keep) in schedules {
            // `handing.configured_twice`
            if self.storage.is_elsewhere(&name.to_string()).await {
                continue;
            }
            let run = self.snapshot_runs.of(&name);
            if run.volume.is_none() && run.waits_for_a_change() && !woken {
                continue;
            }
            let outcome = match self.volume_at_hand(&name, run).await {
                Ok(volume) => self.keep_up(&volume, &name, &keep).await,
                Err(failure) => Err(failure),
            };
            self.snapshot_runs.note(&name, outcome);
        }
    }

    /// Takes the snapshot that is due, if anything changed, and destroys those that no period needs.
    async fn keep_up(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), KeepError> {
        let taken = take_due(volume, name, keep, self.taken_since(volume, name), Utc::now()).await;
        if matches!(taken, Ok(true)) {
            self.replication.wake();
        }
        let thinned = self.thin(volume, name, keep).await;
        let late = check_late(volume, name, keep);
        taken.and(thinned).and(late)
    }

    /// The volume of a schedule (`schedules.volumes_at_hand`).
    async fn volume_at_hand(&self, name: &VolumeName, run: Run) -> Result<Volume, KeepError> {
        if let Some(volume) = run.volume {
            return Ok(volume);
        }
        let volume = self.storage.volume(name).await?;
        self.snapshot_runs.keep_at_hand(name, &volume);
        Ok(volume)
    }

    /// The schedules, and what became of them. Does no I/O.
    pub async fn snapshot_schedules(&self) -> Vec<SnapshotSchedule> {
        let now = Utc::now();
        let schedules = self.schedules_of_file().await.into_iter();
        schedules.map(|(name, keep)| shown(&name, keep, &self.snapshot_runs.of(&name), now)).collect()
    }

    /// Takes one now, due or not, and destroys those that no period needs. `false`: this minute had one already.
    pub(super) async fn take_now(
        &self,
        volume: &Volume,
        name: &VolumeName,
        keep: &SnapshotCounts,
        now: DateTime<Utc>,
    ) -> Result<bool, Failure> {
        let is_taken = take(volume, name, self.taken_since(volume, name), now).await.map_err(as_failure)?;
        self.replication.wake();
        self.thin(volume, name, keep).await.map_err(as_failure).map(|()| is_taken)
    }

    /// `schedules.set_back`
    fn taken_since(&self, volume: &Volume, name: &VolumeName) -> u64 {
        let newest = volume.snapshots().last().map_or(0, |info| info.number);
        self.snapshot_runs.note_set_backs(name, passed::set_backs(), newest)
    }

    async fn thin(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), KeepError> {
        let is_mounted = |snapshot: &str| self.mounts.of_snapshot(name, &[snapshot.to_owned()]).is_some();
        thin(volume, name, keep, is_mounted).await
    }
}
