//! Keeps which files lost data (`larder damage`).
//!
//! - `damage.looked_at_news`: the names of files are only looked for when what a pool lists as damaged has changed.

use std::hash::{DefaultHasher, Hash, Hasher};

use larder_alerts::damage::{Entry, Loss};
use larder_api::{DamageEntry, DamageKept, Failure};
use larder_keep::Store;

use crate::clock::now_ms;
use crate::watcher::Watcher;

fn digest(pool: &Store) -> Option<u64> {
    let disks = pool.disk_pool()?;
    let (mut hasher, (damaged, more)) = (DefaultHasher::new(), disks.damage());
    for one in &damaged {
        one.object.hash(&mut hasher);
        one.ranges.len().hash(&mut hasher);
    }
    more.hash(&mut hasher);
    Some(hasher.finish())
}

impl Watcher {
    pub(crate) async fn look_at_damage(&self) {
        for pool in self.storage.all() {
            let Some(digest) = digest(&pool) else { continue };
            if !self.watch.damage.is_news(&pool.name, digest) {
                continue;
            }
            let losses = losses(&pool).await;
            let mut kept = self.watch.kept.lock();
            if kept.damage.look(now_ms(), &pool.name, &losses) {
                self.watch.save(&kept);
            }
        }
    }

    /// What is remembered, newest first.
    pub async fn damage_kept(&self) -> Result<DamageKept, Failure> {
        self.watch.look_soon().await;
        let kept = self.watch.kept.lock();
        let entry = |entry: &Entry| DamageEntry {
            place: entry.place.clone(),
            paths: entry.paths.clone(),
            id: entry.id.clone(),
            bytes: entry.bytes,
            since_ms: entry.since_ms,
            ended_ms: entry.ended_ms,
        };
        let entries = kept.damage.entries().iter().rev().map(entry).collect();
        Ok(DamageKept { entries, left_out: kept.damage.left_out })
    }
}

/// What lost data for good: what is merely out of reach comes back with its disks.
async fn losses(pool: &Store) -> Vec<Loss> {
    let Some(disks) = pool.disk_pool() else { return Vec::new() };
    let (damaged, _) = disks.damage();
    if damaged.is_empty() {
        return Vec::new();
    }
    let damage = pool.status_with_damage().await.damage;
    let bytes =
        |ranges: &[larder_api::ByteRange]| ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
    let files = damage.files.into_iter().map(|file| Loss {
        id: format!("inode {}", file.inode),
        bytes: bytes(&file.ranges),
        place: file.volume,
        paths: file.paths,
    });
    let metadata = damage.metadata.into_iter().map(|one| Loss {
        place: one.volume.unwrap_or_else(|| pool.name.clone()),
        paths: Vec::new(),
        bytes: bytes(&one.ranges),
        id: format!("metadata {}", one.object),
    });
    files.chain(metadata).collect()
}
