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
//! - `replica.nothing_overwritten`: a stream never replaces an object that a snapshot of the replica needs.
//! - `replica.promoted_whole`: promotion writes a new engine with the rows of the newest snapshot; the registry says that it is a
//!   volume once that is durable. Until then it is a replica, and promotion begins anew.

mod chain;
mod delta;
pub(crate) mod document;
mod promote;
mod receive;
mod relay;
mod rows;
mod send;
mod stream;
mod verify;

use larder_base::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use chain::flat;
pub(crate) use promote::facts;
pub(crate) use rows::copy_rows;
pub use send::Outgoing;
pub use verify::ReplicaReport;

use crate::types::*;

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
    /// Bytes of the store that it alone needs.
    pub used_bytes: u64,
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

/// [`FsError::Io`] where there are more than any store has: the ranges come from outside.
fn numbers_of(ranges: &[(u64, u64)]) -> FsResult<impl Iterator<Item = u64>> {
    const NUMBERS_MAX: u64 = 1 << 28;
    let count = ranges.iter().try_fold(0u64, |sum, (first, count)| {
        first.checked_add(*count)?;
        sum.checked_add(*count).filter(|sum| *sum <= NUMBERS_MAX)
    });
    if count.is_none() {
        return Err(FsError::Io("the stream names more segments than there can be".into()));
    }
    Ok(ranges.iter().flat_map(|&(first, count)| first..first + count))
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
    }

    #[test]
    fn times_go_through() {
        for time in [Timestamp::new(5, 7), Timestamp::new(-3, 999_999_999)] {
            assert_eq!(time_of(ns_of(time)), time);
        }
    }
}
