//! Verification of everything that file data consists of.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_fs::*;

use futures::StreamExt;
use object_store::ObjectStoreExt;

use super::clone_range::decode_sharer;
use super::extents::{EXTENT_TAG, Extent, SegmentId, decode_extent};
use super::pieces::RecordRef;
use super::reserved::{RESERVED_TAG, decode_reserved};
use super::segment::{HEADER_BYTES, object_path, segment_of, verify_header};
use super::segments::Segment;
use super::shared::{Data, Inner, store_error};
use crate::check::CheckReport;
use crate::keys::{decode_inode, inode_key, key_after, range_of, table_range, tag};
use crate::snapshots::View;

const SCAN_MAX: usize = 1024;
/// A damaged volume may have millions of problems of one kind.
const PROBLEMS_MAX: usize = 1000;

#[derive(Default)]
struct SeenExtents {
    /// Live bytes and extents of each segment, counted.
    segments: BTreeMap<SegmentId, (u64, u64)>,
    last: Option<(Ino, u64)>,
    /// The owner of the extents that are being read, or of none but reserved ranges.
    owner: Option<Owner>,
}

/// An inode, and the findings about it.
struct Owner {
    ino: Ino,
    /// As it was before the first extent was read. That it is missing or damaged is found
    /// elsewhere.
    record: Option<Bytes>,
    size: u64,
    reserved: Vec<Range<u64>>,
    allocated: u64,
    overlaps: Option<u64>,
}

impl Data {
    /// For `check`: segments against objects, extents against segments, live counts; with
    /// `read_data` every record. Dirty data was flushed before, and nothing may be written in the
    /// meantime. `allocated` are the inodes whose records say that they take up room.
    pub(crate) async fn check(
        &self,
        read_data: bool,
        mut allocated: HashSet<u64>,
        report: &mut CheckReport,
    ) -> FsResult<()> {
        let inner = &self.0;
        let _still = inner.gc_running.lock().await;
        let (table, used) = inner.table();
        report.segments += table.len() as u64;
        inner.check_objects(&used, report).await?;
        if read_data {
            inner.check_frames(&used, report).await;
        }
        let mut seen = SeenExtents::default();
        let (mut from, to) = table_range(EXTENT_TAG);
        loop {
            let pairs = inner.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            let mut records = Vec::new();
            for (key, value) in &pairs {
                match decode_extent(key, value) {
                    Ok((ino, offset, extent)) => {
                        inner.turn_to(Some(ino), &mut seen, &mut allocated, report).await?;
                        check_extent(ino, offset, &extent, &table, &mut seen, report);
                        records.extend(extent.record().map(|record| (ino, offset, record.clone())));
                    }
                    Err(error) => problem(report, error.to_string()),
                }
            }
            if read_data {
                inner.check_records(&records, report).await;
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { break };
            from = [last, &[0][..]].concat().into();
        }
        inner.turn_to(None, &mut seen, &mut allocated, report).await?;
        inner.check_reserved(&mut seen, &mut allocated, report).await?;
        inner.check_allocated_to_nothing(allocated, report).await?;
        inner.check_sharers(report).await?;
        compare_counts(&table, &seen, report);
        Ok(())
    }

    /// For `check`: the extents of a snapshot against the segment table. `name` is for people.
    pub(crate) async fn check_snapshot(
        &self,
        (number, name): (u64, &str),
        view: &View,
        report: &mut CheckReport,
    ) -> FsResult<()> {
        let (table, _) = self.0.table();
        let (mut from, to) = table_range(EXTENT_TAG);
        loop {
            let pairs = view.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                let (ino, offset, extent) = match decode_extent(key, value) {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        problem(report, format!("snapshot {name}: {error}"));
                        continue;
                    }
                };
                let Some(record) = extent.record() else { continue };
                let end = u64::from(record.position) + u64::from(record.stored_len);
                let lives = |s: &&Segment| s.birth <= number && (s.death == 0 || s.death > number);
                if table.get(&record.segment).filter(lives).is_none_or(|segment| segment.object_bytes < end) {
                    let segment = record.segment.0;
                    problem(
                        report,
                        format!(
                            "snapshot {name}: inode {}: the data at offset {offset} is lost: segment {segment:016x} is not kept \
                             for it",
                            ino.0
                        ),
                    );
                }
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { return Ok(()) };
            from = [last, &[0][..]].concat().into();
        }
    }
}

fn problem(report: &mut CheckReport, text: String) {
    if report.problems.len() < PROBLEMS_MAX {
        report.problems.push(text);
    }
}

/// A caller that knows the names adds the path.
fn problem_of(report: &mut CheckReport, ino: Ino, text: &str) {
    if report.problems.len() < PROBLEMS_MAX {
        report.of_inodes.push((report.problems.len(), ino));
        report.problems.push(format!("inode {}: {text}", ino.0));
    }
}

fn check_extent(
    ino: Ino,
    offset: u64,
    extent: &Extent,
    table: &BTreeMap<SegmentId, Segment>,
    seen: &mut SeenExtents,
    report: &mut CheckReport,
) {
    report.extents += 1;
    report.data_bytes += u64::from(extent.len);
    if let Some((_, end)) = seen.last.filter(|(last, end)| *last == ino && *end > offset) {
        problem_of(report, ino, &format!("the extents at offset {offset} overlap up to {end}"));
    }
    let end = offset + u64::from(extent.len);
    seen.last = Some((ino, end));
    if let Some(owner) = &mut seen.owner {
        owner.allocated += extent.allocated_bytes();
        let at = owner.reserved.partition_point(|range| range.end <= offset);
        let reserved = owner.reserved.get(at).filter(|range| range.start < end);
        owner.overlaps = owner.overlaps.or(reserved.map(|range| range.start.max(offset)));
        if end > owner.size {
            problem_of(report, ino, &format!("an extent ends at {end}, the file at {}", owner.size));
            // Once is enough.
            owner.size = u64::MAX;
        }
    }
    let Some(record) = extent.record() else { return };
    let counts = seen.segments.entry(record.segment).or_default();
    counts.0 += extent.segment_bytes();
    counts.1 += 1;
    let end = u64::from(record.position) + u64::from(record.stored_len);
    let lost = format!("the data at offset {offset} is lost");
    match table.get(&record.segment) {
        None => problem_of(report, ino, &format!("{lost}: segment {:016x} is not in the table", record.segment.0)),
        Some(segment) if end > segment.object_bytes => {
            problem_of(
                report,
                ino,
                &format!("{lost}: it would lie behind the end of segment {:016x}", record.segment.0),
            );
        }
        Some(_) => {}
    }
}

fn compare_counts(table: &BTreeMap<SegmentId, Segment>, seen: &SeenExtents, report: &mut CheckReport) {
    for (id, segment) in table {
        let (live, extents) = seen.segments.get(id).copied().unwrap_or_default();
        if (live, extents) != (segment.live_bytes, segment.extents) {
            let (says, has) = (segment.live_bytes, segment.extents);
            problem(
                report,
                format!(
                    "segment {:016x}: {extents} extents refer to {live} bytes of it, the table says {has} and {says}; \
                     its space may be freed too early or never",
                    id.0
                ),
            );
        }
    }
}

impl Inner {
    /// The segment table, and the part of it whose objects must be there.
    fn table(&self) -> (BTreeMap<SegmentId, Segment>, BTreeMap<SegmentId, Segment>) {
        let table = self.segments.lock();
        let copy = |(id, segment): (SegmentId, &Segment)| (id, segment.clone());
        (
            table.iter().map(copy).collect(),
            table.iter().filter(|(_, segment)| table.is_used(segment)).map(copy).collect(),
        )
    }

    /// Turns to the extents of `ino`: judges the previous owner.
    async fn turn_to(
        &self,
        ino: Option<Ino>,
        seen: &mut SeenExtents,
        allocated: &mut HashSet<u64>,
        report: &mut CheckReport,
    ) -> FsResult<()> {
        if seen.owner.as_ref().map(|owner| owner.ino) == ino {
            return Ok(());
        }
        if let Some(owner) = seen.owner.take() {
            self.judge(owner, report).await?;
        }
        let Some(ino) = ino else { return Ok(()) };
        allocated.remove(&ino.0);
        let record = self.parts.meta.get(&inode_key(ino)).await?;
        let core = record.as_ref().and_then(|record| decode_inode(ino, record).ok());
        let size = core.as_ref().map_or(u64::MAX, |core| core.attr.size);
        let reserved = self.reserved_of(ino, report).await?;
        if core.is_some_and(|core| core.has_reserved == reserved.is_empty()) {
            problem_of(report, ino, "its record and its reserved ranges contradict each other");
        }
        let bytes = reserved.iter().map(|range| range.end - range.start).sum();
        seen.owner = Some(Owner { ino, record, size, reserved, allocated: bytes, overlaps: None });
        Ok(())
    }

    async fn judge(&self, owner: Owner, report: &mut CheckReport) -> FsResult<()> {
        let Some(record) = owner.record else { return Ok(()) };
        let Ok(core) = decode_inode(owner.ino, &record) else { return Ok(()) };
        let is_off = core.stored_bytes != owner.allocated || owner.overlaps.is_some();
        // A record written in the meantime is no contradiction.
        if !is_off || self.parts.meta.get(&inode_key(owner.ino)).await?.as_ref() != Some(&record) {
            return Ok(());
        }
        if core.stored_bytes != owner.allocated {
            let (says, has) = (core.stored_bytes, owner.allocated);
            problem_of(report, owner.ino, &format!("says that it takes up {says} bytes and takes up {has}"));
        }
        if let Some(at) = owner.overlaps {
            problem_of(report, owner.ino, &format!("room is reserved at offset {at}, where data is"));
        }
        Ok(())
    }

    /// The reserved ranges of an inode.
    async fn reserved_of(&self, ino: Ino, report: &mut CheckReport) -> FsResult<Vec<Range<u64>>> {
        let (mut from, to) = range_of(RESERVED_TAG, ino);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        loop {
            let pairs = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                match decode_reserved(key, value) {
                    Ok((_, range)) if ranges.last().is_some_and(|last| last.end >= range.start) => {
                        problem_of(report, ino, &format!("the reserved ranges at offset {} touch", range.start));
                    }
                    Ok((_, range)) => ranges.push(range),
                    Err(error) => problem(report, error.to_string()),
                }
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { return Ok(ranges) };
            from = [last, &[0][..]].concat().into();
        }
    }

    /// Inodes that have reserved ranges and no extents, then the sum.
    async fn check_reserved(
        &self,
        seen: &mut SeenExtents,
        allocated: &mut HashSet<u64>,
        report: &mut CheckReport,
    ) -> FsResult<()> {
        let counted = self.parts.meta.usage().reserved_bytes;
        let (mut from, to) = table_range(RESERVED_TAG);
        let mut sum = 0;
        let mut last = None;
        loop {
            let pairs = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                let Ok((ino, range)) = decode_reserved(key, value) else { continue };
                sum += range.end - range.start;
                if last.replace(ino) == Some(ino) {
                    continue;
                }
                let (extents, end) = range_of(EXTENT_TAG, ino);
                if self.parts.meta.get(&inode_key(ino)).await?.is_none() {
                    problem(report, format!("a range is reserved for inode {}, which does not exist", ino.0));
                } else if self.parts.meta.scan(&extents, &end, 1).await?.is_empty() {
                    self.turn_to(Some(ino), seen, allocated, report).await?;
                    self.turn_to(None, seen, allocated, report).await?;
                }
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { break };
            from = [last, &[0][..]].concat().into();
        }
        if sum as i64 != counted && self.parts.meta.usage().reserved_bytes == counted {
            problem(
                report,
                format!("the volume counts {counted} reserved bytes and has {sum}: room is kept for nobody"),
            );
        }
        Ok(())
    }

    /// Inodes whose records say that they take up room, without any found.
    async fn check_allocated_to_nothing(&self, allocated: HashSet<u64>, report: &mut CheckReport) -> FsResult<()> {
        for ino in allocated.into_iter().map(Ino) {
            let (from, to) = range_of(EXTENT_TAG, ino);
            let Some(record) = self.parts.meta.get(&inode_key(ino)).await? else { continue };
            let stored = decode_inode(ino, &record).map_or(0, |core| core.stored_bytes);
            if stored > 0 && self.parts.meta.scan(&from, &to, 1).await?.is_empty() {
                problem_of(report, ino, &format!("says that it takes up {stored} bytes and takes up none"));
            }
        }
        Ok(())
    }

    /// Rows that outlived their inode would never go (`share.sharers_are_noted`).
    async fn check_sharers(&self, report: &mut CheckReport) -> FsResult<()> {
        let (mut from, to) = table_range(tag::SHARER);
        let mut last = None;
        loop {
            let rows = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &rows {
                let ino = match decode_sharer(key, value) {
                    Ok((ino, _)) => ino,
                    Err(error) => {
                        problem(report, error.to_string());
                        continue;
                    }
                };
                if last.replace(ino) != Some(ino) && self.parts.meta.get(&inode_key(ino)).await?.is_none() {
                    problem(report, format!("inode {} is said to share segments, and does not exist", ino.0));
                }
            }
            let Some((key, _)) = rows.last().filter(|_| rows.len() >= SCAN_MAX) else { return Ok(()) };
            from = key_after(key);
        }
    }

    async fn check_objects(&self, used: &BTreeMap<SegmentId, Segment>, report: &mut CheckReport) -> FsResult<()> {
        let prefix = self.parts.prefix.clone().join("seg");
        let mut sizes = BTreeMap::new();
        let mut objects = self.parts.store.list(Some(&prefix));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| store_error("listing segments", &error))?;
            if let Some(id) = segment_of(&object.location) {
                sizes.insert(id, object.size);
            }
        }
        // A list has only its own.
        for id in used.keys().filter(|id| id.0 <= self.parts.inherited) {
            match self.parts.store.head(&object_path(&self.parts.prefix, *id)).await {
                Ok(meta) => drop(sizes.insert(*id, meta.size)),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(store_error("looking for a segment", &error)),
            }
        }
        for (id, segment) in used {
            match sizes.get(id) {
                None => problem(report, format!("segment {:016x} is missing in the store: its data is lost", id.0)),
                Some(&size) if size != segment.object_bytes => {
                    let want = segment.object_bytes;
                    // Lists of a volume that is being encrypted have the lengths of sealed objects.
                    let size = match self.parts.store.head(&object_path(&self.parts.prefix, *id)).await {
                        Ok(meta) if meta.size == want => continue,
                        Ok(meta) => meta.size,
                        Err(_) => size,
                    };
                    problem(report, format!("segment {:016x} has {size} bytes instead of {want}", id.0));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Header and index of every segment: a volume without metadata is read back from them.
    async fn check_frames(&self, used: &BTreeMap<SegmentId, Segment>, report: &mut CheckReport) {
        for &id in used.keys() {
            let header = self.get_segment(id, 0..HEADER_BYTES as u64).await;
            let bad = match (header, self.read_index(id).await) {
                (Ok(header), Ok(_)) => verify_header(id, &header).err().map(str::to_owned),
                (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
            };
            if let Some(why) = bad {
                problem(report, format!("segment {:016x} cannot be read back without metadata: {why}", id.0));
            }
        }
    }

    async fn check_records(self: &Arc<Self>, records: &[(Ino, u64, RecordRef)], report: &mut CheckReport) {
        for group in records.chunks(64) {
            for (ino, offset, error) in self.read_records(group).await {
                problem_of(report, ino, &format!("the data at offset {offset} cannot be read: {error}"));
            }
        }
    }
}
