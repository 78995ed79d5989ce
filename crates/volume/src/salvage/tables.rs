//! The rows of the metadata engine as far as they can be read: the blocks of its tables and the
//! entries of the log, merged.
//!
//! - `rescue.newest_row_counts`: of the rows of a key, the one with the greatest sequence number
//!   counts, wherever it lies.
//! - `rescue.whole_rows_exactly`: with the newest manifest, all its tables and a log without gaps,
//!   the rows are exactly those of the engine ([`Verdict::Whole`]).
//! - `rescue.every_table_counts`: otherwise every table that exists counts too, because the content
//!   of a lost one may stand in the tables that it was made of. Then deleted rows may be back, and
//!   [`Tables::gaps`] says between which keys rows may be missing.
//!
//! Memory is a block of each table, and the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use larder_base::log::LogEntry;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use slatedb::admin::AdminBuilder;
use slatedb::{RowEntry, SstFile, SstIndex, SstReader, VersionedManifest};
use ulid::Ulid;

use super::verdict::Verdict;
use crate::meta::engine::engine_error;
use crate::meta::{cache, wal};

const CACHE_BYTES: u64 = 128 << 20;

/// Keys between which rows may be missing; `to` is the first that is not.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) from: Bytes,
    pub(super) to: Option<Bytes>,
}

struct Table {
    file: SstFile,
    index: SstIndex,
    last: Option<Bytes>,
    /// Blocks that cannot be read.
    bad: BTreeSet<usize>,
}

#[derive(Default)]
pub(super) struct Tables {
    tables: Vec<Table>,
    log: BTreeMap<Bytes, (u64, Option<Bytes>)>,
    /// The log has losses, or the newest manifest is lost: newer rows than those that are left may be missing of anything.
    pub(super) is_dated: bool,
    pub(super) gaps: Mutex<Vec<Gap>>,
}

/// The remains to open.
pub(super) struct Parts<'a> {
    pub(super) store: &'a Arc<dyn ObjectStore>,
    /// Of the engine's objects.
    pub(super) path: Path,
    pub(super) stream: &'a str,
    pub(super) entries: &'a [LogEntry],
    pub(super) log_is_damaged: bool,
}

impl Tables {
    /// Opens the remains and reads every block once. Adds missing parts to `faults`.
    pub(super) async fn open(parts: &Parts<'_>, faults: &mut Vec<String>) -> (Tables, Verdict) {
        let reader =
            SstReader::new(parts.path.clone(), Arc::clone(parts.store), Some(cache::block_cache(CACHE_BYTES)), None);
        let (manifest, mut whole) = newest_manifest(parts, faults).await;
        let mut tables = Tables::default();
        let mut known = BTreeSet::new();
        let replay_after = manifest.as_ref().map_or(0, VersionedManifest::replay_after_wal_id);
        if let Some(manifest) = &manifest {
            for view in manifest.all_sst_views() {
                let id = view.sst.id.value();
                known.insert(id);
                let opened = reader.open_with_handle(view.sst.clone()).map_err(engine_error);
                let added = match opened {
                    Ok(file) => tables.add(file, faults).await,
                    Err(error) => Err(error.to_string()),
                };
                if let Err(why) = added {
                    faults.push(format!("metadata table {id} is lost: {why}"));
                    let from = view.sst.info.first_entry.clone().unwrap_or_default();
                    let to = view.sst.info.last_entry.as_ref().map(|last| successor(last));
                    tables.gaps.lock().push(Gap { from, to });
                }
            }
            whole &= log_follows(parts, replay_after, faults);
        }
        tables.is_dated = !whole || parts.log_is_damaged;
        whole = !tables.is_dated && tables.gaps.lock().is_empty();
        if !whole {
            for id in listed_tables(parts, faults).await.difference(&known) {
                let added = match reader.open(*id).await.map_err(engine_error) {
                    Ok(file) => tables.add(file, faults).await,
                    Err(error) => Err(error.to_string()),
                };
                if let Err(why) = added {
                    faults.push(format!("metadata table {id} cannot be read: {why}"));
                }
            }
        }
        // A row that the tree has taken over and deleted since would come back out of an old entry.
        let after = if whole { replay_after } else { 0 };
        let rows = tables.add_log(parts, after, faults);
        let verdict = match (whole, rows > 0 || !tables.tables.is_empty()) {
            (true, _) => Verdict::Whole,
            (false, true) => Verdict::Damaged,
            (false, false) => Verdict::Missing,
        };
        (tables, verdict)
    }

    async fn add(&mut self, file: SstFile, faults: &mut Vec<String>) -> Result<(), String> {
        let index = file.index().await.map_err(|error| engine_error(error).to_string())?;
        let mut table = Table { last: file.info().last_entry.clone(), file, index, bad: BTreeSet::new() };
        for block in 0..table.index.len() {
            if let Err(error) = table.file.read_block(block).await {
                faults.push(format!("block {block} of metadata table {} is lost: {error}", table.file.id()));
                table.bad.insert(block);
                let key = |block| table.index.get(block).map(|(_, key)| Bytes::copy_from_slice(key));
                let to = key(block + 1).or_else(|| table.last.as_ref().map(|last| successor(last)));
                self.gaps.lock().push(Gap { from: key(block).unwrap_or_default(), to });
            }
        }
        self.tables.push(table);
        Ok(())
    }

    /// The rows of the entries behind `after`; how many.
    fn add_log(&mut self, parts: &Parts<'_>, after: u64, faults: &mut Vec<String>) -> usize {
        let mut count = 0;
        for entry in parts.entries.iter().filter(|entry| entry.id > after) {
            match wal::rows_of(parts.stream, entry) {
                Ok(rows) => {
                    for RowEntry { key, value, seq, .. } in rows {
                        count += 1;
                        let newest = self.log.get(&key).is_none_or(|(have, _)| *have <= seq);
                        if newest {
                            self.log.insert(key, (seq, value.as_bytes()));
                        }
                    }
                }
                Err(why) => faults.push(why),
            }
        }
        count
    }

    /// The rows with `from <= key < to`, in order of keys.
    pub(super) async fn scan(&self, from: &[u8], to: &[u8]) -> Scan<'_> {
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let mut log: VecDeque<(Bytes, u64, Option<Bytes>)> = VecDeque::new();
        for (key, (seq, value)) in self.log.range::<[u8], _>(range).take_while(|(key, _)| &key[..] < to) {
            log.push_back((key.clone(), *seq, value.clone()));
        }
        let mut cursors = Vec::new();
        for table in &self.tables {
            let begins = table.index.get(0).is_some_and(|(_, key)| key < to);
            if !begins || table.last.as_ref().is_some_and(|last| &last[..] < from) {
                continue;
            }
            let block = table.index.partition_point(|key| key <= from).saturating_sub(1);
            let mut cursor = Cursor { table, block, rows: VecDeque::new() };
            cursor.fill(from).await;
            cursors.push(cursor);
        }
        Scan { cursors, log, to: Bytes::copy_from_slice(to) }
    }

    pub(super) async fn get(&self, key: &[u8]) -> Option<Bytes> {
        let (_, value) = self.scan(key, &successor(key)).await.next().await?;
        Some(value)
    }

    /// Whether rows with `from <= key < to` may be missing.
    pub(super) fn may_lack(&self, from: &[u8], to: &[u8]) -> bool {
        let reaches = |gap: &Gap| gap.from < to && gap.to.as_ref().is_none_or(|end| &end[..] > from);
        self.gaps.lock().iter().any(reaches)
    }
}

fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The newest manifest that can be read, and whether it is the newest that there is.
async fn newest_manifest(parts: &Parts<'_>, faults: &mut Vec<String>) -> (Option<VersionedManifest>, bool) {
    let folder = parts.path.clone().join("manifest");
    let mut ids: Vec<(u64, Path)> = Vec::new();
    let mut objects = parts.store.list(Some(&folder));
    while let Some(object) = objects.next().await {
        let Ok(object) = object else { continue };
        let name = object.location.filename().and_then(|name| name.strip_suffix(".manifest"));
        ids.extend(name.and_then(|name| name.parse().ok()).map(|id| (id, object.location.clone())));
    }
    ids.sort_by(|a, b| b.cmp(a));
    let admin = AdminBuilder::new(parts.path.clone(), Arc::clone(parts.store)).build();
    let mut whole = true;
    for (id, location) in ids {
        let readable = match parts.store.get(&location).await {
            Ok(got) => got.bytes().await.err(),
            Err(error) => Some(error),
        };
        let why = match readable {
            Some(error) => error.to_string(),
            None => match admin.read_manifest(Some(id)).await {
                Ok(Some(manifest)) => return (Some(manifest), whole),
                Ok(None) => "it is not there".to_owned(),
                Err(error) => engine_error(error).to_string(),
            },
        };
        faults.push(format!("manifest {id} of the metadata cannot be read: {why}"));
        whole = false;
    }
    faults.push("no manifest of the metadata is left: all its tables that are left are put together".to_owned());
    (None, false)
}

/// Whether the log goes on where the manifest ends: if it was trimmed further, a newer manifest is
/// lost. A log is never empty: opening writes an entry, and the one at the end of the manifest is
/// kept.
fn log_follows(parts: &Parts<'_>, replay_after: u64, faults: &mut Vec<String>) -> bool {
    let first = parts.entries.iter().map(|entry| entry.id).find(|id| *id >= replay_after);
    match first {
        Some(id) if id <= replay_after.saturating_add(1) => true,
        Some(id) => {
            faults.push(format!(
                "the log begins at entry {id}, the newest manifest ends at {replay_after}: a newer manifest is lost"
            ));
            false
        }
        None => {
            faults.push("the log of the newest changes is lost".to_owned());
            false
        }
    }
}

async fn listed_tables(parts: &Parts<'_>, faults: &mut Vec<String>) -> BTreeSet<Ulid> {
    let mut ids = BTreeSet::new();
    let mut objects = parts.store.list(Some(&parts.path.clone().join("compacted")));
    while let Some(object) = objects.next().await {
        match object {
            Ok(object) => {
                let name = object.location.filename().and_then(|name| name.strip_suffix(".sst"));
                ids.extend(name.and_then(|name| Ulid::from_string(name).ok()));
            }
            Err(error) => faults.push(format!("the tables of the metadata cannot be listed: {error}")),
        }
    }
    ids
}

/// A place in one table.
struct Cursor<'a> {
    table: &'a Table,
    /// The next block to be read.
    block: usize,
    rows: VecDeque<RowEntry>,
}

impl Cursor<'_> {
    /// Reads on until there is a row from `from` on, or the table ends.
    async fn fill(&mut self, from: &[u8]) {
        while self.rows.is_empty() && self.block < self.table.index.len() {
            let block = self.block;
            self.block += 1;
            if self.table.bad.contains(&block) {
                continue;
            }
            // A block that was readable when the table was opened and fails now is a gap like the
            // others.
            match self.table.file.read_block(block).await {
                Ok(rows) => self.rows = rows.into_iter().filter(|row| row.key >= from).collect(),
                Err(error) => tracing::warn!(%error, "a block of metadata cannot be read any more"),
            }
        }
    }
}

/// Rows of a range, merged.
pub(super) struct Scan<'a> {
    cursors: Vec<Cursor<'a>>,
    log: VecDeque<(Bytes, u64, Option<Bytes>)>,
    to: Bytes,
}

impl Scan<'_> {
    /// The next key that has a value.
    pub(super) async fn next(&mut self) -> Option<(Bytes, Bytes)> {
        loop {
            let heads = self.cursors.iter().filter_map(|cursor| cursor.rows.front().map(|row| &row.key));
            let key = heads.chain(self.log.front().map(|(key, ..)| key)).min()?.clone();
            if key >= self.to {
                return None;
            }
            let mut newest: Option<(u64, Option<Bytes>)> = None;
            let mut offer = |seq: u64, value: Option<Bytes>| {
                if newest.as_ref().is_none_or(|(have, _)| *have < seq) {
                    newest = Some((seq, value));
                }
            };
            if let Some((_, seq, value)) = self.log.pop_front_if(|(front, ..)| *front == key) {
                offer(seq, value);
            }
            for cursor in &mut self.cursors {
                while let Some(row) = cursor.rows.pop_front_if(|row| row.key == key) {
                    offer(row.seq, row.value.as_bytes());
                    cursor.fill(&key).await;
                }
            }
            if let Some((_, Some(value))) = newest {
                return Some((key, value));
            }
        }
    }
}
