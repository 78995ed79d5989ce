//! Byte-range locks of a door's owners, by inode ([`larder_opens`]); waiting for them.
//!
//! - `files.locks_asked_for`: whoever takes a lock sees what was written before, and nobody else
//!   decides about locks of the file. Each door asks other doors' clients before a lock
//!   ([`Caches::of_lock`]).

use larder_base::boxed;
use larder_fs::Ino;
#[cfg(doc)]
use larder_opens::Caches;
pub use larder_opens::{Held, LockError, Owner, Range, Waiter};

use crate::Files;

/// POSIX locks of the door's owners; `id` tells them apart.
impl Files {
    /// Locks that are taken here count against a party of the door, by any number that stands for
    /// it (`locks.bounded_by_party`). An owner is of one party.
    pub fn locking_for(&self, party: u64) -> Files {
        Files { locks_of: Some(party), ..self.clone() }
    }

    fn posix(&self, id: u64, range: Range, exclusive: bool, pid: u32) -> Held {
        Held::posix(self.owner(id), range, exclusive, pid, self.locks_of)
    }

    /// The lock that conflicts with this one (F_GETLK).
    pub fn test_lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool) -> Option<Held> {
        self.shared.opens.test_lock(ino, self.posix(id, range, exclusive, 0))
    }

    /// Takes the place of the owner's locks in the range (F_SETLK). `pid` is told to those who ask
    /// what is in their way.
    pub fn lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool, pid: u32) -> Result<(), LockError> {
        self.shared.opens.lock(ino, self.posix(id, range, exclusive, pid))
    }

    /// As [`Files::lock`], for a client that takes back what it had before a restart, while others
    /// wait for that.
    pub fn reclaim_lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool, pid: u32) -> Result<(), LockError> {
        self.shared.opens.reclaim_lock(ino, self.posix(id, range, exclusive, pid))
    }

    /// Until the locks of a file change, from this call on.
    pub fn lock_changed(&self, ino: Ino) -> Waiter {
        self.shared.opens.waiter_for_ranges(ino)
    }

    /// Locks of others may have gone without a word, or may be taken from now on: all who wait try
    /// again.
    pub fn wake_lock_waiters(&self) {
        self.shared.opens.wake_all();
    }

    /// As [`Files::lock`], when the range is free (F_SETLKW). Who no longer wants it drops the
    /// future.
    #[boxed]
    pub async fn lock_when_free(
        &self,
        ino: Ino,
        id: u64,
        range: Range,
        exclusive: bool,
        pid: u32,
    ) -> Result<(), LockError> {
        loop {
            // Before the attempt, so that what changes after it is heard.
            let changed = self.lock_changed(ino);
            let holder = match self.lock(ino, id, range, exclusive, pid) {
                Err(LockError::Conflict(held)) => Some(held.owner),
                Err(LockError::Reclaims) => None,
                done => return done,
            };
            let wait_for = |holder| self.shared.opens.wait_for(self.owner(id), holder).ok_or(LockError::Deadlock);
            let _waits = holder.map(wait_for).transpose()?;
            changed.await;
        }
    }

    /// [`LockError::TooMany`] if that would make one more lock than a file may have.
    pub fn unlock(&self, ino: Ino, id: u64, range: Range) -> Result<(), LockError> {
        self.shared.opens.unlock(ino, self.owner(id), range)
    }

    /// The door closes: all locks of its clients are released (`locks.doors_end_owners`).
    pub fn end_all_locks(&self) {
        self.shared.opens.end_door(self.door);
    }

    /// The owner has closed the file or has ended (`locks.doors_end_owners`).
    pub fn end_locks(&self, ino: Ino, id: u64) {
        self.shared.opens.end_locks(ino, self.owner(id));
    }

    /// Whether the owner has locks of the file.
    pub fn has_locks(&self, ino: Ino, id: u64) -> bool {
        self.shared.opens.has_locks(ino, self.owner(id))
    }

    /// The number of a lock's owner, if it is one of this door.
    pub fn own_owner(&self, held: &Held) -> Option<u64> {
        (held.owner.door == self.door).then_some(held.owner.id)
    }

    fn owner(&self, id: u64) -> Owner {
        Owner { door: self.door, id }
    }
}
