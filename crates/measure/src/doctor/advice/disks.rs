//! Other disks, more of them, or the same in another layout.

use larder_base::units::ByteSize;

use super::{Candidate, GAIN_MIN, Means, STORAGE, candidate, candidates, forget};
use crate::doctor::describe::{Described, Disk, Layout, Measured, What};
use crate::doctor::diagnose::Finding;
use crate::doctor::limits::DiskKind;
use crate::doctor::stages::{StageKind, stages};
use crate::doctor::words::{bytes_words, rate_words};

/// Smaller ones cost more in metadata and parity than they gain.
const RECORD_BYTES_MIN: u64 = 16 << 10;

pub(super) fn disks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    let random = measured.what.is_random();
    let layout = described.shape(measured).layout;
    if random && layout.parity() > 0 {
        let mut after = forget(described, STORAGE);
        (after.layout, after.copies, after.groups) = (Layout::Mirror, 2, 1);
        let how = "make the pool anew as mirrors of two: each pair answers by itself, for half of the room";
        let mut mirrored = measured.clone();
        mirrored.how.shape = None;
        all.push(in_proportion(
            described,
            measured,
            candidate("mirrors instead of parity", Means::Change, how, after, &mirrored),
        ));
    }
    if let (true, Some(record), Some(block)) = (random, described.record_bytes, measured.block_bytes())
        && record > block
    {
        let mut after = forget(described, STORAGE);
        after.record_bytes = Some(block.max(RECORD_BYTES_MIN));
        let size = ByteSize(block.max(RECORD_BYTES_MIN));
        let how =
            format!("zfs set recordsize={} DATASET, and write the files anew: only new ones get it", kibibytes(size.0));
        all.push(candidate(
            format!("records of {size}, as small as what is asked for"),
            Means::Change,
            how,
            after,
            measured,
        ));
    }
    let rates: Vec<f64> = described.disks.iter().filter_map(|d| d.rate(measured.what)).collect();
    if let Some(slowest) = rates.iter().copied().reduce(f64::min)
        && let Some(next) = rates.iter().copied().filter(|r| *r > slowest * GAIN_MIN).reduce(f64::min)
    {
        let mut after = forget(described, STORAGE);
        let mut names = Vec::new();
        for disk in after.disks.iter_mut().filter(|d| d.rate(measured.what).is_some_and(|r| r < slowest * 1.01)) {
            names.push(format!("'{}'", disk.name));
            set(disk, measured.what, next);
            disk.connection = None;
        }
        let how = "another slot if its connection is slower than the others', otherwise another disk";
        all.push(candidate(
            format!("{} as fast as the others", names.join(" and ")),
            Means::Purchase,
            how,
            after,
            measured,
        ));
    }
    all.extend(other_kind(described, measured));
    if measured.disks.is_empty() && layout != Layout::Linear {
        let mut after = forget(described, STORAGE);
        if let Some(disk) = after.disks.last_mut() {
            disk.count += 1;
            let how = format!("buy another '{}'", disk.name);
            all.push(in_proportion(
                described,
                measured,
                candidate("one disk more", Means::Purchase, how, after, measured),
            ));
        }
    }
    all
}

fn kibibytes(bytes: u64) -> String {
    format!("{}K", bytes.div_ceil(1024).next_power_of_two())
}

/// The limit was found further down: what helps there helps here, as far as the rest allows.
pub(super) fn storage_below(described: &Described, measured: &Measured, findings: &[Finding]) -> Vec<Candidate> {
    let below = findings.iter().rfind(|f| {
        STORAGE.contains(&f.measured.path) && f.measured.path != measured.path && f.measured.what == measured.what
    });
    let Some(below) = below else { return Vec::new() };
    let all = candidates(described, below, findings);
    all.into_iter().map(|c| Candidate { measured: measured.clone(), after: forget(&c.after, STORAGE), ..c }).collect()
}

/// Where the disks are the limit and only their number or layout changes, what was measured changes as they do.
fn in_proportion(described: &Described, measured: &Measured, candidate: Candidate) -> Candidate {
    let disks =
        |d: &Described, m: &Measured| stages(d, m).into_iter().find(|s| s.kind == StageKind::Disks).map(|s| s.capacity);
    let at_most = match (disks(described, measured), disks(&candidate.after, &candidate.measured)) {
        (Some(before), Some(after)) => measured.rate * after / before,
        _ => candidate.at_most,
    };
    Candidate { at_most, ..candidate }
}

fn set(disk: &mut Disk, what: What, rate: f64) {
    match what {
        What::Read => disk.read = Some(rate),
        What::Write => disk.write = Some(rate),
        What::RandomRead => disk.random_read = Some(rate),
        What::RandomWrite => disk.random_write = Some(rate),
    }
}

/// A kind of disk that does not have this limit; it counts with the lower end of what is usual.
pub(super) fn other_kind(described: &Described, measured: &Measured) -> Option<Candidate> {
    let kind = described.disks.iter().find_map(|d| d.kind)?;
    let (better, what) = match (kind, measured.what) {
        (DiskKind::Qlc, What::Write) => (DiskKind::SataSsd, "TLC disks instead of QLC"),
        (DiskKind::Smr, What::Write) => (DiskKind::Hdd, "conventional (CMR) disks instead of shingled ones"),
        (DiskKind::Hdd | DiskKind::Smr, What::RandomRead | What::RandomWrite) => {
            (DiskKind::SataSsd, "SSDs instead of hard disks")
        }
        (DiskKind::SdCard | DiskKind::UsbStick | DiskKind::Emmc, _) => {
            (DiskKind::SataSsd, "an SSD instead of a card or stick")
        }
        (DiskKind::SataSsd, _) => (DiskKind::Nvme, "NVMe instead of SATA"),
        _ => return None,
    };
    let usual = better.physical();
    let (read, write) = (usual.usual_read.0, usual.usual_write.0);
    let mut after = forget(described, STORAGE);
    for disk in after.disks.iter_mut().filter(|d| d.kind == Some(kind)) {
        disk.kind = Some(better);
        (disk.read, disk.write) = (Some(read), Some(write));
        (disk.random_read, disk.random_write) = (Some(usual.usual_random_read.0), Some(usual.usual_random_write.0));
        (disk.cache_bytes, disk.latency_s, disk.flush_s) = (None, None, None);
        disk.connection = disk.connection.take().filter(|_| better != DiskKind::Nvme);
    }
    let how = format!(
        "buy {}s; an ordinary one does at least {}",
        usual.name,
        match measured.what.is_random() {
            true => rate_words(
                if measured.what.writes() { usual.usual_random_write.0 } else { usual.usual_random_read.0 },
                measured.what
            ),
            false => bytes_words(if measured.what.writes() { write } else { read }),
        }
    );
    Some(candidate(what, Means::Purchase, how, after, measured))
}
