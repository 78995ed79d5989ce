//! Promises: what clients may cache of a file until they are asked for it.
//!
//! A lease, an oplock and a delegation are spellings of one. Its door grants it by a policy of its
//! own, asks the client, and says what the client has given back, or has lost by its silence.
//!
//! ```text
//!            ask_back               keep
//!   granted ----------> asked back ------> granted less
//!      |                     |
//!      +---------------------+--- drop --> gone: returned, revoked, its last open has closed
//! ```
//!
//! - `promises.asked_first`: an access waits until clients of other doors have given back what it
//!   needs ([`Caches`]). Each is asked once for each part.
//! - `promises.own_door_unasked`: a door is not asked about its own accesses. It orders these
//!   itself.
//! - `promises.granted_where_judged`: a promise is granted under the lock under which opens enter.
//!   An open of another door is seen by the grant, or finds the promise.
//! - `promises.no_promise_no_lock`: without promises an access takes no lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_fs::Ino;

use crate::caches::{Caches, Others, Promised};
use crate::waiters::Wakes;
use crate::{Change, File, Table};

/// A promise to a client. It ends when it is dropped.
pub struct Promise {
    table: Arc<Table>,
    ino: Ino,
    id: u64,
}

impl Table {
    /// A promise of nothing yet, to a client of `door`. Others wait for the part `awaited` of what
    /// it comes to cache.
    pub fn promise(self: &Arc<Self>, ino: Ino, door: u32, awaited: Caches) -> Promise {
        let id = self.next_id();
        let promised = Promised { id, door, caches: Caches::NOTHING, awaited, asked: Caches::NOTHING };
        self.change(ino, |file| {
            file.promises.push(promised);
            Change::quiet(())
        });
        Promise { table: Arc::clone(self), ino, id }
    }

    /// Whether an access could have anybody asked (`promises.no_promise_no_lock`). Clients that
    /// have gone lose their handles, whatever they were promised.
    pub fn may_ask(&self, what: Caches) -> bool {
        self.promised.load(Ordering::Acquire) > 0 || (what.meets(Caches::HANDLES) && self.has_doors())
    }

    /// Has clients of other doors than `door` asked for what they cache of a file
    /// (`promises.asked_first`). Whether the access has to wait for any of them
    /// ([`Table::given_back`]).
    pub fn ask_back(&self, door: u32, ino: Ino, what: Caches) -> bool {
        if !self.may_ask(what) {
            return false;
        }
        let (asked, is_awaited) =
            self.shard(ino).lock().get_mut(&ino).map(|file| file.ask_back(door, what)).unwrap_or_default();
        if asked.is_empty() {
            return is_awaited;
        }
        self.doors(|number| asked.contains(&number)).iter().for_each(|other| other.ask_back(ino, what));
        self.look(ino, |file| file.is_awaited(door, what)).unwrap_or(false)
    }

    /// Waits until no client of another door caches this of a file.
    pub async fn given_back(self: &Arc<Self>, door: u32, ino: Ino, what: Caches) {
        loop {
            // Before the look, so that what changes after it is heard.
            let changed = self.waiter(ino);
            if !self.ask_back(door, ino, what) {
                return;
            }
            changed.await;
        }
    }
}

impl File {
    fn is_awaited(&self, door: u32, what: Caches) -> bool {
        self.promises.iter().any(|one| one.is_awaited(door, what))
    }

    /// The doors whose clients have not been asked yet, and whether any client is awaited.
    fn ask_back(&mut self, door: u32, what: Caches) -> (Vec<u32>, bool) {
        let mut doors = Vec::new();
        for one in self.promises.iter_mut().filter(|one| one.door != door) {
            let wanted = one.caches.within(what);
            if !one.asked.has(wanted) {
                one.asked = one.asked.and(wanted);
                doors.push(one.door);
            }
        }
        if what.meets(Caches::HANDLES) {
            doors.extend(self.kinds.iter().map(|(kind, _)| kind.door).filter(|other| *other != door));
        }
        (doors, self.is_awaited(door, what))
    }

    pub(crate) fn others(&self, door: u32) -> Others {
        let promises = self.promises.iter().any(|one| one.door != door && one.caches != Caches::NOTHING);
        Others {
            is_open: promises || self.kinds.any(|open| open.door != door),
            is_written: self.kinds.any(|open| open.door != door && open.does.writes()),
        }
    }
}

impl Promise {
    /// Promises what `policy` says, in place of what was promised before
    /// (`promises.granted_where_judged`).
    pub fn grant(&self, policy: impl FnOnce(Others) -> Caches) {
        self.set(|file, door| policy(file.others(door)));
    }

    /// The client has given back the rest, or has lost it.
    pub fn keep(&self, caches: Caches) {
        self.set(|_, _| caches);
    }

    fn set(&self, caches: impl FnOnce(&File, u32) -> Caches) {
        self.table.change(self.ino, |file| {
            let Some(at) = file.promises.iter().position(|one| one.id == self.id) else { return Change::quiet(()) };
            let caches = caches(file, file.promises[at].door);
            let one = &mut file.promises[at];
            let was = std::mem::replace(&mut one.caches, caches);
            one.asked = Caches::NOTHING;
            self.table.count_promises(was, caches);
            Change { done: (), wakes: Wakes::for_opens_if(!caches.has(was)) }
        });
    }
}

impl Table {
    fn count_promises(&self, was: Caches, is: Caches) {
        match (was == Caches::NOTHING, is == Caches::NOTHING) {
            (true, false) => drop(self.promised.fetch_add(1, Ordering::AcqRel)),
            (false, true) => drop(self.promised.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.table.change(self.ino, |file| {
            let at = file.promises.iter().position(|one| one.id == self.id);
            let was = at.map_or(Caches::NOTHING, |at| file.promises.swap_remove(at).caches);
            self.table.count_promises(was, Caches::NOTHING);
            Change { done: (), wakes: Wakes::for_opens_if(was != Caches::NOTHING) }
        });
    }
}

impl std::fmt::Debug for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Promise").field("ino", &self.ino).finish_non_exhaustive()
    }
}
