//! Leads each key to the volume as it is now, to a snapshot, or to the directory of snapshots.
//!
//! - `route.by_number_in_key`: keys of tables about inodes hold the inode's number behind the tag. Its upper bits say where it
//!   lies (`snap.numbers_hold_the_epoch`): they are taken off on the way down, and put on again on the way up, in keys and in
//!   the numbers that values hold.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_fs::places::{self, Place, catalog_of, place_of, within};
use larder_fs::*;

use super::catalog::Catalog;
use super::view::View;
use crate::inode_core::FIRST_COOKIE;
use crate::keys::{self, Entry, tag};
use crate::meta::{Batch, Cut, EngineState, Frozen, Meta, Owners, Point, Still, Ticket, Usage};
use crate::own_records;

/// The bytes of a key that hold the number of a snapshot.
const EPOCH_BYTES: std::ops::Range<usize> = 1..4;

pub(crate) struct Routed {
    head: Arc<dyn Meta>,
    catalog: Arc<Catalog>,
}

impl Routed {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { head: Arc::clone(catalog.head()), catalog }
    }
}

fn is_about_inode(key: &[u8]) -> bool {
    use tag::*;
    let tables = [INODE, ENTRY, COOKIE, FOLDED, XATTR, EXTENT, RESERVED, INTENT, ORPHAN];
    key.len() >= 9 && key.first().is_some_and(|tag| tables.contains(tag))
}

fn place_in(key: &[u8]) -> Place {
    match keys::ino_of(key) {
        Ok(ino) if is_about_inode(key) => place_of(ino),
        _ => Place::Head,
    }
}

/// The key with the number of then. A bound may have been cut behind its last digit that counts.
fn lower(key: &[u8]) -> Bytes {
    if key.len() <= EPOCH_BYTES.end {
        // The end of the snapshot's part of the table is the end of the table.
        return keys::key_after(&key[..1]);
    }
    let mut key = key.to_vec();
    key[EPOCH_BYTES].fill(0);
    key.into()
}

fn raise(number: u64, key: &Bytes) -> Bytes {
    let mut key = key.to_vec();
    if let Some(epoch) = key.get_mut(EPOCH_BYTES) {
        epoch.copy_from_slice(&number.to_be_bytes()[5..]);
    }
    key.into()
}

/// A number within the snapshot, as a value has it.
fn raised(number: u64, key: &[u8], ino: Ino) -> FsResult<Ino> {
    match place_of(ino) {
        Place::Head => Ok(within(number, ino)),
        _ => Err(keys::damaged(key, "it leads to an impossible inode")),
    }
}

/// The value of a row of the snapshot, whose key is `key` in the head's numbers; `None`: it means nothing there.
fn raise_value(number: u64, key: &Bytes, value: Bytes) -> FsResult<Option<Bytes>> {
    let value = match key.first() {
        Some(&tag::INODE) => {
            let ino = within(number, keys::ino_of(key)?);
            let mut core = keys::decode_inode(ino, &value)?;
            let is_root = places::then(ino) == Ino::ROOT;
            core.parent = if is_root { catalog_of(Ino::ROOT) } else { raised(number, key, core.parent)? };
            // Reserved room belongs to the volume as it is now.
            core.has_reserved = false;
            keys::encode_inode(ino, &core).1
        }
        Some(&tag::ENTRY) => {
            let entry = keys::decode_entry(key, &value)?;
            keys::encode_entry(Entry { ino: raised(number, key, entry.ino)?, ..entry })
        }
        Some(&tag::COOKIE) => {
            let entry = keys::decode_cookie(key, &value)?;
            keys::encode_cookie(raised(number, key, entry.ino)?, entry.kind, &entry.name)
        }
        Some(&tag::XATTR) if keys::rest_of(key) == own_records::NAMED => {
            let inner = keys::decode_xattr(key, &value)?;
            let dir = own_records::directory_in(own_records::NAMED, &inner);
            let dir = dir.ok_or_else(|| keys::damaged(key, "it leads to no directory"))?;
            keys::encode_xattr(&raised(number, key, dir)?.0.to_be_bytes())
        }
        // Intents are in the image as extents.
        Some(&(tag::RESERVED | tag::INTENT | tag::ORPHAN)) => return Ok(None),
        _ => value,
    };
    Ok(Some(value))
}

async fn get_in(number: u64, view: &View, key: &[u8]) -> FsResult<Option<Bytes>> {
    let key = lower(key);
    match view.get(&key).await? {
        Some(value) => raise_value(number, &key, value),
        None => Ok(None),
    }
}

async fn scan_in(number: u64, view: &View, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
    if matches!(from.first(), Some(&(tag::RESERVED | tag::INTENT | tag::ORPHAN))) {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for (key, value) in view.scan(&lower(from), &lower(to), limit).await? {
        out.extend(raise_value(number, &key, value)?.map(|value| (raise(number, &key), value)));
    }
    Ok(out)
}

impl Catalog {
    async fn get_own(&self, dir: Ino, key: &[u8]) -> FsResult<Option<Bytes>> {
        match key.first() {
            Some(&tag::INODE) => {
                self.look_at(dir);
                Ok(Some(self.directory(dir)))
            }
            Some(&tag::ENTRY) => Ok(self.entry(dir, &key[9..]).await?.map(keys::encode_entry)),
            _ => Ok(None),
        }
    }

    fn scan_own(&self, dir: Ino, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Bytes)> {
        let own = catalog_of(dir);
        let cookie = |key: &[u8]| key.get(9..17).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        let is_own = keys::ino_of(to).is_ok_and(|ino| ino == own);
        match from.first() {
            Some(&tag::COOKIE) => {
                let to = if is_own { cookie(to).unwrap_or(0) } else { u64::MAX };
                let listed = self.listed(dir, cookie(from).unwrap_or(FIRST_COOKIE), to, limit);
                let row = |(cookie, entry, name): (u64, Entry, String)| {
                    (keys::cookie_key(own, cookie), keys::encode_cookie(entry.ino, entry.kind, name.as_bytes()))
                };
                listed.into_iter().map(row).collect()
            }
            Some(&tag::FOLDED) => {
                let folded = from.get(9..from.len().saturating_sub(1)).unwrap_or_default();
                let mut names = self.folded(folded);
                names.truncate(limit);
                let row = |name: String| (keys::folded_key(own, folded, name.as_bytes()), keys::MARK);
                names.into_iter().map(row).collect()
            }
            Some(&tag::INODE) => vec![(keys::inode_key(own), self.directory(dir))],
            _ => Vec::new(),
        }
    }
}

#[async_trait]
impl Meta for Routed {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        match place_in(key) {
            Place::Head => self.head.get(key).await,
            Place::Catalog(dir) => self.catalog.get_own(dir, key).await,
            place @ Place::Snapshot(number) => {
                let found = get_in(number, &*self.catalog.view(number).await?, key).await;
                self.catalog.unless_destroyed(place, found)
            }
        }
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        match place_in(from) {
            Place::Head => self.head.scan(from, to, limit).await,
            Place::Catalog(dir) => Ok(self.catalog.scan_own(dir, from, to, limit)),
            place @ Place::Snapshot(number) => {
                let found = scan_in(number, &*self.catalog.view(number).await?, from, to, limit).await;
                self.catalog.unless_destroyed(place, found)
            }
        }
    }

    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        self.head.last(from, to).await
    }

    async fn admit(&self) -> FsResult<()> {
        self.head.admit().await
    }

    fn submit(&self, batch: Batch) -> FsResult<Ticket> {
        // `snap.read_only`
        if batch.ops.iter().any(|(key, _)| place_in(key) != Place::Head) {
            return Err(places::read_only());
        }
        self.head.submit(batch)
    }

    async fn durable(&self, ticket: Ticket) -> FsResult<()> {
        self.head.durable(ticket).await
    }

    fn newest(&self) -> Ticket {
        self.head.newest()
    }

    fn usage(&self) -> Usage {
        self.head.usage()
    }

    fn fault(&self) -> Option<FsError> {
        self.head.fault()
    }

    fn owners(&self) -> Option<&Owners> {
        self.head.owners()
    }

    fn engine(&self) -> Option<EngineState<'_>> {
        self.head.engine()
    }

    fn tables(&self) -> Vec<(String, u64)> {
        self.head.tables()
    }

    async fn close(&self) -> FsResult<()> {
        self.head.close().await
    }

    fn cut(&self, first: Batch, epoch: u64) -> FsResult<Cut> {
        self.head.cut(first, epoch)
    }

    fn set_epoch(&self, epoch: Option<u64>) {
        self.head.set_epoch(epoch);
    }

    async fn store(&self, cut: Cut) -> FsResult<Point> {
        self.head.store(cut).await
    }

    async fn release(&self, point: &Point) {
        self.head.release(point).await;
    }

    async fn frozen(&self, manifest_id: u64, manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
        self.head.frozen(manifest_id, manifest).await
    }

    fn opened(&self) {
        self.head.opened();
    }

    fn is_followed(&self) -> bool {
        self.head.is_followed()
    }

    fn generation(&self) -> u64 {
        self.head.generation()
    }

    fn still(&self, generation: u64) -> Option<Still<'_>> {
        self.head.still(generation)
    }

    fn pins(&self) -> Option<&crate::meta::pins::Pins> {
        self.head.pins()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_go_down_and_up() {
        let ino = within(0x0A_0B0C, Ino(0x12_3456_7890));
        let key = keys::entry_key(ino, b"name");
        let below = lower(&key);
        assert_eq!(below, keys::entry_key(Ino(0x12_3456_7890), b"name"));
        assert_eq!(raise(0x0A_0B0C, &below), key);
        assert_eq!(place_in(&key), Place::Snapshot(0x0A_0B0C));
        assert_eq!(place_in(&below), Place::Head);
        assert_eq!(place_in(&keys::inode_key(catalog_of(Ino(9)))), Place::Catalog(Ino(9)));
    }

    #[test]
    fn the_end_of_a_range_stays_behind_it() {
        // The numbers of the last inode end in bytes that carry.
        for then in [5u64, 0xFF, 0xFFFF, (1 << 40) - 1] {
            let ino = within(3, Ino(then));
            let (from, to) = keys::range_of(tag::ENTRY, ino);
            let (from, to) = (lower(&from), lower(&to));
            let inside = keys::entry_key(Ino(then), &[0xFF; 255]);
            assert!(from <= inside && inside < to, "{then:x}");
        }
        assert!(!is_about_inode(&[tag::SEGMENT, 1, 1, 1, 1, 1, 1, 1, 1]));
        assert_eq!(place_in(keys::USAGE_KEY), Place::Head);
    }
}
