//! Making a volume of a replica (`replica.promoted_whole`).
//!
//! ```text
//! what an earlier attempt left is deleted -> the images are written anew, flat -> a new engine gets the rows of
//! the newest snapshot, and of all snapshots -> durable, closed -> the registry says: a volume -> the document goes
//! ```
//!
//! The tables and images that the snapshots read stay as they are; the new engine lies beside them in the same folder.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use larder_base::boxed;
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use ulid::Ulid;

use super::chain::{Flat, flat};
use super::document::{self, Document};
use super::rows::copy_rows;
use super::stream::Identity;
use super::time_of;
use crate::backing::Beneath;
use crate::data::{FOOTER_BYTES, Segment, SegmentId, Tally, encode_segment, object_path, parse_footer, segment_key};
use crate::features;
use crate::keys::{self, Superblock, tag};
use crate::layout::{prefix_of, stream_of};
use crate::meta::slate::{SlateMeta, SlateParts};
use crate::meta::{Batch, Meta};
use crate::registry::Registry;
use crate::registry::document::{find, store_error};
use crate::snapshots::View;
use crate::snapshots::create::check_name;
use crate::snapshots::image::{self, Ground, Image};
use crate::snapshots::row::{self, Row, Table};

const PAGE: usize = 1024;
/// Footers of segments that are read at the same time.
const FOOTERS_MAX: usize = 16;

/// A replica that becomes a volume.
struct Promotion<'a> {
    store: &'a dyn ObjectStore,
    prefix: Path,
    document: Document,
    /// The tables that each snapshot reads.
    tables: BTreeMap<u64, Vec<(Ulid, u64)>>,
}

impl Registry {
    /// Makes a volume of its own of a replica, or of a clone. A replica shows what the newest snapshot shows then, has all of its
    /// snapshots, and receives no more. A clone needs the volume that it began as no more. [`FsError::Locked`] without its keys,
    /// [`FsError::Refused`] if it is neither, or a replica without a snapshot.
    #[boxed]
    pub async fn promote(&self, name: &str) -> FsResult<()> {
        let infos = self.list().await?;
        let info = infos.iter().find(|info| info.name == name);
        if info.is_some_and(|info| info.copy) {
            return self.promote_copy(name).await;
        }
        if info.is_some_and(|info| info.replica) {
            self.promote_replica(name).await
        } else {
            self.free_clone(name).await
        }
    }

    async fn promote_replica(&self, name: &str) -> FsResult<()> {
        let _alone = self.alone_for_owner(name).await?;
        let (entry, document) = self.replica_document(name).await?;
        let Some(mut document) = document.filter(|document| document.newest().is_some()) else {
            return Err(FsError::Refused(format!("'{name}' has no snapshot: nothing was received whole").into()));
        };
        let info = entry.info();
        let prefix = prefix_of(info.id);
        if !document.promoting {
            document.promoting = true;
            document.write(&*self.backing.store, &prefix).await?;
        }
        let mut beneath = Beneath { store: Arc::clone(&self.backing.store), log: self.backing.log.clone() };
        if info.sealed {
            beneath = self.seals.decorate(&info, beneath)?;
        }
        let tables = document.snapshots.iter().map(|received| {
            let number = received.identity.number;
            (number, tables_in(document.metadata_of(number)))
        });
        let tables = tables.collect();
        let promotion = Promotion { store: &*beneath.store, prefix: prefix.clone(), document, tables };
        promotion.clear().await?;
        if let Some(log) = &beneath.log {
            log.remove(&stream_of(info.id)).await.map_err(|error| FsError::Io(error.to_string().into()))?;
        }
        let (rows, newest) = promotion.flatten().await?;
        let meta = SlateMeta::open(SlateParts {
            engine: &self.engine,
            store: Arc::clone(&beneath.store),
            path: prefix.clone().join("meta"),
            log: beneath.log.clone().map(|log| (log, stream_of(info.id))),
            clock: Arc::clone(&self.backing.clock),
            cache_id: u64::from(self.next_tag.fetch_add(1, Ordering::Relaxed)),
            pinned: promotion.tables.iter().map(|(number, tables)| (*number, tables.clone())).collect(),
        })
        .await?;
        let written = promotion.write(&*meta, info.id, rows, newest).await;
        let closed = meta.close().await;
        written.and(closed)?;
        self.update(|registry| {
            let entry = find(registry, name)?;
            entry.formatted = true;
            entry.features.incompatible.retain(|feature| feature != features::REPLICA);
            Ok(())
        })
        .await?;
        if let Err(error) = self.backing.store.delete(&document::path(&prefix)).await {
            tracing::warn!(volume = name, %error, "the document of a replica that is a volume now stays");
        }
        Ok(())
    }
}

fn tables_in(objects: Vec<(String, u64)>) -> Vec<(Ulid, u64)> {
    let table = |(path, bytes): (String, u64)| {
        let id = path.strip_prefix("meta/compacted/")?.strip_suffix(".sst")?;
        Some((Ulid::from_string(id).ok()?, bytes))
    };
    objects.into_iter().filter_map(table).collect()
}

impl Promotion<'_> {
    /// Deletes the engine of an earlier attempt.
    async fn clear(&self) -> FsResult<()> {
        let mut listed = self.store.list(Some(&self.prefix.clone().join("meta")));
        let mut left = Vec::new();
        while let Some(object) = listed.next().await {
            let at = object.map_err(|error| store_error(&error))?.location;
            if !self.document.has(&self.prefix, &at) {
                left.push(at);
            }
        }
        for path in left {
            self.store.delete(&path).await.map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    /// Writes all images anew, flat. They keep the rows of their snapshots and of the change index, which no snapshot shows, because
    /// promotion may begin anew. Returns these rows, and the newest snapshot.
    async fn flatten(&self) -> FsResult<(Batch, Flat)> {
        let mut rows: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        // The one below the next, nearly always: no image is read twice then.
        let mut last: Option<(u64, Flat)> = None;
        let mut next_ino = 0;
        for received in &self.document.snapshots {
            let number = received.identity.number;
            let whole = flat(self.store, &self.prefix, number, last.as_ref()).await?;
            let key = row::snapshot_key(number);
            let own = whole.rows.get(&key).cloned().flatten();
            let own = own.ok_or_else(|| keys::damaged(&key, "the image of a snapshot lacks its row"))?;
            let index = whole.rows.iter().filter(|(key, _)| key.first() == Some(&tag::CHANGED));
            rows.extend(index.map(|(key, value)| (key.clone(), value.clone())));
            let ground = Ground::Engine { manifest_id: whole.manifest_id, manifest: whole.manifest.clone() };
            let image = image::encode(number, &Image { ground, rows: whole.rows.clone() });
            let tables = self.tables.get(&number).into_iter().flatten();
            let tables = tables.map(|&(id, bytes)| Table { id, bytes }).collect();
            // Holds of the sender are no affair of this side.
            let holds = received.holds();
            // Name and moment in the row are the sender's words; those of the document were checked.
            let Identity { name, created_ns, .. } = &received.identity;
            let name = if check_name(name).is_ok() { name.clone() } else { format!("snapshot-{number}") };
            let created = time_of(*created_ns);
            let row = row::decode(&key, &own)?;
            let own = Row { name, created, image_bytes: image.len() as u64, tables, holds, ..row };
            let put = self.store.put(&image::image_path(&self.prefix, number), image.into()).await;
            put.map_err(|error| store_error(&error))?;
            rows.insert(key, Some(row::encode(&own)));
            next_ino = own.next_ino;
            last = Some((number, whole));
        }
        let (number, newest) = last.ok_or(FsError::NotFound)?;
        let mut batch = Batch::default();
        batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(next_ino));
        batch.put(row::EPOCH_KEY, row::encode_epoch(number + 1));
        batch.ops.extend(rows);
        Ok((batch, newest))
    }

    async fn write(&self, meta: &dyn Meta, id: uuid::Uuid, rows: Batch, newest: Flat) -> FsResult<()> {
        let engine = meta.frozen(newest.manifest_id, newest.manifest).await?;
        let view = View::new(engine, newest.rows);
        let superblock = view.get(keys::SUPERBLOCK_KEY).await?;
        let superblock = superblock.ok_or_else(|| keys::damaged(keys::SUPERBLOCK_KEY, "it is missing"))?;
        let created = keys::decode_superblock(&superblock)?.created;
        let tally = copy_rows(meta, &view).await?;
        self.write_segments(meta, &tally).await?;
        for ops in rows.ops.chunks(PAGE) {
            let mut batch = Batch::default();
            batch.ops.extend_from_slice(ops);
            meta.write(batch).await?;
        }
        // Last: without it there is no volume.
        let mut batch = Batch { usage: tally.usage(), ..Batch::default() };
        if let Some(base) = view.get(keys::CHANGE_BASE_KEY).await? {
            batch.put(keys::CHANGE_BASE_KEY, base);
        }
        batch.put(keys::SUPERBLOCK_KEY, keys::encode_superblock(Superblock { id, created }));
        let ticket = meta.write(batch).await?;
        meta.durable(ticket).await
    }

    /// The segment table: what each is worth to the volume, and which snapshots may read it.
    async fn write_segments(&self, meta: &dyn Meta, tally: &Tally) -> FsResult<()> {
        let number = |path: &str| path.strip_prefix("seg/").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let all: HashMap<SegmentId, (u64, u64)> = self
            .document
            .objects
            .iter()
            .filter_map(|(path, kept)| Some((SegmentId(number(path)?), (kept.first, kept.last))))
            .collect();
        if let Some(lost) = tally.segments().keys().find(|id| !all.contains_key(id)) {
            return Err(FsError::Io(
                format!("a file needs segment {:016x}, which the replica does not have", lost.0).into(),
            ));
        }
        let facts = futures::stream::iter(all.keys().copied())
            .map(|id| async move { facts(self.store, &self.prefix, id).await.map(|facts| (id, facts)) })
            .buffer_unordered(FOOTERS_MAX)
            .try_collect::<Vec<_>>()
            .await?;
        for facts in facts.chunks(PAGE) {
            let mut batch = Batch::default();
            for (id, (object_bytes, records)) in facts {
                let (first, last) = all.get(id).copied().unwrap_or_default();
                let (live, extents) = tally.segments().get(id).copied().unwrap_or_default();
                let (live_bytes, extents) = (live.max(0) as u64, extents.max(0) as u64);
                let death = if extents > 0 { 0 } else { last + 1 };
                let segment = Segment {
                    birth: first,
                    death,
                    object_bytes: *object_bytes,
                    records: *records,
                    live_bytes,
                    extents,
                    ..Segment::default()
                };
                batch.put(segment_key(*id), encode_segment(&segment));
            }
            meta.write(batch).await?;
        }
        Ok(())
    }
}

/// The length of a segment's object, and its records.
pub(crate) async fn facts(store: &dyn ObjectStore, prefix: &Path, id: SegmentId) -> FsResult<(u64, u32)> {
    let at = object_path(prefix, id);
    let bytes = store.head(&at).await.map_err(|error| store_error(&error))?.size;
    let from = bytes.saturating_sub(FOOTER_BYTES as u64);
    let footer = store.get_range(&at, from..bytes).await.map_err(|error| store_error(&error))?;
    let footer = parse_footer(id, &footer, bytes)
        .map_err(|why| FsError::Io(format!("segment {:016x} is damaged: {why}", id.0).into()))?;
    Ok((bytes, footer.records))
}
