//! The dirty data of a snapshot, stored: its own segments, and rows over the engine's point.

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::*;
use object_store::ObjectStoreExt;

use super::commit::put_ops;
use super::cut::Forming;
use super::dirty::{Payload, Taken};
use super::extents::{EXTENT_TAG, ExtentMap, ExtentOps, SegmentId, WINDOW_BYTES, decode_extent, extent_key};
use super::flush::{BuildInode, Out, build};
use super::preserved::copies::{Copy, Facts};
use super::segment::object_path;
use super::segments::Tally;
use super::shared::{Data, Inner};
use crate::inode::Inode;
use crate::keys::{decode_inode, encode_inode, inode_key};
use crate::meta::overlay::Changes;
use crate::meta::{Batch, Ticket, Usage};
use crate::snapshots::View;

const SCAN_MAX: usize = 1024;

/// What a snapshot has beyond the engine's point.
#[derive(Default)]
pub(crate) struct Patch {
    pub(crate) rows: Changes,
    /// By how much the counters differ from those at the point.
    pub(crate) usage: Usage,
    /// Segments that no other extent refers to: bytes and records.
    segments: Vec<(SegmentId, u64, u32)>,
}

/// Rows that are put back as they were.
pub(crate) enum Restored<'a> {
    /// Of one table: the key, the row now, the row then.
    Rows(&'a [(Bytes, Option<Bytes>, Option<Bytes>)]),
    Nothing,
}

impl Data {
    /// Puts rows back, with all else in `batch`, and counts the extents among them. Nobody may have the volume open.
    pub(crate) async fn restore(&self, restored: Restored<'_>, mut batch: Batch) -> FsResult<Ticket> {
        let mut tally = Tally::default();
        if let Restored::Rows(rows) = restored {
            for (key, now, then) in rows {
                if key.first() == Some(&EXTENT_TAG) {
                    let mut count = |row: &Option<Bytes>, kept: bool| -> FsResult<()> {
                        if let Some(row) = row {
                            tally.count(&decode_extent(key, row)?.2, kept);
                        }
                        Ok(())
                    };
                    count(now, false)?;
                    count(then, true)?;
                }
                match then {
                    Some(then) => batch.put(key.clone(), then.clone()),
                    None => batch.delete(key.clone()),
                }
            }
        }
        let uncut = self.0.cut.enter().await;
        self.0.submit(&uncut, batch, tally)
    }

    /// Collection stands still meanwhile.
    pub(crate) async fn still(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.gc_running.lock().await
    }

    /// Stores the data that was dirty at the cut. `view` is the engine's point. On an error nothing of it is left.
    pub(crate) async fn patch(&self, forming: &mut Forming, view: &View) -> FsResult<Patch> {
        let copies = self.copies(forming).await?;
        let mut patch = Patch::default();
        let stored = self.0.store_copies(copies, view, &mut patch).await;
        match stored {
            Ok(()) => Ok(patch),
            Err(error) => {
                self.discard(patch).await;
                Err(error)
            }
        }
    }

    /// Deletes the segments of a snapshot that will not be. What cannot be deleted is swept at the next opening.
    pub(crate) async fn discard(&self, patch: Patch) {
        for (id, ..) in patch.segments {
            let _ = self.0.parts.store.delete(&object_path(&self.0.parts.prefix, id)).await;
        }
    }

    /// Enters the segments of the snapshot, in the batch that makes it exist (`snap.row_is_the_snapshot`).
    pub(crate) async fn finish(&self, number: u64, patch: &Patch, mut batch: Batch) -> FsResult<Ticket> {
        let inner = &self.0;
        let uncut = inner.cut.enter().await;
        let mut table = inner.segments.lock();
        for &(id, bytes, records) in &patch.segments {
            table.add_for_snapshot(id, bytes, records, number, &mut batch);
        }
        inner.submit_under(&uncut, &mut table, batch, Tally::default())
    }
}

impl Inner {
    async fn store_copies(&self, copies: Vec<Copy>, view: &View, patch: &mut Patch) -> FsResult<()> {
        let target = self.load_target() as u64;
        let mut tally = Tally::default();
        let mut copies = copies.into_iter().peekable();
        let mut carried: Option<Copy> = None;
        while carried.is_some() || copies.peek().is_some() {
            let (mut parts, mut facts, mut bytes) = (Vec::new(), Vec::new(), 0);
            while bytes < target
                && let Some(copy) = carried.take().or_else(|| copies.next())
            {
                let Copy { inode, mut taken, facts: of_inode } = copy;
                let rest = split_off(&mut taken, target - bytes, &mut bytes);
                parts.push(BuildInode { inode: Arc::clone(&inode), taken, size: of_inode.size });
                facts.push(of_inode);
                carried = (!rest.is_empty()).then_some(Copy { inode, taken: rest, facts: of_inode });
            }
            let outs = self.store_parts(&parts, patch).await?;
            for ((part, facts), outs) in parts.iter().zip(facts).zip(outs) {
                patch_inode(&part.inode, facts, &outs, view, patch, &mut tally).await?;
            }
        }
        patch.usage = tally.usage();
        Ok(())
    }

    /// Packs one segment and puts it.
    async fn store_parts(&self, parts: &[BuildInode], patch: &mut Patch) -> FsResult<Vec<Vec<Out>>> {
        let made = self.next_segment();
        let (record_bytes, compression) = (self.parts.settings.record_bytes(), self.parts.settings.compression());
        let built = {
            let _worker = self.workers.acquire().await;
            build(parts, made, record_bytes, compression)
        };
        if let Some((id, payload, bytes, records)) = built.segment {
            // Noted before it is put: if that fails half way, it is discarded all the same.
            patch.segments.push((id, bytes, records));
            self.put_once(&object_path(&self.parts.prefix, id), payload, None).await?;
        }
        Ok(built.outs)
    }
}

/// Cuts off the ranges beyond about `max` bytes of data; counts those that stay.
fn split_off(taken: &mut Vec<Taken>, max: u64, bytes: &mut u64) -> Vec<Taken> {
    let mut sum = 0;
    let cut = taken.iter().position(|taken| {
        let is_full = sum >= max;
        sum += if taken.payload == Payload::Zero { 0 } else { taken.len };
        is_full
    });
    let rest = cut.map(|at| taken.split_off(at)).unwrap_or_default();
    *bytes += taken.iter().filter(|taken| taken.payload != Payload::Zero).map(|taken| taken.len).sum::<u64>();
    // An inode without data costs a row.
    *bytes += 64;
    rest
}

/// The rows of one inode as they were with its dirty data.
async fn patch_inode(
    inode: &Inode,
    facts: Facts,
    outs: &[Out],
    view: &View,
    patch: &mut Patch,
    tally: &mut Tally,
) -> FsResult<()> {
    let ino = inode.id.ino;
    let key = inode_key(ino);
    let record = match patch.rows.get(&key) {
        Some(record) => record.clone(),
        None => view.get(&key).await?,
    };
    // It was gone by then, or is another.
    let Some(record) = record else { return Ok(()) };
    let mut core = decode_inode(ino, &record)?;
    if core.attr.nlink == 0 || core.attr.id != inode.id {
        return Ok(());
    }
    let (mut map, mut ops, mut allocated) = (ExtentMap::default(), ExtentOps::new(), 0);
    for out in outs.iter().filter(|out| !out.range.is_empty()) {
        while let Some(at) = map.missing(out.range.clone()) {
            let start = at - at % WINDOW_BYTES;
            map.load(start..start + WINDOW_BYTES, window(ino, start, view, &patch.rows).await?);
        }
        let count = |extent: &_, kept| allocated += tally.count(extent, kept);
        map.overlay(out.range.clone(), out.extent.clone(), &mut ops, count);
    }
    let mut batch = Batch::default();
    put_ops(ino, ops, &mut batch);
    let Facts { mode, size, atime, mtime, ctime, change } = facts;
    // A write may have taken setuid and setgid away.
    core.attr.mode &= mode | !0o6000;
    core.attr.size = size;
    // The record may be that of the state which a crash would have left (`inode.lost_is_another`); what was in memory is never older.
    (core.attr.atime, core.attr.mtime, core.attr.ctime, core.attr.change) = (atime, mtime, ctime, change);
    core.stored_bytes = core.stored_bytes.saturating_add_signed(allocated);
    core.attr.allocated = core.stored_bytes;
    let (key, record) = encode_inode(ino, &core);
    batch.put(key, record);
    patch.rows.extend(batch.ops);
    Ok(())
}

/// The extents of one window, with those that the patch has.
async fn window(ino: Ino, start: u64, view: &View, rows: &Changes) -> FsResult<Vec<(u64, super::extents::Extent)>> {
    let (mut from, to) = (extent_key(ino, start), extent_key(ino, start + WINDOW_BYTES));
    let mut found: std::collections::BTreeMap<Bytes, Bytes> = Default::default();
    let all = from.clone();
    loop {
        let pairs = view.scan(&from, &to, SCAN_MAX).await?;
        let last = pairs.last().map(|(key, _)| key.clone());
        let is_last = pairs.len() < SCAN_MAX;
        found.extend(pairs);
        match last {
            Some(last) if !is_last => from = [&last[..], &[0][..]].concat().into(),
            _ => break,
        }
    }
    for (key, value) in rows.range(all..to) {
        match value {
            Some(value) => found.insert(key.clone(), value.clone()),
            None => found.remove(key),
        };
    }
    let decoded =
        found.iter().map(|(key, value)| decode_extent(key, value).map(|(_, offset, extent)| (offset, extent)));
    decoded.collect()
}
