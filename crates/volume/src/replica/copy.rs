//! Copies of snapshots as files: a replica with properties of its own.
//!
//! ```text
//! source's snapshot -> inodes that may differ -> data through the copy's codec, stored, read back -> their rows -> snapshot
//! ```
//!
//! A copy is a volume with an engine of its own, which nobody opens but this. Inodes keep their numbers, so names, links,
//! attributes and lists are the source's rows; data alone is written anew. It becomes a volume by losing its mark.
//!
//! - `copy.made_equal`: a run makes equal to the source's snapshot every inode that either side has written since the newest
//!   snapshot that both have. So it does not matter what an earlier run has done, or which snapshot that was for.
//! - `copy.record_last`: while the data of a file is on its way its record has the change number 0, which no file of a source
//!   has. The source's record comes once the data is stored and was read back. So a record that is the source's proves its
//!   data, and a killed run copies no file twice.
//! - `copy.same_numbers`: a snapshot of the copy has the number, the name and the time of the source's. The copy's epoch is
//!   moved on to that number before the first change, while the copy is closed.
//! - `copy.unseen_until_whole`: no door shows the head of a copy. A promotion of a copy whose newest run was cut off goes
//!   back to the newest snapshot.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use larder_base::boxed;
use larder_base::checksum::checksum_slices;
use larder_fs::places::within;
use larder_fs::*;

use super::{ReplicaInfo, ReplicaSnapshot, ns_of};
use crate::data::{EXTENT_TAG, WriteAt, decode_extent};
use crate::features;
use crate::handle_key;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::keys::{self, tag};
use crate::meta::Batch;
use crate::properties::{Properties, VolumeInfo};
use crate::registry::Registry;
use crate::registry::document::{VolumeEntry, find, no_copy};
use crate::snapshots::changes::changed;
use crate::snapshots::rollback::{BATCH_ROWS_MAX, lived};
use crate::snapshots::row::{self, Row};
use crate::snapshots::{View, compare};
use crate::state::State;
use crate::volume::Volume;

const PAGE: usize = 1024;
/// Bytes read and written at once; no longer than the longest record.
const PIECE_BYTES: u64 = 1 << 20;
/// Files whose data is stored, read back and followed by their records together.
const GROUP_BYTES_MAX: u64 = 64 << 20;
const GROUP_FILES_MAX: usize = 1024;
/// The change number of a file whose data is on its way (`copy.record_last`).
const UNFINISHED: u64 = 0;
/// Marks of a volume about its files. The others are about its objects, or about the volume alone.
const OF_FILES: [&str; 2] = [features::ACCESS_LISTS, features::NAMED_ATTRIBUTES];

/// Hears how many bytes were copied since the last call, and says how long to wait.
pub type Pace<'a> = &'a (dyn Fn(u64) -> Duration + Send + Sync);

impl Registry {
    /// Enters a volume that snapshots of another are copied into. Opening it formats it, as [`Registry::enter`] says.
    #[boxed]
    pub async fn enter_copy(&self, name: &str, properties: Properties, sealed: bool) -> FsResult<VolumeInfo> {
        self.enter_with(name, properties, sealed, &[features::COPY]).await
    }

    /// A copy of another volume's snapshots, to be looked at. [`FsError::Refused`] if it is none.
    #[boxed]
    pub async fn copied(&self, name: &str) -> FsResult<Volume> {
        self.open_volume(name, true).await
    }

    /// Copies a snapshot of a volume of this store into a copy, which may be in another store. What an earlier call has
    /// brought stays.
    /// [`FsError::Refused`] says why it does not fit. About how many bytes it will be is known for a first one only.
    #[boxed]
    pub async fn copy_snapshot<'a>(
        &'a self,
        volume: &str,
        snapshot: &str,
        (target, copy): (&Registry, &str),
        pace: Pace<'a>,
    ) -> FsResult<()> {
        let alone = target.receive_alone(copy)?;
        alone.bell.is_heard.store(true, Ordering::Release);
        let copied = self.copy_alone(volume, snapshot, (target, copy), pace);
        tokio::select! {
            copied = copied => copied,
            () = alone.bell.rings.notified() => {
                Err(FsError::Busy("the owner of the copy changes it: copy the snapshot again"))
            }
        }
    }

    async fn copy_alone(
        &self,
        volume: &str,
        snapshot: &str,
        (target, copy): (&Registry, &str),
        pace: Pace<'_>,
    ) -> FsResult<()> {
        let from = self.volume(volume).await?;
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, volume)?.clone();
        let source = Arc::clone(&from.state);
        let number = source.catalog.find(snapshot).ok_or(FsError::NotFound)?;
        let row = source.catalog.row(number).ok_or(FsError::NotFound)?;
        target.begin_copy(copy, &entry).await?;
        let into = target.copied(copy).await?;
        let common = newest_common(&source, &into.state)?;
        // Nobody destroys what is read.
        let _kept = source.catalog.send([Some(number), common].into_iter().flatten().collect());
        let newest = into.state.catalog.numbers().last().copied();
        if newest.is_some_and(|newest| newest >= number) {
            return Err(FsError::Invalid("the snapshot to copy is not newer than those of the copy"));
        }
        drop(into);
        let into = target.open_at_epoch(copy, number, &row).await?;
        let copying = Copying {
            then: source.catalog.view(number).await?,
            base: match common {
                Some(common) => Some((common, source.catalog.view(common).await?)),
                None => None,
            },
            source,
            number,
            target: Arc::clone(&into.state),
            pace,
        };
        copying.run().await?;
        let name = match into.state.catalog.find(&row.name) {
            // Another snapshot had this name.
            Some(_) => format!("{}-{number}", row.name),
            None => row.name.clone(),
        };
        let taken = into.snapshot_of(&name, row.created).await?;
        assert!(taken.number == number, "`copy.same_numbers`");
        into.state.end_copying().await
    }

    /// The entry of the copy names its source, and what its files need, before anything of them comes.
    async fn begin_copy(&self, copy: &str, source: &VolumeEntry) -> FsResult<()> {
        let of = source.source.unwrap_or(source.info.id);
        self.update(|document| {
            let entry = self.find(document, copy)?;
            if !entry.has(features::COPY) {
                return Err(no_copy(copy));
            }
            match entry.source {
                None => entry.source = Some(of),
                Some(known) if known == of => {}
                // Other keys make no other files.
                Some(known) if source.former_sources.contains(&known) => entry.source = Some(of),
                Some(_) => {
                    return Err(FsError::Refused(
                        format!("'{copy}' is a copy of another volume: copy into a new name").into(),
                    ));
                }
            }
            OF_FILES.into_iter().filter(|mark| source.has(mark)).for_each(|mark| entry.add(mark));
            Ok(())
        })
        .await
    }

    /// Opens the copy in the epoch of the snapshot to come (`copy.same_numbers`).
    async fn open_at_epoch(&self, copy: &str, number: u64, row: &Row) -> FsResult<Volume> {
        let into = self.copied(copy).await?;
        let state = &into.state;
        // What a killed run has left as intents becomes extents.
        state.data.sync_all().await?;
        let next_ino = match state.meta.get(keys::NEXT_INO_KEY).await? {
            Some(value) => keys::decode_next_ino(&value)?,
            None => return Err(keys::damaged(keys::NEXT_INO_KEY, "it is missing")),
        };
        let epoch = state.data.epoch();
        if epoch > number {
            return Err(FsError::Refused(
                format!("'{copy}' has gone further than the snapshot '{}': copy into a new name", row.name).into(),
            ));
        }
        let mut batch = Batch::default();
        batch.put(row::COPYING_KEY, row::encode_epoch(number));
        batch.put(row::EPOCH_KEY, row::encode_epoch(number));
        batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(next_ino.max(row.next_ino)));
        let ticket = state.meta.write(batch).await?;
        state.meta.durable(ticket).await?;
        if epoch == number && next_ino >= row.next_ino {
            return Ok(into);
        }
        drop(into);
        self.close_volume(copy).await?;
        self.copied(copy).await
    }

    /// What a copy has, as [`Registry::replica`] has it of others.
    pub(super) async fn copy_info(&self, entry: &VolumeEntry) -> FsResult<ReplicaInfo> {
        let volume = self.copied(&entry.info.name).await?;
        let snapshots = volume.snapshots().into_iter().map(|info| ReplicaSnapshot {
            name: info.name,
            number: info.number,
            created: info.created,
            // Nothing lies between: both sides have one clock.
            arrived: info.created.secs,
            used_bytes: info.used_bytes,
            referenced_bytes: info.referenced_bytes,
            holds: info.holds,
            clones: info.clones,
        });
        Ok(ReplicaInfo {
            source: entry.source.unwrap_or(entry.info.id),
            now: self.backing.clock.now().secs,
            snapshots: snapshots.collect(),
            bytes: volume.state.data.usage().segment_bytes,
            unfinished: None,
        })
    }

    /// Makes a volume of a copy (`copy.unseen_until_whole`).
    pub(super) async fn promote_copy(&self, name: &str) -> FsResult<()> {
        let _alone = self.alone_for_owner(name).await?;
        let copy = self.copied(name).await?;
        let Some((_, snapshot)) = copy.state.catalog.names().last().cloned() else {
            return Err(FsError::Refused(format!("'{name}' has no snapshot: nothing was copied whole").into()));
        };
        if copy.state.is_copying().await? {
            copy.ask_back(&snapshot).await?;
            copy.state.end_copying().await?;
        }
        drop(copy);
        self.close_volume(name).await?;
        // It goes back while it is still a copy.
        drop(self.copied(name).await?);
        self.close_volume(name).await?;
        self.update(|document| {
            let entry = find(document, name)?;
            entry.features.incompatible.retain(|feature| feature != features::COPY);
            // Its objects are its own: streams of its source do not fit it, nor its own the source's replicas.
            entry.source = None;
            Ok(())
        })
        .await?;
        self.volume(name).await.map(drop)
    }
}

/// The newest snapshot that both have.
fn newest_common(source: &State, copy: &State) -> FsResult<Option<u64>> {
    let has = |number: u64| match (source.catalog.row(number), copy.catalog.row(number)) {
        (Some(own), Some(theirs)) => ns_of(own.created) == ns_of(theirs.created),
        _ => false,
    };
    let theirs = copy.catalog.numbers();
    let common = theirs.iter().rev().copied().find(|&number| has(number));
    if common.is_none() && !theirs.is_empty() {
        return Err(FsError::Refused(
            format!("'{}' and its copy have no snapshot in common: copy into a new name", source.name).into(),
        ));
    }
    Ok(common)
}

impl State {
    /// Whether the head is that of a copy on its way to a snapshot.
    pub(crate) async fn is_copying(&self) -> FsResult<bool> {
        Ok(self.meta.get(row::COPYING_KEY).await?.is_some())
    }

    /// The head shows the newest snapshot, or will.
    async fn end_copying(&self) -> FsResult<()> {
        let mut batch = Batch::default();
        batch.delete(row::COPYING_KEY);
        let ticket = self.meta.write(batch).await?;
        self.meta.durable(ticket).await
    }
}

/// A snapshot on its way into a copy.
struct Copying<'a> {
    source: Arc<State>,
    number: u64,
    /// The snapshot.
    then: Arc<View>,
    /// The newest snapshot that both sides have, as the source has it.
    base: Option<(u64, Arc<View>)>,
    target: Arc<State>,
    pace: Pace<'a>,
}

/// Files whose data was written, and whose records are still to come.
#[derive(Default)]
struct Group {
    files: Vec<Written>,
    bytes: u64,
}

struct Written {
    inode: Arc<Inode>,
    then: InodeCore,
    /// What was written where, to be read back.
    pieces: Vec<(Range<u64>, u64)>,
}

impl Copying<'_> {
    async fn run(&self) -> FsResult<()> {
        let mut group = Group::default();
        let head = self.target.catalog.head();
        let Some((base, view)) = &self.base else { return self.run_first(group).await };
        let own = changed(&**head, *base, self.target.data.epoch()).await?;
        let mut inos = changed(&**self.source.catalog.head(), *base, self.number).await?;
        // Dirty data that a crash took is missed by no batch.
        inos.extend(self.then.patched().chain(view.patched()));
        inos.extend(&own);
        for ino in inos {
            self.bring(ino, &own, &mut group).await?;
        }
        self.end_group(&mut group).await
    }

    /// Without a base: all inodes of the snapshot, then those that only the copy has.
    async fn run_first(&self, mut group: Group) -> FsResult<()> {
        let (mut from, to) = keys::table_range(tag::INODE);
        let none = BTreeSet::new();
        while from < to {
            let page = self.then.scan(&from, &to, PAGE).await?;
            for (key, _) in &page {
                self.bring(keys::ino_of(key)?, &none, &mut group).await?;
            }
            from = next_page(&page, &to);
        }
        self.end_group(&mut group).await?;
        let mut from = keys::table_range(tag::INODE).0;
        while from < to {
            let page = self.target.catalog.head().scan(&from, &to, PAGE).await?;
            for (key, _) in &page {
                if self.then.get(key).await?.is_none() {
                    self.bring(keys::ino_of(key)?, &none, &mut group).await?;
                }
            }
            from = next_page(&page, &to);
        }
        self.end_group(&mut group).await
    }

    /// Makes one inode that of the snapshot; a file whose data differs joins the group.
    async fn bring(&self, ino: Ino, own: &BTreeSet<Ino>, group: &mut Group) -> FsResult<()> {
        let key = keys::inode_key(ino);
        let then = match self.then.get(&key).await? {
            Some(record) => Some(keys::decode_inode(ino, &record)?),
            None => None,
        };
        let mut then = match then {
            Some(core) if lived(&core, &self.then).await? => Some(core),
            _ => None,
        };
        let mut now = self.now(ino).await?;
        if let (Some(was), Some(then)) = (&now, &then)
            && was.attr.kind != then.attr.kind
        {
            self.remove(ino, now.take()).await?;
        }
        self.bring_rows(ino, then.is_some()).await?;
        if let (Ino::ROOT, Some(root)) = (ino, &mut then) {
            self.keep_handles(root).await?;
        }
        match (now, then) {
            (None, None) => Ok(()),
            (now, None) => self.remove(ino, now).await,
            (now, Some(then)) if then.attr.kind == FileKind::File => match now {
                Some(now) if has_data_of(&now, &then) => self.put_record(then).await,
                now => {
                    let written = self.bring_data(now, then, own).await?;
                    group.bytes += written.pieces.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
                    group.files.push(written);
                    if group.bytes >= GROUP_BYTES_MAX || group.files.len() >= GROUP_FILES_MAX {
                        self.end_group(group).await?;
                    }
                    Ok(())
                }
            },
            (_, Some(then)) => self.put_record(then).await,
        }
    }

    /// Names and attributes.
    async fn bring_rows(&self, ino: Ino, is_there: bool) -> FsResult<()> {
        let kept = handle_key::row_key();
        for table in [tag::ENTRY, tag::COOKIE, tag::FOLDED, tag::XATTR] {
            let (mut from, to) = keys::range_of(table, ino);
            while from < to {
                let now = self.target.catalog.head().scan(&from, &to, PAGE).await?;
                let then = match is_there {
                    true => self.then.scan(&from, &to, PAGE).await?,
                    false => Vec::new(),
                };
                let (rows, next) = compare::differing(now, then, PAGE, &to);
                for rows in rows.chunks(BATCH_ROWS_MAX) {
                    let mut batch = Batch::default();
                    for (key, _, then) in rows.iter().filter(|(key, ..)| *key != kept) {
                        match then {
                            Some(then) => batch.put(key.clone(), then.clone()),
                            None => batch.delete(key.clone()),
                        }
                    }
                    if !batch.ops.is_empty() {
                        self.target.meta.write(batch).await?;
                    }
                }
                from = next;
            }
        }
        Ok(())
    }

    /// The secret of handles stays the copy's own.
    async fn keep_handles(&self, root: &mut InodeCore) -> FsResult<()> {
        let key = handle_key::row_key();
        let has_then = self.then.get(&key).await?.is_some();
        let has_now = self.target.catalog.head().get(&key).await?.is_some();
        root.xattrs = root.xattrs + u32::from(has_now) - u32::from(has_then);
        Ok(())
    }

    /// The source's record, with what the copy stores of the inode.
    async fn put_record(&self, then: InodeCore) -> FsResult<()> {
        let (target, ino) = (&self.target, then.attr.id.ino);
        // Collection changes what is stored.
        let _still = target.data.still().await;
        let now = self.now(ino).await?;
        let stored_bytes = now.as_ref().map_or(0, |now| now.stored_bytes);
        let recorded = now.as_ref().and_then(|now| now.recorded);
        let mut core = InodeCore { stored_bytes, recorded, has_reserved: false, ..then };
        core.attr.allocated = stored_bytes;
        if now.is_some_and(|now| keys::encode_inode(ino, &now) == keys::encode_inode(ino, &core)) {
            return Ok(());
        }
        target.meta.admit().await?;
        let mut batch = Batch::default();
        batch.usage.inodes = i64::from(core.recorded.is_none());
        batch.put_record(ino, &mut core);
        target.meta.submit(batch)?;
        // One that is in memory is of before.
        target.inodes.remove(ino);
        Ok(())
    }

    /// An inode of the copy, as it is now.
    async fn now(&self, ino: Ino) -> FsResult<Option<InodeCore>> {
        if let Some(inode) = self.target.inodes.cached(ino) {
            return copy_of(&inode.core.lock()).map(Some);
        }
        let record = self.target.catalog.head().get(&keys::inode_key(ino)).await?;
        record.map(|record| keys::decode_inode(ino, &record)).transpose()
    }

    async fn remove(&self, ino: Ino, now: Option<InodeCore>) -> FsResult<()> {
        let Some(mut now) = now else { return Ok(()) };
        let target = &self.target;
        let mut batch = Batch::default();
        batch.usage.inodes = -1;
        if now.attr.kind == FileKind::File {
            let inode = target.inodes.load(ino).await?;
            inode.core.lock().gone = true;
            target.data.reap(&inode, batch).await?;
        } else {
            batch.delete_record(ino, &mut now);
            target.meta.write(batch).await?;
        }
        target.inodes.remove(ino);
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------- data

    /// Writes what differs of the data (`copy.record_last`).
    async fn bring_data(&self, now: Option<InodeCore>, then: InodeCore, own: &BTreeSet<Ino>) -> FsResult<Written> {
        let ino = then.attr.id.ino;
        let is_new = now.is_none();
        let old_size = now.as_ref().map_or(0, |now| now.attr.size);
        let is_same_file = now.as_ref().is_some_and(|now| now.attr.id == then.attr.id);
        let ranges = match &self.base {
            Some((_, base)) if is_same_file && !own.contains(&ino) => self.differing(ino, base).await?,
            _ => std::iter::once(0..then.attr.size).collect(),
        };
        if !is_same_file {
            let mut begun = copy_of(&then)?;
            (begun.attr.size, begun.attr.change) = (old_size, UNFINISHED);
            self.put_record(begun).await?;
        }
        let source = self.source.file(within(self.number, ino)).await?;
        let inode = self.target.file(ino).await?;
        if old_size > then.attr.size {
            self.resize(&inode, then.attr.size).await?;
        }
        let mut written = Written { inode, then, pieces: Vec::new() };
        for range in ranges {
            let end = range.end.min(written.then.attr.size);
            self.bring_range(&source, &mut written, range.start..end, is_new).await?;
        }
        if written.inode.core.lock().attr.size != written.then.attr.size {
            self.resize(&written.inode, written.then.attr.size).await?;
        }
        Ok(written)
    }

    /// The ranges of a file whose extents are others than in the base.
    async fn differing(&self, ino: Ino, base: &View) -> FsResult<Vec<Range<u64>>> {
        let (mut from, to) = keys::range_of(EXTENT_TAG, ino);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        while from < to {
            let before = base.scan(&from, &to, PAGE).await?;
            let after = self.then.scan(&from, &to, PAGE).await?;
            let (rows, next) = compare::differing(before, after, PAGE, &to);
            for (key, before, after) in rows {
                for row in [before, after].into_iter().flatten() {
                    let (_, at, extent) = decode_extent(&key, &row)?;
                    let end = at + u64::from(extent.len);
                    match ranges.last_mut() {
                        Some(last) if at <= last.end => last.end = last.end.max(end),
                        _ => ranges.push(at..end),
                    }
                }
            }
            from = next;
        }
        Ok(ranges)
    }

    async fn resize(&self, inode: &Arc<Inode>, size: u64) -> FsResult<()> {
        self.target.data.truncate(inode, size, |attr| attr.change = UNFINISHED).await.map(drop)
    }

    /// Holes stay holes; pieces that are there already are not written again.
    async fn bring_range(
        &self,
        source: &Arc<Inode>,
        written: &mut Written,
        range: Range<u64>,
        is_new: bool,
    ) -> FsResult<()> {
        let data = &self.source.data;
        let mut at = range.start;
        while at < range.end {
            let begin = found(data.seek(source, at, SeekTo::Data).await, range.end)?;
            if at < begin && !is_new {
                self.punch(&written.inode, at..begin).await?;
            }
            let end = match begin < range.end {
                true => found(data.seek(source, begin, SeekTo::Hole).await, range.end)?,
                false => begin,
            };
            at = begin;
            while at < end {
                let piece_end = (at - at % PIECE_BYTES + PIECE_BYTES).min(end);
                self.bring_piece(source, written, at..piece_end, is_new).await?;
                at = piece_end;
            }
        }
        Ok(())
    }

    async fn bring_piece(
        &self,
        source: &Arc<Inode>,
        written: &mut Written,
        piece: Range<u64>,
        is_new: bool,
    ) -> FsResult<()> {
        let (at, len) = (piece.start, (piece.end - piece.start) as usize);
        let bytes = self.source.data.read(source, at, len).await?;
        let target = &self.target.data;
        let sum = sum_of(&bytes);
        let is_there = !is_new
            && written.inode.core.lock().attr.size >= piece.end
            && sum_of(&target.read(&written.inode, at, len).await?) == sum;
        if !is_there {
            let unfinished = |attr: &mut Attr| attr.change = UNFINISHED;
            let now = self.target.now();
            target.write(&written.inode, WriteAt::Offset(at), bytes, Stability::Unstable, now, unfinished).await?;
            written.pieces.push((piece, sum));
        }
        let wait = (self.pace)(len as u64);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// The source has a hole there.
    async fn punch(&self, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<()> {
        let data = &self.target.data;
        if found(data.seek(inode, range.start, SeekTo::Data).await, range.end)? >= range.end {
            return Ok(());
        }
        self.target.meta.admit().await?;
        let unfinished = |attr: &mut Attr| attr.change = UNFINISHED;
        let len = range.end - range.start;
        data.allocate(inode, range.start, len, AllocateMode::PunchHole, unfinished).await.map(drop)
    }

    /// The data of a group becomes durable, is read back, and then has its records (`copy.record_last`).
    async fn end_group(&self, group: &mut Group) -> FsResult<()> {
        let Group { files, .. } = std::mem::take(group);
        if files.is_empty() {
            return Ok(());
        }
        let target = &self.target;
        target.data.sync_all().await?;
        for Written { inode, then, pieces } in files {
            for (piece, sum) in pieces {
                let len = (piece.end - piece.start) as usize;
                if sum_of(&target.data.read(&inode, piece.start, len).await?) != sum {
                    let why = format!(
                        "inode {} offset {}: the copy reads otherwise than it was written",
                        then.attr.id.ino.0, piece.start
                    );
                    return Err(FsError::Io(why.into()));
                }
            }
            self.put_record(then).await?;
        }
        Ok(())
    }
}

/// Whether a file of the copy has the data of the source's (`diff.content_by_attributes`).
fn has_data_of(now: &InodeCore, then: &InodeCore) -> bool {
    let of = |core: &InodeCore| {
        (core.attr.id, core.attr.kind, core.attr.change, core.attr.size, core.attr.mtime, core.attr.ctime)
    };
    of(now) == of(then)
}

fn copy_of(core: &InodeCore) -> FsResult<InodeCore> {
    let ino = core.attr.id.ino;
    keys::decode_inode(ino, &keys::encode_inode(ino, core).1)
}

fn sum_of(chunks: &[Bytes]) -> u64 {
    checksum_slices(0, chunks.iter().map(|chunk| &chunk[..]))
}

/// Where a search led, at most to `end`.
fn found(outcome: FsResult<u64>, end: u64) -> FsResult<u64> {
    match outcome {
        Ok(at) => Ok(at.min(end)),
        Err(FsError::NotFound) => Ok(end),
        Err(error) => Err(error),
    }
}

fn next_page(page: &[(Bytes, Bytes)], to: &Bytes) -> Bytes {
    match page.last() {
        Some((last, _)) if page.len() == PAGE => keys::key_after(last),
        _ => to.clone(),
    }
}
