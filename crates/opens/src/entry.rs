//! Opens.
//!
//! - `opens.one_judge`: an open names its uses and the uses that it denies to others. It is refused
//!   a use that another open denies, and a denial of a use that another open has, whatever doors
//!   both came through.
//! - `opens.claimed_within`: opens that have claimed their uses are judged within their door as
//!   well. One that has entered with its uses and claims none counts for other doors alone, so a
//!   door whose clients deny nothing needs no rule of its own. One that is to wait, as an SMB
//!   CREATE does for a break, is idle and counts for nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_fs::Ino;
use parking_lot::Mutex;

use crate::caches::{Caches, Others};
use crate::promises::Promise;
use crate::ranges::{Held, LockError, Owner, Range};
use crate::uses::{Kind, Uses};
use crate::waiters::Wakes;
use crate::waits::Waiter;
use crate::{Change, File, Table};

/// The reason for which a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An open of the same door.
    WithinDoor,
    /// An open of another door, or one that may yet be taken back there.
    ByOthers,
}

/// One open. Its uses, denials and ranges end with [`Entry::end`] or when it is dropped.
pub struct Entry {
    table: Arc<Table>,
    ino: Ino,
    /// The owner of its ranges: the open itself.
    pub(crate) owner: Owner,
    /// Its lock is taken before that of the file's record.
    kind: Mutex<Kind>,
    /// How many ranges all opens of the file have.
    of_opens: Arc<AtomicUsize>,
}

impl Table {
    /// Enters an open that does and denies nothing.
    pub fn enter_idle(self: &Arc<Self>, ino: Ino, door: u32) -> Entry {
        let kind = Kind::idle(door);
        let of_opens = self.change(ino, |file| {
            file.kinds.add(kind);
            Change::quiet(Arc::clone(&file.of_opens))
        });
        let owner = Owner { door, id: self.next_id() };
        Entry { table: Arc::clone(self), ino, owner, kind: Mutex::new(kind), of_opens }
    }

    /// Enters an open with its uses (`opens.claimed_within`). `None` if another door's open denies
    /// them.
    pub fn enter(self: &Arc<Self>, ino: Ino, door: u32, does: Uses) -> Option<Entry> {
        let entry = self.enter_idle(ino, door);
        let is_entered = does == Uses::NOTHING || entry.take(Kind { does, ..Kind::idle(door) }).is_ok();
        is_entered.then_some(entry)
    }

    fn any(&self, ino: Ino, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.look(ino, |file| file.kinds.any(is_it)).unwrap_or(false)
    }

    /// What clients of other doors do with the file.
    pub fn others(&self, ino: Ino, door: u32) -> Others {
        self.look(ino, |file| file.others(door)).unwrap_or_default()
    }

    /// Whether an open of any door has such a use.
    pub fn is_used(&self, ino: Ino, does: Uses) -> bool {
        self.any(ino, |open| open.does.meets(does))
    }

    /// Whether an open of another door than `door` denies this.
    pub fn denied(&self, ino: Ino, door: u32, does: Uses) -> bool {
        self.any(ino, |open| open.door != door && open.denies.meets(does))
    }

    /// Whether an open of any door but `but` denies this.
    pub fn denied_by_any(&self, ino: Ino, but: Option<&Entry>, does: Uses) -> bool {
        let own = but.map(|open| *open.kind.lock());
        self.look(ino, |file| file.kinds.any_but(own, |open| open.denies.meets(does))).unwrap_or(false)
    }

    /// Opens that may write, of all files and doors.
    pub fn writers(&self) -> usize {
        let of_file = |file: &File| -> usize {
            file.kinds.iter().filter(|(kind, _)| kind.does.writes()).map(|(_, count)| *count).sum()
        };
        self.shards.iter().map(|shard| shard.lock().values().map(of_file).sum::<usize>()).sum()
    }

    /// Whether any open of any file denies anything.
    pub fn has_denials(&self) -> bool {
        self.denying.load(Ordering::Acquire) > 0
    }

    fn count_denials(&self, was: Uses, is: Uses) {
        match (was == Uses::NOTHING, is == Uses::NOTHING) {
            (true, false) => drop(self.denying.fetch_add(1, Ordering::AcqRel)),
            (false, true) => drop(self.denying.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }
}

impl Entry {
    /// The file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Has clients of other doors asked for what they cache of the file ([`Table::ask_back`]).
    pub fn ask_back(&self, what: Caches) -> bool {
        self.table.ask_back(self.owner.door, self.ino, what)
    }

    /// Gives the open these uses and denials in place of its former ones (`opens.one_judge`). With
    /// `was_there` clients of other doors may have had the file open before a restart
    /// (`opens.reclaimed_first`).
    pub fn claim(&self, does: Uses, denies: Uses, was_there: bool) -> Result<(), Refused> {
        // An open that denies neither reading nor writing is in nobody's way.
        let may_be_in_the_way = was_there && denies.meets(Uses::READ.and(Uses::WRITE));
        if may_be_in_the_way && self.table.awaits_reclaims(self.owner.door) {
            return Err(Refused::ByOthers);
        }
        self.take(Kind { door: self.owner.door, does, denies, is_claimed: true })
    }

    fn take(&self, wanted: Kind) -> Result<(), Refused> {
        let mut own = self.kind.lock();
        let was = *own;
        self.table.change(self.ino, |file| {
            let refused = |is_own: bool| {
                file.kinds.any_but(Some(was), |other| (other.door == was.door) == is_own && other.refuses(&wanted))
            };
            if refused(false) {
                return Change::quiet(Err(Refused::ByOthers));
            }
            if refused(true) {
                return Change::quiet(Err(Refused::WithinDoor));
            }
            self.table.count_denials(was.denies, wanted.denies);
            file.kinds.remove(was);
            file.kinds.add(wanted);
            *own = wanted;
            Change { done: Ok(()), wakes: Wakes::for_opens_if(!was.is_idle()) }
        })
    }

    /// Locks a range for this open (`locks.ranges_by_open`). [`Entry::may_lock`] is asked first.
    pub fn lock(&self, range: Range, exclusive: bool) -> Result<(), LockError> {
        self.table.reclaim_lock(self.ino, Held::of_open(self.owner, range, exclusive))
    }

    /// Gives up one lock of exactly this range. Whether the open has one.
    pub fn unlock(&self, range: Range, exclusive: bool) -> bool {
        self.table.unlock_of_open(self.ino, Held::of_open(self.owner, range, exclusive))
    }

    /// Whether opens have ranges of the file. Takes no lock.
    pub fn has_ranges(&self) -> bool {
        self.of_opens.load(Ordering::Acquire) > 0
    }

    /// Whether ranges of opens let this one read, or write if `writes`. Takes no lock where the
    /// file has no such ranges.
    pub fn may_access(&self, range: Range, writes: bool) -> bool {
        let refuses = |held: &Held| held.refuses_io(self.owner, range, writes);
        !self.has_ranges() || self.table.look(self.ino, |file| !file.ranges.iter().any(refuses)).unwrap_or(true)
    }

    /// The reason for which the range may not be locked. Other doors are asked about their clients,
    /// so the one that asks holds no lock.
    pub fn may_lock(&self, range: Range, exclusive: bool) -> Result<(), LockError> {
        self.table.ask(self.ino, Held::of_open(self.owner, range, exclusive))
    }

    /// Until something of the file changes.
    pub fn waiter(&self) -> Waiter {
        self.table.waiter(self.ino)
    }

    /// A promise of nothing yet to the open's client. It may outlast the open.
    pub fn promise(&self, awaited: Caches) -> Promise {
        self.table.promise(self.ino, self.owner.door, awaited)
    }

    /// Ends its uses, denials and ranges, and wakes those who wait for any of them.
    pub fn end(&self) {
        let mut own = self.kind.lock();
        self.table.change(self.ino, |file| {
            let idle = Kind::idle(own.door);
            let wakes = self.leave(file, std::mem::replace(&mut *own, idle));
            file.kinds.add(idle);
            // Its door may have ended more than the table knows, such as a lease.
            let wakes = if wakes == Wakes::Nobody { Wakes::ForOpens } else { wakes };
            Change { done: (), wakes }
        });
    }

    /// Takes it out of its file, which may let waiters through.
    fn leave(&self, file: &mut File, kind: Kind) -> Wakes {
        self.table.count_denials(kind.denies, Uses::NOTHING);
        file.kinds.remove(kind);
        let before = file.ranges.len();
        if self.has_ranges() {
            file.ranges.retain(|held| !held.is_of_open(self.owner));
            self.table.bounds.counts(before, file.ranges.len());
            file.count_of_opens();
        }
        match (file.ranges.len() < before, kind.is_idle()) {
            (true, _) => Wakes::ForRanges,
            (false, is_idle) => Wakes::for_opens_if(!is_idle),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let kind = *self.kind.get_mut();
        self.table.change(self.ino, |file| Change { done: (), wakes: self.leave(file, kind) });
    }
}
