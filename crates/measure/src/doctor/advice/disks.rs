//! Other disks, more of them, or the same in another layout.

use larder_base::units::ByteSize;

use super::{Candidate, GAIN_MIN, Means, STORAGE, candidate, candidates, forget, forget_together};
use crate::doctor::describe::{Described, Disk, How, Layout, Measured, Path, What};
use crate::doctor::diagnose::Finding;
use crate::doctor::limits::{DiskKind, Wire};
use crate::doctor::stages::{Slowest, StageKind, count, slowest, stages, through_wire, used};
use crate::doctor::words::{bytes_words, rate_words};

/// Smaller ones cost more in metadata and parity than they gain.
const RECORD_BYTES_MIN: u64 = 16 << 10;

pub(super) fn disks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    let random = measured.what.is_random();
    let layout = described.shape(measured).layout;
    if random && layout.parity() > 0 {
        let mut after = forget_together(described);
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
        let mut after = forget_together(described);
        // What one disk gave through a pool it gave in records of the old size.
        after.measured.retain(|m| m.path == Path::Disks || !m.what.is_random());
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
    all.extend(rebuilt(described, measured));
    let used = used(described, measured);
    let slow = slowest(described, measured, &used);
    let replaced = slow.and_then(|slow| as_fast_as_others(described, measured, &used, slow));
    let unequal = replaced.is_some();
    all.extend(replaced);
    let kind = slow.map_or_else(|| described.disks.iter().find_map(|d| d.kind), |slow| slow.disk.kind);
    all.extend(other_kind(described, measured, kind));
    if layout == Layout::Linear && count(&used) > 1 && !random {
        let mut after = forget_together(described);
        (after.layout, after.groups) = (Layout::Stripe, 1);
        let mut striped = measured.clone();
        striped.how.shape = None;
        let how = "make the pool anew as a stripe, or as a mirror or with parity: a file then lies on several disks";
        all.push(candidate("a stripe instead of one disk after the other", Means::Change, how, after, &striped));
    }
    // More of the slow ones, or beside them, is less than having none of them.
    let every: u32 = described.disks.iter().map(|disk| disk.count).sum();
    if count(&used) == every && layout != Layout::Linear && !unequal {
        all.extend(more_disks(described, measured));
    }
    all
}

/// As many as the layout takes at a time, where there is room for them.
fn more_disks(described: &Described, measured: &Measured) -> Option<Candidate> {
    let shape = described.shape(measured);
    let now = count(&used(described, measured));
    // One by itself is as fast beside another.
    (now > 1 || measured.path != Path::Disks).then_some(())?;
    let group = now / shape.groups.max(1);
    let more = match shape.layout {
        // Pairs, or whole groups: a disk beside them has nobody to be a copy of.
        Layout::Mirror => shape.copies,
        layout if layout.parity() > 0 && (shape.groups > 1 || layout.is_raidz() && measured.what.is_random()) => group,
        _ => 1,
    };
    let all: u32 = described.disks.iter().map(|disk| disk.count).sum();
    let room = described.slots.is_none_or(|slots| all + more <= slots);
    let mut after = forget_together(described);
    let disk = after.disks.last_mut().filter(|_| room && more > 0)?;
    // A board has one slot for a card, and none for soldered flash.
    (!matches!(disk.kind, Some(DiskKind::SdCard | DiskKind::Emmc | DiskKind::UsbStick))).then_some(())?;
    disk.count += more;
    let (what, how) = match more {
        1 => ("one disk more".to_owned(), format!("buy another '{}'", disk.name)),
        n => (format!("{n} disks more"), format!("buy {n} more '{}': the layout takes as many at a time", disk.name)),
    };
    if more == group && shape.layout.parity() > 0 {
        after.groups += 1;
    }
    let how_it_lies = How { shape: measured.how.shape.filter(|_| more == 1), ..measured.how.clone() };
    // Named disks were all there were.
    let disks = if described.of_bench { measured.disks.clone() } else { Vec::new() };
    let of = Measured { how: how_it_lies, disks, ..measured.clone() };
    Some(in_proportion(described, measured, candidate(what, Means::Purchase, how, after, &of)))
}

/// The slowest disks replaced by such as the next faster ones.
fn as_fast_as_others(
    described: &Described,
    measured: &Measured,
    used: &[(&Disk, u32)],
    slow: Slowest,
) -> Option<Candidate> {
    let rate = |disk: &Disk| through_wire(described, disk, measured);
    let faster = used.iter().filter_map(|(disk, _)| Some((*disk, rate(disk)?)));
    let (like, next) = faster.filter(|(_, r)| *r > slow.rate * GAIN_MIN).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut after = forget(described, STORAGE);
    let mut names = Vec::new();
    for disk in after.disks.iter_mut().filter(|d| used.iter().any(|(u, _)| u.name == d.name)) {
        let Some(own) = described.disks.iter().find(|d| d.name == disk.name).and_then(rate) else { continue };
        let replaced = own < slow.rate * 1.01;
        if replaced {
            names.push(format!("'{}'", disk.name));
            *disk = Disk { name: disk.name.clone(), count: disk.count, via: disk.via.clone(), ..like.clone() };
        }
        // With what was measured of each by itself, which is forgotten.
        set(disk, measured.what, if replaced { next } else { own });
        disk.cache_bytes = None;
    }
    let how = match slow.disk.kind == like.kind {
        true => "another slot if its connection is slower than the others', otherwise another disk".to_owned(),
        false => format!("buy another '{}' in its place", like.name),
    };
    Some(candidate(format!("{} as fast as the others", names.join(" and ")), Means::Purchase, how, after, measured))
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
    let number = |d: &Described, m: &Measured| f64::from(count(&used(d, m)).max(1));
    let at_most = match (disks(described, measured), disks(&candidate.after, &candidate.measured)) {
        (Some(before), Some(after)) => measured.rate * after / before,
        // Of disks of which nothing is known only their number is.
        _ => measured.rate * number(&candidate.after, &candidate.measured) / number(described, measured),
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
pub(super) fn other_kind(described: &Described, measured: &Measured, kind: Option<DiskKind>) -> Option<Candidate> {
    let kind = kind.or_else(|| so_slow_that_it_turns(described, measured))?;
    let lanes = |d: &Disk| d.connection.as_ref().is_some_and(|wire| wire.name.starts_with("PCIe"));
    let beyond_sata = |d: &Disk| d.read.is_some_and(|read| read > DiskKind::SataSsd.physical().most_bytes_per_s);
    let in_lanes = described.disks.iter().any(|d| d.kind == Some(kind) && (lanes(d) || beyond_sata(d)));
    let (better, what) = match (kind, measured.what) {
        (DiskKind::Qlc, What::Write) if in_lanes => (DiskKind::Nvme, "TLC disks instead of QLC"),
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
    for disk in after.disks.iter_mut().filter(|d| d.kind.unwrap_or(kind) == kind) {
        disk.kind = Some(better);
        (disk.read, disk.write) = (Some(read), Some(write));
        (disk.random_read, disk.random_write) = (Some(usual.usual_random_read.0), Some(usual.usual_random_write.0));
        (disk.cache_bytes, disk.latency_s, disk.flush_s) = (None, None, None);
        // In an enclosure it still has the enclosure's wire.
        let kept = |wire: &Wire| better != DiskKind::Nvme || in_lanes || wire.name.starts_with("USB");
        disk.connection = disk.connection.take().filter(kept);
        disk.temperature_c = None;
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

/// What was measured of the pool was measured without the disk.
pub(super) fn rebuilt(described: &Described, measured: &Measured) -> Option<Candidate> {
    let after = Described { degraded: false, ..forget_together(described) };
    let how = "put a disk in its place (zpool replace, mdadm --add, larder pool replace), and wait until it is rebuilt: zpool status or /proc/mdstat say how long";
    let one = candidate("the missing disk replaced and rebuilt", Means::Change, how, after, measured);
    described.degraded.then_some(one)
}

pub(super) fn of_kind(described: &Described, kind: DiskKind) -> Option<DiskKind> {
    described.disks.iter().find_map(|d| d.kind.filter(|k| *k == kind))
}

/// Where nobody said what the disks are: only what turns, or a card, is so slow at random.
fn so_slow_that_it_turns(described: &Described, measured: &Measured) -> Option<DiskKind> {
    let used = used(described, measured);
    let unknown = !used.is_empty() && used.iter().all(|(disk, _)| disk.kind.is_none());
    let each = measured.rate / f64::from(count(&used).max(1));
    let slow = measured.what.is_random() && each <= DiskKind::Hdd.physical().most_random_per_s;
    (unknown && slow).then_some(DiskKind::Hdd)
}
