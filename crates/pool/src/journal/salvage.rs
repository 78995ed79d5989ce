//! Reading journals without a pool: every copy that lies on the disks given, none of them changed.
//!
//! What an opening of the pool would refuse is told here instead: a gap in a stream is a fault
//! beside the entries that are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_base::checksum::checksum;
use larder_base::log::LogEntry;
use uuid::Uuid;

use super::format::{BatchHeader, SegmentHeader, segment_seed};
use super::replay::{Rebuild, SegmentImage, StreamState, scan};
use super::segments::{DIRECTORY, file_name, parse_file_name};
use crate::disk::{DiskIo, read_file};

/// A segment file longer than this is not ours.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Files looked at on one disk.
const FILES_MAX: usize = 4096;

/// Where the copies of one segment lie: (disk, file).
type Places = Vec<(usize, u32)>;

/// The contents of the journals of some disks, merged.
#[derive(Default)]
pub struct Found {
    streams: BTreeMap<String, StreamState>,
    places: BTreeMap<u64, Places>,
    /// Segments found, by sequence: files, and records in them.
    pub segments: Vec<SegmentFound>,
    /// The last batch was begun and is not whole on any copy: it was being written when the machine
    /// stopped, or was damaged since.
    pub is_torn: bool,
    /// The newest batch that was found whole.
    pub batch_last: u64,
    /// Acknowledged changes are missing: how that is known.
    pub loss: Option<String>,
}

/// One segment of the journal, as the disks given hold it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SegmentFound {
    /// Its sequence number: later segments have higher ones.
    pub sequence: u64,
    /// The disks that have it, as they were given.
    pub disks: Vec<usize>,
    /// The file's name on the first of these disks.
    pub file: String,
    /// The length that its header states, in bytes.
    pub bytes: u64,
    /// Intact records in it.
    pub records: usize,
    /// The end of its last intact batch, in bytes from the segment's start.
    pub end: u64,
}

/// The remains of one stream.
#[derive(Debug, Default)]
pub struct LogRead {
    /// The intact entries, by id.
    pub entries: Vec<LogEntry>,
    /// Missing entries, one sentence each.
    pub faults: Vec<String>,
}

/// Reads the segments of all disks. Blocks.
pub fn read_all(pool: Uuid, disks: &[Arc<dyn DiskIo>]) -> Found {
    let mut found = Found { places: places(pool, disks), ..Found::default() };
    let mut rebuild = Rebuild::default();
    for (sequence, places) in &found.places {
        let Some(image) = image(pool, disks, *sequence, places) else { continue };
        let scanned = scan(pool, &image);
        found.batch_last = found.batch_last.max(scanned.batch_last);
        found.is_torn = begins_batch(pool, &image, scanned.end);
        for (record, location) in &scanned.records {
            let from = location.offset as usize;
            let payload = scanned.merged.get(from..from + location.bytes as usize).unwrap_or_default();
            rebuild.apply(record, *location, payload);
        }
        found.segments.push(SegmentFound {
            sequence: *sequence,
            disks: places.iter().map(|(disk, _)| *disk).collect(),
            file: places.first().map(|(_, file)| file_name(*file)).unwrap_or_default(),
            bytes: image.header.bytes,
            records: scanned.records.len(),
            end: scanned.end,
        });
    }
    found.streams = rebuild.finish();
    found
}

/// Whether some copy has the head of a batch at `offset`.
fn begins_batch(pool: Uuid, image: &SegmentImage, offset: u64) -> bool {
    let seed = segment_seed(pool, image.header.sequence);
    let head = |copy: &Vec<u8>| BatchHeader::decode(copy.get(offset as usize..)?, seed, offset);
    image.copies.iter().any(|copy| head(copy).is_some())
}

/// A copy whose header is damaged counts as a copy of the same file elsewhere. Its records
/// themselves say whether that is so.
fn places(pool: Uuid, disks: &[Arc<dyn DiskIo>]) -> BTreeMap<u64, Places> {
    let mut sequences: BTreeMap<u64, Places> = BTreeMap::new();
    let mut headless: Vec<(usize, u32)> = Vec::new();
    for (at, disk) in disks.iter().enumerate() {
        let names = disk.list(DIRECTORY).unwrap_or_default();
        for file in
            names.iter().filter_map(|name| parse_file_name(name)).collect::<BTreeSet<_>>().into_iter().take(FILES_MAX)
        {
            let head = read_file(&**disk, &file_name(file), SegmentHeader::BYTES as u64).unwrap_or_default();
            match SegmentHeader::decode_in(&head, pool, file) {
                Some(header) => sequences.entry(header.sequence).or_default().push((at, file)),
                None => headless.push((at, file)),
            }
        }
    }
    for (at, file) in headless {
        for places in sequences.values_mut().filter(|places| places.iter().any(|(_, other)| *other == file)) {
            places.push((at, file));
        }
    }
    sequences
}

fn image(pool: Uuid, disks: &[Arc<dyn DiskIo>], sequence: u64, places: &Places) -> Option<SegmentImage> {
    let read = |(disk, file): &(usize, u32)| read_file(&**disks.get(*disk)?, &file_name(*file), SEGMENT_BYTES_MAX).ok();
    let copies: Vec<Vec<u8>> = places.iter().filter_map(read).collect();
    let header = copies.iter().filter_map(|copy| SegmentHeader::decode(copy, pool)).find(|h| h.sequence == sequence)?;
    Some(SegmentImage { header, copies })
}

impl Found {
    /// Compares the journal with the batch that a label proves, and with the existence of objects,
    /// which are put through an open journal (`journal.loss_refused`).
    pub fn compare(&mut self, proven: u64, has_objects: bool) {
        let last = self.batch_last;
        self.loss = if last < proven {
            Some(format!(
                "the journal ends with batch {last}, and batch {proven} was durable: acknowledged changes are missing"
            ))
        } else if self.segments.is_empty() && has_objects {
            Some("nothing is left of the journal: acknowledged changes may be missing".to_owned())
        } else {
            None
        };
    }

    /// The streams, and how many entries each has.
    pub fn streams(&self) -> Vec<(String, usize, Option<String>)> {
        self.streams.iter().map(|(name, s)| (name.clone(), s.entries.len(), s.damage.clone())).collect()
    }

    /// The entries of `stream` that some disk has intact. Blocks.
    pub fn read(&self, pool: Uuid, disks: &[Arc<dyn DiskIo>], stream: &str) -> LogRead {
        let mut read = LogRead { faults: self.loss.iter().cloned().collect(), ..LogRead::default() };
        let Some(state) = self.streams.get(stream) else { return read };
        read.faults.extend(state.damage.clone());
        for (id, location) in &state.entries {
            let seed = segment_seed(pool, location.segment) ^ location.offset;
            let places = self.places.get(&location.segment).map(Vec::as_slice).unwrap_or_default();
            let payload = places.iter().find_map(|(disk, file)| {
                let file = disks.get(*disk)?.open(&file_name(*file), false).ok()?;
                let mut bytes = vec![0; location.bytes as usize];
                let count = file.read_at(&mut [std::io::IoSliceMut::new(&mut bytes)], location.offset).ok()?;
                (count == bytes.len() && checksum(seed, &bytes) == location.checksum).then_some(bytes)
            });
            match payload {
                Some(payload) => read.entries.push(LogEntry { id: *id, payload: payload.into() }),
                None => read.faults.push(format!("entry {id} of {stream} cannot be read any more")),
            }
        }
        read
    }
}
