//! Automatic snapshots of a volume: taking the one that is due, and destroying those that no period needs. What is due and which
//! are kept is decided in [`crate::retention`]. No disk is touched where nothing changed since the newest snapshot: the volume knows
//! that in memory.

use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_api::{Failure, SnapshotCounts, SnapshotSchedule};
use larder_base::{boxed, passed};
use larder_fs::{FsError, SnapshotInfo};
use larder_volume::Volume;

use crate::names::VolumeName;
use crate::retention;
use crate::snapshot_runs::Run;
use crate::translate;

/// After the full hour, so that a clock that is a little slow does not wake twice.
pub const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

/// Whether one was taken. Snapshots up to the number `since` are of before the clock was set back (`schedules.set_back`).
#[boxed]
pub async fn take_due(
    volume: &Volume,
    name: &VolumeName,
    keep: &SnapshotCounts,
    since: u64,
    now: DateTime<Utc>,
) -> Result<bool, Failure> {
    if !retention::is_due(keep, &times(&lately(automatic(volume), since)), now) || !volume.changed_since_snapshot() {
        return Ok(false);
    }
    take(volume, name, since, now).await
}

fn lately(mut automatic: Vec<(SnapshotInfo, DateTime<Utc>)>, since: u64) -> Vec<(SnapshotInfo, DateTime<Utc>)> {
    automatic.retain(|(info, _)| info.number > since);
    automatic
}

/// Whether one was taken: somebody may have been faster, in this minute.
#[boxed]
pub async fn take(volume: &Volume, name: &VolumeName, since: u64, now: DateTime<Utc>) -> Result<bool, Failure> {
    let Some(called) = free_name(volume, since, now) else {
        return Err(Failure::internal(format!("this machine's clock says {now}")).action("set the clock"));
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

/// The name for a snapshot that is taken now. The newest of the schedule's may have it where somebody was faster in this minute:
/// then there is no second one.
fn free_name(volume: &Volume, since: u64, now: DateTime<Utc>) -> Option<String> {
    let newest = lately(automatic(volume), since).pop().map(|(info, _)| info.name);
    let named: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    let mut names = retention::names_at(now);
    names.find(|name| Some(name) == newest.as_ref() || !named.contains(name))
}

/// A schedule that takes nothing although files change, for whatever reason: counted by what has really passed.
pub fn check_late(volume: &Volume, name: &VolumeName, keep: &SnapshotCounts) -> Result<(), Failure> {
    let automatic = automatic(volume);
    let (Some((newest, _)), Some(late_after)) = (automatic.last(), retention::late_after_secs(keep)) else {
        return Ok(());
    };
    let passed = passed::now_secs().saturating_sub(passed::when_secs(newest.created.secs));
    if !volume.changed_since_snapshot() || passed <= late_after {
        return Ok(());
    }
    let hours = passed / 3600;
    let text =
        format!("no snapshot of {name} was taken for {hours} hours, although files changed: is the clock right?");
    Err(Failure::internal(text).action(format!("take one with: larder snap create {name}; and look at: date")))
}

/// Destroys the automatic snapshots that no period needs, except those that are held or `is_in_use`.
pub async fn thin(
    volume: &Volume,
    name: &VolumeName,
    keep: &SnapshotCounts,
    is_in_use: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
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
    let newest = automatic.last().map(|(info, _)| info.name.clone());
    let next = retention::next(&keep, &self::times(&lately(automatic, run.since)), now).timestamp_millis()
        + AFTER_THE_HOUR.as_millis() as i64;
    let fault = run.fault.as_ref().map(Failure::line);
    SnapshotSchedule {
        pool: name.pool.clone(),
        volume: name.volume.clone(),
        keep,
        kept: retention::counts(&keep, &times),
        newest,
        next_ms: u64::try_from(next).unwrap_or(0),
        changed: run.volume.as_ref().is_some_and(Volume::changed_since_snapshot),
        fault,
    }
}
