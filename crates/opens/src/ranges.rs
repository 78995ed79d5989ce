//! Ranges of bytes, their holders, and how many there may be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// Of one file. A client must not be able to fill the memory.
pub(crate) const LOCKS_MAX: usize = 1 << 16;
/// Of all files, some 64 MiB: a client may have thousands of files open.
pub(crate) const LOCKS_OF_ALL_MAX: usize = 1 << 20;
/// Of all files by one party (`locks.bounded_by_party`).
pub(crate) const LOCKS_OF_PARTY_MAX: usize = LOCKS_OF_ALL_MAX / 4;
/// Every party may have so many.
pub(crate) const LOCKS_RESERVED: usize = LOCKS_OF_ALL_MAX / 2048;

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The door that took it.
    pub door: u32,
    /// The door's own number for the owner: a process, a client. Of a range of an open: the open's
    /// number.
    pub id: u64,
}

/// The bytes from `start` to `last`, both included. A range of an open may be empty: then `last`
/// lies before `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The last byte; `u64::MAX` reaches to the end of any file.
    pub last: u64,
}

impl Range {
    /// No bytes at the very start, which meets nothing.
    const NOWHERE: Range = Range { start: u64::MAX, last: 0 };

    /// `length` bytes from `offset` on, up to the last offset that there is. An empty range ends
    /// before its offset: a range of another open that has bytes on both sides of that place meets
    /// it.
    pub fn of(offset: u64, length: u64) -> Range {
        match (offset, length) {
            (0, 0) => Self::NOWHERE,
            (_, 0) => Range { start: offset, last: offset - 1 },
            _ => Range { start: offset, last: offset.saturating_add(length - 1) },
        }
    }

    fn is_empty(self) -> bool {
        self.last < self.start
    }

    fn overlaps(self, other: Range) -> bool {
        let is_nowhere = self == Self::NOWHERE || other == Self::NOWHERE;
        !is_nowhere && self.start <= other.last && other.start <= self.last
    }

    fn touches(self, other: Range) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }
}

/// The holder of a lock: an owner with the rules of POSIX, or an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Owner,
    Open,
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
    pub(crate) party: Option<u64>,
    pub(crate) by: By,
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

/// The number of locks of all files.
#[derive(Default)]
pub(crate) struct Bounds {
    pub total: AtomicUsize,
    /// By door and client.
    pub by_party: Mutex<HashMap<(u32, u64), usize>>,
}

impl Bounds {
    /// Whether one more lock of a file that has `count` is too many.
    pub(crate) fn is_full(&self, count: usize) -> bool {
        count >= LOCKS_MAX || self.total.load(Relaxed) >= LOCKS_OF_ALL_MAX
    }

    /// Whether one more lock of this party is too many (`locks.bounded_by_party`).
    pub(crate) fn is_party_full(&self, held: &Held) -> bool {
        let Some(party) = held.party else { return false };
        let count = self.by_party.lock().get(&(held.owner.door, party)).copied().unwrap_or_default();
        let is_tight = self.total.load(Relaxed) >= LOCKS_OF_ALL_MAX / 4 * 3;
        count >= LOCKS_OF_PARTY_MAX || is_tight && count >= LOCKS_RESERVED
    }

    /// `owner` had as many locks with a client as `before` says, and has `after`.
    pub(crate) fn counts_of(&self, owner: Owner, before: (usize, Option<u64>), after: (usize, Option<u64>)) {
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
    pub fn counts(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.total.fetch_add(more, Relaxed),
            None => self.total.fetch_sub(before - after, Relaxed),
        };
    }
}

/// The locks of `owner` that count against a client, and that client: an owner has one.
pub(crate) fn of_party(ranges: &[Held], owner: Owner) -> (usize, Option<u64>) {
    let mut counted = ranges.iter().filter(|held| held.owner == owner && held.party.is_some()).peekable();
    let party = counted.peek().and_then(|held| held.party);
    (counted.count(), party)
}

impl Held {
    /// A lock with the rules of POSIX, for a test or a request (`locks.posix_by_owner`). It counts
    /// against `party`.
    pub fn posix(owner: Owner, range: Range, exclusive: bool, pid: u32, party: Option<u64>) -> Self {
        Self { owner, range, exclusive, pid, party, by: By::Owner }
    }

    pub(crate) fn of_open(owner: Owner, range: Range, exclusive: bool) -> Self {
        Self { owner, range, exclusive, pid: 0, party: None, by: By::Open }
    }

    /// An owner and an open of one door may have the same number.
    pub(crate) fn is_of(&self, owner: Owner) -> bool {
        self.by == By::Owner && self.owner == owner
    }

    pub(crate) fn is_of_open(&self, open: Owner) -> bool {
        self.by == By::Open && self.owner == open
    }

    /// Whether this lock, which is held, keeps `wanted` from being taken.
    fn refuses(&self, wanted: &Held) -> bool {
        let is_judged = match (self.by, wanted.by) {
            (By::Owner, By::Owner) => self.owner != wanted.owner,
            // `locks.ranges_by_open`
            (By::Open, By::Open) => self.owner != wanted.owner || wanted.exclusive,
            // Owners lock bytes.
            _ => !self.range.is_empty() && !wanted.range.is_empty(),
        };
        is_judged && (self.exclusive || wanted.exclusive) && self.range.overlaps(wanted.range)
    }

    /// Whether this lock, which is held, keeps an open from reading or writing
    /// (`locks.ranges_by_open`).
    pub(crate) fn refuses_io(&self, open: Owner, range: Range, writes: bool) -> bool {
        let is_refused = if self.exclusive { self.owner != open } else { writes };
        self.by == By::Open && is_refused && self.range.overlaps(range)
    }
}

pub(crate) fn conflict(ranges: &[Held], wanted: &Held) -> Option<Held> {
    ranges.iter().find(|held| held.refuses(wanted)).copied()
}

/// Takes `range` out of the POSIX locks of `owner`. Whether there was anything.
pub(crate) fn cut(ranges: &mut Vec<Held>, owner: Owner, range: Range) -> bool {
    let mut rests = Vec::new();
    let before = ranges.len();
    ranges.retain(|held| {
        let is_hit = held.is_of(owner) && held.range.overlaps(range);
        if is_hit && held.range.start < range.start {
            rests.push(Held { range: Range { start: held.range.start, last: range.start - 1 }, ..*held });
        }
        if is_hit && held.range.last > range.last {
            rests.push(Held { range: Range { start: range.last + 1, last: held.range.last }, ..*held });
        }
        !is_hit
    });
    let is_changed = ranges.len() < before;
    ranges.append(&mut rests);
    is_changed
}

/// Adds a lock whose range its owner has nothing in; neighbours of one kind become one.
pub(crate) fn join(ranges: &mut Vec<Held>, mut new: Held) {
    ranges.retain(|held| {
        let joins = held.is_of(new.owner) && held.exclusive == new.exclusive && held.range.touches(new.range);
        if joins {
            new.range.start = new.range.start.min(held.range.start);
            new.range.last = new.range.last.max(held.range.last);
        }
        !joins
    });
    ranges.push(new);
}
