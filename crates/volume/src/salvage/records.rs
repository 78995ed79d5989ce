//! The indexes of the segments: which bytes of which inode every record was written for (S3 in
//! `data/segment.rs`).
//!
//! They know nothing of truncations, deletions and names; they are what is left when the metadata
//! is gone.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use larder_fs::Ino;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::data::{FOOTER_BYTES, IndexEntry, SegmentId, parse_footer, parse_index, segment_of};

/// Index entries held at once: about a gigabyte. More are read in several passes.
const ENTRIES_MAX: u64 = 12 << 20;

/// Records by inode and generation, older ones first.
#[derive(Debug, Default)]
pub struct Records {
    pub(super) of: BTreeMap<(Ino, u64), Vec<IndexEntry>>,
}

impl Records {
    /// The inodes and generations that have records.
    pub fn owners(&self) -> impl Iterator<Item = (Ino, u64)> + '_ {
        self.of.keys().copied()
    }
}

/// How many passes it takes to read the records of all segments.
pub(super) async fn passes(store: &dyn ObjectStore, prefix: &Path, faults: &mut Vec<String>) -> u64 {
    let mut records = 0;
    let mut segments = segments(store, prefix);
    while let Some((id, path, size)) = segments.next().await {
        match footer(store, id, &path, size).await {
            Ok(footer) => records += u64::from(footer.records),
            Err(why) => faults.push(format!("the index of segment {:016x} cannot be read: {why}", id.0)),
        }
    }
    records.div_ceil(ENTRIES_MAX).max(1)
}

/// The records of the wanted inodes that fall to pass `pass` of `passes`.
pub(super) async fn read(
    store: &dyn ObjectStore,
    prefix: &Path,
    (pass, passes): (u64, u64),
    wanted: &(dyn Fn(Ino) -> bool + Sync),
) -> Records {
    let mut found = Records::default();
    let mut segments = segments(store, prefix);
    while let Some((id, path, size)) = segments.next().await {
        // `passes` has reported unreadable indexes.
        let Ok(index) = index(store, id, &path, size).await else { continue };
        for entry in index {
            let sane = entry.record.stored_len <= entry.record.raw_len && entry.record.stored_len > 0;
            if sane && entry.ino.0 % passes == pass && wanted(entry.ino) {
                found.of.entry((entry.ino, entry.generation)).or_default().push(entry);
            }
        }
    }
    for records in found.of.values_mut() {
        records.sort_by_key(|entry| (entry.order, entry.record.segment, entry.record.position));
    }
    found
}

fn segments<'a>(store: &'a dyn ObjectStore, prefix: &Path) -> BoxStream<'a, (SegmentId, Path, u64)> {
    let objects = store.list(Some(&prefix.clone().join("seg")));
    let known = |object: object_store::Result<object_store::ObjectMeta>| async move {
        let object = object.ok()?;
        Some((segment_of(&object.location)?, object.location, object.size))
    };
    objects.filter_map(known).boxed()
}

async fn footer(store: &dyn ObjectStore, id: SegmentId, path: &Path, size: u64) -> Result<crate::data::Footer, String> {
    let from = size.checked_sub(FOOTER_BYTES as u64).ok_or("it is too short")?;
    let bytes = store.get_range(path, from..size).await.map_err(|error| error.to_string())?;
    parse_footer(id, &bytes, size).map_err(str::to_owned)
}

/// The index of one segment.
pub(super) async fn index(
    store: &dyn ObjectStore,
    id: SegmentId,
    path: &Path,
    size: u64,
) -> Result<Vec<IndexEntry>, String> {
    let footer = footer(store, id, path, size).await?;
    let range = u64::from(footer.index_at)..size - FOOTER_BYTES as u64;
    let bytes = if range.is_empty() {
        Default::default()
    } else {
        store.get_range(path, range).await.map_err(|error| error.to_string())?
    };
    parse_index(id, &footer, &bytes).map_err(str::to_owned)
}
