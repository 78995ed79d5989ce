//! Names, and the entries of directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use larder_fs::places::{Place, catalog_of, place_of};
use larder_fs::*;

use crate::inode::Inode;
use crate::inode_core::{FIRST_COOKIE, InodeCore, directory_size};
use crate::keys::{self, Entry};
use crate::meta::Batch;
use crate::state::State;

impl State {
    /// The entry of `dir` for `name`.
    pub(crate) async fn entry(&self, dir: &Arc<Inode>, name: &[u8]) -> FsResult<Option<Entry>> {
        let stored = self.stored_entry(dir, name).await?;
        let is_catalog = stored.is_none() && name == SNAPSHOTS_NAME && place_of(dir.id.ino) == Place::Head;
        if !is_catalog || self.catalog.is_empty() {
            return Ok(stored);
        }
        // No entry of a directory has this cookie.
        Ok(Some(Entry { ino: catalog_of(dir.id.ino), kind: FileKind::Directory, cookie: 0 }))
    }

    /// As a user made it, from the cache or the engine.
    async fn stored_entry(&self, dir: &Arc<Inode>, name: &[u8]) -> FsResult<Option<Entry>> {
        if let Some(entry) = self.entries.get(self.tag, dir.id.ino, name) {
            return Ok(entry);
        }
        let version = dir.entries_version.load(Ordering::Acquire);
        if dir.core.lock().surely_lacks(name) {
            return Ok(None);
        }
        let key = keys::entry_key(dir.id.ino, name);
        let generation = self.meta.generation();
        let entry = match self.meta.get(&key).await? {
            Some(value) => Some(keys::decode_entry(&key, &value)?),
            None => None,
        };
        if matches!(place_of(dir.id.ino), Place::Catalog(_)) {
            // Snapshots come and go without a batch about their directory.
            return Ok(entry);
        }
        // Under `core`, so that no change comes between the comparison and the insertion
        // (`table.entries_under_core`).
        let still = self.meta.still(generation);
        let core = dir.core.lock();
        if dir.entries_version.load(Ordering::Acquire) == version && !core.gone && still.is_some() {
            self.entries.set(self.tag, dir.id.ino, name, entry);
        }
        drop(core);
        Ok(entry)
    }

    /// The entry that `name` means when case is ignored, and its name as stored: the exact one
    /// first, then the least.
    pub(crate) async fn folded_entry(&self, dir: &Arc<Inode>, name: &[u8]) -> FsResult<Option<(Bytes, Entry)>> {
        let folded = larder_fs::judge::fold(name);
        if dir.core.lock().surely_lacks(&folded) && folded != SNAPSHOTS_NAME {
            return Ok(None);
        }
        if let Some(entry) = self.entry(dir, name).await? {
            return Ok(Some((Bytes::copy_from_slice(name), entry)));
        }
        // A name that is its own folding has no folded key: its entry is found by itself.
        if folded != name
            && folded.len() <= NAME_BYTES_MAX
            && let Some(entry) = self.entry(dir, &folded).await?
        {
            return Ok(Some((folded.into(), entry)));
        }
        let from = keys::folded_prefix(dir.id.ino, &folded);
        let found = self.meta.scan(&from, &keys::key_after(&from), 1).await?;
        let Some((key, _)) = found.first() else { return Ok(None) };
        let stored = key.slice(from.len()..);
        Ok(self.entry(dir, &stored).await?.map(|entry| (stored, entry)))
    }

    /// Updates the cache after a change, under `core` of `dir`.
    pub(crate) fn note_entry(&self, dir: &Inode, name: &[u8], entry: Option<Entry>) {
        assert!(dir.core.is_locked(), "`table.entries_under_core`");
        dir.entries_version.fetch_add(1, Ordering::AcqRel);
        self.entries.set(self.tag, dir.id.ino, name, entry);
    }
}

/// Puts all keys of a new entry.
pub(crate) fn add_entry(
    batch: &mut Batch,
    dir: Ino,
    core: &mut InodeCore,
    name: &[u8],
    id: Ino,
    kind: FileKind,
) -> Entry {
    let cookie = core.next_cookie;
    assert!(cookie >= FIRST_COOKIE, "the first cookies mean `.` and `..`");
    core.next_cookie += 1;
    add_entry_at(batch, dir, core, name, Entry { ino: id, kind, cookie })
}

/// As [`add_entry`], at a cookie that an entry had which the same batch drops: a listing under way
/// finds neither both of them nor none.
pub(crate) fn add_entry_at(batch: &mut Batch, dir: Ino, core: &mut InodeCore, name: &[u8], entry: Entry) -> Entry {
    assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX, "every new name is checked before");
    let folded = larder_fs::judge::fold(name);
    core.learn_name(name, &folded);
    core.entries += 1;
    core.attr.size = directory_size(core.entries);
    put_entry(batch, dir, name, entry);
    if folded != name {
        batch.put(keys::folded_key(dir, &folded, name), keys::MARK);
    }
    entry
}

/// By name and by cookie.
pub(crate) fn put_entry(batch: &mut Batch, dir: Ino, name: &[u8], entry: Entry) {
    batch.put(keys::entry_key(dir, name), keys::encode_entry(entry));
    batch.put(keys::cookie_key(dir, entry.cookie), keys::encode_cookie(entry.ino, entry.kind, name));
}

/// Deletes all keys of an entry.
pub(crate) fn drop_entry(batch: &mut Batch, dir: Ino, core: &mut InodeCore, name: &[u8], entry: Entry) {
    core.entries = core.entries.saturating_sub(1);
    core.attr.size = directory_size(core.entries);
    batch.delete(keys::entry_key(dir, name));
    batch.delete(keys::cookie_key(dir, entry.cookie));
    let folded = larder_fs::judge::fold(name);
    if folded != name {
        batch.delete(keys::folded_key(dir, &folded, name));
    }
}
