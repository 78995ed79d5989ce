//! The engine's block cache, shared by all volumes of the process.
//!
//! - `cache.loaded_once`: an entry is loaded once, however many readers wait for it.

use std::sync::Arc;

use async_trait::async_trait;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use slatedb::db_cache::{CacheFetch, CacheLoader, CachedEntry, CachedKey, DbCache, SplitCache};
use slatedb::{BlockCachePolicy, CacheTarget, Error};

use crate::data::INTENT_TAG;

#[derive(Clone)]
struct EntryBytes;

impl Weighter<CachedKey, CachedEntry> for EntryBytes {
    fn weight(&self, _: &CachedKey, entry: &CachedEntry) -> u64 {
        entry.size() as u64 + 128
    }
}

struct QuickCache(Cache<CachedKey, CachedEntry, EntryBytes>);

/// An index or filter that does not fit a shard of its cache is never cached, and read and verified
/// anew for every look-up: a hundred times the cost. Tables are kept small enough for this (see
/// `compactor_options`).
const META_SHARD_BYTES_MIN: u64 = 2 << 20;

/// Blocks and, apart from them so that a scan does not push them out, indexes and filters.
pub(crate) fn block_cache(total_bytes: u64) -> Arc<dyn DbCache> {
    let meta_bytes = (total_bytes / 2).max(META_SHARD_BYTES_MIN);
    let meta_shards = (meta_bytes / META_SHARD_BYTES_MIN).clamp(1, 8).next_power_of_two() / 2;
    let blocks = part(total_bytes - total_bytes / 2, 4096, 8);
    let metas = part(meta_bytes, 64 << 10, meta_shards.max(1));
    Arc::new(SplitCache::new().with_block_cache(blocks).with_meta_cache(metas).build())
}

/// The parts of a new table that stay in the cache. Write intents are read again only after a
/// crash, and they are the bulk of a memtable under synchronous writes.
pub(crate) fn policy() -> BlockCachePolicy {
    let (from, to) = ([INTENT_TAG], [INTENT_TAG + 1]);
    BlockCachePolicy::default().with_flush_targets(&[
        CacheTarget::data(..&from[..]),
        CacheTarget::data(&to[..]..),
        CacheTarget::Index,
        CacheTarget::Filters,
    ])
}

fn part(bytes: u64, item_bytes: u64, shards: u64) -> Option<Arc<dyn DbCache>> {
    let options = OptionsBuilder::new()
        .estimated_items_capacity((bytes / item_bytes).max(64) as usize)
        .weight_capacity(bytes)
        .shards(shards as usize)
        .build()
        .ok()?;
    let cache = Cache::with_options(options, EntryBytes, DefaultHashBuilder::default(), DefaultLifecycle::default());
    Some(Arc::new(QuickCache(cache)))
}

impl QuickCache {
    fn lookup(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.0.get(key))
    }

    /// Whoever comes while an entry is loaded waits for it (`cache.loaded_once`). Should the loader fail or be given up, the next
    /// one loads.
    async fn fetch(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        match self.0.get_value_or_guard_async(&key).await {
            Ok(entry) => Ok(CacheFetch::hit(entry)),
            Err(guard) => {
                let entry = loader().await?;
                // Refused if it was removed meanwhile.
                let _ = guard.insert(entry.clone());
                Ok(CacheFetch::miss(entry))
            }
        }
    }
}

#[async_trait]
impl DbCache for QuickCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        self.lookup(key)
    }
    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        self.lookup(key)
    }
    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        self.lookup(key)
    }
    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        self.lookup(key)
    }
    async fn fetch_block(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }
    async fn fetch_index(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }
    async fn fetch_filter(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }
    async fn fetch_stats(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }
    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        self.0.insert(key, value);
    }
    async fn remove(&self, key: &CachedKey) {
        self.0.remove(key);
    }
    fn entry_count(&self) -> u64 {
        self.0.len() as u64
    }
    async fn flush_scope(&self, db_cache_id: u64) -> Result<(), Error> {
        self.0.retain(|key, _| key.db_cache_id() != db_cache_id);
        Ok(())
    }
}
