//! The disks of an open pool, by slot.
//!
//! N1. A slot is a number within this process: the place of a disk among those of the label when the pool was opened, or
//!     the next free one for a disk that joined later. Nothing on a disk refers to slots.
//! N2. A slot is never given to another disk, so a number read a moment ago means the same disk or none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::index::NO_SLOT;
use crate::member::MemberDisk;

/// Disks that one process may have seen in a pool, those that left included.
const SLOTS_MAX: usize = NO_SLOT as usize;

#[derive(Debug)]
pub struct Members {
    slots: Box<[OnceLock<MemberDisk>]>,
    used: AtomicUsize,
    joining: Mutex<()>,
}

impl Members {
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
        new
    }

    /// Gives a disk the next slot; gives it back when there is none left (N2).
    pub fn push(&self, member: MemberDisk) -> Result<u8, Box<MemberDisk>> {
        let _one = self.joining.lock();
        let slot = self.used.load(Ordering::Acquire);
        let Some(cell) = self.slots.get(slot) else { return Err(Box::new(member)) };
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

    pub fn len(&self) -> usize {
        self.iter().count()
    }
}
