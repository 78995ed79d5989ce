//! Names that a directory surely does not hold.
//!
//! A client that fills a new directory asks for each name before making it. To answer that there is
//! none, the engine searches all its young tables: a third of the cost of a creation. A directory
//! that was empty while in memory knows its names since then.
//!
//! - `negative.every_name_is_in`: while a directory has a set, the set holds the hash of each of
//!   its names and of that name folded. Removals leave their hashes behind, because two names may
//!   share one; the engine is then asked for a name that is not there, which is correct.
//! - `negative.kept_under_core`: every addition of an entry updates the set under the directory's
//!   `core`, before the batch is submitted.
//! - `negative.bounded`: the set is dropped with the inode, and when it or all sets together grow
//!   too large. A directory without a set asks the engine.

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
        core.learn_name(name.as_bytes(), name.to_lowercase().as_bytes());
        core.entries += 1;
    }

    #[test]
    fn what_was_never_added_is_lacking() {
        let mut core = directory();
        assert!(core.surely_lacks(b"a"));
        add(&mut core, "A");
        assert!(!core.surely_lacks(b"A") && !core.surely_lacks(b"a") && core.surely_lacks(b"b"));
        add(&mut core, "b");
        core.entries -= 1;
        assert!(!core.surely_lacks(b"b"), "a removal proves nothing");
        core.entries = 0;
        assert!(core.surely_lacks(b"b"));
        add(&mut core, "c");
        assert!(core.surely_lacks(b"A") && !core.surely_lacks(b"c"), "it was empty in between");
    }

    #[test]
    fn nothing_is_known_of_entries_from_before_and_of_too_many() {
        let mut core = directory();
        core.entries = 1;
        add(&mut core, "a");
        assert!(!core.surely_lacks(b"b"));
        let mut core = directory();
        for at in 0..DIRECTORY_MAX {
            add(&mut core, &at.to_string());
        }
        assert!(core.surely_lacks(b"b"));
        add(&mut core, "b");
        assert!(!core.surely_lacks(b"c") && core.negative_names.is_none());
        add(&mut core, "c");
        assert!(!core.surely_lacks(b"d"), "not begun again while there are entries");
    }
}
