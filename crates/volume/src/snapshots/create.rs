//! Taking a snapshot.
//!
//! ```text
//! cut (a moment) -> engine's point stored, dirty data stored -> image put -> row durable: the snapshot exists
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_base::{Timestamp, boxed};
use larder_fs::*;
use object_store::ObjectStoreExt;

use super::image::{self, Ground, Image};
use super::row::{self, NAME_LEN_MAX, Row, Table};
use super::view::View;
use crate::data::{Forming, Patch};
use crate::features;
use crate::keys;
use crate::meta::{self, Batch, Point};
use crate::state::State;
use crate::volume::Volume;

impl Volume {
    /// Takes a snapshot: every change that was answered before this call is in it, dirty data too. It exists when the call
    /// returns, which takes as long as storing dirty data does; nobody else waits meanwhile. A name is 1 to 200 bytes of
    /// `[A-Za-z0-9_.+-]`; [`FsError::Invalid`] otherwise, [`FsError::Exists`] if it is taken.
    #[boxed]
    pub async fn snapshot(&self, name: &str) -> FsResult<SnapshotInfo> {
        self.snapshot_of(name, self.state.now()).await
    }

    /// A snapshot of what a rollback takes away, which comes next. If that is not asked for in this life of the volume, the
    /// snapshot goes at the next opening (`rollback.saved_for_nothing_goes`).
    #[boxed]
    pub async fn save_before_rollback(&self, name: &str) -> FsResult<SnapshotInfo> {
        self.take(name, self.state.now(), true).await
    }

    /// The rollback does not come: its snapshot goes. Once the rollback was asked for, the snapshot stays.
    #[boxed]
    pub async fn drop_saved(&self) -> FsResult<()> {
        self.state.drop_saved().await
    }

    /// With the moment that it shows.
    pub(crate) async fn snapshot_of(&self, name: &str, created: Timestamp) -> FsResult<SnapshotInfo> {
        self.take(name, created, false).await
    }

    async fn take(&self, name: &str, created: Timestamp, is_saved: bool) -> FsResult<SnapshotInfo> {
        check_name(name)?;
        let (state, name) = (Arc::clone(&self.state), name.to_owned());
        // The caller may go away; a snapshot between cut and row must not stay.
        let taken = self.state.runtime.spawn(async move { state.take_snapshot(&name, created, is_saved).await });
        taken.await.map_err(|error| FsError::Io(format!("taking the snapshot was cut off: {error}").into()))?
    }
}

/// A snapshot on its way.
struct Wanted<'a> {
    name: &'a str,
    created: Timestamp,
    next_ino: u64,
    /// It was taken for a rollback.
    is_saved: bool,
}

/// Names are shown as directories by every protocol.
pub(crate) fn check_name(name: &str) -> FsResult<()> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".." {
        return Ok(());
    }
    Err(FsError::Invalid(
        "a snapshot's name is 1 to 200 of A-Z, a-z, 0-9, '_', '.', '+', '-', and neither '.' nor '..'",
    ))
}

impl State {
    async fn take_snapshot(self: &Arc<Self>, name: &str, created: Timestamp, is_saved: bool) -> FsResult<SnapshotInfo> {
        // Programs that do not know snapshots are kept out before there is one.
        self.marks.set(features::SNAPSHOTS).await?;
        let catalog = &self.catalog;
        let _alone = catalog.changing.lock().await;
        if catalog.find(name).is_some() {
            return Err(FsError::Exists);
        }
        self.meta.admit().await?;
        let first = |epoch| {
            let mut batch = Batch::default();
            batch.put(row::EPOCH_KEY, row::encode_epoch(epoch));
            batch
        };
        // A change that comes in between counts as later, which costs no more than a snapshot.
        self.changed.store(false, Ordering::Release);
        let cut = self.data.cut(first).await;
        let next_ino = self.numbers.peek();
        let (mut forming, cut) = cut.inspect_err(|_| self.changed.store(true, Ordering::Release))?;
        let number = forming.number;
        let mut has_number = false;
        let wanted = Wanted { name, created, next_ino, is_saved };
        let outcome = self.store_snapshot(&wanted, (&mut forming, &mut has_number), cut).await;
        if let Err(error) = outcome {
            self.changed.store(true, Ordering::Release);
            self.data.abandon(number);
            if let Some(pins) = self.meta.pins() {
                pins.remove(number);
            }
            // It is no snapshot without a row; what is left is swept at the next opening. While the number is not durable another
            // machine may have taken the volume over, and its snapshot of that number has an image of the same name.
            if has_number {
                let _ = catalog.store().delete(&image::image_path(catalog.prefix(), number)).await;
            }
            return Err(error);
        }
        // If that fails nobody knows whether the row will be there: what it needs stays, and the next opening finds out.
        outcome??;
        self.note_snapshot(name, Some(number));
        self.snapshot_info(number).ok_or(FsError::NotFound)
    }

    async fn store_snapshot(
        &self,
        wanted: &Wanted<'_>,
        (forming, has_number): (&mut Forming, &mut bool),
        cut: meta::Cut,
    ) -> FsResult<FsResult<()>> {
        let point = self.meta.store(cut).await?;
        // The number is this snapshot's alone once the next epoch is durable, which came with the first change behind the
        // point. Until then another machine may take the volume over and give the number, and with it the image's name, to a
        // snapshot of its own.
        self.meta.durable(self.meta.newest()).await?;
        *has_number = true;
        let engine = self.meta.frozen(point.manifest_id, point.manifest.clone()).await?;
        let patch = self.data.patch(forming, &View::new(Arc::clone(&engine), Default::default())).await?;
        let stored = self.enter_snapshot(wanted, forming, &point, &patch).await;
        match &stored {
            Ok(Ok(())) => {
                self.catalog.keep_view(forming.number, View::new(engine, patch.rows));
                self.meta.release(&point).await;
            }
            Ok(Err(_)) => {}
            Err(_) => self.data.discard(patch).await,
        }
        stored
    }

    /// Puts the image, then the row (`snap.row_is_the_snapshot`). The inner result says whether the row became durable.
    async fn enter_snapshot(
        &self,
        wanted: &Wanted<'_>,
        forming: &Forming,
        point: &Point,
        patch: &Patch,
    ) -> FsResult<FsResult<()>> {
        let (catalog, number) = (&self.catalog, forming.number);
        let ground = Ground::Engine { manifest_id: point.manifest_id, manifest: point.manifest.clone() };
        let image = Image { ground, rows: patch.rows.clone() };
        let bytes = image::encode(number, &image);
        let image_bytes = bytes.len() as u64;
        let at = image::image_path(catalog.prefix(), number);
        let put = catalog.store().put(&at, bytes.into()).await;
        put.map_err(|error| FsError::Io(format!("storing the snapshot: {error}").into()))?;
        if let Some(pins) = self.meta.pins() {
            pins.add(number, point.tables.iter().copied());
        }
        let row = Row {
            name: wanted.name.to_owned(),
            created: wanted.created,
            next_ino: wanted.next_ino,
            usage: forming.usage.plus(patch.usage),
            image_bytes,
            holds: Vec::new(),
            tables: point.tables.iter().map(|&(id, bytes)| Table { id, bytes }).collect(),
        };
        let mut batch = Batch::default();
        batch.put(row::snapshot_key(number), row::encode(&row));
        if wanted.is_saved {
            batch.put(keys::SAVED_KEY, row::encode_epoch(number));
        }
        self.meta.admit().await?;
        let ticket = self.data.finish(number, patch, batch).await?;
        let durable = self.meta.durable(ticket).await;
        if durable.is_ok() {
            catalog.put(number, row);
        }
        Ok(durable)
    }
}
