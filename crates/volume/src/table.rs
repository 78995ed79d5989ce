//! The inode table and the entry cache: with both warm, a lookup costs less than a microsecond.
//!
//! - `table.one_inode_per_number`: the table hands out one `Inode` per number
//!   (`inode.one_per_number`). A miss reads the engine outside the shard's lock; the result is
//!   inserted only if `removals` has not moved since. Otherwise an inode that was cached, changed
//!   and dropped in between would return in an old state.
//! - `table.evict_only_idle`: eviction is a clock per shard. It passes over inodes that are used,
//!   held, open or dirty, so only inodes in use can exceed the bound.
//! - `table.entries_under_core`: an entry is cached under its directory's `core` lock, and only if
//!   `entries_version` has not moved since before it was read; changes update the cache under the
//!   same lock. So the cache never holds what the engine does not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use larder_fs::*;
use parking_lot::Mutex;
use quick_cache::{Equivalent, Weighter};

use crate::data::FileState;
use crate::inode::{Inode, new_inode};
use crate::inode_core::InodeCore;
use crate::keys::{self, Entry};
use crate::meta::Meta;

const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());
/// Clock steps per insertion beyond the bound: amortised, each insertion frees one where it can.
const CLOCK_STEPS: usize = 16;
const PREFETCH_PAGE: usize = 1024;
/// Bytes that a cached inode takes up, about: the struct, its place in map and ring, the state of
/// its file.
pub(crate) const INODE_BYTES: u64 = 768;

/// Inode numbers are dense: one multiplication spreads them.
#[derive(Default)]
struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32);
    }
}

#[derive(Default)]
struct Shard {
    map: HashMap<u64, Arc<Inode>, BuildHasherDefault<InoHasher>>,
    ring: VecDeque<u64>,
    removals: u64,
}

/// How many inodes the volumes of the process may cache together.
pub(crate) struct InodeBudget {
    cached: AtomicUsize,
    inodes_max: usize,
}

impl InodeBudget {
    pub(crate) fn new(cache_bytes: u64) -> Self {
        Self { cached: AtomicUsize::new(0), inodes_max: (cache_bytes / INODE_BYTES).max(1024) as usize }
    }

    fn is_exceeded(&self) -> bool {
        self.cached.load(Ordering::Relaxed) > self.inodes_max
    }
}

pub(crate) struct InodeTable {
    shards: Vec<Mutex<Shard>>,
    meta: Arc<dyn Meta>,
    budget: Arc<InodeBudget>,
}

impl Drop for InodeTable {
    fn drop(&mut self) {
        let cached: usize = self.shards.iter().map(|shard| shard.lock().map.len()).sum();
        self.budget.cached.fetch_sub(cached, Ordering::Relaxed);
    }
}

impl InodeTable {
    pub(crate) fn new(meta: Arc<dyn Meta>, budget: Arc<InodeBudget>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Self { shards, meta, budget }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    pub(crate) fn cached(&self, ino: Ino) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let inode = shard.map.get(&ino.0)?;
        inode.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(inode))
    }

    /// The inode, from memory or from the engine; [`FsError::Stale`] when there is none.
    #[larder_base::boxed]
    pub(crate) async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        if let Some(inode) = self.cached(ino) {
            return Ok(inode);
        }
        loop {
            let (generation, removals) = (self.meta.generation(), self.shard(ino).lock().removals);
            let Some(value) = self.meta.get(&keys::inode_key(ino)).await? else { return Err(FsError::Stale) };
            let core = self.stored(ino, &value)?;
            let Some(_still) = self.meta.still(generation) else { continue };
            let mut shard = self.shard(ino).lock();
            if let Some(inode) = shard.map.get(&ino.0) {
                return Ok(Arc::clone(inode));
            }
            if shard.removals == removals {
                let file = FileState::new(core.has_reserved);
                return Ok(self.insert_locked(&mut shard, core, file, |_| ()));
            }
        }
    }

    /// Reads the inodes from `first` to `last` into the table by one scan.
    pub(crate) async fn prefetch(&self, first: Ino, last: Ino) -> FsResult<()> {
        let mut removals: Vec<u64> = self.shards.iter().map(|shard| shard.lock().removals).collect();
        let mut evicted = HashSet::new();
        let (mut from, to) = (keys::inode_key(first), keys::key_after(&keys::inode_key(last)));
        loop {
            let generation = self.meta.generation();
            let page = self.meta.scan(&from, &to, PREFETCH_PAGE).await?;
            let Some(_still) = self.meta.still(generation) else { continue };
            for (key, value) in &page {
                let ino = keys::ino_of(key)?;
                let core = self.stored(ino, value)?;
                let mut shard = self.shard(ino).lock();
                let Some(seen) = removals.get_mut(ino.0 as usize % SHARDS) else { continue };
                // `load` handles inodes that moved in the meantime (`table.one_inode_per_number`).
                // The removals made below are known.
                if shard.map.contains_key(&ino.0) || shard.removals != *seen || evicted.contains(&ino.0) {
                    continue;
                }
                let file = FileState::new(core.has_reserved);
                self.insert_locked(&mut shard, core, file, |ino| {
                    evicted.insert(ino);
                });
                *seen = shard.removals;
            }
            match page.last() {
                Some((last, _)) if page.len() == PREFETCH_PAGE => from = keys::key_after(last),
                _ => return Ok(()),
            }
        }
    }

    /// An inode as the engine has it. Its record may come from a batch that is not durable yet (an
    /// inode that was cached, changed and evicted). A commit of the inode waits for that batch,
    /// which is not newer than the newest.
    fn stored(&self, ino: Ino, value: &[u8]) -> FsResult<InodeCore> {
        let ticket = self.meta.newest();
        let core = keys::decode_inode(ino, value)?;
        // Reserved room matters to writers alone.
        let has_reserved = core.has_reserved && !self.meta.is_followed();
        Ok(InodeCore { ticket, has_reserved, ..core })
    }

    /// A new inode, before its record is submitted.
    pub(crate) fn insert(&self, core: InodeCore) -> Arc<Inode> {
        let mut shard = self.shard(core.attr.id.ino).lock();
        self.insert_locked(&mut shard, core, FileState::fresh(), |_| ())
    }

    fn insert_locked(
        &self,
        shard: &mut Shard,
        core: InodeCore,
        file: FileState,
        evicted: impl FnMut(u64),
    ) -> Arc<Inode> {
        let ino = core.attr.id.ino;
        let inode = Arc::new(new_inode(core, file));
        shard.map.insert(ino.0, Arc::clone(&inode));
        shard.ring.push_back(ino.0);
        self.budget.cached.fetch_add(1, Ordering::Relaxed);
        evict(shard, &self.budget, evicted);
        inode
    }

    /// Forgets an inode that no longer exists.
    pub(crate) fn remove(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let removed = shard.map.remove(&ino.0).is_some();
        let cached = self.budget.cached.fetch_sub(usize::from(removed), Ordering::Relaxed);
        assert!(cached >= usize::from(removed), "every cached inode is counted");
        shard.removals += 1;
    }

    /// Forgets an inode whose rows have changed, and stops those who hold it (`follow.one_turn`).
    pub(crate) fn supersede(&self, ino: Ino) {
        if let Some(inode) = self.shard(ino).lock().map.get(&ino.0) {
            inode.superseded.store(true, Ordering::Release);
        }
        self.remove(ino);
    }

    /// [`InodeTable::supersede`] of all that there are.
    pub(crate) fn supersede_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.map.values().for_each(|inode| inode.superseded.store(true, Ordering::Release));
            self.budget.cached.fetch_sub(shard.map.len(), Ordering::Relaxed);
            shard.map.clear();
            shard.removals += 1;
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().map.len()).sum()
    }
}

fn evict(shard: &mut Shard, budget: &InodeBudget, mut evicted: impl FnMut(u64)) {
    for _ in 0..CLOCK_STEPS {
        // Numbers of inodes that were removed stay in the ring until the hand comes by.
        if !budget.is_exceeded() && shard.ring.len() <= 2 * shard.map.len() + CLOCK_STEPS {
            return;
        }
        let Some(ino) = shard.ring.pop_front() else { return };
        let Some(inode) = shard.map.get(&ino) else { continue };
        // The last entry is the one that the caller is about to use: its count is 2.
        let busy = inode.used.swap(false, Ordering::Relaxed)
            || Arc::strong_count(inode) > 1
            || inode.opens.load(Ordering::Relaxed) > 0
            || inode.core.lock().attr_dirty;
        if busy {
            shard.ring.push_back(ino);
        } else {
            shard.map.remove(&ino);
            shard.removals += 1;
            let cached = budget.cached.fetch_sub(1, Ordering::Relaxed);
            assert!(cached > 0, "every cached inode is counted");
            evicted(ino);
        }
    }
}

// ------------------------------------------------------------------------------------------- entries

/// Which volume of the process, as caches that several share tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VolumeTag(pub(crate) u32);

#[derive(Clone, PartialEq, Eq)]
struct EntryName {
    tag: VolumeTag,
    dir: Ino,
    name: Bytes,
}

#[derive(PartialEq, Eq)]
struct EntryNameRef<'a> {
    tag: VolumeTag,
    dir: Ino,
    name: &'a [u8],
}

impl Hash for EntryName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        EntryNameRef { tag: self.tag, dir: self.dir, name: &self.name }.hash(state);
    }
}

impl Hash for EntryNameRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // One pass of xxh3 over the name: it beats a general hasher that is fed piecewise.
        state.write_u64(larder_base::checksum::checksum(self.dir.0 ^ (u64::from(self.tag.0) << 48), self.name));
    }
}

impl Equivalent<EntryName> for EntryNameRef<'_> {
    fn equivalent(&self, other: &EntryName) -> bool {
        self.tag == other.tag && self.dir == other.dir && self.name == &other.name[..]
    }
}

#[derive(Clone)]
struct EntryWeight;

impl Weighter<EntryName, Option<Entry>> for EntryWeight {
    fn weight(&self, key: &EntryName, _: &Option<Entry>) -> u64 {
        128 + key.name.len() as u64
    }
}

/// Names and the inodes that they lead to, of all volumes of the process. `None` is a name that
/// does not exist.
pub(crate) struct EntryCache {
    cache: quick_cache::sync::Cache<EntryName, Option<Entry>, EntryWeight, BuildHasherDefault<InoHasher>>,
}

impl EntryCache {
    pub(crate) fn new(cache_bytes: u64) -> Self {
        let items = (cache_bytes / 160).max(1024) as usize;
        let cache = quick_cache::sync::Cache::with(
            items,
            cache_bytes,
            EntryWeight,
            BuildHasherDefault::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        Self { cache }
    }

    pub(crate) fn get(&self, tag: VolumeTag, dir: Ino, name: &[u8]) -> Option<Option<Entry>> {
        self.cache.get(&EntryNameRef { tag, dir, name })
    }

    /// Nothing is known of the name any more.
    pub(crate) fn forget(&self, tag: VolumeTag, dir: Ino, name: &[u8]) {
        self.cache.remove(&EntryNameRef { tag, dir, name });
    }

    /// Nothing is known of the volume any more.
    pub(crate) fn forget_volume(&self, tag: VolumeTag) {
        self.cache.retain(|name, _| name.tag != tag);
    }

    /// Under the directory's `core` lock (`table.entries_under_core`).
    pub(crate) fn set(&self, tag: VolumeTag, dir: Ino, name: &[u8], entry: Option<Entry>) {
        self.cache.insert(EntryName { tag, dir, name: Bytes::copy_from_slice(name) }, entry);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::inode_core::new_core;
    use crate::meta::mem::MemMeta;
    use larder_base::Timestamp;

    fn core(ino: u64) -> InodeCore {
        new_core(FileId { ino: Ino(ino), generation: ino }, FileKind::File, Ino::ROOT, Timestamp::new(1, 0))
    }

    #[tokio::test]
    async fn what_is_in_use_stays_and_the_rest_is_bounded() {
        let meta: Arc<dyn Meta> = Arc::new(MemMeta::default());
        let table = InodeTable::new(Arc::clone(&meta), Arc::new(InodeBudget::new(0)));
        let held = table.insert(core(1));
        let dirty = table.insert(core(2));
        dirty.core.lock().attr_dirty = true;
        drop(dirty);
        for ino in 3..20_000 {
            table.insert(core(ino));
        }
        assert!(table.len() <= 1024 + SHARDS, "{}", table.len());
        assert!(Arc::ptr_eq(&held, &table.load(Ino(1)).await.unwrap()));
        assert!(table.load(Ino(2)).await.unwrap().core.lock().attr_dirty);
        assert!(matches!(table.load(Ino(3)).await, Err(FsError::Stale)));
        let mut batch = crate::meta::Batch::default();
        let (key, value) = keys::encode_inode(Ino(3), &core(3));
        batch.put(key, value);
        let ticket = meta.submit(batch).unwrap();
        let (one, other) = (table.load(Ino(3)).await.unwrap(), table.load(Ino(3)).await.unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        assert!(one.core.lock().ticket >= ticket, "a commit waits for the batch that its record came with");
        table.remove(Ino(1));
        assert!(table.load(Ino(1)).await.is_err());
    }
}
