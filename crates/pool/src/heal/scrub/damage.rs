//! Which bytes of an object are lost when it cannot be repaired.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::found::{Damage, MISSING, MissingObjects, joined};
use super::verify::ShardCheck;
use crate::core::Core;
use crate::history::EventKind;
use crate::object::geometry::{Geometry, UNIT_BYTES};
use crate::object::index::Object;

/// Objects that are listed while disks are away; others are counted.
const OUT_OF_REACH_MAX: usize = 1000;

impl Core {
    /// The bytes of data blocks that are damaged or absent and cannot be computed from others.
    /// Blocks.
    pub fn lost_ranges(&self, object: &Object, checks: &[ShardCheck]) -> Vec<Range<u64>> {
        let geometry = object.geometry;
        let block_bytes = geometry.block_bytes();
        let mut lost: Vec<Range<u64>> = Vec::new();
        for index in 0..geometry.k {
            let length = geometry.shard_bytes(index);
            let check = checks.iter().find(|check| check.index == index && !check.is_absent);
            let suspects: Vec<u64> = match check {
                // A damaged header takes no data with it.
                Some(check) if check.error.is_none() => check.bad.clone(),
                _ => (0..length.div_ceil(block_bytes)).collect(),
            };
            for block in suspects {
                let local = block * block_bytes..((block + 1) * block_bytes).min(length);
                if local.start < length && self.recover_block(object, index, local.clone()).is_err() {
                    lost.push(object_range(geometry, index, &local));
                }
            }
        }
        joined(lost)
    }
}

impl Core {
    /// Records the objects that a volume needs and the pool does not have. Of the paths that were
    /// asked about, only these are missing now.
    pub fn note_missing(&self, missing_objects: MissingObjects) {
        let damage: Vec<Damage> = {
            let index = self.objects.index();
            let missing_objects = missing_objects.objects.into_iter().filter(|(path, _)| index.get(path).is_none());
            let whole = |len: u64| std::iter::once(0..len).collect();
            missing_objects.map(|(object, len)| Damage { object, version: MISSING, ranges: whole(len) }).collect()
        };
        self.scrubs.has_lost.fetch_or(!damage.is_empty(), Ordering::AcqRel);
        let new = self.scrubs.state.lock().set_missing(damage, &missing_objects.asked);
        let Some(first) = new.first() else { return };
        let others = match new.len() {
            1 => String::new(),
            n => format!(", and {} others", n - 1),
        };
        tracing::error!(pool = %self.members.name, object = %first, count = new.len(), "objects are gone from all disks");
        self.members.event(EventKind::Errors, format!("{first} is gone from all disks{others}"));
    }

    /// A read met a block that cannot be reconstructed although all disks are there. It is recorded
    /// now, without a scrub.
    pub fn note_lost(&self, object: &Object, index: u8, local: &Range<u64>) {
        // A draft has not been acknowledged.
        if object.is_draft || index >= object.geometry.k || local.start >= object.geometry.shard_bytes(index) {
            return;
        }
        self.note_ranges(object, vec![object_range(object.geometry, index, local)]);
    }

    /// An object has too few shards although all disks are there: the bytes of its missing shards
    /// are lost. Blocks.
    pub fn note_short(&self, object: &Object) {
        if object.is_draft || !self.is_short(object) {
            return;
        }
        let ranges = self.lost_ranges(object, &[]);
        if !ranges.is_empty() && !object.is_dead() {
            self.note_ranges(object, ranges);
        }
    }

    /// Whether the object has too few shards, and no absent disk may have the others.
    pub fn is_short(&self, object: &Object) -> bool {
        let all_there = self.members.iter().all(|member| member.is_readable() && member.is_in_sync());
        all_there && object.placed().count() < usize::from(object.geometry.k) && !object.is_dead()
    }

    /// Too few of its shards lie on disks that can be read now. The missing ones may be on a disk
    /// that is away or not up to date.
    pub fn is_out_of_reach(&self, object: &Object) -> bool {
        let is_here = |slot: u8| self.members.member(slot).is_some_and(|member| member.is_readable());
        let here = object.placed().filter(|(_, slot)| is_here(*slot)).count();
        here < usize::from(object.geometry.k) && !object.is_dead() && !object.is_draft
    }

    /// Objects that cannot be read while disks are away, with their unreadable bytes, and how many
    /// more there are than can be listed.
    pub fn out_of_reach(&self) -> (Vec<Damage>, u64) {
        if self.members.iter().all(|member| member.is_readable() && member.is_in_sync()) {
            // With all disks there, missing bytes are lost and recorded as such.
            return (Vec::new(), 0);
        }
        let (mut listed, mut more) = (Vec::new(), 0);
        for object in self.objects.index().objects.values().filter(|object| self.is_out_of_reach(object)) {
            if listed.len() < OUT_OF_REACH_MAX {
                listed.push(self.out_of_reach_in(object));
            } else {
                more += 1;
            }
        }
        (listed, more)
    }

    fn out_of_reach_in(&self, object: &Object) -> Damage {
        let is_here =
            |index: u8| object.slot(index).and_then(|slot| self.members.member(slot)).is_some_and(|m| m.is_readable());
        let pieces = object.geometry.pieces(0..object.geometry.size).into_iter().filter(|piece| !is_here(piece.shard));
        let range =
            |piece: crate::object::geometry::Piece| piece.object..piece.object + (piece.local.end - piece.local.start);
        Damage { object: object.path.clone(), version: object.version, ranges: joined(pieces.map(range).collect()) }
    }

    fn note_ranges(&self, object: &Object, ranges: Vec<Range<u64>>) {
        let damage = Damage { object: object.path.clone(), version: object.version, ranges };
        self.scrubs.has_lost.store(true, Ordering::Release);
        if self.scrubs.state.lock().note(damage) {
            tracing::error!(pool = %self.members.name, object = %object.path, "bytes are lost: more of its shards are damaged than redundancy can stand");
            self.members.event(EventKind::Errors, format!("bytes of {} are lost", object.path));
        }
    }
}

/// The place of a data shard's block in its object. A block never straddles units
/// (`geometry.block_within_a_unit`).
fn object_range(geometry: Geometry, index: u8, local: &Range<u64>) -> Range<u64> {
    let unit = geometry.unit_range(local.start / UNIT_BYTES, index);
    let start = unit.start + local.start % UNIT_BYTES;
    start..(start + (local.end - local.start)).min(geometry.size)
}

#[cfg(test)]
mod tests {
    use super::super::found::RANGES_MAX;
    use super::*;

    #[test]
    fn blocks_of_shards_are_found_in_the_object() {
        for (size, k) in [(5 << 20, 2u8), ((9 << 20) + 12_345, 4), (700_001, 2), (300_000, 1)] {
            let geometry = Geometry::new(size, k, 1);
            for piece in geometry.pieces(0..size) {
                let mut at = piece.local.start;
                while at < piece.local.end {
                    let end = (at + geometry.block_bytes()).min(piece.local.end);
                    let expected = piece.object + (at - piece.local.start);
                    let found = object_range(geometry, piece.shard, &(at..end));
                    assert_eq!(found, expected..expected + (end - at), "{geometry:?} shard {}", piece.shard);
                    at = end;
                }
            }
        }
    }

    #[test]
    fn neighbours_join_and_the_list_is_bounded() {
        assert_eq!(joined(vec![10..20, 0..10, 30..40]), [0..20, 30..40]);
        let many = joined((0..1000).map(|n| n * 10..n * 10 + 5).collect());
        assert_eq!((many.len(), many.last().map(|range| range.end)), (RANGES_MAX, Some(9995)));
    }
}
