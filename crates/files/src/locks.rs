//! Byte-range locks of all doors, by inode.
//!
//! - `locks.posix_by_owner`: a POSIX lock belongs to an owner: a process of a mount, later a client
//!   of NLM or NFSv4. Locks of one owner never conflict: a new lock replaces the old ones in its
//!   range.
//! - `locks.smb_decides_smb`: ranges of SMB clients are in this table as well, so that they and
//!   POSIX locks exclude each other. Among SMB clients the SMB server decides by its own rules
//!   (MS-FSA 2.1.5.8), so two SMB ranges never conflict here.
//! - `locks.retried_on_change`: a waiting lock is tried again after each change of the file's
//!   locks. A wait that would close a ring of waiting owners is refused (POSIX: EDEADLK).
//! - `locks.lost_by_silence`: a lock whose client has gone yields to the first lock of another door that it is in the way
//!   of ([`crate::leases::Holder::loses_lock`]). While clients of a door take back what they had, other doors wait.
//! - `locks.bounded_by_party`: a party that its door names ([`Files::locking_for`]) has at most [`LOCKS_OF_PARTY_MAX`] locks
//!   of all files, and adds none to the last quarter of the table beyond [`LOCKS_RESERVED`]. So whatever some take, others
//!   find room for a little. A door names what its clients cannot make up: their network.
//! - `locks.doors_end_owners`: a door ends its owners. This module cannot notice that a client has
//!   left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_base::boxed;
use larder_fs::Ino;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::leases::Recall;
use crate::{Files, Shared};

const SHARDS: usize = 32;
/// Of one file. A client must not be able to fill the memory.
const LOCKS_MAX: usize = 1 << 16;
/// Of all files, some 64 MiB: a client may have thousands of files open.
const LOCKS_OF_ALL_MAX: usize = 1 << 20;
/// Of all files by one party (`locks.bounded_by_party`).
const LOCKS_OF_PARTY_MAX: usize = LOCKS_OF_ALL_MAX / 4;
/// Every party may have so many.
const LOCKS_RESERVED: usize = LOCKS_OF_ALL_MAX / 2048;
/// Links of a chain of waiting owners that are followed.
const CHAIN_MAX: usize = 64;

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The door that took it.
    pub door: u32,
    /// The door's own number for the owner: a process, a client, an open.
    pub id: u64,
}

/// The bytes from `start` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The last byte; `u64::MAX` reaches to the end of any file.
    pub last: u64,
}

impl Range {
    fn overlaps(self, other: Range) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn touches(self, other: Range) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Posix,
    Smb,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its owner.
    pub owner: Owner,
    /// The bytes that it covers.
    pub range: Range,
    /// Whether it excludes every other lock, and not exclusive ones alone.
    pub exclusive: bool,
    /// The process that asked for it, where there is one.
    pub pid: u32,
    /// The client that it counts against, in the numbers of its door.
    party: Option<u64>,
    family: Family,
}

/// Reasons for which a lock is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// Another owner has it.
    Conflict(Held),
    /// Waiting would never end (`locks.retried_on_change`).
    Deadlock,
    /// The file, its client or all together have as many locks as there may be.
    TooMany,
    /// Clients of another door still take back the locks that they had before a restart.
    Reclaims,
}

#[derive(Default)]
struct File {
    locks: Vec<Held>,
    changes: watch::Sender<()>,
}

pub(crate) struct Locks {
    shards: [Mutex<HashMap<Ino, File>>; SHARDS],
    /// Locks of all files.
    total: AtomicUsize,
    /// Locks by door and client.
    by_party: Mutex<HashMap<(u32, u64), usize>>,
    /// Each waiting owner, and the owner of the lock in its way.
    waiting: Mutex<HashMap<Owner, Owner>>,
}

impl Default for Locks {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, total: AtomicUsize::new(0), by_party: Mutex::default(), waiting: Mutex::default() }
    }
}

impl Locks {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, File>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Whether one more lock of a file that has `count` is too many.
    fn is_full(&self, count: usize) -> bool {
        count >= LOCKS_MAX || self.total.load(Relaxed) >= LOCKS_OF_ALL_MAX
    }

    /// Whether one more lock of this party is too many (`locks.bounded_by_party`).
    fn is_party_full(&self, held: &Held) -> bool {
        let Some(party) = held.party else { return false };
        let count = self.by_party.lock().get(&(held.owner.door, party)).copied().unwrap_or_default();
        let is_tight = self.total.load(Relaxed) >= LOCKS_OF_ALL_MAX / 4 * 3;
        count >= LOCKS_OF_PARTY_MAX || is_tight && count >= LOCKS_RESERVED
    }

    /// Of the locks of `owner` with a client there were `before` and are `after`.
    fn counts_of(&self, owner: Owner, before: (usize, Option<u64>), after: (usize, Option<u64>)) {
        let ((before, before_of), (after, after_of)) = (before, after);
        let Some(party) = before_of.or(after_of).filter(|_| before != after) else { return };
        let mut by_party = self.by_party.lock();
        let count = by_party.entry((owner.door, party)).or_default();
        *count = (*count + after).saturating_sub(before);
        if *count == 0 {
            by_party.remove(&(owner.door, party));
        }
    }

    /// A file had `before` locks and has `after`.
    fn counts(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.total.fetch_add(more, Relaxed),
            None => self.total.fetch_sub(before - after, Relaxed),
        };
    }

    /// Takes locks of `owner` of a file away; wakes those who wait if `change` says that there was something.
    fn release(&self, ino: Ino, owner: Option<Owner>, change: impl FnOnce(&mut Vec<Held>) -> bool) {
        let mut shard = self.shard(ino).lock();
        let Some(file) = shard.get_mut(&ino) else { return };
        let before = file.locks.len();
        let of_owner = owner.map(|owner| (owner, of_party(&file.locks, owner)));
        let has_changed = change(&mut file.locks);
        self.counts(before, file.locks.len());
        if let Some((owner, before)) = of_owner {
            self.counts_of(owner, before, of_party(&file.locks, owner));
        }
        if has_changed {
            file.changes.send_modify(|()| ());
        }
        // A waiting owner keeps the entry, so that it hears of the next lock's end as well.
        if file.locks.is_empty() && file.changes.is_closed() {
            shard.remove(&ino);
        }
    }

    /// The lock that conflicts with `wanted`.
    pub(crate) fn test(&self, ino: Ino, wanted: Held) -> Option<Held> {
        self.shard(ino).lock().get(&ino).and_then(|file| conflict(&file.locks, &wanted))
    }

    /// As POSIX has it: replaces the owner's locks in the range (`locks.posix_by_owner`).
    pub(crate) fn lock_posix(&self, ino: Ino, wanted: Held) -> Result<(), LockError> {
        let mut shard = self.shard(ino).lock();
        let file = shard.entry(ino).or_default();
        let locks = &mut file.locks;
        if let Some(held) = conflict(locks, &wanted) {
            return Err(LockError::Conflict(held));
        }
        let before = locks.len();
        if self.is_full(before) || self.is_party_full(&wanted) {
            return Err(LockError::TooMany);
        }
        let of_owner = of_party(locks, wanted.owner);
        let weakens = locks.iter().any(|held| held.is_posix_of(wanted.owner) && held.exclusive && !wanted.exclusive);
        cut(locks, wanted.owner, wanted.range);
        join(locks, wanted);
        self.counts(before, locks.len());
        self.counts_of(wanted.owner, of_owner, of_party(locks, wanted.owner));
        if weakens {
            file.changes.send_modify(|()| ());
        }
        Ok(())
    }

    /// Fails only if it would make two locks of one where there are as many as there may be.
    pub(crate) fn unlock_posix(&self, ino: Ino, owner: Owner, range: Range) -> Result<(), LockError> {
        let mut done = Ok(());
        self.release(ino, Some(owner), |locks| {
            let splits =
                |held: &Held| held.is_posix_of(owner) && held.range.start < range.start && held.range.last > range.last;
            let is_full = |held: &Held| self.is_full(locks.len()) || self.is_party_full(held);
            if locks.iter().any(|held| splits(held) && is_full(held)) {
                done = Err(LockError::TooMany);
                return false;
            }
            cut(locks, owner, range)
        });
        done
    }

    /// Until the locks of the file change, from now on.
    pub(crate) fn changes(&self, ino: Ino) -> watch::Receiver<()> {
        self.shard(ino).lock().entry(ino).or_default().changes.subscribe()
    }

    /// A range of an SMB client (`locks.smb_decides_smb`): refused if a POSIX lock is in the way.
    pub(crate) fn lock_smb(&self, ino: Ino, owner: Owner, range: Range, exclusive: bool) -> Result<(), LockError> {
        let wanted = Held { owner, range, exclusive, pid: 0, party: None, family: Family::Smb };
        let mut shard = self.shard(ino).lock();
        let locks = &mut shard.entry(ino).or_default().locks;
        if let Some(held) = conflict(locks, &wanted) {
            return Err(LockError::Conflict(held));
        }
        if self.is_full(locks.len()) {
            return Err(LockError::TooMany);
        }
        locks.push(wanted);
        self.total.fetch_add(1, Relaxed);
        Ok(())
    }

    /// All who wait try again.
    fn wake_all(&self) {
        for shard in &self.shards {
            shard.lock().values().for_each(|file| file.changes.send_modify(|()| ()));
        }
    }

    /// Gives up one lock of exactly this range, the one taken last.
    pub(crate) fn unlock_smb(&self, ino: Ino, owner: Owner, range: Range, exclusive: bool) {
        self.release(ino, None, |locks| {
            let is_it = |held: &Held| {
                held.family == Family::Smb && (held.owner, held.range, held.exclusive) == (owner, range, exclusive)
            };
            let at = locks.iter().rposition(is_it);
            if let Some(at) = at {
                locks.remove(at);
            }
            at.is_some()
        });
    }

    /// Removes the locks of an owner that has ended (`locks.doors_end_owners`).
    pub(crate) fn end(&self, ino: Ino, owner: Owner) {
        self.release(ino, Some(owner), |locks| {
            let before = locks.len();
            locks.retain(|held| held.owner != owner);
            locks.len() < before
        });
    }

    /// Removes the ranges of an open that has ended. The numbers of opens and those of owners of POSIX locks are different
    /// things, also of one door.
    pub(crate) fn end_ranges(&self, ino: Ino, open: Owner) {
        self.release(ino, None, |locks| {
            let before = locks.len();
            locks.retain(|held| held.owner != open || held.family != Family::Smb);
            locks.len() < before
        });
    }

    /// Whether an owner has locks of a file.
    pub(crate) fn has(&self, ino: Ino, owner: Owner) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|file| file.locks.iter().any(|held| held.owner == owner))
    }

    /// Removes the locks of a door that has closed (`locks.doors_end_owners`).
    pub(crate) fn end_door(&self, door: u32) {
        for shard in &self.shards {
            shard.lock().retain(|_, file| {
                let before = file.locks.len();
                for held in file.locks.extract_if(.., |held| held.owner.door == door) {
                    self.counts_of(held.owner, (1, held.party), (0, None));
                }
                self.counts(before, file.locks.len());
                if file.locks.len() < before {
                    file.changes.send_modify(|()| ());
                }
                !file.locks.is_empty() || !file.changes.is_closed()
            });
        }
    }

    /// Of what no longer waits and nobody holds, nothing stays behind.
    pub(crate) fn stop_waiting(&self, ino: Ino) {
        self.release(ino, None, |_| false);
    }

    /// `owner` waits for `holder` until the guard is dropped; refused if `holder` waits for `owner`
    /// in turn (`locks.retried_on_change`).
    pub(crate) fn wait_for(&self, owner: Owner, holder: Owner) -> Option<Waiting<'_>> {
        let mut waiting = self.waiting.lock();
        let mut at = holder;
        for _ in 0..CHAIN_MAX {
            if at == owner {
                return None;
            }
            match waiting.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        waiting.insert(owner, holder);
        Some(Waiting { locks: self, owner })
    }

    #[cfg(test)]
    fn files(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// The locks of `owner` that count against a client, and that client: an owner has one.
fn of_party(locks: &[Held], owner: Owner) -> (usize, Option<u64>) {
    let mut counted = locks.iter().filter(|held| held.owner == owner && held.party.is_some()).peekable();
    let party = counted.peek().and_then(|held| held.party);
    (counted.count(), party)
}

/// POSIX locks of the door's owners; `id` tells them apart.
impl Files {
    /// Locks that are taken here count against a party of the door, by any number that stands for it
    /// (`locks.bounded_by_party`). An owner is of one party.
    pub fn locking_for(&self, party: u64) -> Files {
        Files { locks_of: Some(party), ..self.clone() }
    }

    fn posix(&self, id: u64, range: Range, exclusive: bool, pid: u32) -> Held {
        Held { party: self.locks_of, ..Held::posix(self.owner(id), range, exclusive, pid) }
    }

    /// The lock that conflicts with this one (F_GETLK).
    pub fn test_lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool) -> Option<Held> {
        let wanted = Held::posix(self.owner(id), range, exclusive, 0);
        loop {
            let held = self.shared.locks.test(ino, wanted)?;
            // `locks.lost_by_silence`
            if !self.shared.leases.loses_lock(self.door, ino, (held.owner.door, held.owner.id)) {
                return Some(held);
            }
        }
    }

    /// Takes the place of the owner's locks in the range (F_SETLK). `pid` is told to those who ask what is in their way.
    pub fn lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool, pid: u32) -> Result<(), LockError> {
        let wanted = self.posix(id, range, exclusive, pid);
        self.shared.lock_beside_others(self.door, ino, || self.shared.locks.lock_posix(ino, wanted))
    }

    /// As [`Files::lock`], for a client that takes back what it had before a restart, while others wait for that.
    pub fn reclaim_lock(&self, ino: Ino, id: u64, range: Range, exclusive: bool, pid: u32) -> Result<(), LockError> {
        self.shared.locks.lock_posix(ino, self.posix(id, range, exclusive, pid))
    }

    /// Before a lock of a door without opens: clients of other doors that decide about locks of the file by themselves
    /// (with a delegation) stop doing so.
    #[boxed]
    pub async fn recall_local_locks(&self, ino: Ino, exclusive: bool) {
        self.recall(ino, if exclusive { Recall::Data } else { Recall::Writes }).await;
    }

    /// Until the locks of a file change, from this call on.
    pub fn lock_changed(&self, ino: Ino) -> impl Future<Output = ()> + Send + 'static {
        let (files, changes) = (self.clone(), self.shared.locks.changes(ino));
        async move { Waiter { files: &files, ino, changes: Some(changes) }.changed().await }
    }

    /// Locks of others may have gone without a word, or may be taken from now on: all who wait try again.
    pub fn wake_lock_waiters(&self) {
        self.shared.locks.wake_all();
    }

    /// As [`Files::lock`], when the range is free (F_SETLKW). Who no longer wants it drops the future.
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
            let waiter = Waiter { files: self, ino, changes: Some(self.shared.locks.changes(ino)) };
            let holder = match self.lock(ino, id, range, exclusive, pid) {
                Err(LockError::Conflict(held)) => Some(held.owner),
                Err(LockError::Reclaims) => None,
                done => return done,
            };
            let wait_for = |holder| self.shared.locks.wait_for(self.owner(id), holder).ok_or(LockError::Deadlock);
            let _waits = holder.map(wait_for).transpose()?;
            waiter.changed().await;
        }
    }

    /// [`LockError::TooMany`] if that would make one more lock than a file may have.
    pub fn unlock(&self, ino: Ino, id: u64, range: Range) -> Result<(), LockError> {
        self.shared.locks.unlock_posix(ino, self.owner(id), range)
    }

    /// The door closes: all locks of its clients are released (`locks.doors_end_owners`).
    pub fn end_all_locks(&self) {
        self.shared.locks.end_door(self.door);
    }

    /// The owner has closed the file or has ended (`locks.doors_end_owners`).
    pub fn end_locks(&self, ino: Ino, id: u64) {
        self.shared.locks.end(ino, self.owner(id));
    }

    /// Whether the owner has locks of the file.
    pub fn has_locks(&self, ino: Ino, id: u64) -> bool {
        self.shared.locks.has(ino, self.owner(id))
    }

    /// The number of a lock's owner, if it is one of this door.
    pub fn own_owner(&self, held: &Held) -> Option<u64> {
        (held.owner.door == self.door).then_some(held.owner.id)
    }

    fn owner(&self, id: u64) -> Owner {
        Owner { door: self.door, id }
    }
}

impl Shared {
    /// Tries to lock against the owners of other doors (`locks.lost_by_silence`).
    pub(crate) fn lock_beside_others(
        &self,
        door: u32,
        ino: Ino,
        attempt: impl Fn() -> Result<(), LockError>,
    ) -> Result<(), LockError> {
        if self.leases.awaits_reclaims(door) {
            return Err(LockError::Reclaims);
        }
        loop {
            match attempt() {
                Err(LockError::Conflict(held))
                    if self.leases.loses_lock(door, ino, (held.owner.door, held.owner.id)) => {}
                done => return done,
            }
        }
    }
}

struct Waiter<'f> {
    files: &'f Files,
    ino: Ino,
    changes: Option<watch::Receiver<()>>,
}

impl Waiter<'_> {
    async fn changed(mut self) {
        if let Some(changes) = &mut self.changes {
            let _ = changes.changed().await;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.changes = None;
        self.files.shared.locks.stop_waiting(self.ino);
    }
}

pub(crate) struct Waiting<'l> {
    locks: &'l Locks,
    owner: Owner,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.locks.waiting.lock().remove(&self.owner);
    }
}

impl Held {
    /// A lock with the rules of POSIX, for a test or a request.
    pub fn posix(owner: Owner, range: Range, exclusive: bool, pid: u32) -> Self {
        Self { owner, range, exclusive, pid, party: None, family: Family::Posix }
    }

    fn is_posix_of(&self, owner: Owner) -> bool {
        self.family == Family::Posix && self.owner == owner
    }
}

fn conflict(locks: &[Held], wanted: &Held) -> Option<Held> {
    let conflicts = |held: &&Held| {
        held.range.overlaps(wanted.range)
            && (held.exclusive || wanted.exclusive)
            && held.owner != wanted.owner
            && (held.family, wanted.family) != (Family::Smb, Family::Smb)
    };
    locks.iter().find(conflicts).copied()
}

/// Takes `range` out of the POSIX locks of `owner`. Whether there was anything.
fn cut(locks: &mut Vec<Held>, owner: Owner, range: Range) -> bool {
    let mut rests = Vec::new();
    let before = locks.len();
    locks.retain(|held| {
        let is_hit = held.is_posix_of(owner) && held.range.overlaps(range);
        if is_hit && held.range.start < range.start {
            rests.push(Held { range: Range { start: held.range.start, last: range.start - 1 }, ..*held });
        }
        if is_hit && held.range.last > range.last {
            rests.push(Held { range: Range { start: range.last + 1, last: held.range.last }, ..*held });
        }
        !is_hit
    });
    let is_changed = locks.len() < before;
    locks.append(&mut rests);
    is_changed
}

/// Adds a lock whose range its owner has nothing in; neighbours of one kind become one.
fn join(locks: &mut Vec<Held>, mut new: Held) {
    locks.retain(|held| {
        let joins = held.is_posix_of(new.owner) && held.exclusive == new.exclusive && held.range.touches(new.range);
        if joins {
            new.range.start = new.range.start.min(held.range.start);
            new.range.last = new.range.last.max(held.range.last);
        }
        !joins
    });
    locks.push(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::Holder;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const FILE: Ino = Ino(7);

    fn owner(id: u64) -> Owner {
        Owner { door: 1, id }
    }

    fn range(start: u64, last: u64) -> Range {
        Range { start, last }
    }

    fn posix(id: u64, start: u64, last: u64, exclusive: bool) -> Held {
        Held::posix(owner(id), range(start, last), exclusive, 0)
    }

    #[test]
    fn posix_locks_and_ranges_of_smb_refuse_each_other() {
        let locks = Locks::default();
        assert!(locks.lock_smb(FILE, owner(1), range(0, 9), true).is_ok());
        assert!(locks.lock_smb(FILE, owner(2), range(5, 5), true).is_ok(), "the SMB server decides among its clients");
        assert!(matches!(locks.lock_posix(FILE, posix(3, 9, 20, false)), Err(LockError::Conflict(_))));
        locks.lock_posix(FILE, posix(3, 10, 20, false)).unwrap();
        assert!(locks.lock_smb(FILE, owner(1), range(20, 30), true).is_err());
        assert!(locks.lock_smb(FILE, owner(1), range(20, 30), false).is_ok(), "both shared");
        locks.unlock_smb(FILE, owner(1), range(0, 9), true);
        locks.end(FILE, owner(2));
        locks.lock_posix(FILE, posix(3, 0, 9, true)).unwrap();
        locks.end(FILE, owner(1));
        locks.unlock_posix(FILE, owner(3), range(0, u64::MAX)).unwrap();
        assert_eq!(locks.files(), 0, "nothing stays behind");
    }

    #[test]
    fn the_end_of_an_open_takes_no_lock_of_an_owner_with_its_number_along() {
        let locks = Locks::default();
        locks.lock_posix(FILE, posix(1, 0, 9, true)).unwrap();
        locks.lock_smb(FILE, owner(1), range(20, 29), true).unwrap();
        locks.end_ranges(FILE, owner(1));
        assert!(locks.test(FILE, posix(2, 0, 9, true)).is_some() && locks.test(FILE, posix(2, 20, 29, true)).is_none());
    }

    #[test]
    fn what_a_door_had_locked_is_free_when_it_is_gone() {
        let locks = Locks::default();
        let other = Held::posix(Owner { door: 2, id: 1 }, range(0, 9), true, 0);
        locks.lock_posix(FILE, posix(1, 0, 9, true)).unwrap();
        locks.lock_posix(Ino(8), posix(1, 0, 9, true)).unwrap();
        let changes = locks.changes(FILE);
        assert!(locks.lock_posix(FILE, other).is_err());
        locks.end_door(1);
        assert!(changes.has_changed().unwrap(), "who waits hears of it");
        locks.lock_posix(FILE, other).unwrap();
        assert_eq!((locks.files(), locks.total.load(Relaxed)), (1, 1));
        assert!(locks.has(FILE, other.owner) && !locks.has(FILE, owner(1)));
    }

    /// A door with one client, which has gone or not.
    #[derive(Default)]
    struct Door {
        has_gone: AtomicBool,
        reclaims: AtomicBool,
        locks: std::sync::OnceLock<Arc<Shared>>,
    }

    impl Holder for Door {
        fn holds(&self, _: Ino, _: Recall) -> bool {
            false
        }

        fn recall(&self, _: Ino, _: Recall) -> futures::future::BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn awaits_reclaims(&self) -> bool {
            self.reclaims.load(Relaxed)
        }

        fn loses_lock(&self, ino: Ino, owner: u64) -> bool {
            let has_gone = self.has_gone.load(Relaxed);
            if let Some(shared) = self.locks.get().filter(|_| has_gone) {
                shared.locks.end(ino, Owner { door: 2, id: owner });
            }
            has_gone
        }
    }

    /// `locks.lost_by_silence`
    #[test]
    fn a_client_that_has_gone_yields_to_another_door() {
        let (shared, door) = (Arc::<Shared>::default(), Arc::<Door>::default());
        let _ = door.locks.set(Arc::clone(&shared));
        let weak: std::sync::Weak<dyn Holder> = Arc::downgrade(&(Arc::clone(&door) as Arc<dyn Holder>));
        shared.leases.add(2, weak);
        let theirs = Held::posix(Owner { door: 2, id: 7 }, range(0, 9), true, 0);
        shared.locks.lock_posix(FILE, theirs).unwrap();
        let by_posix = || shared.lock_beside_others(1, FILE, || shared.locks.lock_posix(FILE, posix(1, 0, 9, true)));
        let by_smb =
            || shared.lock_beside_others(3, FILE, || shared.locks.lock_smb(FILE, owner(5), range(0, 9), false));
        assert_eq!((by_posix(), by_smb()), (Err(LockError::Conflict(theirs)), Err(LockError::Conflict(theirs))));
        door.reclaims.store(true, Relaxed);
        assert_eq!(by_posix(), Err(LockError::Reclaims), "whatever it locks");
        door.reclaims.store(false, Relaxed);
        door.has_gone.store(true, Relaxed);
        assert_eq!(by_smb(), Ok(()));
        shared.locks.end(FILE, owner(5));
        shared.locks.lock_posix(FILE, theirs).unwrap();
        assert_eq!(by_posix(), Ok(()));
        assert!(!shared.locks.has(FILE, theirs.owner));
    }

    #[test]
    fn who_would_wait_in_a_ring_is_refused() {
        let locks = Locks::default();
        let first = locks.wait_for(owner(1), owner(2)).unwrap();
        let second = locks.wait_for(owner(2), owner(3)).unwrap();
        assert!(locks.wait_for(owner(3), owner(1)).is_none());
        drop(second);
        assert!(locks.wait_for(owner(3), owner(1)).is_some());
        drop(first);
        assert!(locks.waiting.lock().is_empty());
    }

    #[test]
    fn who_waits_hears_of_an_end_and_of_a_weaker_lock() {
        let locks = Locks::default();
        locks.lock_posix(FILE, posix(1, 0, 9, true)).unwrap();
        let mut changes = locks.changes(FILE);
        locks.lock_posix(FILE, posix(1, 20, 29, true)).unwrap();
        assert!(!changes.has_changed().unwrap(), "one more lock lets nobody through");
        locks.lock_posix(FILE, posix(1, 0, 9, false)).unwrap();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        locks.unlock_posix(FILE, owner(1), range(0, u64::MAX)).unwrap();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        locks.lock_posix(FILE, posix(2, 0, 9, true)).unwrap();
        locks.end(FILE, owner(2));
        assert!(changes.has_changed().unwrap(), "the next one's end is heard too");
        drop(changes);
        locks.stop_waiting(FILE);
        assert_eq!(locks.files(), 0);
    }

    #[test]
    fn a_file_has_only_so_many_locks() {
        let locks = Locks::default();
        let many = (0..LOCKS_MAX as u64).map(|at| posix(1, at * 2, at * 2, false));
        locks.shard(FILE).lock().entry(FILE).or_default().locks.extend(many);
        locks.total.store(LOCKS_MAX, Relaxed);
        assert_eq!(locks.lock_posix(FILE, posix(2, 1, 1, false)), Err(LockError::TooMany));
        assert!(locks.lock_smb(FILE, owner(2), range(1, 1), false).is_err());
        let whole = posix(1, 0, 1 << 20, false);
        locks.shard(FILE).lock().get_mut(&FILE).unwrap().locks[0] = whole;
        assert_eq!(locks.unlock_posix(FILE, owner(1), range(5, 5)), Err(LockError::TooMany), "one would become two");
        locks.unlock_posix(FILE, owner(1), whole.range).unwrap();
    }

    #[test]
    fn a_client_has_only_so_many_locks_of_all_files() {
        let (locks, other) = (Locks::default(), Ino(FILE.0 + 1));
        let of = |client: u64, id: u64, at: u64| Held { party: Some(client), ..posix(id, at * 2, at * 2, false) };
        let count = |client: u64| locks.by_party.lock().get(&(1, client)).copied().unwrap_or_default();
        locks.lock_posix(FILE, of(9, 1, 0)).unwrap();
        locks.lock_posix(FILE, of(9, 1, 2)).unwrap();
        locks.lock_posix(FILE, Held { range: range(0, 9), ..of(9, 1, 0) }).unwrap();
        assert_eq!(count(9), 1, "they became one");
        locks.unlock_posix(FILE, owner(1), range(5, 5)).unwrap();
        locks.lock_posix(other, of(9, 2, 0)).unwrap();
        assert_eq!(count(9), 3);
        locks.by_party.lock().insert((1, 9), LOCKS_OF_PARTY_MAX);
        assert_eq!(locks.lock_posix(other, of(9, 2, 7)), Err(LockError::TooMany));
        assert_eq!(locks.unlock_posix(FILE, owner(1), range(2, 2)), Err(LockError::TooMany), "one would become two");
        locks.lock_posix(other, of(8, 3, 7)).unwrap();
        locks.lock_posix(other, posix(4, 9, 9, false)).unwrap();
        locks.end(other, owner(2));
        locks.lock_posix(other, of(9, 2, 7)).unwrap();
        locks.by_party.lock().insert((1, 9), 3);
        locks.total.fetch_add(LOCKS_OF_ALL_MAX / 4 * 3, Relaxed);
        locks.lock_posix(other, of(7, 5, 20)).unwrap();
        locks.by_party.lock().insert((1, 7), LOCKS_RESERVED);
        assert_eq!(locks.lock_posix(other, of(7, 5, 22)), Err(LockError::TooMany), "the rest is for those with little");
        locks.lock_posix(other, of(6, 6, 22)).unwrap();
        locks.total.fetch_sub(LOCKS_OF_ALL_MAX / 4 * 3, Relaxed);
        locks.by_party.lock().extend([((1, 7), 1), ((1, 6), 1)]);
        locks.end_door(1);
        assert!(locks.by_party.lock().is_empty());
        assert_eq!(locks.total.load(Relaxed), 0);
    }

    #[test]
    fn all_files_have_only_so_many_locks() {
        let (locks, other) = (Locks::default(), Ino(FILE.0 + 1));
        locks.lock_posix(FILE, posix(1, 0, 99, false)).unwrap();
        locks.unlock_posix(FILE, owner(1), range(50, 50)).unwrap();
        assert!(locks.lock_smb(other, owner(2), range(0, 9), true).is_ok());
        assert_eq!(locks.total.load(Relaxed), 3);
        locks.total.store(LOCKS_OF_ALL_MAX, Relaxed);
        assert_eq!(locks.lock_posix(other, posix(3, 50, 50, false)), Err(LockError::TooMany));
        assert!(locks.lock_smb(FILE, owner(3), range(50, 50), false).is_err());
        locks.unlock_smb(other, owner(2), range(0, 9), true);
        assert!(locks.lock_smb(FILE, owner(3), range(50, 50), false).is_ok());
        locks.end(FILE, owner(1));
        locks.end(FILE, owner(3));
        assert_eq!(locks.total.load(Relaxed), LOCKS_OF_ALL_MAX - 3);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lock(u64, u64, u64, bool),
        Unlock(u64, u64, u64),
        End(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let part = || (0..3u64, 0..24u64, 0..8u64);
        prop_oneof![
            4 => (part(), any::<bool>()).prop_map(|((id, start, len), exclusive)| Step::Lock(id, start, start + len, exclusive)),
            2 => part().prop_map(|(id, start, len)| Step::Unlock(id, start, start + len)),
            1 => (0..3u64).prop_map(Step::End),
        ]
    }

    proptest! {
        /// Byte by byte: who has it, and whether alone.
        #[test]
        fn posix_locks_are_those_of_a_table_of_bytes(steps in prop::collection::vec(step(), 0..60)) {
            let locks = Locks::default();
            let mut bytes = vec![HashMap::<u64, bool>::new(); 40];
            for step in steps {
                match step {
                    Step::Lock(id, start, last, exclusive) => {
                        let free = bytes[start as usize..=last as usize].iter().all(|byte| {
                            byte.iter().all(|(by, alone)| *by == id || !(exclusive || *alone))
                        });
                        prop_assert_eq!(locks.lock_posix(FILE, posix(id, start, last, exclusive)).is_ok(), free);
                        if free {
                            for byte in &mut bytes[start as usize..=last as usize] {
                                byte.insert(id, exclusive);
                            }
                        }
                    }
                    Step::Unlock(id, start, last) => {
                        locks.unlock_posix(FILE, owner(id), range(start, last)).unwrap();
                        for byte in &mut bytes[start as usize..=last as usize] {
                            byte.remove(&id);
                        }
                    }
                    Step::End(id) => {
                        locks.end(FILE, owner(id));
                        for byte in &mut bytes {
                            byte.remove(&id);
                        }
                    }
                }
                for (at, byte) in bytes.iter().enumerate() {
                    for id in 0..3 {
                        let shared = byte.iter().all(|(by, alone)| *by == id || !alone);
                        let alone = byte.keys().all(|by| *by == id);
                        let at = at as u64;
                        prop_assert_eq!(locks.test(FILE, posix(id, at, at, false)).is_none(), shared);
                        prop_assert_eq!(locks.test(FILE, posix(id, at, at, true)).is_none(), alone);
                    }
                }
                let held = locks.shard(FILE).lock().get(&FILE).map_or(0, |file| file.locks.len());
                prop_assert!(held <= 3 * 40);
            }
        }
    }
}
