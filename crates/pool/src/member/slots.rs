//! The disks of an open pool, by slot.
//!
//! - `slot.within_the_process`: a slot is a number within this process. It is the place of a disk
//!   in the label when the pool was opened, or the next free number for a disk that joined later.
//!   Nothing on a disk refers to slots.
//! - `slot.never_reused`: a slot is never given to another disk. So a number read a moment ago
//!   means the same disk or none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::member::member_disk::MemberDisk;
use crate::object::index::NO_SLOT;

/// Disks that one process may have seen in a pool, those that left included.
const SLOTS_MAX: usize = NO_SLOT as usize;

#[derive(Debug)]
pub struct Slots {
    slots: Box<[OnceLock<MemberDisk>]>,
    used: AtomicUsize,
    joining: Mutex<()>,
}

impl Slots {
    pub fn new(members: Vec<MemberDisk>) -> Self {
        let new = Self {
            slots: (0..SLOTS_MAX).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            joining: Mutex::new(()),
        };
        // A label has far fewer members than there are slots.
        for member in members {
            let _ = new.push(member);
        }
        new.go_on_replacing();
        // A label may say so of a disk that has left long ago.
        new.end_replacements();
        new
    }

    /// Gives a disk the next slot; returns the disk when there is no slot left
    /// (`slot.never_reused`).
    pub fn push(&self, member: MemberDisk) -> Result<u8, Box<MemberDisk>> {
        let _one = self.joining.lock();
        let slot = self.used.load(Ordering::Acquire);
        let Some(cell) = self.slots.get(slot) else { return Err(Box::new(member)) };
        assert!(cell.get().is_none(), "`slot.never_reused`: the next slot has never had a disk");
        cell.set(member).map_err(Box::new)?;
        self.used.store(slot + 1, Ordering::Release);
        Ok(slot as u8)
    }

    pub fn get(&self, slot: u8) -> Option<&MemberDisk> {
        self.slots.get(usize::from(slot))?.get().filter(|member| !member.is_retired())
    }

    pub fn with_slots(&self) -> impl Iterator<Item = (u8, &MemberDisk)> {
        (0..self.used.load(Ordering::Acquire) as u8).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &MemberDisk> {
        self.with_slots().map(|(_, member)| member)
    }

    /// A disk whose successor has joined leaves, even where a crash came between the two labels
    /// that say so.
    fn go_on_replacing(&self) {
        let replaced: Vec<Uuid> = self.iter().filter_map(MemberDisk::replaces).collect();
        let left_behind = self.iter().filter(|member| replaced.contains(&member.id));
        left_behind.for_each(|member| member.leaving.store(true, Ordering::Release));
    }

    /// A disk that took the place of one that has left has it now.
    pub fn end_replacements(&self) {
        let known: Vec<Uuid> = self.iter().map(|member| member.id).collect();
        let done = |member: &&MemberDisk| member.replaces().is_some_and(|of| !known.contains(&of));
        self.iter().filter(done).for_each(|member| member.set_replaces(None));
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }
}
