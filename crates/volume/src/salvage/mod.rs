//! A volume read back from whatever objects are left, for `larder recover` and `larder debug`.
//! Nothing is written.
//!
//! ```text
//! tables.rs    rows of the metadata engine: tables and log, merged        plan.rs   what a file consists of
//! records.rs   the indexes of the segments, when rows are missing
//! ```
//!
//! - `rescue.checked_bytes_only`: bytes are returned only if they pass their record's checksum;
//!   otherwise the reason is returned.
//! - `rescue.whole_answers_alike`: where a volume's metadata is whole, the answers are those of the
//!   volume itself.
//! - `rescue.older_is_said`: what the rows that are left say of a file may be an older state of it where newer rows may be
//!   lost: with any gap in the log or the manifests, all files; with a table that is lost, the inodes in its range.
//! - `rescue.holes_from_indexes`: where rows may be missing, holes are filled from the indexes of
//!   the segments, and the plan says which ranges are in doubt.

mod plan;
mod records;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_base::log::LogEntry;
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::data::{
    EXTENT_TAG, INTENT_TAG, IntentPayload, Place, RESERVED_TAG, RecordRef, decode_extent, decode_intent, decode_mask,
    decode_reserved, object_path, verify_and_unpack,
};
use crate::keys::{self, tag};
use crate::layout;
use crate::lineage::Lineage;
use crate::properties::Sealing;
use crate::registry::document;
pub use plan::Piece;
use plan::{Painter, Source};
pub use records::Records;
use tables::{Parts, Tables};
pub use verdict::Verdict;

/// A volume that the registry lists, or that has objects in the store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VolumeFound {
    /// Its id.
    pub id: Uuid,
    /// `None`: the registry does not know it or cannot be read.
    pub name: Option<String>,
    /// It is encrypted, as the registry has it.
    pub sealed: bool,
    /// Some of its objects may still be in clear: it was being encrypted.
    pub half_sealed: bool,
}

impl VolumeFound {
    /// Its name, or else its id.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// The parts of an inode that a recovery needs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its attributes.
    pub attr: Attr,
    /// The directory that holds a directory; of other inodes a hint.
    pub parent: Ino,
    /// The target of a symbolic link; otherwise empty.
    pub target: Bytes,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, as bytes.
    pub name: Bytes,
    /// The inode that it leads to.
    pub ino: Ino,
    /// The type of that inode.
    pub kind: FileKind,
}

/// The content of a file: where its bytes come from.
#[derive(Debug, Default)]
pub struct Plan {
    /// Bytes of the file.
    pub size: u64,
    /// The pieces, in order, without overlap. A gap between two reads as zeros.
    pub pieces: Vec<Piece>,
    /// Ranges for which missing metadata may have said something else.
    pub doubtful: Vec<Range<u64>>,
    /// Records about the file that do not decode, one sentence each.
    pub faults: Vec<String>,
}

/// The remains that a volume is read back from.
pub struct SalvageParts {
    /// The store with its objects.
    pub store: Arc<dyn ObjectStore>,
    /// The id of the volume.
    pub id: Uuid,
    /// The entries of the volume's log ([`log_stream`]) that are left.
    pub entries: Vec<LogEntry>,
    /// The known losses of the log, one sentence each. Empty: the log is whole.
    pub log_faults: Vec<String>,
}

/// A volume read back from the objects that are left. Reads only.
pub struct Salvage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    tables: Tables,
    verdict: Verdict,
    faults: Vec<String>,
    /// The record that was read last: neighbouring extents often share one.
    last: Mutex<Option<(RecordRef, Bytes)>>,
}

/// The name of a volume's stream in the log of its store.
pub fn log_stream(id: Uuid) -> String {
    layout::stream_of(id)
}

/// The store below the encryption of a volume: that of a clone has the segments of its ancestors. Where the registry is lost, nothing
/// says whose they are.
pub async fn store_of(store: Arc<dyn ObjectStore>, id: Uuid) -> Arc<dyn ObjectStore> {
    let Ok((known, _)) = document::read_document(&*store).await else { return store };
    match known.volumes.iter().find(|entry| entry.info.id == id).filter(|entry| !entry.lineage().is_empty()) {
        Some(entry) => Arc::new(Lineage::new(store, id, entry.lineage().to_vec())),
        None => store,
    }
}

/// The volumes of a store, with those that only have objects, and the faults found, one sentence
/// each. [`FsError::Unsupported`] if a newer program wrote the registry in a way that this one
/// would misread.
pub async fn volumes(store: &Arc<dyn ObjectStore>) -> FsResult<(Vec<VolumeFound>, Vec<String>)> {
    let mut faults = Vec::new();
    let mut found: BTreeMap<Uuid, (Option<String>, bool, bool)> = BTreeMap::new();
    match document::read_names(&**store).await {
        Ok(infos) => found.extend(infos.into_iter().map(|info| {
            let half_sealed = info.sealing == Some(Sealing::Encrypt);
            (info.id, (Some(info.name), info.sealed, half_sealed))
        })),
        Err(error @ FsError::Unsupported(_)) => return Err(error),
        Err(error) => faults.push(format!("the registry cannot be read, volumes have lost their names: {error}")),
    }
    match store.list_with_delimiter(Some(&Path::from("volumes"))).await {
        Ok(listed) => {
            for prefix in listed.common_prefixes {
                if let Some(id) = prefix.filename().and_then(|name| Uuid::parse_str(name).ok()) {
                    found.entry(id).or_default();
                }
            }
        }
        Err(error) => faults.push(format!("the objects cannot be listed: {error}")),
    }
    let found =
        found.into_iter().map(|(id, (name, sealed, half_sealed))| VolumeFound { id, name, sealed, half_sealed });
    Ok((found.collect(), faults))
}

impl Salvage {
    /// Reads all metadata once. Damage is no error: it lowers the verdict and is listed in the
    /// faults.
    pub async fn open(parts: SalvageParts) -> Salvage {
        let prefix = layout::prefix_of(parts.id);
        let mut faults = parts.log_faults;
        let log_is_damaged = !faults.is_empty();
        let stream = log_stream(parts.id);
        let of_tables = Parts {
            store: &parts.store,
            path: prefix.clone().join("meta"),
            stream: &stream,
            entries: &parts.entries,
            log_is_damaged,
        };
        let (tables, verdict) = Tables::open(&of_tables, &mut faults).await;
        Salvage { store: parts.store, prefix, tables, verdict, faults, last: Mutex::default() }
    }

    /// How much of the metadata is left.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The damage found, one sentence each.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Calls `each` with every row whose key has this prefix, in order of keys, until it returns
    /// false.
    pub async fn rows(&self, prefix: &[u8], mut each: impl FnMut(&Bytes, &Bytes) -> bool) {
        let to = if prefix.is_empty() { Bytes::from_static(&[0xFF]) } else { keys::key_after(prefix) };
        let mut rows = self.tables.scan(prefix, &to).await;
        while let Some((key, value)) = rows.next().await {
            if !each(&key, &value) {
                return;
            }
        }
    }

    // ---------------------------------------------------------------------------------- names

    /// The names in a directory, each once.
    pub async fn entries(&self, dir: Ino) -> Vec<Named> {
        let mut found: BTreeMap<Bytes, Named> = BTreeMap::new();
        let (from, to) = keys::range_of(tag::ENTRY, dir);
        let mut rows = self.tables.scan(&from, &to).await;
        while let Some((key, value)) = rows.next().await {
            if let Ok(entry) = keys::decode_entry(&key, &value) {
                let name = keys::rest_of(&key);
                found.insert(name.clone(), Named { name, ino: entry.ino, kind: entry.kind });
            }
        }
        // The same names lie in another table of keys, which may have rows that this one lost.
        if self.verdict != Verdict::Whole {
            let (from, to) = keys::range_of(tag::COOKIE, dir);
            let mut rows = self.tables.scan(&from, &to).await;
            while let Some((key, value)) = rows.next().await {
                if let Ok(entry) = keys::decode_cookie(&key, &value) {
                    let named = Named { name: entry.name.clone(), ino: entry.ino, kind: entry.kind };
                    found.entry(entry.name).or_insert(named);
                }
            }
        }
        found.into_values().collect()
    }

    /// The inode, if its record is left.
    pub async fn node(&self, ino: Ino) -> Option<Node> {
        let value = self.tables.get(&keys::inode_key(ino)).await?;
        let core = keys::decode_inode(ino, &value).ok()?;
        Some(Node { attr: core.attr, parent: core.parent, target: core.target })
    }

    /// The extended attributes of an inode that are left: names and values.
    pub async fn xattrs(&self, ino: Ino) -> Vec<(Bytes, Bytes)> {
        let mut found = Vec::new();
        let (from, to) = keys::range_of(tag::XATTR, ino);
        let mut rows = self.tables.scan(&from, &to).await;
        while let Some((key, value)) = rows.next().await {
            let name = keys::rest_of(&key);
            if let Ok(value) = keys::decode_xattr(&key, &value)
                && !crate::own_records::is_own(&name)
            {
                found.push((name, value));
            }
        }
        found
    }

    /// The inodes that some row mentions and `seen` does not know, in order.
    pub async fn unseen(&self, seen: impl Fn(Ino) -> bool) -> Vec<Ino> {
        // If records may be missing, other rows about an inode may be left.
        let tags: &[u8] = match self.verdict {
            Verdict::Whole => &[tag::INODE],
            _ => &[tag::INODE, tag::ENTRY, tag::COOKIE, EXTENT_TAG, INTENT_TAG],
        };
        let mut found = BTreeSet::new();
        for tag in tags {
            let (from, to) = keys::table_range(*tag);
            let mut rows = self.tables.scan(&from, &to).await;
            let mut last = None;
            while let Some((key, _)) = rows.next().await {
                let Ok(ino) = keys::ino_of(&key) else { continue };
                if last != Some(ino) && !seen(ino) {
                    found.insert(ino);
                }
                last = Some(ino);
            }
        }
        found.into_iter().collect()
    }

    /// Whether the inode was waiting to be removed: it has no name, and its loss harms no user.
    pub async fn is_orphan(&self, ino: Ino) -> bool {
        self.tables.get(&keys::orphan_key(ino)).await.is_some()
    }

    // ---------------------------------------------------------------------------------- content

    /// How many calls of [`Salvage::records`] it takes to see all records, and the faults of the
    /// indexes.
    pub async fn record_passes(&self) -> (u64, Vec<String>) {
        let mut faults = Vec::new();
        let passes = records::passes(&*self.store, &self.prefix, &mut faults).await;
        (passes, faults)
    }

    /// The records in segments of the `wanted` inodes that fall to this pass, (number, count).
    pub async fn records(&self, pass: (u64, u64), wanted: &(dyn Fn(Ino) -> bool + Sync)) -> Records {
        records::read(&*self.store, &self.prefix, pass, wanted).await
    }

    /// Whether rows about the content of this inode may be missing: its record is, they would lie
    /// in a gap, or there are not as many bytes as the record says.
    pub async fn may_lack(&self, ino: Ino, node: Option<&Node>) -> bool {
        let Some(node) = node else { return true };
        if self.verdict == Verdict::Whole {
            return false;
        }
        self.lacks(EXTENT_TAG, ino) || self.lacks(INTENT_TAG, ino) || self.allocated(ino).await != node.attr.allocated
    }

    /// Whether newer rows about this inode than those that are left may be lost (`rescue.older_is_said`).
    pub fn may_be_older(&self, ino: Ino) -> bool {
        let tags = [tag::INODE, tag::ENTRY, tag::XATTR, EXTENT_TAG, INTENT_TAG, RESERVED_TAG];
        self.tables.is_dated || tags.into_iter().any(|tag| self.lacks(tag, ino))
    }

    fn lacks(&self, tag: u8, ino: Ino) -> bool {
        let (from, to) = keys::range_of(tag, ino);
        self.tables.may_lack(&from, &to)
    }

    /// Bytes that the remaining extents take up, and reserved bytes.
    async fn allocated(&self, ino: Ino) -> u64 {
        let (from, to) = keys::range_of(EXTENT_TAG, ino);
        let mut rows = self.tables.scan(&from, &to).await;
        let mut bytes = 0;
        while let Some((key, value)) = rows.next().await {
            bytes += decode_extent(&key, &value).map_or(0, |(.., extent)| extent.allocated_bytes());
        }
        let (from, to) = keys::range_of(RESERVED_TAG, ino);
        let mut rows = self.tables.scan(&from, &to).await;
        while let Some((key, value)) = rows.next().await {
            bytes += decode_reserved(&key, &value).map_or(0, |(_, range)| range.end - range.start);
        }
        bytes
    }

    /// The content of a file. `below` are records of the segments, laid under the extents and
    /// intents of the metadata. Without a `node` the size is the end of the last piece.
    pub async fn plan(&self, ino: Ino, node: Option<&Node>, below: Option<&Records>) -> Plan {
        let mut plan = Plan::default();
        let mut painter = Painter::default();
        let mut known: Vec<Range<u64>> = Vec::new();
        if let Some(records) = below {
            let of_node = |generation: u64| node.is_none_or(|node| node.attr.id.generation == generation);
            let all = records.of.range((ino, 0)..=(ino, u64::MAX)).filter(|((_, g), _)| of_node(*g));
            for entry in all.flat_map(|(_, entries)| entries) {
                let range = entry.offset..entry.offset + u64::from(entry.record.raw_len);
                painter.paint(range, Source::Record { record: entry.record.clone(), skip: 0 });
            }
        }
        self.paint_extents(ino, &mut painter, &mut known, &mut plan.faults).await;
        self.paint_intents(ino, &mut painter, &mut known, &mut plan.faults).await;
        plan.size = node.map_or(painter.end(), |node| node.attr.size);
        plan.pieces = painter.finish(plan.size);
        // A write that is missing may have been anywhere.
        let anywhere = node.is_none() || self.lacks(INTENT_TAG, ino);
        if anywhere && below.is_some() {
            known.clear();
        }
        if below.is_some() || !plan.faults.is_empty() {
            plan.doubtful = holes(&known, plan.size);
        }
        plan
    }

    async fn paint_extents(&self, ino: Ino, to: &mut Painter, known: &mut Vec<Range<u64>>, faults: &mut Vec<String>) {
        let (from, end) = keys::range_of(EXTENT_TAG, ino);
        let mut rows = self.tables.scan(&from, &end).await;
        while let Some((key, value)) = rows.next().await {
            match decode_extent(&key, &value) {
                Ok((_, offset, extent)) => {
                    let range = offset..offset + u64::from(extent.len);
                    known.push(range.clone());
                    let skip = extent.skip as usize;
                    to.paint(
                        range,
                        match extent.place {
                            Place::Inline(bytes) => Source::Bytes(bytes.slice(skip..skip + extent.len as usize)),
                            Place::Record(record) => Source::Record { record, skip: skip as u64 },
                        },
                    );
                }
                Err(error) => faults.push(error.to_string()),
            }
        }
    }

    /// Intents in the order of writing. Ranges that a mask leaves out are in newer extents.
    async fn paint_intents(&self, ino: Ino, to: &mut Painter, known: &mut Vec<Range<u64>>, faults: &mut Vec<String>) {
        let (from, end) = keys::range_of(INTENT_TAG, ino);
        let mut rows = self.tables.scan(&from, &end).await;
        let mut next = rows.next().await;
        while let Some((key, value)) = next.take() {
            next = rows.next().await;
            let intent = match decode_intent(&key, &value) {
                Ok(intent) => intent,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            let mask = match &next {
                Some((mask, value)) if mask.starts_with(&key) => decode_mask(mask, value).ok().flatten(),
                _ => None,
            };
            if mask.is_some() {
                next = rows.next().await;
            }
            let whole = intent.offset..intent.offset + intent.len;
            for range in mask.unwrap_or_else(|| vec![whole.clone()]) {
                let range = range.start.max(whole.start)..range.end.min(whole.end);
                if range.is_empty() {
                    continue;
                }
                let source = match &intent.payload {
                    IntentPayload::Zero => Source::Zero,
                    IntentPayload::Bytes(bytes) => {
                        let at = |offset: u64| (offset - whole.start) as usize;
                        Source::Bytes(bytes.slice(at(range.start)..at(range.end)))
                    }
                };
                known.push(range.clone());
                to.paint(range, source);
            }
        }
    }

    /// The bytes of a piece, or the reason why they are lost (`rescue.checked_bytes_only`).
    pub async fn read(&self, piece: &Piece) -> Result<Bytes, String> {
        match &piece.source {
            Source::Zero => Ok(Bytes::from(vec![0; usize::try_from(piece.len).map_err(|e| e.to_string())?])),
            Source::Bytes(bytes) => {
                bytes.get(..piece.len as usize).map(Bytes::copy_from_slice).ok_or_else(|| "it is cut short".to_owned())
            }
            Source::Record { record, skip } => {
                let raw = self.read_record(record).await?;
                let range = *skip as usize..(*skip + piece.len) as usize;
                if range.end > raw.len() { Err("the record is too short".to_owned()) } else { Ok(raw.slice(range)) }
            }
        }
    }

    async fn read_record(&self, record: &RecordRef) -> Result<Bytes, String> {
        if let Some((have, bytes)) = &*self.last.lock()
            && have == record
        {
            return Ok(bytes.clone());
        }
        let path = object_path(&self.prefix, record.segment);
        let name = format!("segment {:016x}", record.segment.0);
        let start = u64::from(record.position);
        let range = start..start + u64::from(record.stored_len);
        let got = self.store.get_range(&path, range).await;
        let stored = got.map_err(|error| format!("{name} at {start}: {}", innermost(&error)))?;
        if let Some(at) = record.first_damaged(&stored) {
            return Err(format!("{name} at {at}: the record's checksum is wrong"));
        }
        let raw = verify_and_unpack(record, &stored);
        let raw = raw.ok_or_else(|| format!("{name} at {start}: the record does not decompress"))?;
        *self.last.lock() = Some((record.clone(), raw.clone()));
        Ok(raw)
    }
}

/// The cause at the bottom: the layers above it say nothing more.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The parts of a file of `size` that no range covers.
fn holes(known: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut known = known.to_vec();
    known.sort_by_key(|range| range.start);
    let mut holes = Vec::new();
    let mut at = 0;
    for range in known {
        if range.start > at {
            holes.push(at..range.start.min(size));
        }
        at = at.max(range.end);
    }
    holes.push(at..size);
    holes.retain(|range| range.start < range.end);
    holes
}
