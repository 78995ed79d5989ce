//! The snapshots of one volume: their names and numbers, readers of those in use, and the directory that lists them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_fs::places::{Place, catalog_of, within};
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::image::{self, Ground};
use super::row::{self, Row};
use super::view::View;
use crate::inode_core::{FIRST_COOKIE, InodeCore, directory_size, new_core};
use crate::keys::{self, Entry, table_range};
use crate::meta::{Frozen, Meta};
use crate::numbers::mix;

/// Readers that stay open: each holds the index of its tables.
const VIEWS_MAX: usize = 32;
const PAGE: usize = 512;
const LOOKED_AT_MAX: usize = 256;

#[derive(Default)]
struct State {
    /// By number. `tables` is empty: the engine's pins have them.
    rows: BTreeMap<u64, Row>,
    by_name: HashMap<String, u64>,
    /// By the second of their creation and by number.
    by_second: BTreeSet<(i64, u64)>,
    views: HashMap<u64, Arc<OnceCell<Arc<View>>>>,
    /// The views by use, the least recently used first.
    used: VecDeque<u64>,
    /// Grows with every change of the directory.
    change: u64,
    /// Directories whose snapshots somebody looked at, the latest last: a mount's kernel may have names of them.
    looked_at: VecDeque<Ino>,
    /// On their way to a receiver, once for each.
    sent: Vec<u64>,
    /// The clones of snapshots, by name (`lineage.snapshot_stays`).
    clones: BTreeMap<String, u64>,
}

pub(crate) struct Catalog {
    state: Mutex<State>,
    /// The engine of the volume as it is now.
    head: Arc<dyn Meta>,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Snapshots are made and removed one at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Mixed into generations of its directories. The seal of handles keeps clients from making them up.
    seed: u64,
}

/// Snapshots that are on their way to a receiver.
pub(crate) struct Sent {
    catalog: Arc<Catalog>,
    numbers: Vec<u64>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let sent = &mut self.catalog.state.lock().sent;
        for number in &self.numbers {
            if let Some(at) = sent.iter().position(|other| other == number) {
                sent.swap_remove(at);
            }
        }
    }
}

impl Catalog {
    /// Reads the rows. Returns the number of the epoch too: 1 where there never was a snapshot.
    pub(crate) async fn open(
        head: Arc<dyn Meta>,
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        seed: u64,
    ) -> FsResult<(Arc<Catalog>, u64)> {
        let (rows, epoch) = read_rows(&Head(Arc::clone(&head))).await?;
        let mut state = State::default();
        rows.into_iter().for_each(|(number, row)| state.insert(number, row));
        // Rows come with the number of the next epoch or after it (`snap.epochs_rise`).
        if let Some((&newest, _)) = state.rows.last_key_value()
            && newest >= epoch
        {
            return Err(keys::damaged(row::EPOCH_KEY, "a snapshot is newer than the epoch"));
        }
        state.change = epoch;
        let changing = tokio::sync::Mutex::new(());
        Ok((Arc::new(Catalog { state: Mutex::new(state), head, store, prefix, changing, seed }), epoch))
    }

    /// The rows of the head are others by now: another process has written them.
    pub(crate) async fn read_again(&self, head: &dyn Frozen) -> FsResult<()> {
        let (now, _) = read_rows(head).await?;
        let before = self.rows();
        let is_gone = |number: &u64| !now.contains_key(number);
        before.iter().map(|(number, _)| *number).filter(is_gone).for_each(|number| self.remove(number));
        let known: BTreeMap<u64, Row> = before.into_iter().collect();
        for (number, row) in now {
            if known.get(&number) != Some(&Row { tables: Vec::new(), ..row.clone() }) {
                self.put(number, row);
            }
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> &Arc<dyn Meta> {
        &self.head
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The numbers of all snapshots.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.state.lock().rows.keys().copied().collect()
    }

    /// The numbers and names of all snapshots, oldest first.
    pub(crate) fn names(&self) -> Vec<(u64, String)> {
        self.state.lock().rows.iter().map(|(&number, row)| (number, row.name.clone())).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.state.lock().by_name.get(name).copied()
    }

    /// The seconds in which snapshots were taken that may hold the directory `dir`: newest first, each once.
    pub(super) fn seconds(&self, dir: Ino) -> Vec<i64> {
        let state = self.state.lock();
        let mut seconds = Vec::new();
        for (second, number) in state.by_second.iter().rev() {
            if seconds.last() != Some(second) && state.may_hold(*number, dir) {
                seconds.push(*second);
            }
        }
        seconds
    }

    /// The last snapshot of that second that may hold the directory `dir`.
    pub(super) fn taken_in(&self, second: i64, dir: Ino) -> Option<u64> {
        let state = self.state.lock();
        let taken = state.by_second.range((second, 0)..=(second, u64::MAX)).rev();
        taken.map(|&(_, number)| number).find(|&number| state.may_hold(number, dir))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().rows.is_empty()
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.state.lock().rows.contains_key(&number)
    }

    /// What a read in a place came to. Objects of a snapshot that was destroyed meanwhile are gone, which is no damage:
    /// [`FsError::Stale`].
    pub(crate) fn unless_destroyed<T>(&self, place: Place, outcome: FsResult<T>) -> FsResult<T> {
        match (place, outcome) {
            (Place::Snapshot(number), Err(FsError::Io(_))) if !self.has(number) => Err(FsError::Stale),
            (_, outcome) => outcome,
        }
    }

    /// The snapshots are not destroyed while this is held: [`FsError::Busy`].
    pub(crate) fn send(self: &Arc<Self>, numbers: Vec<u64>) -> Sent {
        self.state.lock().sent.extend(&numbers);
        Sent { catalog: Arc::clone(self), numbers }
    }

    /// The snapshot stays while it has the clone.
    pub(crate) fn begin_clone(&self, number: u64, name: &str) {
        self.state.lock().clones.insert(name.to_owned(), number);
    }

    pub(crate) fn end_clone(&self, name: &str) {
        self.state.lock().clones.remove(name);
    }

    pub(super) fn clones_of(&self, number: u64) -> Vec<String> {
        let state = self.state.lock();
        state.clones.iter().filter(|(_, of)| **of == number).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn is_sent(&self, number: u64) -> bool {
        self.state.lock().sent.contains(&number)
    }

    pub(crate) fn row(&self, number: u64) -> Option<Row> {
        self.state.lock().rows.get(&number).cloned()
    }

    pub(super) fn rows(&self) -> Vec<(u64, Row)> {
        self.state.lock().rows.iter().map(|(&number, row)| (number, row.clone())).collect()
    }

    /// A snapshot is new or has changed.
    pub(super) fn put(&self, number: u64, row: Row) {
        let mut state = self.state.lock();
        state.remove(number);
        state.insert(number, row);
        state.change += 1;
    }

    pub(super) fn remove(&self, number: u64) {
        let mut state = self.state.lock();
        state.remove(number);
        state.views.remove(&number);
        state.used.retain(|&used| used != number);
        state.change += 1;
    }

    /// The rows of a snapshot. [`FsError::Stale`]: there is none of this number.
    pub(crate) async fn view(&self, number: u64) -> FsResult<Arc<View>> {
        let cell = {
            let mut state = self.state.lock();
            if !state.rows.contains_key(&number) {
                return Err(FsError::Stale);
            }
            state.use_view(number)
        };
        let view = cell.get_or_try_init(|| self.open_view(number)).await.cloned();
        self.unless_destroyed(Place::Snapshot(number), view)
    }

    /// A view that is open already.
    pub(super) fn keep_view(&self, number: u64, view: View) {
        self.state.lock().use_view(number).set(Arc::new(view)).ok();
    }

    async fn open_view(&self, number: u64) -> FsResult<Arc<View>> {
        let at = image::image_path(&self.prefix, number);
        let lost = |error: object_store::Error| {
            FsError::Io(format!("the image of snapshot {number} cannot be read: {error}").into())
        };
        let bytes = self.store.get(&at).await.map_err(lost)?.bytes().await.map_err(lost)?;
        let image = image::decode(number, bytes)?;
        let Ground::Engine { manifest_id, manifest } = image.ground else {
            return Err(FsError::Io(format!("the image of snapshot {number} is one of a replica").into()));
        };
        let engine = self.head.frozen(manifest_id, manifest).await?;
        Ok(Arc::new(View::new(engine, image.rows)))
    }

    /// The directories whose snapshots somebody looked at.
    pub(super) fn looked_at(&self) -> Vec<Ino> {
        self.state.lock().looked_at.iter().copied().collect()
    }

    /// Somebody looks at the snapshots of `dir`.
    pub(super) fn look_at(&self, dir: Ino) {
        let mut state = self.state.lock();
        if state.looked_at.back() != Some(&dir) {
            state.looked_at.retain(|&other| other != dir);
            state.looked_at.push_back(dir);
            if state.looked_at.len() > LOOKED_AT_MAX {
                state.looked_at.pop_front();
            }
        }
    }

    /// Brings the record in memory of the directory for `dir` up to date.
    pub(crate) fn refresh(&self, dir: Ino, core: &mut InodeCore) -> FsResult<()> {
        if core.attr.change != self.state.lock().change {
            let fresh = keys::decode_inode(catalog_of(dir), &self.directory(dir))?;
            (core.attr, core.entries, core.next_cookie) = (fresh.attr, fresh.entries, fresh.next_cookie);
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------- the directory

    /// The record of the directory that lists the snapshots of `dir`.
    pub(super) fn directory(&self, dir: Ino) -> Bytes {
        let state = self.state.lock();
        let rows = || state.rows.iter().filter(|(_, row)| dir.0 < row.next_ino);
        let changed = rows().map(|(_, row)| row.created).max().unwrap_or_default();
        let ino = catalog_of(dir);
        let id = FileId { ino, generation: mix(self.seed ^ ino.0) };
        let mut core = new_core(id, FileKind::Directory, dir, changed);
        core.attr.mode = 0o555;
        core.entries = rows().count() as u64;
        core.attr.nlink = u32::try_from(core.entries + 2).unwrap_or(LINKS_MAX);
        core.attr.size = directory_size(core.entries);
        core.attr.change = state.change;
        core.next_cookie = state.rows.last_key_value().map_or(FIRST_COOKIE, |(&number, _)| cookie_of(number) + 1);
        keys::encode_inode(ino, &core).1
    }

    /// Where `name` leads in that directory: to `dir` as it was then, if it was.
    pub(super) async fn entry(&self, dir: Ino, name: &[u8]) -> FsResult<Option<Entry>> {
        let Some(number) = std::str::from_utf8(name).ok().and_then(|name| self.find(name)) else { return Ok(None) };
        let was_there = match self.view(number).await {
            Ok(view) => view.get(&keys::inode_key(dir)).await.map(|record| record.is_some()),
            Err(error) => Err(error),
        };
        let was_there = match self.unless_destroyed(Place::Snapshot(number), was_there) {
            Err(FsError::Stale) => false,
            was_there => was_there?,
        };
        Ok(was_there.then(|| entry_of(dir, number)))
    }

    /// The names that fold to `folded` and are not their own folding.
    pub(super) fn folded(&self, folded: &[u8]) -> Vec<String> {
        let state = self.state.lock();
        let mut names: Vec<String> =
            state.by_name.keys().filter(|name| larder_fs::judge::fold(name.as_bytes()) == folded).cloned().collect();
        names.retain(|name| name.as_bytes() != folded);
        names.sort();
        names
    }

    /// Entries from a cookie on: cookie, entry and name.
    pub(super) fn listed(&self, dir: Ino, from: u64, to: u64, limit: usize) -> Vec<(u64, Entry, String)> {
        let state = self.state.lock();
        let cookies = state.rows.range(from.saturating_sub(FIRST_COOKIE - 1)..).filter(|(_, row)| dir.0 < row.next_ino);
        let entries = cookies.map(|(&number, row)| (cookie_of(number), entry_of(dir, number), row.name.clone()));
        entries.take_while(|(cookie, ..)| *cookie < to).take(limit).collect()
    }
}

/// The rows of the engine as it is now.
struct Head(Arc<dyn Meta>);

#[async_trait]
impl Frozen for Head {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.0.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        self.0.scan(from, to, limit).await
    }
}

/// All snapshots by number, and the number of the epoch.
async fn read_rows(head: &dyn Frozen) -> FsResult<(BTreeMap<u64, Row>, u64)> {
    let (mut rows, mut epoch) = (BTreeMap::new(), 1);
    let (mut from, to) = table_range(keys::tag::SNAPSHOT);
    loop {
        let pairs = head.scan(&from, &to, PAGE).await?;
        for (key, value) in &pairs {
            match row::decode_key(key)? {
                None if key == row::EPOCH_KEY => epoch = row::decode_epoch(value)?,
                None => {}
                Some(number) => drop(rows.insert(number, row::decode(key, value)?)),
            }
        }
        let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= PAGE) else { return Ok((rows, epoch)) };
        from = keys::key_after(last);
    }
}

/// Numbers begin at 1, cookies at [`FIRST_COOKIE`].
fn cookie_of(number: u64) -> u64 {
    number + FIRST_COOKIE - 1
}

fn entry_of(dir: Ino, number: u64) -> Entry {
    Entry { ino: within(number, dir), kind: FileKind::Directory, cookie: cookie_of(number) }
}

impl State {
    fn insert(&mut self, number: u64, row: Row) {
        self.by_name.insert(row.name.clone(), number);
        self.by_second.insert((row.created.secs, number));
        self.rows.insert(number, Row { tables: Vec::new(), ..row });
    }

    fn remove(&mut self, number: u64) {
        if let Some(row) = self.rows.remove(&number) {
            self.by_name.remove(&row.name);
            self.by_second.remove(&(row.created.secs, number));
        }
    }

    fn may_hold(&self, number: u64, dir: Ino) -> bool {
        self.rows.get(&number).is_some_and(|row| dir.0 < row.next_ino)
    }

    fn use_view(&mut self, number: u64) -> Arc<OnceCell<Arc<View>>> {
        if self.used.back() != Some(&number) {
            self.used.retain(|&used| used != number);
            self.used.push_back(number);
        }
        while self.used.len() > VIEWS_MAX
            && let Some(oldest) = self.used.pop_front()
        {
            self.views.remove(&oldest);
        }
        Arc::clone(self.views.entry(number).or_default())
    }
}
