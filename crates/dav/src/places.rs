//! Places for work that takes long, so that one client does not take them all.
//!
//! - `places.several_bounds`: a place is one within each of its bounds: of everybody, of a user or
//!   a link, of an address.
//! - `places.walks_of_a_user`: a user's walks through trees (copies, moves, removals) run
//!   [`WALKS_OF_USER_MAX`] at a time. Others of that user wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A removal goes on when its client has left, so connections do not bound them.
const WALKS_OF_USER_MAX: usize = 4;
/// Users whose places are remembered. Beyond it those without a walk are forgotten.
const USERS_MAX: usize = 256;

/// How many places each key has taken.
pub struct Places<K>(Arc<Mutex<HashMap<K, usize>>>);

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// A place, until it is dropped.
pub struct Place<K: Hash + Eq> {
    keys: Vec<K>,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq + Clone> Places<K> {
    /// A place within all of `bounds`: each a key and the most that it may have. `None` if one is
    /// reached.
    pub fn take(&self, bounds: &[(K, usize)]) -> Option<Place<K>> {
        let mut taken = self.0.lock();
        if bounds.iter().any(|(key, max)| taken.get(key).is_some_and(|count| count >= max)) {
            return None;
        }
        let keys: Vec<K> = bounds.iter().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            *taken.entry(key.clone()).or_default() += 1;
        }
        Some(Place { keys, taken: Arc::clone(&self.0) })
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        for key in &self.keys {
            if let Some(count) = taken.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(key);
                }
            }
        }
    }
}

/// The walks of each user (`places.walks_of_a_user`).
#[derive(Default)]
pub struct Walks(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Walks {
    /// The places of a user.
    pub fn of(&self, user: &str) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        if all.len() >= USERS_MAX {
            all.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = all.entry(user.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(WALKS_OF_USER_MAX)));
        Arc::clone(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_within_all_bounds_and_comes_back() {
        let places = Places::<&str>::default();
        let ann = || places.take(&[("all", 3), ("ann", 2)]);
        let bob = || places.take(&[("all", 3), ("bob", 2)]);
        let (first, second) = (ann(), ann());
        assert!(first.is_some() && second.is_some() && ann().is_none());
        // A refusal takes nothing.
        let third = bob();
        assert!(third.is_some() && bob().is_none());
        drop(first);
        assert!(bob().is_some() && ann().is_some());
        drop((second, third));
        assert!(places.0.lock().is_empty());
    }
}
