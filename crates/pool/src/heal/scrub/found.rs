//! The findings of a scrub: about an object, about labels and journal copies, and in the end.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The version of an object that is missing altogether.
pub const MISSING: u64 = u64::MAX;

/// Ranges that are kept apart; beyond that number the last one grows.
pub const RANGES_MAX: usize = 64;

/// An object with bytes that no intact shards give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The object's path.
    pub object: String,
    /// Its version when it was read.
    pub version: u64,
    /// Bytes of the object, in order.
    pub ranges: Vec<Range<u64>>,
}

/// Objects that a volume needs and that the pool does not know: no shard of them is left on any
/// disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingObjects {
    /// Path and length of each.
    pub objects: Vec<(String, u64)>,
    /// Every path that begins with one of these was looked for.
    pub asked: Vec<String>,
}

/// Damage that was mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    pub errors: u64,
    pub repaired: u64,
    pub repaired_bytes: u64,
    pub unrepaired: u64,
}

/// How a scrub left the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It was asked to stop, or the pool is being closed.
    Interrupted,
    /// More disks are out of use than the layout survives, so nothing can be said about their
    /// contents.
    Faulted,
}

/// One object is done.
#[derive(Debug)]
pub struct ObjectDone {
    pub path: String,
    pub bytes: u64,
    pub errors: u64,
    pub repaired: u64,
    pub repaired_bytes: u64,
    pub is_unrepaired: bool,
    pub damage: Option<Damage>,
}

pub fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let full = joined.len() >= RANGES_MAX;
        match joined.last_mut() {
            Some(last) if full || last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    assert!(joined.len() <= RANGES_MAX, "the memory for one object's damage is bounded");
    assert!(joined.is_sorted_by(|a, b| a.end < b.start), "`scrub.damage_remembered`: each byte counts once");
    joined
}
