//! Verification of everything that file data consists of.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;

use super::extents::{EXTENT_TAG, Extent, RecordRef, SegmentId, decode_extent};
use super::segment::{HEADER_BYTES, segment_of, verify_header};
use super::segments::Segment;
use super::{Data, Inner, store_error};
use crate::keys::{decode_inode, inode_key, table_range};
use crate::types::*;
use crate::volume::CheckReport;

const SCAN_MAX: usize = 1024;
/// A damaged volume may have millions of problems of one kind.
const PROBLEMS_MAX: usize = 1000;

#[derive(Default)]
struct Seen {
    /// Live bytes and extents of each segment, counted.
    segments: BTreeMap<SegmentId, (u64, u64)>,
    last: Option<(Ino, u64)>,
}

impl Seen {
    /// Of the last extent.
    fn end(&self) -> u64 {
        self.last.map_or(0, |(_, end)| end)
    }
}

impl Data {
    /// For `check`: segments against objects, extents against segments, live counts; with `read_data` every record.
    /// What is dirty is flushed first; nothing may be written meanwhile.
    pub(crate) async fn check(&self, read_data: bool, report: &mut CheckReport) -> FsResult<()> {
        let inner = &self.0;
        self.sync_all().await?;
        let _still = inner.gc_running.lock().await;
        let table: BTreeMap<SegmentId, Segment> =
            inner.segments.lock().iter().map(|(id, segment)| (id, segment.clone())).collect();
        report.segments += table.len() as u64;
        inner.check_objects(&table, report).await?;
        if read_data {
            inner.check_frames(&table, report).await;
        }
        let mut seen = Seen::default();
        let mut owner = None;
        let (mut from, to) = table_range(EXTENT_TAG);
        loop {
            let pairs = inner.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            let mut records = Vec::new();
            for (key, value) in &pairs {
                match decode_extent(key, value) {
                    Ok((ino, offset, extent)) => {
                        check_extent(ino, offset, &extent, &table, &mut seen, report);
                        inner.check_end(ino, seen.end(), &mut owner, report).await?;
                        records.extend(extent.record().map(|record| (ino, offset, *record)));
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
        compare_counts(&table, &seen, report);
        Ok(())
    }
}

fn problem(report: &mut CheckReport, text: String) {
    if report.problems.len() < PROBLEMS_MAX {
        report.problems.push(text);
    }
}

/// The path is added by whoever knows the names.
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
    seen: &mut Seen,
    report: &mut CheckReport,
) {
    report.extents += 1;
    report.data_bytes += u64::from(extent.len);
    if let Some((_, end)) = seen.last.filter(|(last, end)| *last == ino && *end > offset) {
        problem_of(report, ino, &format!("the extents at offset {offset} overlap up to {end}"));
    }
    seen.last = Some((ino, offset + u64::from(extent.len)));
    let Some(record) = extent.record() else { return };
    let counts = seen.segments.entry(record.segment).or_default();
    counts.0 += extent.live_bytes();
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

fn compare_counts(table: &BTreeMap<SegmentId, Segment>, seen: &Seen, report: &mut CheckReport) {
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
    /// No extent reaches beyond the end of its file. `owner`: the inode asked for last, and its size.
    async fn check_end(
        &self,
        ino: Ino,
        end: u64,
        owner: &mut Option<(Ino, u64)>,
        report: &mut CheckReport,
    ) -> FsResult<()> {
        if owner.is_none_or(|(last, _)| last != ino) {
            // That an inode is missing or damaged is found elsewhere.
            let record = self.parts.meta.get(&inode_key(ino)).await?;
            let core = record.and_then(|record| decode_inode(ino, &record).ok());
            *owner = Some((ino, core.map_or(u64::MAX, |core| core.attr.size)));
        }
        if let Some((_, size)) = owner.filter(|(_, size)| end > *size) {
            problem_of(report, ino, &format!("an extent ends at {end}, the file at {size}"));
        }
        Ok(())
    }

    async fn check_objects(&self, table: &BTreeMap<SegmentId, Segment>, report: &mut CheckReport) -> FsResult<()> {
        let prefix = self.parts.prefix.clone().join("seg");
        let mut sizes = BTreeMap::new();
        let mut objects = self.parts.store.list(Some(&prefix));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|error| store_error("listing segments", &error))?;
            if let Some(id) = segment_of(&object.location) {
                sizes.insert(id, object.size);
            }
        }
        for (id, segment) in table.iter().filter(|(_, segment)| segment.extents > 0) {
            match sizes.get(id) {
                None => problem(report, format!("segment {:016x} is missing in the store: its data is lost", id.0)),
                Some(&size) if size != segment.object_bytes => {
                    let want = segment.object_bytes;
                    problem(report, format!("segment {:016x} has {size} bytes instead of {want}", id.0));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Header and index of every segment: what a volume is read back from when its metadata is lost.
    async fn check_frames(&self, table: &BTreeMap<SegmentId, Segment>, report: &mut CheckReport) {
        for (&id, _) in table.iter().filter(|(_, segment)| segment.extents > 0) {
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
