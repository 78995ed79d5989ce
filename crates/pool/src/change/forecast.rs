//! How much a change will write before everything is where it should be: a walk over the index that
//! decides as the pass of `moving.rs` will, and moves nothing.

use uuid::Uuid;

use crate::change::moving::{Fill, shape_of};
use crate::core::Core;
use crate::member::member_disk::MemberDisk;
use crate::object::geometry::Geometry;
use crate::object::index::Object;
use crate::object::layout::Layout;

/// A disk that has no slot yet.
pub struct DiskToCome {
    pub room_bytes: u64,
}

/// The pool as it will be when the change has been asked for.
pub struct Ahead {
    pub layout: Layout,
    pub width: u8,
    /// It is about to leave, besides those that are leaving already.
    pub leaving: Option<u8>,
    /// It joins and takes the place of the one that leaves.
    pub successor: Option<DiskToCome>,
    pub rebalancing: bool,
}

/// The slot of a disk that has none yet.
const TO_COME: u8 = crate::object::index::NO_SLOT - 1;

/// The inputs that decide where the shards of all objects go.
struct Course<'a> {
    ahead: &'a Ahead,
    /// Disks that take data.
    takers: Vec<u8>,
    /// Shards on other disks than these move.
    staying: Vec<u8>,
    shapes_matter: bool,
    evens_out: bool,
    rebuilds: bool,
    fill: Fill,
}

impl Core {
    /// Bytes that will be written, the journal's copies included.
    pub fn forecast(&self, ahead: &Ahead) -> u64 {
        let course = self.course(ahead);
        let objects: u64 = self.objects.index().objects.values().map(|object| course.bytes_for(object)).sum();
        let leaves =
            |id: &Uuid| self.members.with_slots().any(|(slot, member)| ahead.leaving == Some(slot) && member.id == *id);
        let kept = self.members.label().journal.iter().filter(|id| !leaves(id)).count();
        let wanted = self.members.journal_copies().max(usize::from(ahead.layout.failures()) + 1);
        let takers = course.takers.len().min(wanted);
        let journal = takers.saturating_sub(kept) as u64 * self.journal_bytes();
        objects + journal
    }

    fn course<'a>(&self, ahead: &'a Ahead) -> Course<'a> {
        let leaves = |slot: u8, member: &MemberDisk| member.is_leaving() || ahead.leaving == Some(slot);
        let slots = |wanted: &dyn Fn(u8, &MemberDisk) -> bool| -> Vec<u8> {
            self.members.with_slots().filter(|(slot, member)| wanted(*slot, member)).map(|(slot, _)| slot).collect()
        };
        let away = !slots(&|slot, member| !leaves(slot, member) && !member.is_writable()).is_empty();
        let gone = !slots(&|slot, member| leaves(slot, member) && !member.is_readable()).is_empty();
        let mut takers = slots(&|slot, member| !leaves(slot, member) && member.takes_data());
        let mut staying = slots(&|slot, member| !leaves(slot, member));
        let mut fill = self.fill();
        fill.retain(|(slot, _, _)| takers.contains(slot));
        if let Some(disk) = &ahead.successor {
            takers.push(TO_COME);
            staying.push(TO_COME);
            fill.push((TO_COME, 0, disk.room_bytes));
        }
        let stragglers = self.mover.has_stragglers();
        Course {
            ahead,
            takers,
            staying,
            shapes_matter: (ahead.rebalancing || stragglers) && !away,
            evens_out: ahead.rebalancing && !away,
            rebuilds: gone || !away,
            fill: Fill::new(fill),
        }
    }
}

impl Course<'_> {
    fn bytes_for(&self, object: &Object) -> u64 {
        let (k, m) = shape_of(self.ahead.layout, self.ahead.width, object.geometry.size, self.takers.len());
        let header = u64::from(object.header_bytes);
        let anew = Geometry::new(object.geometry.size, k, m);
        let anew_bytes = || (0..anew.shards()).map(|index| anew.file_bytes(index, header)).sum::<u64>();
        if self.shapes_matter && (object.geometry.k, object.geometry.m) != (k, m) {
            return anew_bytes();
        }
        let mut placed: Vec<(u8, u8)> = object.placed().collect();
        let (mut bytes, mut homeless) = (0, false);
        for at in 0..placed.len() {
            let Some((index, slot)) = placed.get(at).copied().filter(|(_, slot)| !self.staying.contains(slot)) else {
                continue;
            };
            let of_successor = self.ahead.leaving == Some(slot) && self.takers.contains(&TO_COME);
            let target = self.target(&placed, of_successor);
            // Then all of it is written anew.
            let Some(target) = target else { return bytes + anew_bytes() };
            bytes += object.geometry.file_bytes(index, header);
            placed[at] = (index, target);
        }
        if self.rebuilds {
            for index in (0..object.geometry.shards()).filter(|index| object.slot(*index).is_none()) {
                match self.target(&placed, false) {
                    Some(target) => {
                        bytes += object.geometry.file_bytes(index, header);
                        placed.push((index, target));
                    }
                    None => homeless = true,
                }
            }
        }
        if homeless {
            return bytes + anew_bytes();
        }
        if self.evens_out {
            let moves = self.fill.evener(&object.geometry, header, &placed);
            bytes += moves.into_iter().map(|(index, _)| object.geometry.file_bytes(index, header)).sum::<u64>();
        }
        bytes
    }

    /// A disk without a shard of this object.
    fn target(&self, placed: &[(u8, u8)], prefers_successor: bool) -> Option<u8> {
        let is_free = |slot: &u8| placed.iter().all(|(_, taken)| taken != slot);
        let successor = prefers_successor.then_some(TO_COME).filter(is_free);
        successor.or_else(|| self.takers.iter().copied().find(is_free))
    }
}
