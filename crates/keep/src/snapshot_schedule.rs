//! Automatic snapshots of a volume: taking the one that is due, and destroying those that no period needs. What is due and which
//! are kept is decided in [`crate::retention`]. No disk is touched where nothing changed since the newest snapshot: the volume knows
//! that in memory.

use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_api::{SnapshotCounts, SnapshotSchedule};
use larder_fs::{FsError, SnapshotInfo};
use larder_volume::Volume;

use crate::error::KeepError;
use crate::names::VolumeName;
use crate::retention;
use crate::snapshot_runs::Run;
use crate::translate;

/// After the full hour, so that a clock that is a little slow does not wake twice.
pub const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

/// Whether one was taken.
pub async fn take_due(
    volume: &Volume,
    name: &VolumeName,
    keep: &SnapshotCounts,
    now: DateTime<Utc>,
) -> Result<bool, KeepError> {
    if !retention::is_due(keep, &times(&automatic(volume)), now) || !volume.changed_since_snapshot() {
        return Ok(false);
    }
    take(volume, name, now).await
}

/// Whether one was taken: somebody may have been faster, in this minute.
pub async fn take(volume: &Volume, name: &VolumeName, now: DateTime<Utc>) -> Result<bool, KeepError> {
    let Some(called) = retention::name_at(now) else {
        return Err(KeepError::internal(format!("this machine's clock says {now}")).action("set the clock"));
    };
    match volume.snapshot(&called).await {
        Ok(_) => {
            tracing::debug!("took {name}@{called}");
            Ok(true)
        }
        Err(FsError::Exists) => Ok(false),
        Err(error) => Err(translate::volume_error(format_args!("the snapshot {name}@{called}"), &error)),
    }
}

/// Destroys the automatic snapshots that no period needs, except those that are held or `is_in_use`.
pub async fn thin(
    volume: &Volume,
    name: &VolumeName,
    keep: &SnapshotCounts,
    is_in_use: impl Fn(&str) -> bool,
) -> Result<(), KeepError> {
    let automatic = automatic(volume);
    let mut outcome = Ok(());
    for place in retention::unneeded(keep, &times(&automatic)) {
        let (info, _) = &automatic[place];
        if !info.holds.is_empty() || is_in_use(&info.name) {
            continue;
        }
        match volume.destroy_snapshot(&info.name).await {
            Ok(()) => tracing::debug!("destroyed {name}@{}", info.name),
            // Held or destroyed by somebody, meanwhile.
            Err(FsError::Busy(_) | FsError::NotFound) => {}
            Err(error) => {
                let what = format_args!("the snapshot {name}@{} is not destroyed", info.name);
                outcome = outcome.and(Err(translate::volume_error(what, &error)));
            }
        }
    }
    outcome
}

/// The snapshots of the schedule's own naming, in the order of taking (`retention.own_names_only`).
fn automatic(volume: &Volume) -> Vec<(SnapshotInfo, DateTime<Utc>)> {
    let snapshots = volume.snapshots().into_iter();
    snapshots.filter_map(|info| retention::time_of(&info.name).map(|at| (info, at))).collect()
}

fn times(automatic: &[(SnapshotInfo, DateTime<Utc>)]) -> Vec<DateTime<Utc>> {
    automatic.iter().map(|(_, at)| *at).collect()
}

/// A schedule, and what became of it. Does no I/O.
pub fn shown(name: &VolumeName, keep: SnapshotCounts, run: &Run, now: DateTime<Utc>) -> SnapshotSchedule {
    let automatic = run.volume.as_ref().map(automatic).unwrap_or_default();
    let times = times(&automatic);
    let next = retention::next(&keep, &times, now).timestamp_millis() + AFTER_THE_HOUR.as_millis() as i64;
    let fault = run.fault.as_ref().map(ToString::to_string);
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
