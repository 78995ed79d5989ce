//! The snapshots that a replica lacks, and the one to send next. Pure functions of two lists.
//!
//! - `replication.newest_common`: a stream goes on from the newest snapshot that both sides have.
//! - `replication.in_order`: snapshots are sent oldest first, so that the replica has the history of the volume, and a run that is
//!   cut off has brought what came before.

use larder_api::{ReplicaState, SentSnapshot};

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
pub(super) fn next(own: &[SentSnapshot], there: &ReplicaState) -> Result<Option<Step>, String> {
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
    let Some(to) = missing.first().copied() else { return Ok(None) };
    let is_resumed = there.snapshot.as_ref() == Some(&to.name) && there.from.as_ref() == from.map(|from| &from.name);
    Ok(Some(Step {
        to: to.clone(),
        from: from.cloned(),
        resume: there.token.clone().filter(|_| is_resumed),
        left: missing.len() as u64,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn snapshot(number: u64) -> SentSnapshot {
        SentSnapshot { name: format!("s{number}"), number, created_ns: number as i64 * 10 }
    }

    fn having(numbers: &[u64]) -> ReplicaState {
        ReplicaState { snapshots: numbers.iter().map(|&number| snapshot(number)).collect(), ..ReplicaState::default() }
    }

    fn step(own: &[u64], there: &[u64]) -> Option<(u64, Option<u64>, u64)> {
        let own: Vec<SentSnapshot> = own.iter().map(|&number| snapshot(number)).collect();
        let step = next(&own, &having(there)).unwrap();
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
        let why = next(&[snapshot(3), snapshot(4)], &other).unwrap_err();
        assert!(why.contains("'s3'") && why.contains("new name"), "{why}");
    }

    #[test]
    fn what_came_in_part_is_resumed_if_it_is_the_same() {
        let own = [snapshot(3), snapshot(4)];
        let mut there = having(&[3]);
        there.token = Some("token".into());
        (there.snapshot, there.from) = (Some("s4".into()), Some("s3".into()));
        assert_eq!(next(&own, &there).unwrap().unwrap().resume.as_deref(), Some("token"));
        there.from = None;
        assert_eq!(next(&own, &there).unwrap().unwrap().resume, None);
    }
}
