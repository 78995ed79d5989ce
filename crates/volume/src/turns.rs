//! The caches of a volume that another process writes: what they forget when the view turns, and what others are told.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use larder_fs::*;

use crate::follow::{Caches, Change};
use crate::keys::{self, tag};
use crate::meta::Frozen;
use crate::state::State;

/// Tables whose rows are about an inode of the head.
fn inode_of(key: &[u8]) -> Option<Ino> {
    use tag::*;
    let tables = [INODE, ENTRY, COOKIE, FOLDED, XATTR, EXTENT, RESERVED, INTENT, ORPHAN];
    let is_about = key.len() >= 9 && key.first().is_some_and(|tag| tables.contains(tag));
    keys::ino_of(key).ok().filter(|_| is_about)
}

/// The directory and the name of an entry.
fn entry_of(key: &[u8]) -> Option<(Ino, &[u8])> {
    Some((inode_of(key).filter(|_| key.first() == Some(&tag::ENTRY))?, key.get(9..)?))
}

#[async_trait]
impl Caches for State {
    fn forget(&self, change: &Change) {
        let keys = match change {
            Change::All => {
                self.inodes.supersede_all();
                self.entries.forget_volume(self.tag);
                return;
            }
            Change::Keys(keys) => keys,
        };
        let inodes: BTreeSet<Ino> = keys.iter().filter_map(|key| inode_of(key)).collect();
        inodes.into_iter().for_each(|ino| self.inodes.supersede(ino));
        for (dir, name) in keys.iter().filter_map(|key| entry_of(key)) {
            self.entries.forget(self.tag, dir, name);
        }
    }

    async fn tell(&self, before: &dyn Frozen, after: &dyn Frozen, change: &Change) {
        let Change::Keys(keys) = change else { return };
        if !self.events.has_receivers() {
            return;
        }
        for key in keys {
            let told = match key.first() {
                Some(&tag::INODE) => inode_of(key).map(|ino| Event::Attr { origin: 0, ino }),
                Some(&(tag::EXTENT | tag::INTENT)) => {
                    inode_of(key).map(|ino| Event::Data { origin: 0, ino, offset: 0, len: u64::MAX })
                }
                Some(&tag::ENTRY) => entry_event(before, after, key).await,
                _ => None,
            };
            if let Some(event) = told {
                self.events.send(|| event);
            }
        }
    }

    async fn read_catalog(&self, rows: &dyn Frozen) -> FsResult<()> {
        self.catalog.read_again(rows).await
    }
}

async fn entry_event(before: &dyn Frozen, after: &dyn Frozen, key: &[u8]) -> Option<Event> {
    let (dir, name) = entry_of(key)?;
    let name = Bytes::copy_from_slice(name);
    let is_there = after.get(key).await.ok()?;
    let was_there = before.get(key).await.ok().flatten();
    let decode = |value: Bytes| keys::decode_entry(key, &value).ok();
    match (was_there.and_then(decode), is_there.and_then(decode)) {
        (_, Some(now)) => Some(Event::Added { origin: 0, dir, name, kind: now.kind }),
        (Some(then), None) => Some(Event::Removed { origin: 0, dir, name, ino: then.ino, kind: then.kind }),
        (None, None) => None,
    }
}
