//! Replicas that are older than they may be, for the watch: time alone makes them so.

use larder_alerts::{Condition, EventKind};
use larder_copies::Replication;

/// What is the case now. Does no I/O.
pub fn late(replication: &Replication) -> Vec<Condition> {
    let late = replication.list().replications.into_iter().filter(|one| one.late && one.fault.is_none());
    late.map(|one| {
        let text = format!("The replica of {} at {} is older than it may be.", one.volume, one.to);
        Condition::is(EventKind::ReplicaLate, format!("{} to {}", one.volume, one.to), text)
    })
    .collect()
}
