//! The snapshots that a replica lacks, and the one to send next. Pure functions of two lists.
//!
//! - `replication.newest_common`: a stream goes on from the newest snapshot that both sides have.
//! - `replication.one_history`: numbers of snapshots grow with time. A replica whose newest snapshot is unknown here, has a
//!   higher number than a later one of the volume, or comes from the future, never takes another one: it was sent by somebody
//!   else in the name of this machine.
//! - `replication.in_order`: snapshots are sent oldest first, so that the replica has the history of the volume, and a run that is
//!   cut off has brought what came before.

use larder_api::{ReplicaState, SentSnapshot};

/// Clocks of machines differ by less.
const CLOCKS_NS_MAX: i64 = 24 * 3600 * 1_000_000_000;

/// The next snapshot to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) to: SentSnapshot,
    pub(super) from: Option<SentSnapshot>,
    /// A part of it has come already.
    pub(super) resume: Option<String>,
    /// How many are to be sent, this one among them.
    pub(super) left: u64,
}

/// `None`: the replica has all. An error says why nothing fits, and what to do.
pub(super) fn next(own: &[SentSnapshot], there: &ReplicaState, now_ns: i64) -> Result<Option<Step>, String> {
    let newest = there.snapshots.last();
    let from = there.snapshots.iter().rev().find_map(|sent| own.iter().find(|snapshot| snapshot.is(sent)));
    if let (Some(newest), None) = (newest, from) {
        return Err(format!(
            "the volume and the replica have no snapshot in common (the replica's newest is '{}'): replicate to a new name",
            newest.name
        ));
    }
    let is_missing = |snapshot: &&SentSnapshot| newest.is_none_or(|newest| snapshot.number > newest.number);
    let missing: Vec<&SentSnapshot> = own.iter().filter(is_missing).collect();
    let Some(to) = missing.first().copied() else {
        return match newest.filter(|newest| is_of_another_history(newest, own, now_ns)) {
            None => Ok(None),
            Some(newest) => Err(format!(
                "the replica's newest snapshot, '{}' with the number {}, was never one of this volume, and nothing can follow it: \
                 destroy it there, and find out who sent it in the name of this machine",
                newest.name, newest.number
            )),
        };
    };
    let is_resumed = there.snapshot.as_ref() == Some(&to.name) && there.from.as_ref() == from.map(|from| &from.name);
    Ok(Some(Step {
        to: to.clone(),
        from: from.cloned(),
        resume: there.token.clone().filter(|_| is_resumed),
        left: missing.len() as u64,
    }))
}

/// `replication.one_history`
fn is_of_another_history(newest: &SentSnapshot, own: &[SentSnapshot], now_ns: i64) -> bool {
    let is_known = own.iter().any(|snapshot| snapshot.is(newest));
    let is_overtaken = own
        .iter()
        .any(|one| one.number == newest.number || (one.number < newest.number && one.created_ns > newest.created_ns));
    !is_known && (is_overtaken || newest.created_ns > now_ns.saturating_add(CLOCKS_NS_MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW_NS: i64 = 1000;

    fn snapshot(number: u64) -> SentSnapshot {
        SentSnapshot { name: format!("s{number}"), number, created_ns: number as i64 * 10 }
    }

    fn having(numbers: &[u64]) -> ReplicaState {
        ReplicaState { snapshots: numbers.iter().map(|&number| snapshot(number)).collect(), ..ReplicaState::default() }
    }

    fn step(own: &[u64], there: &[u64]) -> Option<(u64, Option<u64>, u64)> {
        let own: Vec<SentSnapshot> = own.iter().map(|&number| snapshot(number)).collect();
        let step = next(&own, &having(there), NOW_NS).unwrap();
        step.map(|step| (step.to.number, step.from.map(|from| from.number), step.left))
    }

    #[test]
    fn the_oldest_that_is_missing_from_the_newest_that_both_have() {
        assert_eq!(step(&[], &[]), None);
        assert_eq!(step(&[3, 4, 6], &[]), Some((3, None, 3)));
        assert_eq!(step(&[3, 4, 6], &[3]), Some((4, Some(3), 2)));
        assert_eq!(step(&[3, 4, 6], &[3, 4, 6]), None);
        // Destroyed at either side since.
        assert_eq!(step(&[3, 6], &[1, 3]), Some((6, Some(3), 1)));
        assert_eq!(step(&[3, 6], &[3, 5]), Some((6, Some(3), 1)));
        assert_eq!(step(&[3, 4, 6], &[3, 5]), Some((6, Some(3), 1)), "older than what the replica has");
    }

    #[test]
    fn histories_that_differ_do_not_fit() {
        let mut other = having(&[3]);
        other.snapshots[0].created_ns += 1;
        let why = next(&[snapshot(3), snapshot(4)], &other, NOW_NS).unwrap_err();
        assert!(why.contains("'s3'") && why.contains("new name"), "{why}");
    }

    #[test]
    fn a_newest_snapshot_of_somebody_else_is_no_end() {
        let own = [snapshot(3), snapshot(4)];
        let with = |number, created_ns| {
            let mut there = having(&[3]);
            there.snapshots.push(SentSnapshot { name: "auto-2030".into(), number, created_ns });
            next(&own, &there, NOW_NS)
        };
        // One that was destroyed here since, the newest or not.
        assert_eq!((with(5, 50), with(900, 900)), (Ok(None), Ok(None)));
        for (number, created_ns) in [(900, 35), (900, i64::MAX), (4, 39), (u64::MAX, CLOCKS_NS_MAX + NOW_NS + 1)] {
            let why = with(number, created_ns).unwrap_err();
            assert!(why.contains("auto-2030") && why.contains(&number.to_string()), "{why}");
        }
    }

    #[test]
    fn what_came_in_part_is_resumed_if_it_is_the_same() {
        let own = [snapshot(3), snapshot(4)];
        let mut there = having(&[3]);
        there.token = Some("token".into());
        (there.snapshot, there.from) = (Some("s4".into()), Some("s3".into()));
        assert_eq!(next(&own, &there, NOW_NS).unwrap().unwrap().resume.as_deref(), Some("token"));
        there.from = None;
        assert_eq!(next(&own, &there, NOW_NS).unwrap().unwrap().resume, None);
    }
}
