//! Disks that have diverged: they went on without the pool that runs
//! (`label.lineage_tells_divergence`), and the openings that would make a disk diverge.
//!
//! - `diverged.left_alone`: a disk that has diverged is neither locked nor written, nor does its
//!   content count for anything, until a person discards it. It is only listed, to tell how much was
//!   written on each side.
//! - `diverged.fewer_disks_asked`: a pool opens without disks that had everything only where these
//!   are fewer than the disks that are here, or where the machine that opens it by itself has run its
//!   newest life; and never where it has run a newer one, or settled a newer label: the disks that
//!   are here may be old images of themselves. A person may say otherwise.

use std::fmt;
use std::path::Path;

use larder_base::shell;
use larder_base::units::ByteSize;
use uuid::Uuid;

use crate::member::label::{Diverged, Label};

/// The memory of a machine that opens pools: the newest life of each that it has run. It outlives
/// the process.
pub trait LastLives: fmt::Debug + Send + Sync {
    /// The newest life of this pool that ran here.
    fn last(&self, pool: Uuid) -> Option<LastLife>;
    /// The newest life of the pool of this name is this one, or is about to be. Durable when it
    /// returns, if at all.
    fn remember(&self, pool: Uuid, name: &str, life: LastLife);
}

/// The newest life of a pool on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLife {
    /// The random mark of the life.
    pub mark: u64,
    /// The newest generation that this machine knows to be settled (`label.settled_outlives`). 0: none.
    pub settled: u64,
}

/// The side of a disk that went on without this pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Its label as it was seen.
    pub seen: Diverged,
    /// When it went its own way.
    pub since_ms: u64,
    /// When this pool went its own way, and the last batch of its journal before that.
    pub ours_since_ms: u64,
    /// The last batch of this pool's journal before that.
    pub ours_batch: u64,
    /// The part that it has written, once it was counted.
    pub written: Option<Written>,
}

/// What was written on one side since the other left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Batches of the journal: each has one small synchronous change at least.
    pub batches: u64,
    /// Objects that the other side does not have.
    pub objects: u64,
    /// Their bytes, before redundancy.
    pub bytes: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batches, objects, bytes } = self;
        write!(f, "{batches} batches of changes in its journal, {objects} objects of {}", ByteSize(*bytes))
    }
}

impl Divergence {
    /// The divergence between this pool's label and that of a disk.
    pub fn between(ours: &Label, theirs: &Label) -> Self {
        let (their_fork, our_fork) = (ours.fork(theirs), theirs.fork(ours));
        Self {
            seen: Diverged::of(theirs),
            since_ms: their_fork.map_or(theirs.created_ms, |life| life.since_ms),
            ours_since_ms: our_fork.map_or(ours.created_ms, |life| life.since_ms),
            ours_batch: our_fork.map_or(0, |life| life.batch),
            written: None,
        }
    }

    /// The side of a disk whose labels are damaged (`adopt.never_over_another_life`).
    pub fn without_labels(ours: &Label, seen: Diverged) -> Self {
        let since_ms = ours.lives.first().map_or(ours.created_ms, |life| life.since_ms);
        let ours_batch = ours.lives.first().map_or(0, |life| life.batch);
        Self { seen, since_ms, ours_since_ms: since_ms, ours_batch, written: None }
    }

    /// What is known of it, in a few words.
    pub fn what(&self) -> String {
        match self.seen.generation {
            0 => "has damaged labels, and may have gone on without this pool".to_owned(),
            _ => format!("went on without this pool since {}", utc(self.since_ms)),
        }
    }

    /// The reason why the disk is not used, and the choices, for people.
    pub fn text(&self, pool: &str, path: &Path, ours: Written) -> String {
        let (what, word) = (self.what(), shell::word(path));
        let theirs = self.written.map_or_else(String::new, |written| format!(" ({written})"));
        format!(
            "it {what}{theirs}; this pool wrote since {}: {ours}. It is left as it is. \
             Look at its side: larder recover --disk {word} --list; copy files out of it: larder recover --disk {word} --to DIR; \
             give its side up for good: larder pool online --discard {pool} {word}",
            utc(self.ours_since_ms)
        )
    }
}

/// A moment as people write it.
pub fn utc(at_ms: u64) -> String {
    let secs = at_ms / 1000;
    let (days, of_day) = (secs / 86_400, secs % 86_400);
    // Days are counted from March 1st of the year 0, so that the leap day is a year's last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3600, of_day % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        let check = |secs: u64, text: &str| assert_eq!(utc(secs * 1000), text);
        check(0, "1970-01-01 00:00 UTC");
        check(951_782_400 - 1, "2000-02-28 23:59 UTC");
        check(951_782_400, "2000-02-29 00:00 UTC");
        check(1_795_645_443, "2026-11-25 22:24 UTC");
    }
}
