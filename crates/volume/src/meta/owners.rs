//! The bytes that the files of each user and group take up, and the sum of all charges for names and attributes, for volumes
//! with quotas. They are kept in memory alone: one pass over the records of all inodes counts them, and every batch from then
//! on.
//!
//! - `owners.with_the_batch`: a batch is counted under the lock under which it becomes visible. So a page that is read after
//!   [`Owners::begin`] shows every batch that was not counted by then.
//! - `owners.page_or_batch`: of an inode that changes while its page is read, the newest change counts, and the row that was read
//!   does not. Changes of inodes in later pages are left to those pages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use larder_fs::Ino;

/// Whose bytes the record of an inode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Bytes of data, and reserved bytes.
    pub(crate) data_bytes: u64,
    /// The charge for names and attributes ([`crate::charge`]).
    pub(crate) metadata_bytes: u64,
}

impl Owned {
    pub(crate) fn bytes(&self) -> u64 {
        self.data_bytes.saturating_add(self.metadata_bytes)
    }
}

/// What a batch changes about that. `None`: there is no record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedChange {
    pub(crate) ino: Ino,
    pub(crate) before: Option<Owned>,
    pub(crate) after: Option<Owned>,
}

/// What the files of one owner take up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

/// By uid or gid.
type UsedList = Vec<(u32, Used)>;

pub(crate) struct Owners {
    /// Somebody wants to know.
    is_wanted: AtomicBool,
    tables: Mutex<Tables>,
    counted: watch::Sender<bool>,
}

#[derive(Default)]
struct Tables {
    users: HashMap<u32, Used>,
    groups: HashMap<u32, Used>,
    /// The charges for names and attributes of all owners.
    metadata_bytes: i64,
    /// Inodes below are counted. `None`: all are.
    next: Option<Ino>,
    /// Changes of others since the page was begun.
    changed: HashMap<Ino, Option<Owned>>,
}

impl Owners {
    pub(crate) fn new() -> Self {
        let tables = Tables { next: Some(Ino(0)), ..Tables::default() };
        Self { is_wanted: AtomicBool::new(false), tables: Mutex::new(tables), counted: watch::Sender::new(false) }
    }

    /// Returns whether nobody wanted it before: the caller then counts.
    pub(crate) fn want(&self) -> bool {
        !self.is_wanted.swap(true, Ordering::AcqRel)
    }

    /// `owners.with_the_batch`
    pub(crate) fn note(&self, changes: &[OwnedChange]) {
        if changes.is_empty() || !self.is_wanted.load(Ordering::Acquire) {
            return;
        }
        let mut tables = self.tables.lock();
        for change in changes {
            if tables.next.is_none_or(|next| change.ino < next) {
                tables.count(change.before, -1);
                tables.count(change.after, 1);
            } else {
                tables.changed.insert(change.ino, change.after);
            }
        }
    }

    /// Before a page of records is read: the first inode that it has to show. `None`: all are counted.
    pub(crate) fn begin(&self) -> Option<Ino> {
        let mut tables = self.tables.lock();
        tables.changed = HashMap::new();
        tables.next
    }

    /// Counts a page that has all inodes below `next` (`owners.page_or_batch`). `None`: it was the last one.
    pub(crate) fn end(&self, page: impl IntoIterator<Item = (Ino, Owned)>, next: Option<Ino>) {
        let mut tables = self.tables.lock();
        let changed = std::mem::take(&mut tables.changed);
        for (ino, owned) in page {
            if !changed.contains_key(&ino) {
                tables.count(Some(owned), 1);
            }
        }
        for (_, owned) in changed.into_iter().filter(|(ino, _)| next.is_none_or(|next| *ino < next)) {
            tables.count(owned, 1);
        }
        tables.next = next;
        drop(tables);
        self.counted.send_replace(next.is_none());
    }

    /// Returns once all inodes are counted.
    pub(crate) async fn counted(&self) {
        // The sender is as old as the receiver.
        let _ = self.counted.subscribe().wait_for(|is_counted| *is_counted).await;
    }

    /// Less than it is while inodes are being counted.
    pub(crate) fn user(&self, uid: u32) -> Used {
        self.tables.lock().users.get(&uid).copied().unwrap_or_default()
    }

    /// As [`Owners::user`].
    pub(crate) fn group(&self, gid: u32) -> Used {
        self.tables.lock().groups.get(&gid).copied().unwrap_or_default()
    }

    /// The charges for names and attributes of all inodes; less while they are being counted.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.tables.lock().metadata_bytes.max(0) as u64
    }

    /// Users and groups that have files, in no order.
    pub(crate) fn all(&self) -> (UsedList, UsedList) {
        let tables = self.tables.lock();
        let copy = |table: &HashMap<u32, Used>| table.iter().map(|(id, used)| (*id, *used)).collect();
        (copy(&tables.users), copy(&tables.groups))
    }
}

impl Tables {
    fn count(&mut self, owned: Option<Owned>, sign: i64) {
        let Some(owned) = owned else { return };
        self.metadata_bytes += sign * owned.metadata_bytes as i64;
        for (table, id) in [(&mut self.users, owned.uid), (&mut self.groups, owned.gid)] {
            let used = table.entry(id).or_default();
            used.bytes += sign * owned.bytes() as i64;
            used.inodes += sign;
            if used.inodes == 0 {
                table.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn owned(uid: u32, bytes: u64) -> Option<Owned> {
        Some(Owned { uid, gid: 100, data_bytes: bytes, metadata_bytes: bytes / 10 })
    }

    fn note(owners: &Owners, ino: u64, before: Option<Owned>, after: Option<Owned>) {
        owners.note(&[OwnedChange { ino: Ino(ino), before, after }]);
    }

    #[test]
    fn changes_and_pages_count_every_inode_once() {
        let owners = Owners::new();
        note(&owners, 1, None, owned(7, 1000));
        assert!(owners.want() && !owners.want());
        assert_eq!(owners.begin(), Some(Ino(0)));
        // While the page with 1 and 2 is read: 2 grows after it was read, 3 is made, 9 is of a later page.
        note(&owners, 2, owned(7, 10), owned(7, 20));
        note(&owners, 3, None, owned(8, 5));
        note(&owners, 9, owned(8, 1), owned(8, 100));
        owners.end([(Ino(1), owned(7, 1000)), (Ino(2), owned(7, 10))].map(|(ino, o)| (ino, o.unwrap())), Some(Ino(4)));
        assert_eq!(owners.user(7), Used { bytes: 1122, inodes: 2 });
        assert_eq!(owners.user(8), Used { bytes: 5, inodes: 1 });
        // Between pages: counted where its page was, left to its page elsewhere.
        note(&owners, 1, owned(7, 1000), owned(8, 1000));
        note(&owners, 9, owned(8, 100), owned(8, 200));
        assert_eq!(owners.user(7), Used { bytes: 22, inodes: 1 });
        assert_eq!(owners.begin(), Some(Ino(4)));
        // It goes while its page is read, whether the page shows it or not.
        note(&owners, 9, owned(8, 200), None);
        owners.end([(Ino(9), owned(8, 200).unwrap())], None);
        assert_eq!(owners.begin(), None);
        assert_eq!(owners.user(8), Used { bytes: 1105, inodes: 2 });
        assert_eq!(owners.metadata_bytes(), 100 + 2);
        assert_eq!(owners.group(100), Used { bytes: 1127, inodes: 3 });
        note(&owners, 1, owned(8, 1000), None);
        note(&owners, 3, owned(8, 5), None);
        note(&owners, 2, owned(7, 20), None);
        assert_eq!(owners.all(), (vec![], vec![]));
        assert_eq!(owners.metadata_bytes(), 0);
    }
}
