//! From the words of the layers below to those of the API, and their errors to errors that a person can act on.

use std::fmt;

use larder_api::{
    DiskStatus, Failure, FailureKind, PoolChange, PoolChangePlan, PoolEvent, PoolHistory, PoolListed, PoolMoving,
    PoolStatus, PoolWorth, ScrubStatus, VolumeChange, VolumeStatus,
};
use larder_fs::{Contents, FsError, StatFs};
use larder_pool::{Change, DiskState, PoolError, PoolState};
use larder_volume::{Properties, SyncMode, VolumeInfo};

use crate::owner_quotas;

/// The pool's errors say the way out themselves; their causes follow.
pub fn pool_error(error: &PoolError) -> Failure {
    let kind = match error {
        PoolError::Locked { .. } | PoolError::InUse { .. } => FailureKind::Busy,
        PoolError::NotEmpty { .. } | PoolError::AlreadyLabelled { .. } => FailureKind::Exists,
        PoolError::NoPool(_) | PoolError::NoFolder(_) => FailureKind::NotFound,
        PoolError::BadName(_)
        | PoolError::TooFewDisks { .. }
        | PoolError::TooManyDisks { .. }
        | PoolError::BadWidth { .. }
        | PoolError::SameDisk(..)
        | PoolError::SeveralPools(_) => FailureKind::Invalid,
        PoolError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => FailureKind::Denied,
        _ => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, chain(error));
    match error {
        PoolError::InUse { .. } => failure.action("if that host is gone for good, repeat the command with --force"),
        PoolError::ChangesLost { pool, .. } => failure.action(format!(
            "connect the disks that are missing and repeat the command; to see what is left, which changes nothing on them: larder recover --disk DIR... --list; if those disks are gone for good, give up what was written last (names, small files and changes of the last minutes of use) with: larder pool import --accept-loss {pool} DIR... (docs/recovery.md)",
        )),
        PoolError::TooManyLost { .. } => failure.action(
            "connect the disks that are named and repeat the command; if they are gone for good, copy out what is left with: larder recover --disk DIR... --to DIR (docs/recovery.md)",
        ),
        PoolError::FewerDisks { .. } => failure.action(
            "connect them and repeat the command; to look at what is here, which changes nothing: larder pool list DIR... and larder recover --disk DIR... --list; if they are gone for good, go on without them with: larder pool import --degraded DIR... (docs/recovery.md)",
        ),
        PoolError::SeveralPools(_) => failure.action("say which: larder pool import --pool ID DIR..."),
        PoolError::Locked { .. } => failure.action("ask the daemon that has it: larder pool status"),
        _ => failure,
    }
}

/// An error with its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = error.source();
    }
    text
}

/// The advice for a volume that cannot be read.
const LOOK_OR_RECOVER: &str = "look at the disks with: larder pool status; if they are all there, save what can be read with: larder recover --disk DIR... --to DIR";

pub fn volume_error(what: impl fmt::Display, error: &FsError) -> Failure {
    let kind = match error {
        FsError::NotFound => FailureKind::NotFound,
        FsError::Exists => FailureKind::Exists,
        FsError::Busy(_) => FailureKind::Busy,
        FsError::Access | FsError::NotPermitted => FailureKind::Denied,
        FsError::Invalid(_) | FsError::NameTooLong | FsError::Refused(_) => FailureKind::Invalid,
        _ => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, format!("{what}: {error}"));
    match error {
        FsError::Io(_) | FsError::Poisoned(_) => failure.action(LOOK_OR_RECOVER),
        FsError::Unsupported(_) => failure.action("install a newer larder"),
        FsError::NoSpace(_) => failure.action("take other files off the filesystems of its disks, or enlarge them; where it is served still: delete something, or add a disk"),
        _ => failure,
    }
}

pub fn pool_status(status: larder_pool::PoolStatus) -> PoolStatus {
    let quiet = |text: String| (!text.is_empty()).then_some(text);
    let well = status.action.is_empty() && status.state == PoolState::Online;
    let places: Vec<u64> = status.disks.iter().map(|disk| disk.filesystem).collect();
    let is_shared = |place: u64| place != 0 && places.iter().filter(|other| **other == place).count() > 1;
    PoolStatus {
        name: status.name,
        id: status.id.to_string(),
        layout: status.layout.to_string(),
        state: pool_state(status.state).to_owned(),
        status: if well { None } else { quiet(status.status) },
        action: quiet(status.action),
        scan: quiet(status.scan),
        scrub: status.scrub.map(scrub_status),
        damage: larder_api::Damage::default(),
        owed_objects: status.owed_objects,
        total_bytes: status.total_bytes,
        used_bytes: status.total_bytes.saturating_sub(status.available_bytes),
        available_bytes: status.available_bytes,
        disks: status
            .disks
            .into_iter()
            .map(|disk| DiskStatus { shares_room: is_shared(disk.filesystem), ..disk_status(disk) })
            .collect(),
        spares: status.spares,
        moving: status.moving.map(moving),
        notes: status.notes,
    }
}

/// Now, or of all of it once it has ended.
fn rate(status: &larder_pool::ScrubStatus) -> u64 {
    match status.ended_ms {
        None => status.bytes_per_second,
        Some(_) => status.bytes_done.saturating_mul(1000) / status.elapsed_ms.max(1),
    }
}

pub fn scrub_status(status: larder_pool::ScrubStatus) -> ScrubStatus {
    use larder_pool::ScrubPhase;
    let phase = match status.phase {
        ScrubPhase::Running => "running",
        ScrubPhase::Paused => "paused",
        ScrubPhase::Stopped => "stopped",
        ScrubPhase::Finished => "finished",
    };
    let bytes_per_second = rate(&status);
    ScrubStatus {
        phase: phase.to_owned(),
        why: status.why,
        started_ms: status.started_ms,
        ended_ms: status.ended_ms,
        elapsed_ms: status.elapsed_ms,
        objects_done: status.objects_done,
        objects_total: status.objects_total,
        bytes_done: status.bytes_done,
        bytes_total: status.bytes_total,
        errors: status.errors,
        repaired: status.repaired,
        repaired_bytes: status.repaired_bytes,
        unrepaired: status.unrepaired,
        bytes_per_second,
        seconds_left: status.seconds_left,
    }
}

fn moving(moving: larder_pool::Moving) -> PoolMoving {
    PoolMoving {
        why: moving.why,
        objects: moving.objects,
        objects_done: moving.objects_done,
        moved_bytes: moving.moved_bytes,
        seconds: moving.seconds,
        seconds_left: moving.seconds_left,
        stuck: (!moving.stuck.is_empty()).then_some(moving.stuck),
    }
}

pub fn change(change: PoolChange) -> Result<Change, Failure> {
    let layout =
        |text: String| text.parse().map_err(|e: larder_pool::ParseLayoutError| Failure::invalid(e.to_string()));
    Ok(match change {
        PoolChange::Add { disks, spare } => Change::Add { disks, spare },
        PoolChange::Replace { old, new } => Change::Replace { old, new },
        PoolChange::Remove { disk } => Change::Remove { disk },
        PoolChange::Keep { disk } => Change::Keep { disk },
        PoolChange::Offline { disk } => Change::Offline { disk },
        PoolChange::Online { disk, discard } => Change::Online { disk, discard },
        PoolChange::Rebalance { layout: new, width } => {
            Change::Rebalance { layout: new.map(layout).transpose()?, width }
        }
    })
}

pub fn change_plan(plan: larder_pool::ChangePlan) -> PoolChangePlan {
    let worth = |worth: larder_pool::Worth| PoolWorth {
        layout: worth.layout.to_string(),
        width: worth.width,
        disks: worth.disks,
        usable_bytes: worth.usable_bytes,
        failures_survived: worth.failures_survived,
    };
    PoolChangePlan {
        before: worth(plan.before),
        after: worth(plan.after),
        move_bytes: plan.move_bytes,
        seconds: plan.seconds,
        warnings: plan.warnings,
        snapshots: Vec::new(),
    }
}

fn pool_state(state: PoolState) -> &'static str {
    match state {
        PoolState::Online => "ONLINE",
        PoolState::Degraded => "DEGRADED",
        PoolState::Faulted => "FAULTED",
    }
}

fn disk_status(disk: larder_pool::DiskStatus) -> DiskStatus {
    let state = match disk.state {
        DiskState::Online => "ONLINE",
        DiskState::Resilvering => "RESILVERING",
        DiskState::ReadOnly => "READONLY",
        DiskState::Faulted => "FAULTED",
        DiskState::Removed => "REMOVED",
        DiskState::Missing => "MISSING",
        DiskState::Offline => "OFFLINE",
        DiskState::Diverged => "DIVERGED",
    };
    let mut notes: Vec<String> = Vec::new();
    if disk.leaving {
        notes.push("leaving".to_owned());
    }
    if disk.replaces.is_some() {
        notes.push("taking another's place".to_owned());
    }
    if disk.full {
        notes.push("full".to_owned());
    }
    if !disk.last_error.is_empty() {
        notes.push(disk.last_error);
    }
    DiskStatus {
        path: disk.path,
        id: disk.id.to_string(),
        state: state.to_owned(),
        read_errors: disk.read_errors,
        write_errors: disk.write_errors,
        checksum_errors: disk.checksum_errors,
        size_bytes: disk.size_bytes,
        used_bytes: disk.used_bytes,
        free_bytes: disk.free_bytes,
        shares_room: false,
        leaving: disk.leaving,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

pub(crate) fn volume_status(pool: &str, info: &VolumeInfo, open: Option<(StatFs, Contents)>) -> VolumeStatus {
    let contents = open.map(|(_, contents)| contents);
    VolumeStatus {
        pool: pool.to_owned(),
        name: info.name.clone(),
        id: info.id.to_string(),
        record_bytes: info.properties.record_bytes,
        compression: info.properties.compression.to_string(),
        quota_bytes: info.properties.quota_bytes,
        sync: match info.properties.sync {
            SyncMode::Standard => "standard",
            SyncMode::Relaxed => "relaxed",
        }
        .to_owned(),
        used_bytes: contents
            .map(|c| if info.properties.quota_bytes.is_some() { c.charged_bytes } else { c.data_bytes }),
        stored_bytes: contents.map(|c| c.stored_bytes),
        compression_ratio: contents.filter(|c| c.stored_bytes > 0).map(ratio),
        available_bytes: open.map(|(room, _)| room.available_bytes),
        encryption: None,
        locked: false,
        sealing: None,
        replica: info.replica,
        copy: info.copy,
        origin: info.origin.clone(),
        recovery_key: None,
        shared: None,
    }
}

/// Rounded to hundredths.
fn ratio(contents: Contents) -> f64 {
    (contents.data_bytes as f64 / contents.stored_bytes as f64 * 100.0).round() / 100.0
}

/// `old` with what `change` names.
pub fn changed(old: Properties, change: &VolumeChange) -> Result<Properties, Failure> {
    let unknown = |what: &str, text: &str| Failure::invalid(format!("'{text}' is not a {what}"));
    Ok(Properties {
        record_bytes: change.record_bytes.unwrap_or(old.record_bytes),
        compression: match &change.compression {
            None => old.compression,
            Some(text) => text.parse().map_err(Failure::invalid)?,
        },
        quota_bytes: match change.quota_bytes {
            None => old.quota_bytes,
            Some(0) => None,
            Some(bytes) => Some(bytes),
        },
        sync: match change.sync.as_deref() {
            None => old.sync,
            Some("standard") => SyncMode::Standard,
            Some("relaxed") => SyncMode::Relaxed,
            Some(text) => return Err(unknown("sync mode", text)),
        },
        owner_quotas: owner_quotas::changed(old.owner_quotas, change)?,
    })
}

pub fn history(pool: &str, events: Vec<larder_pool::Event>) -> PoolHistory {
    let event = |event: larder_pool::Event| {
        let larder_pool::Event { number, at_ms, kind, text } = event;
        PoolEvent { number, at_ms, kind, text }
    };
    PoolHistory { pool: pool.to_owned(), events: events.into_iter().map(event).collect() }
}

/// A pool known from its labels alone.
pub fn found_pool(found: larder_pool::FoundPool) -> PoolListed {
    let state = match (found.importable, found.exported) {
        (false, _) => "UNAVAIL",
        (true, true) => "EXPORTED",
        (true, false) => "IMPORTABLE",
    };
    PoolListed {
        name: found.name,
        id: found.id.to_string(),
        layout: found.layout.to_string(),
        state: state.to_owned(),
        total_bytes: 0,
        used_bytes: 0,
        available_bytes: 0,
        disks: found.disks.into_iter().map(|disk| disk.path).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_is_told_so() {
        let error =
            |kind: std::io::ErrorKind| PoolError::Io { what: "open", path: "/mnt/a".into(), source: kind.into() };
        assert_eq!(pool_error(&error(std::io::ErrorKind::PermissionDenied)).kind, FailureKind::Denied);
        assert_eq!(pool_error(&error(std::io::ErrorKind::NotFound)).kind, FailureKind::Unavailable);
    }
}
