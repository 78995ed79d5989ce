//! Clones: volumes that begin as a snapshot of another, and share its segments (`lineage`).
//!
//! ```text
//! entered, unformatted -> its keyring -> an engine with the rows of the snapshot -> durable, closed -> formatted
//! ```
//!
//! - `clone.whole_or_gone`: a clone that is not formatted was cut off; the next opening of the registry deletes it.
//! - `clone.freed_by_copying`: a clone is made independent by copying the segments that it still reads. Until the registry says so it
//!   reads its ancestors'.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use larder_base::boxed;
use larder_base::features::Features;
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use uuid::Uuid;

use super::document::{VolumeEntry, find_id, store_error};
use super::{Registry, check_volume_name};
use crate::backing::Beneath;
use crate::data::{Segment, SegmentId, Tally, encode_segment, object_path, segment_key};
use crate::features;
use crate::keys::{self, Superblock};
use crate::layout::{prefix_of, stream_of};
use crate::lineage::{self, Ancestor, INHERITED, Origin};
use crate::meta::slate::{SlateMeta, SlateParts};
use crate::meta::{Batch, Meta};
use crate::properties::VolumeInfo;
use crate::replica::{copy_rows, document, facts, flat};
use crate::snapshots::{View, row};
use crate::state::State;

/// Rows of segments in one batch.
const ROWS_MAX: usize = 1024;
/// Segments that are copied at the same time.
const COPIES_MAX: usize = 4;
const PART_BYTES: usize = 8 << 20;

impl Registry {
    /// Makes the volume `name`, which begins as a snapshot of the volume or replica `volume` and shares its data. Takes as long as copying
    /// the metadata does. [`FsError::NotFound`] if there is no such snapshot, [`FsError::Exists`] if the name is taken.
    #[boxed]
    pub async fn clone_snapshot(&self, volume: &str, snapshot: &str, name: &str) -> FsResult<VolumeInfo> {
        check_volume_name(name)?;
        let _alone = self.receive_alone(name)?;
        if self.list().await?.iter().any(|info| info.name == volume && info.replica) {
            return self.clone_received(volume, snapshot, name).await;
        }
        let parent = self.volume(volume).await?;
        let state = &parent.state;
        let number = state.catalog.find(snapshot).ok_or(FsError::NotFound)?;
        // Nobody destroys it meanwhile; afterwards the clone itself is the reason.
        let _kept = state.catalog.send(vec![number]);
        let (origin, entry) = self.enter_clone(volume, (number, snapshot), state.data.newest_segment(), name).await?;
        let filled = async {
            let row = state.catalog.row(number).ok_or(FsError::NotFound)?;
            let view = state.catalog.view(number).await?;
            self.fill_clone(
                &origin,
                &entry,
                &Source { view: &view, next_ino: row.next_ino, facts: Facts::Table(state) },
            )
            .await
        };
        self.finish_clone(&entry, filled.await).await?;
        state.catalog.begin_clone(number, name);
        Ok(entry.info())
    }

    /// Of a replica, which goes on receiving afterwards.
    async fn clone_received(&self, replica: &str, snapshot: &str, name: &str) -> FsResult<VolumeInfo> {
        let _alone = self.alone_for_owner(replica).await?;
        let (parent, document) = self.replica_document(replica).await?;
        let document = document.ok_or(FsError::NotFound)?;
        let number = document.number_of(snapshot).ok_or(FsError::NotFound)?;
        let info = parent.info();
        let prefix = prefix_of(info.id);
        let mut beneath = Beneath { store: Arc::clone(&self.backing.store), log: None };
        if info.sealed {
            beneath = self.seals.decorate(&info, beneath)?;
        }
        let whole = flat(&*beneath.store, &prefix, number, None).await?;
        let key = row::snapshot_key(number);
        let row = whole.rows.get(&key).cloned().flatten();
        let row = row.ok_or_else(|| keys::damaged(&key, "the image of a snapshot lacks its row"))?;
        let next_ino = row::decode(&key, &row)?.next_ino;
        let engine = self.engine.frozen(
            (Arc::clone(&beneath.store), prefix.clone().join("meta")),
            Arc::clone(&self.backing.clock),
            u64::from(self.next_tag.fetch_add(1, Ordering::Relaxed)),
            (whole.manifest_id, whole.manifest),
        );
        let view = View::new(engine.await?, whole.rows);
        let (origin, entry) = self.enter_clone(replica, (number, snapshot), document.newest_segment(), name).await?;
        let facts = Facts::Footers(&*beneath.store, &prefix);
        let filled = self.fill_clone(&origin, &entry, &Source { view: &view, next_ino, facts }).await;
        self.finish_clone(&entry, filled).await?;
        Ok(entry.info())
    }

    /// Enters a clone in the registry, unformatted. Returns what it began as, too.
    async fn enter_clone(
        &self,
        volume: &str,
        (number, snapshot): (u64, &str),
        newest: u64,
        name: &str,
    ) -> FsResult<(VolumeInfo, VolumeEntry)> {
        let mut made = None;
        self.update(|document| {
            if document.volumes.iter().any(|entry| entry.info.name == name && !entry.doomed) {
                return Err(FsError::Exists);
            }
            let entry = self.find(document, volume)?;
            entry.check_not_sealing()?;
            let mut lineage = entry.lineage().to_vec();
            lineage.push(Ancestor { volume: entry.info.id, newest: newest.max(lineage::newest(&lineage)) });
            let origin = Origin { volume: entry.info.id, snapshot: number, name: snapshot.to_owned(), lineage };
            let clone = entry_of(entry, name, origin);
            if !entry.has(features::CLONES) {
                entry.features.read_only_compatible.push(features::CLONES.to_owned());
            }
            made = Some((entry.info(), clone.clone()));
            document.volumes.push(clone);
            Ok(())
        })
        .await?;
        made.ok_or(FsError::NotFound)
    }

    /// `clone.whole_or_gone`
    async fn finish_clone(&self, entry: &VolumeEntry, filled: FsResult<()>) -> FsResult<()> {
        if let Err(error) = filled {
            if let Err(left) = self.delete_doomed(entry.info.id).await {
                let volume = &entry.info.name;
                tracing::warn!(volume, error = %left, "what there is of the clone is deleted at the next opening");
            }
            return Err(error);
        }
        self.update(|document| {
            find_id(document, entry.info.id)?.formatted = true;
            Ok(())
        })
        .await
    }

    async fn fill_clone(&self, origin: &VolumeInfo, entry: &VolumeEntry, source: &Source<'_>) -> FsResult<()> {
        let info = entry.info();
        let prefix = prefix_of(info.id);
        let mut beneath = Beneath { store: self.beneath_of(entry), log: self.backing.log.clone() };
        if info.sealed {
            self.copy_keyring(origin.id, info.id).await?;
            self.seals.share(origin, &info)?;
            beneath = self.seals.decorate(&info, beneath)?;
        }
        let meta = SlateMeta::open(SlateParts {
            engine: &self.engine,
            store: beneath.store,
            path: prefix.join("meta"),
            log: beneath.log.map(|log| (log, stream_of(info.id))),
            clock: Arc::clone(&self.backing.clock),
            cache_id: u64::from(self.next_tag.fetch_add(1, Ordering::Relaxed)),
            pinned: Vec::new(),
        })
        .await?;
        let written = source.write(&*meta, info.id).await;
        let closed = meta.close().await;
        written.and(closed)
    }

    /// What opens the one opens the other from now on: they have the same key, and different slots as soon as one is changed.
    async fn copy_keyring(&self, from: Uuid, to: Uuid) -> FsResult<()> {
        let store = &self.backing.store;
        let listed = store.list_with_delimiter(Some(&prefix_of(from))).await.map_err(|error| store_error(&error))?;
        for object in listed.objects {
            let name = object.location.filename();
            let Some(name) = name.filter(|_| object.location != document::path(&prefix_of(from))) else { continue };
            let got = store.get(&object.location).await.map_err(|error| store_error(&error))?;
            let bytes = got.bytes().await.map_err(|error| store_error(&error))?;
            let put = store.put(&prefix_of(to).join(name), bytes.into()).await;
            put.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    /// Makes a clone independent of the volume that it began as (`clone.freed_by_copying`). [`FsError::Refused`] if it is none.
    pub(crate) async fn free_clone(&self, name: &str) -> FsResult<()> {
        let _alone = self.receive_alone(name)?;
        let volume = self.volume(name).await?;
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, name)?.clone();
        let Some(origin) = &entry.origin else {
            let why = format!("'{name}' is a volume of its own already");
            return Err(FsError::Refused(why.into()));
        };
        let data = &volume.state.data;
        let read: BTreeSet<SegmentId> = data.read_by_anybody().into_iter().collect();
        let inherited = read.into_iter().filter_map(|id| Some((id, lineage::owner(&origin.lineage, id)?)));
        let copies = futures::stream::iter(inherited).map(|(id, owner)| self.copy_segment(id, owner, entry.info.id));
        let mut copies = copies.buffer_unordered(COPIES_MAX);
        while let Some(copied) = copies.next().await {
            copied?;
        }
        self.update(|document| {
            let entry = self.find(document, name)?;
            let id = entry.info.id;
            entry.origin = None;
            entry.features.incompatible.retain(|feature| feature != features::CLONE);
            // Its own clones find there what they found at its ancestors. Numbers do not tell these apart: it may have had no
            // segment of its own.
            for other in &mut document.volumes {
                let Some(origin) = &mut other.origin else { continue };
                if let Some(at) = origin.lineage.iter().position(|ancestor| ancestor.volume == id) {
                    origin.lineage.drain(..at);
                }
            }
            Ok(())
        })
        .await?;
        let (document, _) = self.read().await?;
        let open = self.open.lock().await;
        for entry in &document.volumes {
            if let Some(open) = open.get(&entry.info.id).filter(|open| open.state.lineage.is_some()) {
                open.state.set_lineage(entry.lineage().to_vec());
            }
        }
        if let Some(parent) = open.get(&origin.volume) {
            parent.state.catalog.end_clone(name);
        }
        Ok(())
    }

    async fn copy_segment(&self, id: SegmentId, from: Uuid, to: Uuid) -> FsResult<()> {
        let store = &self.backing.store;
        let got = store.get(&object_path(&prefix_of(from), id)).await.map_err(|error| store_error(&error))?;
        let mut pieces = got.into_stream();
        let mut upload = store.put_multipart(&object_path(&prefix_of(to), id)).await.map_err(|e| store_error(&e))?;
        let (mut part, mut length) = (Vec::new(), 0);
        let copied = async {
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                length += piece.len();
                part.push(piece);
                if length >= PART_BYTES {
                    length = 0;
                    upload.put_part(PutPayload::from_iter(std::mem::take(&mut part))).await?;
                }
            }
            if !part.is_empty() {
                upload.put_part(PutPayload::from_iter(std::mem::take(&mut part))).await?;
            }
            upload.complete().await.map(drop)
        };
        copied.await.map_err(|error| store_error(&error))
    }
}

fn entry_of(parent: &VolumeEntry, name: &str, origin: Origin) -> VolumeEntry {
    let mut incompatible = parent.features.incompatible.clone();
    incompatible.retain(|feature| feature != features::REPLICA);
    if !incompatible.iter().any(|feature| feature == features::CLONE) {
        incompatible.push(features::CLONE.to_owned());
    }
    let not_here = [features::CLONES, features::REPLICA_HOLDS, features::SNAPSHOTS];
    let others = parent.features.read_only_compatible.iter().filter(|feature| !not_here.contains(&feature.as_str()));
    let features = Features { incompatible, read_only_compatible: others.cloned().collect(), ..Features::default() };
    let info = VolumeInfo { name: name.to_owned(), id: Uuid::new_v4(), replica: false, copy: false, ..parent.info() };
    VolumeEntry {
        info,
        formatted: false,
        doomed: false,
        features,
        source: None,
        handles: None,
        former_sources: Vec::new(),
        sealing: None,
        origin: Some(origin),
        seat: parent.seat.clone(),
        handover: None,
    }
}

/// What a clone is made from.
struct Source<'a> {
    view: &'a View,
    next_ino: u64,
    facts: Facts<'a>,
}

/// Lengths and records of segments.
enum Facts<'a> {
    /// As the table of an open volume has them.
    Table(&'a State),
    /// As the footers of a replica's objects say.
    Footers(&'a dyn ObjectStore, &'a Path),
}

impl Facts<'_> {
    async fn of(&self, id: SegmentId) -> FsResult<(u64, u32)> {
        match self {
            Self::Footers(store, prefix) => facts(*store, prefix, id).await,
            Self::Table(state) => {
                let known = state.data.segment(id).map(|segment| (segment.object_bytes, segment.records));
                known.ok_or_else(|| {
                    FsError::Io(format!("a file needs segment {:016x}, which the volume does not have", id.0).into())
                })
            }
        }
    }
}

impl Source<'_> {
    /// The rows of a clone.
    async fn write(&self, meta: &dyn Meta, id: Uuid) -> FsResult<()> {
        let superblock = self.view.get(keys::SUPERBLOCK_KEY).await?;
        let superblock = superblock.ok_or_else(|| keys::damaged(keys::SUPERBLOCK_KEY, "it is missing"))?;
        let created = keys::decode_superblock(&superblock)?.created;
        let tally = copy_rows(meta, self.view).await?;
        self.write_segments(meta, &tally).await?;
        // Last: without it there is no volume.
        let mut batch = Batch { usage: tally.usage(), ..Batch::default() };
        batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(self.next_ino));
        batch.put(keys::SUPERBLOCK_KEY, keys::encode_superblock(Superblock { id, created }));
        let ticket = meta.write(batch).await?;
        meta.durable(ticket).await
    }

    /// The segments that files of the snapshot use, kept as inherited (`lineage.read_only`).
    async fn write_segments(&self, meta: &dyn Meta, tally: &Tally) -> FsResult<()> {
        let counted: Vec<(SegmentId, (i64, i64))> = tally.segments().iter().map(|(id, sums)| (*id, *sums)).collect();
        for some in counted.chunks(ROWS_MAX) {
            let mut batch = Batch::default();
            for &(id, (live, extents)) in some {
                let (object_bytes, records) = self.facts.of(id).await?;
                let (live_bytes, extents) = (live.max(0) as u64, extents.max(0) as u64);
                let segment =
                    Segment { birth: INHERITED, object_bytes, records, live_bytes, extents, ..Segment::default() };
                batch.put(segment_key(id), encode_segment(&segment));
            }
            meta.write(batch).await?;
        }
        Ok(())
    }
}
