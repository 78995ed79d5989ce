//! Listing, renaming, holding and destroying snapshots.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use larder_base::{Timestamp, boxed};
use larder_fs::SNAPSHOTS_NAME;
use larder_fs::places::{catalog_of, within};
use larder_fs::*;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use ulid::Ulid;

use super::create::check_name;
use super::holds::{self, is_held};
use super::image;
use super::row::{self, Row};
use crate::keys;
use crate::meta::Batch;
use crate::registry::HAS_CLONES;
use crate::replica::SENDING;
use crate::state::State;
use crate::volume::Volume;

/// More reasons than this help nobody.
/// Rows that are deleted in one batch.
const ROWS_MAX: usize = 1024;

impl Volume {
    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.state.snapshot_infos()
    }

    /// The seconds since 1970 in which snapshots were taken after the directory `dir` was made: newest first, each once. Reads
    /// nothing.
    pub fn snapshot_seconds(&self, dir: Ino) -> Vec<i64> {
        self.state.catalog.seconds(dir)
    }

    /// The directory `dir` as it was in the last snapshot that was taken in that second. [`FsError::NotFound`] if there is none,
    /// or `dir` was not there then. Needs search permission on `dir`, as its `.snapshots` does.
    pub async fn dir_at(&self, cred: &Cred, dir: Ino, second: i64) -> FsResult<Attr> {
        self.access(cred, dir, ACCESS_EXECUTE).await?;
        let number = self.state.catalog.taken_in(second, dir).ok_or(FsError::NotFound)?;
        match self.getattr(within(number, dir)).await {
            Err(FsError::Stale) => Err(FsError::NotFound),
            found => found,
        }
    }

    /// The root directory of the snapshot `name`. [`FsError::NotFound`] if there is none.
    #[boxed]
    pub async fn snapshot_root(&self, name: &str) -> FsResult<Attr> {
        let number = self.state.catalog.find(name).ok_or(FsError::NotFound)?;
        self.getattr(within(number, Ino::ROOT)).await
    }

    /// Whether something may have changed since the newest snapshot was taken. Does no I/O. After an opening the answer is
    /// yes.
    pub fn changed_since_snapshot(&self) -> bool {
        self.state.catalog.is_empty() || self.state.changed.load(Ordering::Acquire)
    }

    /// Bytes of the store that destroying all of these snapshots gives back. Names that there are not count for nothing.
    pub fn freed_by(&self, names: &[String]) -> u64 {
        let (state, catalog) = (&self.state, &self.state.catalog);
        let numbers: BTreeSet<u64> = names.iter().filter_map(|name| catalog.find(name)).collect();
        let images: u64 = numbers.iter().filter_map(|&number| catalog.row(number)).map(|row| row.image_bytes).sum();
        let tables = state.meta.pins().map_or(0, |pins| pins.of_only(&numbers, &state.tables_in_tree()));
        images + state.data.kept_by(&numbers) + tables
    }

    /// Removes a snapshot for good, and gives back what only it needed. [`FsError::Busy`] while it is held, or on its way to a
    /// receiver.
    #[boxed]
    pub async fn destroy_snapshot(&self, name: &str) -> FsResult<()> {
        self.destroy_snapshots(std::slice::from_ref(&name.to_owned())).await.map_err(|(_, error)| error)
    }

    /// Removes all of these at once, or none: the error names the first that cannot go.
    #[boxed]
    pub async fn destroy_snapshots(&self, names: &[String]) -> Result<(), (String, FsError)> {
        let (state, names) = (Arc::clone(&self.state), names.to_vec());
        let first = names.first().cloned().unwrap_or_default();
        let destroyed = self.state.runtime.spawn(async move { state.destroy_snapshots(&names).await });
        destroyed.await.unwrap_or_else(|error| {
            Err((first, FsError::Io(format!("destroying snapshots was cut off: {error}").into())))
        })
    }

    /// Gives a snapshot another name.
    #[boxed]
    pub async fn rename_snapshot(&self, name: &str, to: &str) -> FsResult<()> {
        check_name(to)?;
        let state = &self.state;
        let _alone = state.catalog.changing.lock().await;
        let number = state.catalog.find(name).ok_or(FsError::NotFound)?;
        if state.catalog.find(to).is_some() {
            return if name == to { Ok(()) } else { Err(FsError::Exists) };
        }
        state.change_row(number, |row| to.clone_into(&mut row.name)).await?;
        state.note_snapshot(name, None);
        state.note_snapshot(to, Some(number));
        Ok(())
    }

    /// Keeps a snapshot from being destroyed, until it is released or `until`. A hold with an end cannot be released before,
    /// nor its end be moved closer. [`FsError::Invalid`] for an impossible reason, or an end in the past.
    #[boxed]
    pub async fn hold_snapshot(&self, name: &str, reason: &str, until: Option<Timestamp>) -> FsResult<()> {
        let state = &self.state;
        let _alone = state.catalog.changing.lock().await;
        let number = state.catalog.find(name).ok_or(FsError::NotFound)?;
        let mut held = state.catalog.row(number).ok_or(FsError::NotFound)?.holds;
        let until = holds::kept(until, state.clock.ahead_secs());
        holds::add(&mut held, reason, until, state.clock.box_now())?;
        state.change_row(number, |row| row.holds = held).await
    }

    /// The volume goes back to the snapshot when it is opened next. Durable.
    pub(crate) async fn ask_back(&self, name: &str) -> FsResult<()> {
        let state = &self.state;
        let _alone = state.catalog.changing.lock().await;
        let number = state.catalog.find(name).ok_or(FsError::NotFound)?;
        let mut batch = Batch::default();
        batch.put(row::ROLLBACK_KEY, row::encode_epoch(number));
        batch.delete(keys::SAVED_KEY);
        let ticket = state.meta.write(batch).await?;
        state.meta.durable(ticket).await
    }

    /// Ends a hold. [`FsError::NotFound`] if there is none for this reason, [`FsError::NotPermitted`] if it has an end that is
    /// still to come.
    #[boxed]
    pub async fn release_snapshot(&self, name: &str, reason: &str) -> FsResult<()> {
        let state = &self.state;
        let _alone = state.catalog.changing.lock().await;
        let number = state.catalog.find(name).ok_or(FsError::NotFound)?;
        let mut held = state.catalog.row(number).ok_or(FsError::NotFound)?.holds;
        holds::release(&mut held, reason, state.clock.box_now())?;
        state.change_row(number, |row| row.holds = held).await
    }
}

impl State {
    /// `rollback.saved_for_nothing_goes`
    pub(crate) async fn drop_saved(self: &Arc<Self>) -> FsResult<()> {
        let Some(value) = self.meta.get(keys::SAVED_KEY).await? else { return Ok(()) };
        let number = row::decode_epoch(&value)?;
        if let Some(row) = self.catalog.row(number) {
            match self.destroy_snapshots(&[row.name]).await {
                // Somebody wants it by now.
                Ok(()) | Err((_, FsError::Busy(_))) => {}
                Err((_, error)) => return Err(error),
            }
        }
        let mut batch = Batch::default();
        batch.delete(keys::SAVED_KEY);
        self.meta.write(batch).await.map(drop)
    }

    async fn destroy_snapshots(self: &Arc<Self>, names: &[String]) -> Result<(), (String, FsError)> {
        let catalog = &self.catalog;
        let _alone = catalog.changing.lock().await;
        let now = self.clock.box_now();
        let mut going = BTreeMap::new();
        for name in names {
            let number = self.may_go(name, now).map_err(|error| (name.clone(), error))?;
            going.insert(number, name);
        }
        let first = |error| (names.first().cloned().unwrap_or_default(), error);
        let mut ticket = self.meta.newest();
        let numbers: Vec<u64> = going.keys().copied().collect();
        for numbers in numbers.chunks(ROWS_MAX) {
            let mut batch = Batch::default();
            numbers.iter().for_each(|&number| batch.delete(row::snapshot_key(number)));
            ticket = self.meta.write(batch).await.map_err(first)?;
        }
        // Nothing that they need goes before their rows are durably gone (`snap.row_is_the_snapshot`).
        self.meta.durable(ticket).await.map_err(first)?;
        for (&number, name) in &going {
            catalog.remove(number);
            self.note_snapshot(name, None);
            self.data.end_snapshot(number, ticket);
            if let Some(pins) = self.meta.pins() {
                pins.remove(number);
            }
        }
        if catalog.is_empty() {
            self.meta.set_epoch(None);
        }
        self.spawn(Arc::clone(self).sweep_changes());
        let images = going.into_keys().map(|number| Ok(image::image_path(catalog.prefix(), number)));
        let mut deleted = catalog.store().delete_stream(futures::stream::iter(images.collect::<Vec<_>>()).boxed());
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => tracing::warn!(%error, "the image of a snapshot is swept at the next opening"),
            }
        }
        Ok(())
    }

    /// The number of a snapshot that nothing keeps from being destroyed.
    fn may_go(&self, name: &str, now: Timestamp) -> FsResult<u64> {
        let number = self.catalog.find(name).ok_or(FsError::NotFound)?;
        if self.catalog.row(number).is_some_and(|row| is_held(&row.holds, now)) {
            return Err(FsError::Busy("the snapshot is held"));
        }
        if !self.catalog.clones_of(number).is_empty() {
            return Err(FsError::Busy(HAS_CLONES));
        }
        if self.catalog.is_sent(number) {
            return Err(FsError::Busy(SENDING));
        }
        Ok(number)
    }

    /// Changes the row of a snapshot, durably.
    async fn change_row(&self, number: u64, change: impl FnOnce(&mut Row)) -> FsResult<()> {
        let key = row::snapshot_key(number);
        let value = self.meta.get(&key).await?.ok_or(FsError::NotFound)?;
        let mut row = row::decode(&key, &value)?;
        change(&mut row);
        let mut batch = Batch::default();
        batch.put(key, row::encode(&row));
        let ticket = self.meta.write(batch).await?;
        self.meta.durable(ticket).await?;
        self.catalog.put(number, row);
        Ok(())
    }

    pub(super) fn snapshot_info(&self, number: u64) -> Option<SnapshotInfo> {
        self.snapshot_infos().into_iter().find(|info| info.number == number)
    }

    /// Paths and lengths of the objects that snapshots need beside segments; `tables` is the folder of tables.
    pub(crate) fn snapshot_objects(&self, tables: &Path) -> Vec<(String, u64)> {
        let catalog = &self.catalog;
        let of_image =
            |(number, row): (u64, Row)| (image::image_path(catalog.prefix(), number).to_string(), row.image_bytes);
        let pinned = self.meta.pins().map(|pins| pins.all()).unwrap_or_default();
        let of_table = |(id, bytes): (Ulid, u64)| (tables.clone().join(format!("{id}.sst")).to_string(), bytes);
        catalog.rows().into_iter().map(of_image).chain(pinned.into_iter().map(of_table)).collect()
    }

    /// The engine's tables of the volume as it is now.
    fn tables_in_tree(&self) -> HashSet<Ulid> {
        let id_in = |name: &str| name.strip_suffix(".sst").and_then(|id| Ulid::from_string(id).ok());
        self.meta.tables().iter().filter_map(|(name, _)| id_in(name)).collect()
    }

    fn snapshot_infos(&self) -> Vec<SnapshotInfo> {
        let (kept, born) = self.data.snapshot_bytes();
        let tables = self.meta.pins().map(|pins| pins.only(&self.tables_in_tree())).unwrap_or_default();
        let mut before = 0;
        let info = |(number, row): (u64, Row)| {
            let written_bytes = born.range(before + 1..=number).map(|(_, bytes)| bytes).sum();
            before = number;
            let of = |bytes: &BTreeMap<u64, u64>| bytes.get(&number).copied().unwrap_or(0);
            SnapshotInfo {
                name: row.name,
                number,
                created: row.created,
                referenced_bytes: row.usage.stored_bytes.max(0) as u64,
                used_bytes: row.image_bytes + of(&kept) + of(&tables),
                written_bytes,
                holds: holds::shown(row.holds, &*self.clock),
                clones: self.catalog.clones_of(number),
            }
        };
        self.catalog.rows().into_iter().map(info).collect()
    }

    /// Directories of snapshots have a new name, or lack one: tells the doors.
    pub(super) fn note_snapshot(&self, name: &str, number: Option<u64>) {
        let name = bytes::Bytes::copy_from_slice(name.as_bytes());
        let (origin, kind) = (0, FileKind::Directory);
        for dir in self.catalog.looked_at() {
            let (dir, name) = (catalog_of(dir), name.clone());
            match number {
                Some(_) => self.events.send(|| Event::Added { origin, dir, name, kind }),
                None => self.events.send(|| Event::Removed { origin, dir, name, ino: dir, kind }),
            }
        }
        if number.is_some() {
            // With the first one the directory itself appears.
            let name = bytes::Bytes::from_static(SNAPSHOTS_NAME);
            self.events.send(|| Event::Added { origin, dir: Ino::ROOT, name, kind });
        }
    }

    /// Deletes images without a row: of snapshots that a crash kept from being finished, or from going whole. Not from `epoch` on, in
    /// which the volume was opened: such may be another machine's by now (`snap.number_before_image`).
    pub(crate) async fn sweep_images(self: Arc<Self>, epoch: u64) {
        let catalog = &self.catalog;
        let _alone = catalog.changing.lock().await;
        let mut images = catalog.store().list(Some(&image::folder(catalog.prefix())));
        let mut orphans = Vec::new();
        while let Some(object) = images.next().await {
            match object {
                Ok(object) => {
                    let number = image::epoch_of(&object.location);
                    let is_left = |number: &u64| *number < epoch && !catalog.has(*number);
                    orphans.extend(number.filter(is_left).map(|_| object.location));
                }
                Err(error) => {
                    tracing::warn!(%error, "the images of snapshots cannot be listed");
                    return;
                }
            }
        }
        for path in orphans {
            if let Err(error) = catalog.store().delete(&path).await {
                tracing::warn!(%path, %error, "the image of a snapshot that is gone stays until the next opening");
            }
        }
    }
}
