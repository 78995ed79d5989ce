//! The opens, their byte-range locks and what their watches buffer: they count against the limits of a connection, of a
//! user or guest, and of all.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::admission::network;
use crate::conn::limits::{
    MAX_LOCKS, MAX_LOCKS_PER_HOLDER, MAX_NOTICE_BYTES, MAX_NOTICE_BYTES_PER_HOLDER, MAX_OPENS, MAX_OPENS_PER_HOLDER,
};

/// Counts one open against its connection's limit, and against those of an [`OpenBudget`], until dropped.
pub(crate) struct OpenSlot {
    of_connection: Arc<AtomicUsize>,
    of_holder: Option<Party>,
}

/// The user whose an open is, or the guests of one network, within a budget of all of them.
#[derive(Clone)]
pub(crate) struct Party {
    budget: Arc<OpenBudget>,
    holder: u64,
}

impl Party {
    /// A watch buffers so many more bytes. `false`: the user, or all together, have as many as they may.
    pub(super) fn buffers(&self, bytes: usize) -> bool {
        self.budget.notices.take(self.holder, bytes)
    }

    pub(super) fn unbuffers(&self, bytes: usize) {
        self.budget.notices.give_back(self.holder, bytes);
    }

    /// A place for one more byte-range lock. `None`: the user, or all together, have as many as they may.
    pub(crate) fn lock_slot(&self) -> Option<LockSlot> {
        self.budget.locks.take(self.holder, 1).then(|| LockSlot(self.clone()))
    }
}

/// Counts one byte-range lock until dropped.
pub(crate) struct LockSlot(Party);

impl Drop for LockSlot {
    fn drop(&mut self) {
        self.0.budget.locks.give_back(self.0.holder, 1);
    }
}

impl OpenSlot {
    /// Takes a slot from `count`, or `None` when `limit` slots are taken.
    pub(crate) fn acquire(count: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .ok()
            .map(|_| Self { of_connection: Arc::clone(count), of_holder: None })
    }

    /// The slot counts against `budget` as well, or is given up when that is used up.
    pub(crate) fn within(mut self, budget: &Arc<OpenBudget>, holder: u64) -> Option<Self> {
        budget.opens.take(holder, 1).then(|| {
            self.of_holder = Some(Party { budget: Arc::clone(budget), holder });
            self
        })
    }

    /// Whose the open is, if that counts.
    pub(crate) fn party(&self) -> Option<&Party> {
        self.of_holder.as_ref()
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.of_connection.fetch_sub(1, Ordering::AcqRel);
        if let Some(Party { budget, holder }) = self.of_holder.take() {
            budget.opens.give_back(holder, 1);
        }
    }
}

/// The opens of all connections together, their byte-range locks, and the bytes that their watches buffer, counted by user
/// or guest: connections are cheap, each open costs some 2 KiB, and its watch up to 64 KiB. Locks are also bounded on the
/// volume, for all doors.
pub(crate) struct OpenBudget {
    opens: Tally,
    locks: Tally,
    notices: Tally,
    hasher: RandomState,
}

/// Every user or guest may have this part of a tally, which others leave: so four of them do not take all of it.
const RESERVE_DIVISOR: usize = 1024;

/// What is taken of something that all have together. The last quarter is for those who hold little.
struct Tally {
    per_holder: usize,
    of_all: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    by_holder: HashMap<u64, usize>,
    all: usize,
}

impl Default for OpenBudget {
    fn default() -> Self {
        let opens = (MAX_OPENS_PER_HOLDER, MAX_OPENS);
        Self::new(opens, (MAX_LOCKS_PER_HOLDER, MAX_LOCKS), (MAX_NOTICE_BYTES_PER_HOLDER, MAX_NOTICE_BYTES))
    }
}

impl OpenBudget {
    /// Of opens, locks and bytes that watches buffer: how many a user or guest may have, and how many all.
    pub(crate) fn new(opens: (usize, usize), locks: (usize, usize), notices: (usize, usize)) -> Self {
        let tally = |(per_holder, of_all)| Tally { per_holder, of_all, taken: Mutex::default() };
        Self { opens: tally(opens), locks: tally(locks), notices: tally(notices), hasher: RandomState::new() }
    }

    /// The number that stands for a user, by whatever address, or for the guests of one network.
    pub(crate) fn holder(&self, user: Option<&str>, address: Option<IpAddr>) -> u64 {
        match user {
            Some(user) => self.hasher.hash_one(user.to_lowercase()),
            None => self.hasher.hash_one(address.map(network)),
        }
    }

    /// Bytes that the watches of all buffer now.
    #[cfg(test)]
    pub(crate) fn notice_bytes(&self) -> usize {
        self.notices.taken().all
    }
}

impl Tally {
    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, holder: u64, count: usize) -> bool {
        let mut taken = self.taken();
        let of_holder = taken.by_holder.get(&holder).copied().unwrap_or_default() + count;
        let reserve = self.of_all / RESERVE_DIVISOR;
        let is_tight = reserve > 0 && taken.all + count > self.of_all / 4 * 3;
        let is_over = taken.all + count > self.of_all || of_holder > self.per_holder || is_tight && of_holder > reserve;
        if count == 0 || is_over {
            return count == 0;
        }
        taken.all += count;
        taken.by_holder.insert(holder, of_holder);
        true
    }

    fn give_back(&self, holder: u64, given: usize) {
        let mut taken = self.taken();
        taken.all -= given;
        if let Some(count) = taken.by_holder.get_mut(&holder) {
            *count -= given;
            if *count == 0 {
                taken.by_holder.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_bounded_by_user_and_in_all() {
        let budget = Arc::new(OpenBudget::new((9, 9), (2, 3), (0, 0)));
        let [bob, alice] = ["bob", "alice"].map(|user| {
            let slot = OpenSlot::acquire(&Arc::default(), 1).expect("a slot");
            slot.within(&budget, budget.holder(Some(user), None)).expect("an open")
        });
        let lock = |open: &OpenSlot| open.party().and_then(Party::lock_slot);
        let bobs = [lock(&bob), lock(&bob)].map(Option::unwrap);
        assert!(lock(&bob).is_none(), "a user");
        let alices = lock(&alice).unwrap();
        assert!(lock(&alice).is_none(), "all together");
        // A lock may outlast the place of its open: a durable one.
        drop((bob, bobs));
        assert!(lock(&alice).is_some());
        drop((alice, alices));
        assert!(budget.locks.taken().by_holder.is_empty() && budget.locks.taken().all == 0);
    }

    #[test]
    fn some_users_leave_room_for_others() {
        let budget = OpenBudget::default();
        for user in 0..8 {
            while budget.opens.take(user, 1) {}
        }
        let held = budget.opens.taken().all;
        assert!((MAX_OPENS / 4 * 3..MAX_OPENS).contains(&held), "{held}");
        assert!((0..MAX_OPENS / RESERVE_DIVISOR).all(|_| budget.opens.take(9, 1)));
        assert!(!budget.opens.take(9, 1));
    }

    #[test]
    fn opens_are_bounded_by_user_by_network_of_guests_and_in_all() {
        let budget = Arc::new(OpenBudget::new((2, 5), (0, 0), (0, 0)));
        let by = |user: Option<&str>, address: &str| {
            // A connection for each open.
            let slot = OpenSlot::acquire(&Arc::default(), 1).expect("a slot");
            slot.within(&budget, budget.holder(user, Some(address.parse().unwrap())))
        };
        let bob = [by(Some("bob"), "10.0.0.1"), by(Some("Bob"), "10.0.0.2")].map(Option::unwrap);
        assert!(by(Some("BOB"), "10.0.0.3").is_none(), "a user at every address");
        let guests = [by(None, "fd00::1"), by(None, "fd00::2")].map(Option::unwrap);
        assert!(by(None, "fd00::3").is_none(), "guests of one network");
        let other = by(None, "10.0.0.1").unwrap();
        assert!(by(Some("alice"), "10.0.0.4").is_none(), "all together");
        drop(bob);
        let alice = by(Some("alice"), "10.0.0.4").unwrap();
        assert_eq!(budget.opens.taken().by_holder.len(), 3);
        drop((guests, other, alice));
        assert!(budget.opens.taken().by_holder.is_empty() && budget.opens.taken().all == 0);
    }
}
