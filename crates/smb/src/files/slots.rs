//! The opens that count against the limits of a connection, of a user or guest, and of all.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::admission::network;
use crate::conn::limits::{MAX_OPENS, MAX_OPENS_PER_HOLDER};

/// Counts one open against its connection's limit, and against those of an [`OpenBudget`], until dropped.
pub(crate) struct OpenSlot {
    of_connection: Arc<AtomicUsize>,
    of_holder: Option<(Arc<OpenBudget>, u64)>,
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
        budget.take(holder).then(|| {
            self.of_holder = Some((Arc::clone(budget), holder));
            self
        })
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.of_connection.fetch_sub(1, Ordering::AcqRel);
        if let Some((budget, holder)) = self.of_holder.take() {
            budget.give_back(holder);
        }
    }
}

/// The opens of all connections together, counted by user or guest: connections are cheap, and each
/// open costs some 2 KiB.
pub(crate) struct OpenBudget {
    per_holder: usize,
    of_all: usize,
    taken: Mutex<Taken>,
    hasher: RandomState,
}

#[derive(Default)]
struct Taken {
    by_holder: HashMap<u64, usize>,
    all: usize,
}

impl Default for OpenBudget {
    fn default() -> Self {
        Self::new(MAX_OPENS_PER_HOLDER, MAX_OPENS)
    }
}

impl OpenBudget {
    pub(crate) fn new(per_holder: usize, of_all: usize) -> Self {
        Self { per_holder, of_all, taken: Mutex::default(), hasher: RandomState::new() }
    }

    /// The number that stands for a user, by whatever address, or for the guests of one network.
    pub(crate) fn holder(&self, user: Option<&str>, address: Option<IpAddr>) -> u64 {
        match user {
            Some(user) => self.hasher.hash_one(user.to_lowercase()),
            None => self.hasher.hash_one(address.map(network)),
        }
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, holder: u64) -> bool {
        let mut taken = self.taken();
        if taken.all >= self.of_all || taken.by_holder.get(&holder).is_some_and(|count| *count >= self.per_holder) {
            return false;
        }
        taken.all += 1;
        *taken.by_holder.entry(holder).or_default() += 1;
        true
    }

    fn give_back(&self, holder: u64) {
        let mut taken = self.taken();
        taken.all -= 1;
        if let Some(count) = taken.by_holder.get_mut(&holder) {
            *count -= 1;
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
    fn opens_are_bounded_by_user_by_network_of_guests_and_in_all() {
        let budget = Arc::new(OpenBudget::new(2, 5));
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
        assert_eq!(budget.taken().by_holder.len(), 3);
        drop((guests, other, alice));
        assert!(budget.taken().by_holder.is_empty() && budget.taken().all == 0);
    }
}
