//! The directory entries that opens were made by, as the volume's events move them.
//!
//! - `tracker.entry_of_the_open`: an open is known by its inode and by the entry that led to it: the name that it renames and
//!   deletes. Of a file with several names the others are left alone, and of a symbolic link that was followed the entry is
//!   the link's.
//! - `tracker.hint_until_looked_at`: events of two renames may arrive in either order, some may be lost, and programs of the host send
//!   none. So an entry is looked at before it is used, and acted on only while it leads to its inode (`Files::only`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_fs::{Event, FileKind, Ino};
use parking_lot::Mutex;

/// All entries of a volume that clients have open.
#[derive(Default)]
pub struct EntryTracker {
    /// By their numbers: a file may be open thousands of times, and each close removes its own.
    entries: Mutex<HashMap<Ino, HashMap<u64, Weak<TrackedEntry>>>>,
    next_number: AtomicU64,
    directory_renames: AtomicU64,
}

/// Where an entry is.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryAt {
    pub dir: Ino,
    pub name: Bytes,
    /// The name is spelled as the client spelled it, perhaps in another case than it is stored.
    pub as_spelled: bool,
    /// The name no longer leads to the inode.
    pub removed: bool,
}

/// One entry, as long as somebody keeps it.
pub struct TrackedEntry {
    ino: Ino,
    number: u64,
    at: Mutex<EntryAt>,
    tracker: Arc<EntryTracker>,
}

impl Drop for TrackedEntry {
    fn drop(&mut self) {
        let mut entries = self.tracker.entries.lock();
        if let Some(of_inode) = entries.get_mut(&self.ino) {
            of_inode.remove(&self.number);
            if of_inode.is_empty() {
                entries.remove(&self.ino);
            }
        }
    }
}

impl TrackedEntry {
    pub fn at(&self) -> EntryAt {
        self.at.lock().clone()
    }

    /// The entry's own open has moved it to `dir`, where no event says that it did.
    pub fn moved(&self, dir: Ino, name: Bytes) {
        *self.at.lock() = EntryAt { dir, name, as_spelled: false, removed: false };
    }

    /// The entry is now in `dir` under its stored name, unless it has left `old` meanwhile.
    pub fn found(&self, old: &EntryAt, dir: Ino, name: Bytes) {
        let mut at = self.at.lock();
        if *at == *old {
            *at = EntryAt { dir, name, as_spelled: false, removed: false };
        }
    }
}

impl EntryAt {
    fn is(&self, dir: Ino, name: &[u8]) -> bool {
        self.dir == dir && (*self.name == *name || self.as_spelled && fold(&self.name) == fold(name))
    }
}

impl EntryTracker {
    /// Follows the entry `name` of `dir`, which led to `ino`, from now on.
    pub fn track(self: &Arc<Self>, ino: Ino, dir: Ino, name: Bytes) -> Arc<TrackedEntry> {
        let at = Mutex::new(EntryAt { dir, name, as_spelled: true, removed: false });
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(TrackedEntry { ino, number, at, tracker: Arc::clone(self) });
        self.entries.lock().entry(ino).or_default().insert(number, Arc::downgrade(&entry));
        entry
    }

    /// How many directories were renamed: paths that were made up before may be stale.
    pub fn directory_renames(&self) -> u64 {
        self.directory_renames.load(Ordering::Acquire)
    }

    /// Some events are lost.
    pub fn lost(&self) {
        self.directory_renames.fetch_add(1, Ordering::AcqRel);
    }

    pub fn saw(&self, event: &Event) {
        match event {
            Event::Renamed { from, from_name, to, to_name, ino, kind, .. } => {
                let moved = || EntryAt { dir: *to, name: to_name.clone(), as_spelled: false, removed: false };
                self.change(*ino, |at| {
                    if at.is(*from, from_name) {
                        *at = moved();
                    }
                });
                if *kind == FileKind::Directory {
                    self.directory_renames.fetch_add(1, Ordering::AcqRel);
                }
            }
            Event::Removed { dir, name, ino, .. } => self.change(*ino, |at| at.removed |= at.is(*dir, name)),
            Event::Lost { .. } => self.lost(),
            Event::Attr { .. } | Event::Data { .. } | Event::Added { .. } | Event::Modified { .. } => {}
        }
    }

    fn change(&self, ino: Ino, change: impl Fn(&mut EntryAt)) {
        let of_inode: Vec<_> = match self.entries.lock().get(&ino) {
            Some(entries) => entries.values().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        // Dropped after the lock of `entries`, which the last one takes.
        of_inode.iter().for_each(|entry| change(&mut entry.at.lock()));
    }
}

fn fold(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
