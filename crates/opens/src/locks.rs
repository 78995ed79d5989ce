//! Byte ranges.
//!
//! - `locks.posix_by_owner`: a POSIX lock belongs to an owner: a process of a mount, a client of
//!   NLM or NFSv4. Locks of one owner never conflict: a new lock replaces the old ones in its
//!   range.
//! - `locks.ranges_by_open`: a range of an open (SMB; MS-FSA 2.1.4.10) ends with its open, and is
//!   given up by exactly the request that took it. Shared ranges of one open stack, an exclusive
//!   one excludes further exclusive ones of its own open as well. Reads and writes of opens are
//!   judged by these ranges, and not by locks of owners.
//! - `locks.lost_by_silence`: a lock whose client has gone yields to the first lock of another door
//!   that it is in the way of ([`Door::loses_lock`](crate::Door::loses_lock)). While clients of a
//!   door take back what they had, other doors wait.
//! - `locks.bounded_by_party`: a party that its door names has at most `LOCKS_OF_PARTY_MAX` locks
//!   of all files, and adds none to the last quarter of the table beyond `LOCKS_RESERVED`. So
//!   whatever some take, others find room for a little. A door names what its clients cannot make
//!   up: their network.
//! - `locks.doors_end_owners`: a door ends its owners. The table cannot notice that a client has
//!   left.

use std::sync::atomic::Ordering::Release;

use larder_fs::Ino;

use crate::ranges::{By, Held, LockError, Owner, Range, conflict, cut, join, of_party};
use crate::waiters::Wakes;
use crate::{Change, File, Table};

impl File {
    pub(crate) fn count_of_opens(&self) {
        self.of_opens.store(self.ranges.iter().filter(|held| held.by == By::Open).count(), Release);
    }
}

impl Table {
    /// Takes locks of `owner` away; `take` says whether there was something.
    fn release(&self, ino: Ino, owner: Owner, take: impl FnOnce(&mut Vec<Held>) -> bool) {
        self.change(ino, |file| {
            let (before, of_owner) = (file.ranges.len(), of_party(&file.ranges, owner));
            let wakes = Wakes::for_ranges_if(take(&mut file.ranges));
            self.bounds.counts(before, file.ranges.len());
            self.bounds.counts_of(owner, of_owner, of_party(&file.ranges, owner));
            Change { done: (), wakes }
        });
    }

    /// The lock that conflicts with `wanted`.
    pub fn test_lock(&self, ino: Ino, wanted: Held) -> Option<Held> {
        loop {
            let held = self.look(ino, |file| conflict(&file.ranges, &wanted))??;
            if !self.loses_lock(ino, wanted.owner.door, &held) {
                return Some(held);
            }
        }
    }

    /// Whether the holder of a lock in the way of `door` has lost it now (`locks.lost_by_silence`).
    fn loses_lock(&self, ino: Ino, door: u32, held: &Held) -> bool {
        let Owner { door: by, id } = held.owner;
        by != door && self.doors(|number| number == by).iter().any(|door| door.loses_lock(ino, id))
    }

    /// Takes a lock, of an owner in place of its locks in the range (`locks.posix_by_owner`).
    pub fn lock(&self, ino: Ino, wanted: Held) -> Result<(), LockError> {
        self.ask(ino, wanted)?;
        self.reclaim_lock(ino, wanted)
    }

    /// The reason for which a lock may not be taken. Other doors are asked, and clients of theirs
    /// that have gone lose their locks (`locks.lost_by_silence`).
    pub(crate) fn ask(&self, ino: Ino, wanted: Held) -> Result<(), LockError> {
        match self.awaits_reclaims(wanted.owner.door) {
            true => Err(LockError::Reclaims),
            false => self.test_lock(ino, wanted).map_or(Ok(()), |held| Err(LockError::Conflict(held))),
        }
    }

    /// As [`Table::lock`], with no door asked: for a client that takes back what it had before a
    /// restart, while others wait for that, and for a door that asked before ([`Table::ask`]).
    pub fn reclaim_lock(&self, ino: Ino, wanted: Held) -> Result<(), LockError> {
        self.change(ino, |file| {
            let ranges = &mut file.ranges;
            if let Some(held) = conflict(ranges, &wanted) {
                return Change::quiet(Err(LockError::Conflict(held)));
            }
            let before = ranges.len();
            if self.bounds.is_full(before) || self.bounds.is_party_full(&wanted) {
                return Change::quiet(Err(LockError::TooMany));
            }
            if wanted.by == By::Open {
                ranges.push(wanted);
                self.bounds.counts(before, before + 1);
                file.count_of_opens();
                return Change::quiet(Ok(()));
            }
            let of_owner = of_party(ranges, wanted.owner);
            let weakens = ranges.iter().any(|held| held.is_of(wanted.owner) && held.exclusive && !wanted.exclusive);
            cut(ranges, wanted.owner, wanted.range);
            join(ranges, wanted);
            self.bounds.counts(before, ranges.len());
            self.bounds.counts_of(wanted.owner, of_owner, of_party(ranges, wanted.owner));
            Change { done: Ok(()), wakes: Wakes::for_ranges_if(weakens) }
        })
    }

    /// Fails only if it would make two locks of one where there are as many as there may be.
    pub fn unlock(&self, ino: Ino, owner: Owner, range: Range) -> Result<(), LockError> {
        let mut done = Ok(());
        self.release(ino, owner, |ranges| {
            let splits =
                |held: &Held| held.is_of(owner) && held.range.start < range.start && held.range.last > range.last;
            let is_full = |held: &Held| self.bounds.is_full(ranges.len()) || self.bounds.is_party_full(held);
            if ranges.iter().any(|held| splits(held) && is_full(held)) {
                done = Err(LockError::TooMany);
                return false;
            }
            cut(ranges, owner, range)
        });
        done
    }

    /// Gives up one such range of an open. Whether it had one.
    pub(crate) fn unlock_of_open(&self, ino: Ino, held: Held) -> bool {
        self.change(ino, |file| {
            let at = file.ranges.iter().rposition(|other| *other == held);
            if let Some(at) = at {
                file.ranges.remove(at);
                self.bounds.counts(1, 0);
                file.count_of_opens();
            }
            Change { done: at.is_some(), wakes: Wakes::for_ranges_if(at.is_some()) }
        })
    }

    /// Removes the locks of an owner that has ended (`locks.doors_end_owners`).
    pub fn end_locks(&self, ino: Ino, owner: Owner) {
        self.release(ino, owner, |ranges| {
            let before = ranges.len();
            ranges.retain(|held| !held.is_of(owner));
            ranges.len() < before
        });
    }

    /// Whether an owner has locks of a file.
    pub fn has_locks(&self, ino: Ino, owner: Owner) -> bool {
        self.look(ino, |file| file.ranges.iter().any(|held| held.is_of(owner))).unwrap_or(false)
    }

    /// Removes the locks of a door that has closed (`locks.doors_end_owners`).
    pub fn end_door(&self, door: u32) {
        let is_its = |held: &Held| held.owner.door == door && held.by == By::Owner;
        for shard in &self.shards {
            let locked = shard.lock();
            let of_file = |(ino, file): (&Ino, &File)| -> Vec<(Ino, Owner)> {
                file.ranges.iter().filter(|held| is_its(held)).map(|held| (*ino, held.owner)).collect()
            };
            let owners: Vec<(Ino, Owner)> = locked.iter().flat_map(of_file).collect();
            drop(locked);
            owners.into_iter().for_each(|(ino, owner)| self.end_locks(ino, owner));
        }
    }
}
