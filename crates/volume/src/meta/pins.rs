//! Tables of the engine that snapshots read: kept when the engine collects its garbage.
//!
//! - `pins.one_range_a_table`: a table that left the tree never returns, so the snapshots that read it lie side by side: the
//!   first and the last of them say all.
//! - `pins.owner_is_asked`: where other machines can reach the store, its owner is asked for between choosing tables and deleting
//!   them. A table that no row needed while this machine was the owner, the next owner cannot need. If another is the owner, or
//!   nobody knows, nothing is deleted.
//! - `pins.before_collection`: the pins of the last life are read before the first collection.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use larder_base::LogStore;
use parking_lot::Mutex;
use slatedb::{GcFilter, ObjectMetadata};
use tokio::sync::Notify;
use ulid::Ulid;

/// The first and the last snapshot that read a table, and its length.
#[derive(Clone, Copy, Debug)]
struct Readers {
    first: u64,
    last: u64,
    bytes: u64,
}

#[derive(Default)]
struct State {
    tables: BTreeMap<Ulid, Readers>,
    snapshots: BTreeSet<u64>,
}

impl State {
    fn is_pinned(&self, table: Ulid) -> bool {
        let readers = self.tables.get(&table);
        readers.is_some_and(|r| self.snapshots.range(r.first..=r.last).next().is_some())
    }
}

/// Which tables the snapshots of one volume read, and the word that one of them is gone.
#[derive(Default)]
pub(crate) struct Pins(Mutex<State>, Notify);

impl Pins {
    /// The snapshot reads these tables.
    pub(crate) fn add(&self, snapshot: u64, tables: impl IntoIterator<Item = (Ulid, u64)>) {
        let mut state = self.0.lock();
        state.snapshots.insert(snapshot);
        for (id, bytes) in tables {
            let readers = state.tables.entry(id).or_insert(Readers { first: snapshot, last: snapshot, bytes });
            readers.first = readers.first.min(snapshot);
            readers.last = readers.last.max(snapshot);
        }
    }

    /// The snapshot is gone.
    pub(crate) fn remove(&self, snapshot: u64) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        state.snapshots.remove(&snapshot);
        let snapshots = &state.snapshots;
        state.tables.retain(|_, r| snapshots.range(r.first..=r.last).next().is_some());
        self.1.notify_one();
    }

    /// Waits until a snapshot is gone: its tables may be collected.
    pub(crate) async fn removed(&self) {
        self.1.notified().await;
    }

    /// Every table that a snapshot reads, and its length.
    pub(crate) fn all(&self) -> Vec<(Ulid, u64)> {
        let state = self.0.lock();
        state.tables.iter().filter(|(id, _)| state.is_pinned(**id)).map(|(&id, readers)| (id, readers.bytes)).collect()
    }

    /// Bytes of tables that these snapshots read, and neither others nor the tree (`in_tree`).
    pub(crate) fn of_only(&self, numbers: &BTreeSet<u64>, in_tree: &HashSet<Ulid>) -> u64 {
        let state = self.0.lock();
        let tables = state.tables.iter().filter(|(id, _)| !in_tree.contains(id)).map(|(_, readers)| readers);
        let only_they = |r: &&Readers| state.snapshots.range(r.first..=r.last).all(|number| numbers.contains(number));
        tables.filter(only_they).map(|readers| readers.bytes).sum()
    }

    /// Bytes of tables that each snapshot alone reads, without those of the tree (`in_tree`).
    pub(crate) fn only(&self, in_tree: &HashSet<Ulid>) -> BTreeMap<u64, u64> {
        let state = self.0.lock();
        let mut out = BTreeMap::new();
        for (_, readers) in state.tables.iter().filter(|(id, _)| !in_tree.contains(id)) {
            let mut of = state.snapshots.range(readers.first..=readers.last);
            if let (Some(&one), None) = (of.next(), of.next()) {
                *out.entry(one).or_default() += readers.bytes;
            }
        }
        out
    }
}

/// The id in the name of a table.
fn table_of(location: &object_store::path::Path) -> Option<Ulid> {
    location.filename()?.strip_suffix(".sst").and_then(|id| Ulid::from_string(id).ok())
}

/// What may be collected: neither pinned, nor another machine's.
pub(crate) struct Collectable {
    pub(crate) pins: std::sync::Arc<Pins>,
    pub(crate) log: Option<std::sync::Arc<dyn LogStore>>,
}

#[async_trait]
impl GcFilter for Collectable {
    async fn filter(&self, candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let unpinned = self.pins.filter(candidates).await;
        if unpinned.is_empty() {
            return unpinned;
        }
        // `pins.owner_is_asked`
        let asked = match &self.log {
            Some(log) => log.check_owner().await,
            None => Ok(()),
        };
        match asked {
            Ok(()) => unpinned,
            Err(error) => {
                tracing::warn!(%error, "no tables are deleted");
                HashSet::new()
            }
        }
    }
}

#[async_trait]
impl GcFilter for Pins {
    async fn filter(&self, mut candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let state = self.0.lock();
        candidates.retain(|object| !table_of(&object.location).is_some_and(|id| state.is_pinned(id)));
        candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_kept_while_a_snapshot_that_reads_it_is_there() {
        let pins = Pins::default();
        let (old, new) = (Ulid::from_bytes([1; 16]), Ulid::from_bytes([2; 16]));
        pins.add(1, [(old, 10)]);
        pins.add(2, [(old, 10), (new, 20)]);
        pins.add(5, [(new, 20)]);
        let is_pinned = |id| pins.0.lock().is_pinned(id);
        assert!(is_pinned(old) && is_pinned(new));
        assert!(pins.only(&HashSet::new()).is_empty());
        pins.remove(1);
        assert_eq!(pins.only(&HashSet::new()), BTreeMap::from([(2, 10)]));
        assert!(is_pinned(old));
        pins.remove(2);
        assert!(!is_pinned(old) && is_pinned(new));
        assert_eq!(pins.only(&HashSet::from([new])), BTreeMap::new());
        pins.remove(5);
        assert!(!is_pinned(new) && pins.0.lock().tables.is_empty());
    }

    #[test]
    fn names_of_other_objects_are_none() {
        assert!(table_of(&"volumes/x/meta/manifest/00000000000000000001.manifest".into()).is_none());
        let id = Ulid::from_bytes([7; 16]);
        assert_eq!(table_of(&format!("volumes/x/meta/compacted/{id}.sst").into()), Some(id));
    }
}
