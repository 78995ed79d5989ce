//! Disks that have diverged: they went on without the pool that runs
//! (`label.lineage_tells_divergence`), and the openings that would make a disk diverge.
//!
//! - `diverged.left_alone`: a disk that has diverged is neither locked nor written, nor does its
//!   content count for anything, until a person discards it. It is only listed, to tell how much was
//!   written on each side.
//! - `diverged.fewer_disks_asked`: a pool opens without disks that had everything only where these
//!   are fewer than the disks that are here, or where the machine that opens it by itself has run its
//!   newest life; and never where it has run a newer one. A person may say otherwise.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use larder_base::shell;
use larder_base::units::ByteSize;
use uuid::Uuid;

use crate::core::Core;
use crate::disk::DiskIo;
use crate::journal::salvage;
use crate::member::label::{self, Diverged, Label, Usage};
use crate::member::member_disk::MemberDisk;
use crate::object::shard_files::take_inventory;

/// The memory of a machine that opens pools: the newest life of each that it has run. It outlives
/// the process.
pub trait LastLives: fmt::Debug + Send + Sync {
    /// The mark of the newest life of this pool that ran here.
    fn last(&self, pool: Uuid) -> Option<u64>;
    /// The newest life of the pool of this name is the one with this mark, or is about to be. Durable
    /// when it returns, if at all.
    fn remember(&self, pool: Uuid, name: &str, mark: u64);
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

    /// The reason why the disk is not used, and the choices, for people.
    pub fn text(&self, pool: &str, path: &std::path::Path, ours: Written) -> String {
        let (since, word) = (utc(self.since_ms), shell::word(path));
        let theirs = self.written.map_or_else(String::new, |written| format!(" ({written})"));
        format!(
            "it went on without this pool since {since}{theirs}; this pool wrote since {}: {ours}. It is left as it is. \
             Look at its side: larder recover --disk {word} --list; copy files out of it: larder recover --disk {word} --to DIR; \
             give its side up for good: larder pool online --discard {pool} {word}",
            utc(self.ours_since_ms)
        )
    }
}

impl MemberDisk {
    /// Notes that the disk with this label has diverged. Returns whether that is news.
    pub fn diverge(&self, ours: &Label, theirs: &Label) -> bool {
        let mut divergence = self.divergence.lock();
        let is_news = divergence.as_ref().is_none_or(|known| known.seen != Diverged::of(theirs));
        if is_news {
            *divergence = Some(Divergence::between(ours, theirs));
        }
        is_news
    }
}

impl Core {
    /// Counts what disks that have diverged have written by themselves. Reads names and journals
    /// there, and changes nothing (`diverged.left_alone`). Blocks.
    pub fn count_divergence(&self) {
        for member in self.members.iter() {
            let is_uncounted = |found: &Divergence| found.written.is_none();
            if !member.divergence.lock().as_ref().is_some_and(is_uncounted) {
                continue;
            }
            let path = member.path.read().clone();
            let Ok(disk) = self.members.opener.open_disk(&path) else { continue };
            let Ok(Ok(theirs)) = label::read(&*disk) else { continue };
            let written = self.written_on(&disk, &theirs);
            if let Some(divergence) = member.divergence.lock().as_mut() {
                divergence.written = Some(written);
            }
        }
    }

    fn written_on(&self, disk: &Arc<dyn DiskIo>, theirs: &Label) -> Written {
        let batch_before = self.members.label().fork(theirs).map_or(0, |life| life.batch);
        let batch_last = match &theirs.usage {
            // It was not closed, so its label does not know its last batch.
            Usage::Open { .. } => salvage::read_all(self.members.id, std::slice::from_ref(disk)).batch_last,
            Usage::Closed { .. } | Usage::Exported => theirs.journal_batch,
        };
        let mut written = Written {
            batches: batch_last.max(theirs.journal_batch).saturating_sub(batch_before),
            ..Written::default()
        };
        let mut seen = BTreeSet::new();
        let index = self.objects.index();
        for sighting in take_inventory(self.members.id, &**disk).unwrap_or_default().shards {
            let version = sighting.shard.version;
            let is_ours = index.get(&sighting.path).is_some_and(|object| object.version == version);
            if !is_ours && seen.insert((sighting.path, version)) {
                written.objects += 1;
                written.bytes += sighting.shard.geometry.size;
            }
        }
        written
    }

    /// What this pool has written since a disk left it.
    fn written_since(&self, divergence: &Divergence) -> Written {
        let batches = self.members.journal_batch_now().saturating_sub(divergence.ours_batch);
        let mut written = Written { batches, ..Written::default() };
        let index = self.objects.index();
        for object in index.objects.values().filter(|object| object.modified_ms >= divergence.ours_since_ms) {
            written.objects += 1;
            written.bytes += object.geometry.size;
        }
        written
    }

    /// Why a disk that has diverged is not used, and the choices.
    pub fn divergence_text(&self, member: &MemberDisk) -> Option<String> {
        let divergence = member.divergence.lock().clone()?;
        let ours = self.written_since(&divergence);
        Some(divergence.text(&self.members.name, &member.path.read(), ours))
    }
}

/// The disks that had everything when the label was written and that are not here, where opening
/// without them needs the word of a person (`diverged.fewer_disks_asked`).
pub fn to_ask_about(winner: &Label, members: &[MemberDisk], last: Option<u64>, by_hand: bool) -> Option<Vec<PathBuf>> {
    let had_all = |member: &&MemberDisk| winner.members.iter().any(|known| known.id == member.id && known.in_sync);
    let is_here = |member: &&MemberDisk| member.is_readable() && member.is_in_sync();
    let had_all: Vec<&MemberDisk> = members.iter().filter(had_all).collect();
    let missing: Vec<PathBuf> =
        had_all.iter().filter(|member| !is_here(member)).map(|member| member.path.read().clone()).collect();
    let is_newest = |mark: u64| winner.lives.iter().chain(&winner.coming).any(|life| life.mark == mark);
    let is_majority = missing.len() < had_all.len() - missing.len();
    let may_open = match last {
        Some(mark) => is_newest(mark) && (is_majority || !by_hand),
        None => is_majority,
    };
    (!missing.is_empty() && !may_open).then_some(missing)
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
