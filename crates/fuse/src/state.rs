//! The mount's memory of the kernel: inodes that it knows, files that it holds open.
//!
//! Both are bounded by the kernel: it sends a forget for every inode it drops from its cache and a release for
//! every file closed.
//!
//! - `kernel.removed_stays`: an inode that loses its last name while the kernel knows it stays until the kernel forgets it
//!   (`keepers.asked_at_removal`). The kernel opens what it has looked up, and it alone holds open FIFOs, working
//!   directories and descriptors of O_PATH. Other inodes are pinned by open files only.
//! - `kernel.alive_when_learned`: the kernel learns an inode that has a name after it was entered here. So either its removal
//!   finds the entry, or the look-up sees that there was a removal, and looks again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_files::Open as OpenFile;
use larder_fs::{Ino, Keeper, Kept};
use parking_lot::Mutex;

const SHARDS: usize = 32;

/// The inodes that the kernel may have cached.
pub(super) struct KernelInodes {
    shards: [Mutex<HashMap<u64, Inode>>; SHARDS],
    /// Inodes that have lost their last name, of the whole volume.
    removals: AtomicU64,
}

#[derive(Default)]
struct Inode {
    /// Look-ups that the kernel has to forget.
    lookups: u64,
    /// It was opened in a way that puts its data into the kernel's cache.
    cached: bool,
    /// Its last name is gone (`kernel.removed_stays`).
    removed: Option<Kept>,
}

impl Keeper for KernelInodes {
    fn keep(&self, ino: Ino, open: &dyn Fn() -> Kept) {
        // Before the look into the shard (`kernel.alive_when_learned`).
        self.removals.fetch_add(1, Ordering::SeqCst);
        if let Some(inode) = self.shard(ino.0).lock().get_mut(&ino.0)
            && inode.removed.is_none()
        {
            inode.removed = Some(open());
        }
    }
}

impl KernelInodes {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), removals: AtomicU64::new(0) }
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Inode>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// Before the reply that teaches the kernel the inode is sent.
    pub(super) fn learn(&self, ino: Ino) {
        self.shard(ino.0).lock().entry(ino.0).or_default().lookups += 1;
    }

    /// Changes whenever an inode of the volume loses its last name.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Opened to be read and written through the kernel's cache, whose pages may outlive the open file.
    pub(super) fn cache(&self, ino: Ino) {
        if let Some(inode) = self.shard(ino.0).lock().get_mut(&ino.0) {
            inode.cached = true;
        }
    }

    /// The kernel may hold pages of it.
    pub(super) fn is_cached(&self, ino: Ino) -> bool {
        self.shard(ino.0).lock().get(&ino.0).is_some_and(|inode| inode.cached)
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        let mut shard = self.shard(ino).lock();
        let Some(inode) = shard.get_mut(&ino) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 {
            let forgotten = shard.remove(&ino);
            // The end of a removed inode begins when its pin goes, which takes locks of the volume.
            drop(shard);
            drop(forgotten);
        }
    }

    /// At its end a mount forgets all without a word of the kernel.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let forgotten = std::mem::take(&mut *shard.lock());
            drop(forgotten);
        }
    }

    /// All of them, shard by shard, so that no lock is held while the kernel is told.
    pub(super) fn for_each(&self, mut tell: impl FnMut(Ino)) {
        for shard in &self.shards {
            let inos: Vec<u64> = shard.lock().keys().copied().collect();
            inos.into_iter().for_each(|ino| tell(Ino(ino)));
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Open files and directories by the handle that the kernel got. A handle is a slot number plus one; slots are
/// reused, and the kernel never uses a handle after its release.
#[derive(Default)]
pub(super) struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Open>>,
    free: Vec<usize>,
}

pub(super) struct Open {
    _file: OpenFile,
    /// The cookie at which a listing under way ends.
    list_end: u64,
    /// Owners of locks that were taken through it.
    pub(super) lock_owners: Vec<u64>,
}

impl Handles {
    /// The cookie at which the listing by this handle ends.
    pub(super) fn list_end(&self, handle: u64) -> u64 {
        self.with(handle, |open| open.list_end).unwrap_or(u64::MAX)
    }

    /// A listing begins, by opening or rewinding.
    pub(super) fn set_list_end(&self, handle: u64, end: u64) {
        self.with(handle, |open| open.list_end = end);
    }

    /// `owner` has taken a lock by this handle.
    pub(super) fn locked(&self, handle: u64, owner: u64) {
        self.with(handle, |open| {
            if !open.lock_owners.contains(&owner) {
                open.lock_owners.push(owner);
            }
        });
    }

    /// A process has closed this handle: its locks are gone, and those that it takes by another are none of this one's.
    pub(super) fn flushed(&self, handle: u64, owner: u64) {
        self.with(handle, |open| open.lock_owners.retain(|other| *other != owner));
    }

    fn with<T>(&self, handle: u64, act: impl FnOnce(&mut Open) -> T) -> Option<T> {
        let slot = usize::try_from(handle.checked_sub(1)?).ok()?;
        self.table.lock().slots.get_mut(slot)?.as_mut().map(act)
    }

    pub(super) fn insert(&self, file: OpenFile) -> u64 {
        let file = Open { _file: file, list_end: u64::MAX, lock_owners: Vec::new() };
        let mut table = self.table.lock();
        let slot = match table.free.pop() {
            Some(slot) => {
                table.slots[slot] = Some(file);
                slot
            }
            None => {
                table.slots.push(Some(file));
                table.slots.len() - 1
            }
        };
        slot as u64 + 1
    }

    /// Gives the guard back, to be dropped outside of the lock.
    pub(super) fn remove(&self, handle: u64) -> Option<Open> {
        let slot = usize::try_from(handle.checked_sub(1)?).ok()?;
        let mut table = self.table.lock();
        let open = table.slots.get_mut(slot)?.take()?;
        table.free.push(slot);
        Some(open)
    }

    /// When the mount ends the kernel sends no more releases.
    pub(super) fn clear(&self) -> Vec<Open> {
        let mut table = self.table.lock();
        table.free.clear();
        std::mem::take(&mut table.slots).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_balance_lookups() {
        let inodes = KernelInodes::new();
        inodes.learn(Ino(5));
        inodes.learn(Ino(5));
        inodes.learn(Ino(37));
        inodes.forget(5, 1);
        assert_eq!(inodes.len(), 2);
        inodes.forget(5, 1);
        inodes.forget(5, 9);
        inodes.forget(1234, 1);
        let mut seen = Vec::new();
        inodes.for_each(|ino| seen.push(ino));
        assert_eq!(seen, [Ino(37)]);
    }
}
