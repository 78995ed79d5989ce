//! What a follower has read: a manifest, and the entries of the log behind it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_base::log::{LogEntry, LogError};
use larder_fs::{FsError, FsResult};
use object_store::ObjectStoreExt;
use slatedb::admin::AdminBuilder;
use slatedb::{RowEntry, ValueDeletable};

use super::parts::{Change, FollowParts, Sight};
use crate::keys;
use crate::meta::engine::engine_error;
use crate::meta::overlay::Changes;
use crate::meta::{Frozen, Usage, manifest_path, wal};
use crate::snapshots::View;

/// Manifests that are read one after the other while the writer trims its log faster than it is listed.
const LOADS_MAX: usize = 8;
/// Rows that are kept over a manifest before a newer one is looked for.
const ROWS_MAX: usize = 8192;

/// The engine at one of its manifests.
struct Base {
    engine: Arc<dyn Frozen>,
    manifest_id: u64,
    /// Its tables have every row up to this sequence number.
    seq: u64,
    tables: Vec<(String, u64)>,
    runs: (u64, u64),
}

/// A manifest that is not read yet.
struct Found {
    id: u64,
    replay_after: u64,
    seq: u64,
    tables: Vec<(String, u64)>,
    runs: (u64, u64),
    bytes: Bytes,
}

pub(super) struct Tail {
    base: Base,
    /// The newest entry that was read.
    through: u64,
    /// Every row up to this sequence number was read, or is in the tables.
    seq: u64,
    /// The entries behind the manifest's replay point.
    entries: VecDeque<(u64, Vec<RowEntry>)>,
    rows: usize,
    rows_max: usize,
    /// `follow.owes_a_turn`
    pub(super) unturned: Change,
    /// When the last look failed, and why.
    pub(super) failed: Option<(u64, FsError)>,
    /// The rows of snapshots may have changed since the catalog read them.
    pub(super) owes_catalog: bool,
}

fn io(error: &LogError) -> FsError {
    FsError::Io(error.to_string().into())
}

impl Tail {
    #[boxed]
    pub(super) async fn open(parts: &FollowParts) -> FsResult<(Tail, Sight)> {
        let (found, entries) = load(parts, 0).await?;
        let through = found.replay_after;
        let mut tail = Tail {
            base: Base::open(parts, found).await?,
            through,
            seq: 0,
            entries: VecDeque::new(),
            rows: 0,
            rows_max: ROWS_MAX,
            unturned: Change::Keys(BTreeSet::new()),
            failed: None,
            owes_catalog: false,
        };
        tail.take(parts, entries)?;
        tail.seq = tail.seq.max(tail.base.seq);
        tail.unturned = Change::Keys(BTreeSet::new());
        let sight = tail.sight().await?;
        Ok((tail, sight))
    }

    /// Reads on. With `past_manifest` a newer manifest is looked for, too.
    #[boxed]
    pub(super) async fn read_on(&mut self, parts: &FollowParts, past_manifest: bool) -> FsResult<()> {
        if !past_manifest && self.rows < self.rows_max {
            match parts.log.replay(&parts.stream, self.through).await {
                Ok(entries) => return self.take(parts, entries),
                // Trimmed since, most likely.
                Err(LogError::Damaged { .. }) => {}
                Err(error) => return Err(io(&error)),
            }
        }
        self.read_manifest(parts).await
    }

    async fn read_manifest(&mut self, parts: &FollowParts) -> FsResult<()> {
        let (found, entries) = load(parts, self.through).await?;
        let replay_after = found.replay_after;
        if found.id != self.base.manifest_id {
            self.base = Base::open(parts, found).await?;
        }
        if replay_after > self.through {
            // Entries were trimmed unread.
            self.unturned = Change::All;
            self.through = replay_after;
        }
        while self.entries.front().is_some_and(|(id, _)| *id <= replay_after) {
            let rows = self.entries.pop_front().map_or(0, |(_, rows)| rows.len());
            self.rows -= rows;
        }
        self.take(parts, entries)?;
        if self.base.seq > self.seq {
            // The tables are ahead of the log (`follow.consistent_prefix`).
            self.unturned = Change::All;
            self.seq = self.base.seq;
        }
        self.rows_max = self.rows + ROWS_MAX;
        Ok(())
    }

    fn take(&mut self, parts: &FollowParts, entries: Vec<LogEntry>) -> FsResult<()> {
        for entry in entries {
            let rows = wal::rows_of(&parts.stream, &entry).map_err(|why| FsError::Io(why.into()))?;
            self.through = entry.id;
            self.seq = rows.iter().map(|row| row.seq).fold(self.seq, u64::max);
            self.rows += rows.len();
            if let Change::Keys(keys) = &mut self.unturned {
                keys.extend(rows.iter().map(|row| row.key.clone()));
            }
            self.entries.push_back((entry.id, rows));
        }
        Ok(())
    }

    pub(super) fn owes_turn(&self) -> bool {
        !matches!(&self.unturned, Change::Keys(keys) if keys.is_empty())
    }

    /// The view of all that was read.
    pub(super) async fn sight(&self) -> FsResult<Sight> {
        let mut over = Changes::new();
        let newer = self.entries.iter().flat_map(|(_, rows)| rows).filter(|row| row.seq > self.base.seq);
        for row in newer {
            let value = match &row.value {
                ValueDeletable::Value(value) => Some(value.clone()),
                ValueDeletable::Tombstone => None,
                ValueDeletable::Merge(_) => {
                    return Err(keys::damaged(&row.key, "it is of a kind that is never written"));
                }
            };
            over.insert(row.key.clone(), value);
        }
        let view = View::new(Arc::clone(&self.base.engine), over);
        let usage = match view.get(keys::USAGE_KEY).await? {
            Some(value) => keys::decode_usage(&value)?,
            None => Usage::default(),
        };
        Ok(Sight { view, usage, tables: self.base.tables.clone(), runs: self.base.runs })
    }
}

impl Base {
    async fn open(parts: &FollowParts, found: Found) -> FsResult<Base> {
        let Found { id, seq, tables, runs, bytes, .. } = found;
        Ok(Base { engine: parts.frozen(id, bytes).await?, manifest_id: id, seq, tables, runs })
    }
}

/// The newest manifest, and the entries of the log behind it and behind `through` (`follow.log_after_manifest`).
async fn load(parts: &FollowParts, through: u64) -> FsResult<(Found, Vec<LogEntry>)> {
    let mut last = FsError::Io("its manifests change all the time".into());
    for _ in 0..LOADS_MAX {
        let Some(found) = newest(parts).await? else { continue };
        match parts.log.replay(&parts.stream, found.replay_after.max(through)).await {
            Ok(entries) => return Ok((found, entries)),
            Err(error @ LogError::Damaged { .. }) => last = io(&error),
            Err(error) => return Err(io(&error)),
        }
    }
    Err(last)
}

/// `None`: it was collected before it could be read, so there is a newer one.
async fn newest(parts: &FollowParts) -> FsResult<Option<Found>> {
    let admin = AdminBuilder::new(parts.path.clone(), Arc::clone(&parts.store)).build();
    let manifest = admin.read_manifest(None).await.map_err(engine_error)?;
    let gone = || FsError::Io(format!("nothing lies under {}: the volume was destroyed", parts.path).into());
    let manifest = manifest.ok_or_else(gone)?;
    let at = manifest_path(&parts.path, manifest.id());
    let bytes = match async { parts.store.get(&at).await?.bytes().await }.await {
        Ok(bytes) => bytes,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(FsError::Io(format!("reading {at}: {error}").into())),
    };
    let tables =
        manifest.all_sst_views().map(|view| (format!("{}.sst", view.sst.id.value()), view.sst.estimate_size()));
    Ok(Some(Found {
        id: manifest.id(),
        replay_after: manifest.replay_after_wal_id(),
        seq: manifest.last_l0_seq(),
        tables: tables.collect(),
        runs: (manifest.l0().len() as u64, manifest.compacted().len() as u64),
        bytes,
    }))
}
