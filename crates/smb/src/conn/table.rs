//! What a connection has by id: its sessions, and a session's trees. Every request looks into both, few change them.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{Mutex, MutexGuard};

/// Values by id. A look-up copies the value out and never waits for a change, which may ask a doorkeeper or the table of
/// users while it excludes other changes ([`Table::change`]).
pub struct Table<K, V> {
    /// Held for one look-up or one insertion, never across an await. It is a lock and no snapshot, since the ids come and
    /// go with logons: a reader shares it with other readers and meets a writer a few times in a connection's life.
    values: RwLock<HashMap<K, V>>,
    changes: Mutex<()>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { values: RwLock::default(), changes: Mutex::default() }
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Table<K, V> {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<K, V>> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<K, V>> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: K) -> Option<V> {
        self.read().get(&key).cloned()
    }

    pub fn contains(&self, key: K) -> bool {
        self.read().contains_key(&key)
    }

    pub fn len(&self) -> usize {
        self.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    pub fn values(&self) -> Vec<V> {
        self.read().values().cloned().collect()
    }

    pub fn entries(&self) -> Vec<(K, V)> {
        self.read().iter().map(|(key, value)| (*key, value.clone())).collect()
    }

    /// Excludes other changes until the guard is dropped.
    pub async fn change(&self) -> Changing<'_, K, V> {
        Changing { table: self, _alone: self.changes.lock().await }
    }
}

/// The right to change a [`Table`].
pub struct Changing<'t, K, V> {
    table: &'t Table<K, V>,
    _alone: MutexGuard<'t, ()>,
}

impl<K: Eq + Hash + Copy, V: Clone> Changing<'_, K, V> {
    pub fn insert(&self, key: K, value: V) {
        self.table.write().insert(key, value);
    }

    pub fn remove(&self, key: K) -> Option<V> {
        self.table.write().remove(&key)
    }

    pub fn remove_all(&self) -> Vec<(K, V)> {
        self.table.write().drain().collect()
    }
}

impl<K, V> Deref for Changing<'_, K, V> {
    type Target = Table<K, V>;

    fn deref(&self) -> &Self::Target {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_up_does_not_wait_for_a_change() {
        let table = Table::<u64, u32>::default();
        table.change().await.insert(1, 10);
        let changing = table.change().await;
        assert_eq!(table.get(1), Some(10));
        assert!(table.changes.try_lock().is_err(), "another change would wait");
        assert_eq!((changing.len(), changing.remove(1), table.get(1)), (1, Some(10), None));
        changing.insert(2, 20);
        drop(changing);
        assert_eq!(table.change().await.remove_all(), [(2, 20)]);
        assert!(table.is_empty());
    }
}
