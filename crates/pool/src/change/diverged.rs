//! Disks that have diverged, seen from the pool that runs: noticed, counted, told of; and openings
//! that would make a disk diverge. The rules stand in `member/divergence.rs`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::core::Core;
use crate::disk::DiskIo;
use crate::journal::salvage;
use crate::member::divergence::{Divergence, LastLife, Written};
use crate::member::label::{self, Label, Usage};
use crate::member::member_disk::MemberDisk;
use crate::object::shard_files::take_inventory;

impl MemberDisk {
    /// Notes that the disk has diverged. Returns whether that is news.
    pub fn diverge(&self, found: Divergence) -> bool {
        let mut divergence = self.divergence.lock();
        let is_news = divergence.as_ref().is_none_or(|known| known.seen != found.seen);
        if is_news {
            *divergence = Some(found);
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
pub fn to_ask_about(
    winner: &Label,
    members: &[MemberDisk],
    last: Option<LastLife>,
    by_hand: bool,
) -> Option<Vec<PathBuf>> {
    let had_all = |member: &&MemberDisk| winner.members.iter().any(|known| known.id == member.id && known.in_sync);
    let is_here = |member: &&MemberDisk| member.is_readable() && member.is_in_sync();
    let had_all: Vec<&MemberDisk> = members.iter().filter(had_all).collect();
    let missing: Vec<PathBuf> =
        had_all.iter().filter(|member| !is_here(member)).map(|member| member.path.read().clone()).collect();
    let is_majority = missing.len() < had_all.len() - missing.len();
    let may_open = match last {
        Some(last) => has_all_of(winner, last) && (is_majority || !by_hand),
        None => is_majority,
    };
    (!missing.is_empty() && !may_open).then_some(missing)
}

/// Whether a pool with this label has all that the machine ever answered (`diverged.fewer_disks_asked`).
pub fn has_all_of(winner: &Label, last: LastLife) -> bool {
    winner.knows_mark(last.mark) && last.settled <= winner.generation
}
