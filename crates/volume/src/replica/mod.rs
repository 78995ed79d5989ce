//! Copies of a volume's snapshots in another store: sent, received, and promoted to a volume.
//!
//! ```text
//! volume --send--> stream --receive--> replica (snapshots s1, s2, ...) --promote--> volume
//! ```
//!
//! The objects of a snapshot are sent as they lie in the store, sealed if the volume is encrypted: the receiver needs no key, and
//! its pool scrubs and repairs what it cannot read. A replica has no state of its own: no engine, no log, nothing to open.
//!
//! - `replica.raw`: all that the receiver reads itself is [`stream`]'s frames. Everything else it stores under the same path below
//!   its own prefix, which is what the keys of objects are bound to.
//! - `replica.delta_or_tables`: an incremental stream has the rows that differ, as an image over that of the earlier snapshot:
//!   what the metadata engine merges meanwhile is not sent again. Once in [`send::CHAIN_MAX`] snapshots, or where the rows are
//!   many, it has the engine's tables instead, and a new chain begins.
//! - `replica.sender_is_a_stranger`: all that a stream says is checked against bounds before it is kept ([`limits`]): names, numbers,
//!   sizes, counts and pace. A refused first stream leaves nothing.
//! - `replica.nothing_overwritten`: a stream never replaces an object that a snapshot of the replica needs.
//! - `replica.keyring_follows`: a stream into a replica that is there brings the volume's keyring, which replaces the replica's only if
//!   the volume's master key signed it ([`Seals::renewed_keyring`]). It is put at once, and whole. Without a new snapshot it comes alone.
//! - `replica.promoted_whole`: promotion writes a new engine with the rows of the newest snapshot; the registry says that it is a
//!   volume once that is durable. Until then it is a replica, and promotion begins anew.

mod arrival;
mod chain;
mod copy;
mod delta;
pub(crate) mod document;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod limits;
mod promote;
mod receive;
mod relay;
mod rows;
mod send;
mod stream;
mod verify;

use larder_base::Timestamp;
use larder_fs::*;
use serde::{Deserialize, Serialize};

pub(crate) use chain::flat;
pub use copy::Pace;
pub use limits::ReceiveLimits;
pub(crate) use promote::facts;
pub(crate) use rows::copy_rows;
pub use send::Outgoing;
pub use verify::ReplicaReport;

#[cfg(doc)]
use crate::backing::Seals;

/// Objects of a replica: 512 TiB of whole segments. Their list stays well below the longest document that is read again.
const OBJECTS_MAX: u64 = 1 << 23;

/// The text of [`FsError::Busy`] for a snapshot that is on its way to a receiver.
pub const SENDING: &str = "the snapshot is being sent";

/// A snapshot of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSnapshot {
    /// Its name at the sender, when it was sent.
    pub name: String,
    /// Its number among the snapshots of its volume.
    pub number: u64,
    /// The moment it shows.
    pub created: Timestamp,
    /// The moment it arrived, in seconds of [`ReplicaInfo::now`].
    pub arrived: i64,
    /// Bytes of the store that it alone needs.
    pub used_bytes: u64,
    /// Bytes of the store that hold its files, with what else lies in the same objects: a receiver cannot tell these apart.
    pub referenced_bytes: u64,
    /// The reasons to keep it here, those that have ended left out.
    pub holds: Vec<Hold>,
    /// The names of its clones. It is not removed while there are any.
    pub clones: Vec<String>,
}

/// What a replica has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// The volume that it is received from.
    pub source: uuid::Uuid,
    /// The replica's own time: seconds since 1970, as far as they have really passed here (`arrival.really_passed`).
    pub now: i64,
    /// Oldest first.
    pub snapshots: Vec<ReplicaSnapshot>,
    /// Bytes of all its objects.
    pub bytes: u64,
    /// The snapshot that came in part, and is to be sent again or resumed.
    pub unfinished: Option<String>,
}

/// What a receiver has of a snapshot that came in part. A sender leaves it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    source: uuid::Uuid,
    to: stream::Identity,
    from: Option<stream::Identity>,
    /// Numbers of segments: the first and how many.
    segments: Vec<(u64, u64)>,
}

impl Resume {
    /// The names of the snapshot that is to come, and of the one before it.
    pub fn names(&self) -> (&str, Option<&str>) {
        (&self.to.name, self.from.as_ref().map(|from| from.name.as_str()))
    }
}

/// Numbers in ascending order as ranges: the first and how many.
fn ranges_of(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match out.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => out.push((number, 1)),
        }
    }
    out
}

/// [`FsError::Refused`] where there are more than any replica has: the ranges come from outside.
fn check_numbers(ranges: &[(u64, u64)]) -> FsResult<()> {
    let count = ranges.iter().try_fold(0u64, |sum, (first, count)| {
        first.checked_add(*count)?;
        sum.checked_add(*count).filter(|sum| *sum <= OBJECTS_MAX)
    });
    if count.is_none() {
        return Err(FsError::Refused("the stream names more segments than there can be".into()));
    }
    Ok(())
}

/// One by one, in the order of the ranges.
fn numbers_of(ranges: &[(u64, u64)]) -> FsResult<impl Iterator<Item = u64>> {
    check_numbers(ranges)?;
    Ok(ranges.iter().flat_map(|&(first, count)| first..first + count))
}

/// Numbers that a receiver says it has. Takes no more room than they took on their way.
struct Had(Vec<(u64, u64)>);

impl Had {
    fn of(ranges: &[(u64, u64)]) -> FsResult<Self> {
        check_numbers(ranges)?;
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable();
        ranges.dedup_by(|later, earlier| {
            let is_joined = later.0 <= earlier.0 + earlier.1;
            if is_joined {
                earlier.1 = earlier.1.max(later.0 + later.1 - earlier.0);
            }
            is_joined
        });
        Ok(Self(ranges))
    }

    fn contains(&self, number: u64) -> bool {
        let before = self.0.partition_point(|(first, _)| *first <= number).checked_sub(1);
        before.and_then(|at| self.0.get(at)).is_some_and(|(first, count)| number - first < *count)
    }
}

fn segment_path(number: u64) -> String {
    format!("seg/{number:016x}")
}

fn image_path(number: u64) -> String {
    format!("snap/{number:016x}")
}

fn time_of(created_ns: i64) -> Timestamp {
    Timestamp::new(created_ns.div_euclid(1_000_000_000), created_ns.rem_euclid(1_000_000_000) as u32)
}

/// Nanoseconds since 1970.
pub fn ns_of(created: Timestamp) -> i64 {
    created.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(created.nanos))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_ranges_and_back() {
        let numbers = [1, 2, 3, 7, 9, 10];
        let ranges = ranges_of(numbers);
        assert_eq!(ranges, [(1, 3), (7, 1), (9, 2)]);
        assert_eq!(numbers_of(&ranges).unwrap().collect::<Vec<_>>(), numbers);
        assert!(numbers_of(&[(0, u64::MAX)]).is_err() && numbers_of(&[(u64::MAX, 2)]).is_err());
        assert!(numbers_of(&[(0, OBJECTS_MAX + 1)]).is_err());
    }

    #[test]
    fn numbers_that_a_receiver_has_are_found_in_any_order() {
        let had = Had::of(&[(9, 2), (1, 3), (2, 1), (3, 2), (20, 0)]).unwrap();
        assert_eq!((0..25).filter(|number| had.contains(*number)).collect::<Vec<_>>(), [1, 2, 3, 4, 9, 10]);
        assert!(Had::of(&[(5, u64::MAX)]).is_err() && !Had::of(&[]).unwrap().contains(0));
    }

    #[test]
    fn times_go_through() {
        for time in [Timestamp::new(5, 7), Timestamp::new(-3, 999_999_999)] {
            assert_eq!(time_of(ns_of(time)), time);
        }
    }
}
