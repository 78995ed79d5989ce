//! What a directory surely does not hold.
//!
//! Who fills a new directory asks for each name before making it, and the engine looks through all its young tables to say
//! that there is none: a third of what a creation costs. A directory that was empty while in memory knows its names since.
//!
//! K1. As long as a directory has a set, the set holds the hash of each of its names and of that name folded. Removals leave
//!     theirs behind: two names may have one hash, and a name that is not there is only asked for.
//! K2. It is kept under the directory's `core`, by whoever adds an entry, before the batch is submitted.
//! K3. It is forgotten with the inode, and where there are too many names: it says nothing then.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_base::checksum::checksum;

/// Hashes of one directory: a MiB.
const DIRECTORY_MAX: usize = 1 << 16;
/// Hashes of all directories of the process: 16 MiB.
const ALL_MAX: usize = 1 << 20;

static ALL: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
pub(crate) struct NegativeNames(HashSet<u64>);

impl NegativeNames {
    pub(crate) fn may_hold(&self, name: &[u8]) -> bool {
        self.0.contains(&checksum(0, name))
    }

    /// `false` where there is no room.
    pub(crate) fn insert(&mut self, name: &[u8]) -> bool {
        if self.0.insert(checksum(0, name)) {
            ALL.fetch_add(1, Ordering::Relaxed);
        }
        self.0.len() <= DIRECTORY_MAX && ALL.load(Ordering::Relaxed) <= ALL_MAX
    }
}

impl Drop for NegativeNames {
    fn drop(&mut self) {
        ALL.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode_core::{InodeCore, new_core};
    use crate::types::*;
    use larder_base::Timestamp;

    fn directory() -> InodeCore {
        new_core(FileId { ino: Ino(2), generation: 1 }, FileKind::Directory, Ino::ROOT, Timestamp::new(1, 0))
    }

    fn add(core: &mut InodeCore, name: &str) {
        core.learn(name.as_bytes(), name.to_lowercase().as_bytes());
        core.entries += 1;
    }

    #[test]
    fn what_was_never_added_is_lacking() {
        let mut core = directory();
        assert!(core.lacks(b"a"));
        add(&mut core, "A");
        assert!(!core.lacks(b"A") && !core.lacks(b"a") && core.lacks(b"b"));
        add(&mut core, "b");
        core.entries -= 1;
        assert!(!core.lacks(b"b"), "a removal proves nothing");
        core.entries = 0;
        assert!(core.lacks(b"b"));
        add(&mut core, "c");
        assert!(core.lacks(b"A") && !core.lacks(b"c"), "it was empty in between");
    }

    #[test]
    fn nothing_is_known_of_entries_from_before_and_of_too_many() {
        let mut core = directory();
        core.entries = 1;
        add(&mut core, "a");
        assert!(!core.lacks(b"b"));
        let mut core = directory();
        for at in 0..DIRECTORY_MAX {
            add(&mut core, &at.to_string());
        }
        assert!(core.lacks(b"b"));
        add(&mut core, "b");
        assert!(!core.lacks(b"c") && core.negative_names.is_none());
        add(&mut core, "c");
        assert!(!core.lacks(b"d"), "not begun again while there are entries");
    }
}
