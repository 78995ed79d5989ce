//! Snapshots that the daemon takes by itself, as `snapshots = { hourly = 24, ... }` of a volume asks for.
//!
//! The clock is looked at once an hour, just after the full hour of UTC, and at once when the configuration or a key has changed. A machine that was
//! off or asleep finds the present period without a snapshot, and takes one. No disk is touched where nothing changed since the
//! newest snapshot: the volume knows that in memory. What is due and which are kept is decided in [`super::retention`].

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_api::{Failure, SnapshotCounts, SnapshotSchedule};
use larder_fs::{FsError, SnapshotInfo};
use larder_volume::Volume;

use super::snapshot_runs::Run;
use super::{Daemon, translate};
use crate::config::VolumeName;
use larder_keep::retention;

/// After the full hour, so that a clock that is a little slow does not wake twice.
const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

/// Runs until the daemon stops.
pub(crate) async fn run(daemon: Arc<Daemon>) {
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
    async fn keep_up(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), Failure> {
        let taken = take_due(volume, name, keep, Utc::now()).await;
        if matches!(taken, Ok(true)) {
            self.replication.wake();
        }
        let thinned = self.thin(volume, name, keep).await;
        taken.and(thinned)
    }

    /// The volume of a schedule (`schedules.volumes_at_hand`).
    async fn volume_at_hand(&self, name: &VolumeName, run: Run) -> Result<Volume, Failure> {
        if let Some(volume) = run.volume {
            return Ok(volume);
        }
        let volume = self.storage.volume(name).await?;
        self.snapshot_runs.keep_at_hand(name, &volume);
        Ok(volume)
    }

    /// The schedules, and what became of them. Does no I/O.
    pub(crate) async fn snapshot_schedules(&self) -> Vec<SnapshotSchedule> {
        let now = Utc::now();
        let schedules = self.schedules_of_file().await.into_iter();
        schedules.map(|(name, keep)| shown(&name, keep, &self.snapshot_runs.of(&name), now)).collect()
    }
}

/// Whether one was taken.
async fn take_due(
    volume: &Volume,
    name: &VolumeName,
    keep: &SnapshotCounts,
    now: DateTime<Utc>,
) -> Result<bool, Failure> {
    if !retention::is_due(keep, &times(&automatic(volume)), now) || !volume.changed_since_snapshot() {
        return Ok(false);
    }
    take(volume, name, now).await
}

/// Whether one was taken: somebody may have been faster, in this minute.
async fn take(volume: &Volume, name: &VolumeName, now: DateTime<Utc>) -> Result<bool, Failure> {
    let Some(called) = retention::name_at(now) else {
        return Err(Failure::internal(format!("this machine's clock says {now}")).action("set the clock"));
    };
    match volume.snapshot(&called).await {
        Ok(_) => {
            tracing::debug!("took {name}@{called}");
            Ok(true)
        }
        Err(FsError::Exists) => Ok(false),
        Err(error) => Err(translate::volume_failure(format_args!("the snapshot {name}@{called}"), &error)),
    }
}

impl Daemon {
    /// Takes one now, due or not, and destroys those that no period needs. `false`: this minute had one already.
    pub(super) async fn take_now(
        &self,
        volume: &Volume,
        name: &VolumeName,
        keep: &SnapshotCounts,
        now: DateTime<Utc>,
    ) -> Result<bool, Failure> {
        let is_taken = take(volume, name, now).await?;
        self.replication.wake();
        self.thin(volume, name, keep).await.map(|()| is_taken)
    }

    async fn thin(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), Failure> {
        let automatic = automatic(volume);
        let mut outcome = Ok(());
        for place in retention::unneeded(keep, &times(&automatic)) {
            let (info, _) = &automatic[place];
            let is_mounted = || self.mounts.of_snapshot(name, std::slice::from_ref(&info.name)).is_some();
            if !info.holds.is_empty() || is_mounted() {
                continue;
            }
            match volume.destroy_snapshot(&info.name).await {
                Ok(()) => tracing::debug!("destroyed {name}@{}", info.name),
                // Held or destroyed by somebody, meanwhile.
                Err(FsError::Busy(_) | FsError::NotFound) => {}
                Err(error) => {
                    let what = format_args!("the snapshot {name}@{} is not destroyed", info.name);
                    outcome = outcome.and(Err(translate::volume_failure(what, &error)));
                }
            }
        }
        outcome
    }
}

/// The snapshots of the schedule's own naming, in the order of taking (`retention.own_names_only`).
fn automatic(volume: &Volume) -> Vec<(SnapshotInfo, DateTime<Utc>)> {
    let snapshots = volume.snapshots().into_iter();
    snapshots.filter_map(|info| retention::time_of(&info.name).map(|at| (info, at))).collect()
}

fn times(automatic: &[(SnapshotInfo, DateTime<Utc>)]) -> Vec<DateTime<Utc>> {
    automatic.iter().map(|(_, at)| *at).collect()
}

fn shown(name: &VolumeName, keep: SnapshotCounts, run: &Run, now: DateTime<Utc>) -> SnapshotSchedule {
    let automatic = run.volume.as_ref().map(automatic).unwrap_or_default();
    let times = times(&automatic);
    let next = retention::next(&keep, &times, now).timestamp_millis() + AFTER_THE_HOUR.as_millis() as i64;
    let fault = run.fault.as_ref().map(|fault| match &fault.action {
        Some(action) => format!("{}; {action}", fault.message),
        None => fault.message.clone(),
    });
    SnapshotSchedule {
        pool: name.pool.clone(),
        volume: name.volume.clone(),
        keep,
        kept: retention::counts(&keep, &times),
        newest: automatic.last().map(|(info, _)| info.name.clone()),
        next_ms: u64::try_from(next).unwrap_or(0),
        changed: run.volume.as_ref().is_some_and(Volume::changed_since_snapshot),
        fault,
    }
}
