//! Snapshots that the daemon takes by itself, as `snapshots = { hourly = 24, ... }` of a volume asks for.
//!
//! The clock is looked at once an hour, just after the full hour of UTC, and at once when the
//! configuration or a key has changed. A machine that was off or asleep finds the present period
//! without a snapshot, and takes one. Taking and destroying them:
//! [`larder_keep::snapshot_schedule`]. Snapshots that are mounted stay, under their names, whoever
//! asks for something else.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_api::{Failure, SnapshotCounts, SnapshotSchedule, SnapshotScheduleSet, SnapshotsRequest, SnapshotsStatus};
use larder_base::passed;
use larder_keep::snapshot_runs::{Run, SnapshotRuns};
use larder_keep::snapshot_schedule::{AFTER_THE_HOUR, check_late, shown, take, take_due, thin};
use larder_keep::snapshot_words::selected;
use larder_keep::{Storage, Store};
use larder_volume::Volume;

use super::volumes::Volumes;
use larder_config::VolumeName;
use larder_copies::replication::runs::Runs;
use larder_document::{Document, Kind, Standings};
use larder_servers::Mounts;

pub struct Snapshots {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
    pub volumes: Arc<Volumes>,
    pub schedules: Arc<SnapshotRuns>,
    pub replication: Arc<Runs>,
    pub standings: Standings,
}

/// Runs until the daemon stops.
pub async fn run(snapshots: Arc<Snapshots>) {
    let mut woken = true;
    loop {
        snapshots.keep_schedules(woken).await;
        woken = tokio::select! {
            () = snapshots.schedules.woken() => true,
            () = tokio::time::sleep(until_next_hour(Utc::now()) + AFTER_THE_HOUR) => false,
        };
    }
}

fn until_next_hour(now: DateTime<Utc>) -> Duration {
    Duration::from_secs(3600 - now.timestamp().rem_euclid(3600).unsigned_abs())
}

impl Snapshots {
    /// The schedules of the configuration.
    fn schedules_of_file(&self) -> Vec<(VolumeName, SnapshotCounts)> {
        let config = self.document.config();
        let volumes = config.volumes.iter();
        volumes.filter_map(|volume| Some((volume.name.clone(), volume.snapshots?))).collect()
    }

    async fn keep_schedules(&self, woken: bool) {
        let schedules = {
            // A change that is under way may have closed a volume for a moment.
            let _still = self.document.lock().await;
            self.schedules_of_file()
        };
        let is_wanted = |name: &VolumeName| schedules.iter().any(|(wanted, _)| wanted == name);
        self.schedules.forget(|name| !is_wanted(name));
        self.standings.keep_only(Kind::Schedule, |name| schedules.iter().any(|(wanted, _)| wanted.to_string() == name));
        for (name, keep) in schedules {
            // `handing.configured_twice`
            if self.storage.is_elsewhere(&name.to_string()).await {
                continue;
            }
            let run = self.schedules.of(&name);
            if run.volume.is_none() && run.waits_for_a_change() && !woken {
                continue;
            }
            let outcome = match self.volume_at_hand(&name, run).await {
                Ok(volume) => self.keep_up(&volume, &name, &keep).await,
                Err(failure) => Err(failure),
            };
            self.schedules.note(&name, &outcome);
            self.standings.set(Kind::Schedule, &name.to_string(), outcome);
        }
    }

    /// Takes the snapshot that is due, if anything changed, and destroys those that no period needs.
    async fn keep_up(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), Failure> {
        let taken = take_due(volume, name, keep, self.taken_since(volume, name), Utc::now()).await;
        if matches!(taken, Ok(true)) {
            self.replication.wake();
        }
        let thinned = self.thin(volume, name, keep).await;
        let late = check_late(volume, name, keep);
        taken.and(thinned).and(late)
    }

    /// The volume of a schedule (`schedules.volumes_at_hand`).
    async fn volume_at_hand(&self, name: &VolumeName, run: Run) -> Result<Volume, Failure> {
        if let Some(volume) = run.volume {
            return Ok(volume);
        }
        let volume = self.storage.volume(name).await?;
        self.schedules.keep_at_hand(name, &volume);
        Ok(volume)
    }

    /// The schedules, and what became of them. Does no I/O.
    pub fn list(&self) -> Vec<SnapshotSchedule> {
        let now = Utc::now();
        let schedules = self.schedules_of_file().into_iter();
        schedules.map(|(name, keep)| shown(&name, keep, &self.schedules.of(&name), now)).collect()
    }

    pub async fn set_schedule(&self, request: SnapshotScheduleSet) -> Result<Vec<SnapshotSchedule>, Failure> {
        let mut state = self.document.lock().await;
        let (pool, volume) = self.storage.find(&request.volume).await?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        self.document.edit(&mut state, |editor| editor.set_snapshots(&name, request.keep)).await?;
        Ok(self.list())
    }

    pub async fn change(&self, name: &str, request: SnapshotsRequest) -> Result<SnapshotsStatus, Failure> {
        if let SnapshotsRequest::Rollback { name: snapshot, destroy_later, force } = request {
            return self.volumes.roll_back(name, &snapshot, destroy_later, force).await;
        }
        let (pool, volume) = self.storage.find(name).await?;
        self.not_mounted(&pool, &volume, &request).await?;
        let changed = pool.change_snapshots(&volume, request).await?;
        self.replication.wake();
        Ok(changed)
    }

    /// Fails for snapshots that are to go, or to have another name, and are mounted.
    async fn not_mounted(&self, pool: &Store, volume: &str, request: &SnapshotsRequest) -> Result<(), Failure> {
        let names = match request {
            SnapshotsRequest::Destroy { names, dry_run: false } if !pool.is_replica(volume).await? => {
                // A name that there is not is refused later.
                selected(&pool.volume(volume).await?.snapshots(), names).unwrap_or_default()
            }
            SnapshotsRequest::Rename { name, .. } => vec![name.clone()],
            _ => return Ok(()),
        };
        let of = VolumeName { pool: pool.name.clone(), volume: volume.to_owned() };
        match self.mounts.of_snapshot(&of, &names) {
            None => Ok(()),
            Some((name, dir)) => {
                let message = format!("the snapshot {of}@{name} is mounted on {}", dir.display());
                let word = larder_base::shell::word(&dir);
                Err(Failure::busy(message).action(format!("unmount it first: larder umount {word}")))
            }
        }
    }

    /// Takes one now, due or not, and destroys those that no period needs. `false`: this minute had one already.
    pub(super) async fn take_now(
        &self,
        volume: &Volume,
        name: &VolumeName,
        keep: &SnapshotCounts,
        now: DateTime<Utc>,
    ) -> Result<bool, Failure> {
        let is_taken = take(volume, name, self.taken_since(volume, name), now).await?;
        self.replication.wake();
        self.thin(volume, name, keep).await?;
        Ok(is_taken)
    }

    /// `schedules.set_back`
    fn taken_since(&self, volume: &Volume, name: &VolumeName) -> u64 {
        let newest = volume.snapshots().last().map_or(0, |info| info.number);
        self.schedules.note_set_backs(name, passed::set_backs(), newest)
    }

    async fn thin(&self, volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), Failure> {
        let is_mounted = |snapshot: &str| self.mounts.of_snapshot(name, &[snapshot.to_owned()]).is_some();
        thin(volume, name, keep, is_mounted).await
    }
}
