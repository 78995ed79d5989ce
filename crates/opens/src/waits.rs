//! Waiting, of which the table knows who is to be woken.
//!
//! - `locks.retried_on_change`: a waiting lock is tried again after each change of the file's
//!   record. A wait that would close a ring of waiting owners is refused (POSIX: EDEADLK).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use larder_fs::Ino;

use crate::ranges::Owner;
use crate::waiters::{Registered, Wakes};
use crate::{Change, Table};

/// Links of a chain of waiting owners that are followed.
const CHAIN_MAX: usize = 64;

/// Waits for the next change of a file's record after it was made, or after it was ready last. Make
/// it before the attempt that may fail, so that no change between the two is missed.
pub struct Waiter {
    table: Arc<Table>,
    ino: Ino,
    id: u64,
    for_ranges: bool,
    seen: u64,
}

impl Table {
    /// Until something of the file changes, from now on.
    pub fn waiter(self: &Arc<Self>, ino: Ino) -> Waiter {
        self.wait(ino, false)
    }

    /// Until a range of the file changes, from now on.
    pub fn waiter_for_ranges(self: &Arc<Self>, ino: Ino) -> Waiter {
        self.wait(ino, true)
    }

    fn wait(self: &Arc<Self>, ino: Ino, for_ranges: bool) -> Waiter {
        let id = self.next_id();
        let seen = self.change(ino, |file| {
            file.waits.waiters.push(Registered { id, for_ranges, waker: None });
            Change::quiet(file.waits.seen(for_ranges))
        });
        Waiter { table: Arc::clone(self), ino, id, for_ranges, seen }
    }

    /// Something else has changed that may let through those who wait for anything.
    pub fn wake(&self, ino: Ino) {
        self.change(ino, |_| Change { done: (), wakes: Wakes::ForOpens });
    }

    /// All waiters of all files try again.
    pub fn wake_all(&self) {
        let mut woken = Vec::new();
        for shard in &self.shards {
            shard.lock().values_mut().for_each(|file| woken.append(&mut file.waits.wake(Wakes::ForRanges)));
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// `owner` waits for `holder` until the guard is dropped; refused if `holder` waits for `owner`
    /// in turn (`locks.retried_on_change`).
    pub fn wait_for(&self, owner: Owner, holder: Owner) -> Option<Waiting<'_>> {
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
        Some(Waiting { table: self, owner })
    }
}

impl Waiter {
    /// Whether something has changed, without waiting for it.
    pub fn has_changed(&self) -> bool {
        self.table.look(self.ino, |file| file.waits.seen(self.for_ranges) != self.seen).unwrap_or(true)
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("ino", &self.ino).finish_non_exhaustive()
    }
}

impl Future for Waiter {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // The former waker ends outside of the record's lock.
        let (polled, _former) = this.table.change(this.ino, |file| {
            let waits = &mut file.waits;
            let seen = waits.seen(this.for_ranges);
            if seen != this.seen {
                this.seen = seen;
                return Change::quiet((Poll::Ready(()), None));
            }
            let own = waits.waiters.iter_mut().find(|waits| waits.id == this.id);
            Change::quiet((Poll::Pending, own.and_then(|waits| waits.waker.replace(cx.waker().clone()))))
        });
        polled
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _former = self.table.change(self.ino, |file| {
            let waiters = &mut file.waits.waiters;
            let at = waiters.iter().position(|waits| waits.id == self.id);
            Change::quiet(at.map(|at| waiters.swap_remove(at)))
        });
    }
}

/// An owner waits for another one.
pub struct Waiting<'t> {
    table: &'t Table,
    owner: Owner,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.table.waiting.lock().remove(&self.owner);
    }
}
