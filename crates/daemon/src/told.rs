//! Conditions of parts that run by themselves, for the watch: replicas and snapshot schedules.

use std::sync::Arc;

use larder_alerts::{Condition, EventKind};
use larder_copies::Replication;

use crate::snapshot_schedule::Snapshots;

/// What is the case now. Does no I/O.
pub fn conditions(replication: &Arc<Replication>, snapshots: &Arc<Snapshots>) -> Vec<Condition> {
    let replicas = replication.list().replications.into_iter().filter_map(|one| {
        let why = match (&one.fault, one.late) {
            (Some(fault), _) => format!("cannot be sent: {fault}"),
            (None, true) => "is older than it may be".to_owned(),
            (None, false) => return None,
        };
        let text = format!("The replica of {} at {} {why}.", one.volume, one.to);
        Some(Condition::is(EventKind::ReplicaLate, format!("{} to {}", one.volume, one.to), text))
    });
    let schedules = snapshots.list().into_iter().filter_map(|one| {
        Some(Condition::is(EventKind::SnapshotsFailing, format!("{}/{}", one.pool, one.volume), one.fault?))
    });
    replicas.chain(schedules).collect()
}
