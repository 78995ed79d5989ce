//! What the disks give together, in their layout, and what each one's own wire lets through.

use larder_base::units::ByteSize;

use super::{Basis, FULL_SHARE, PROOF_SHARE, Stage, StageKind, asked_as_hard, count, layout};
use crate::doctor::describe::{Described, Disk, Layout, Measured, Path, RANDOM_BLOCK_BYTES, What};
use crate::doctor::limits::{DiskKind, Physical};

/// Figures so near to each other are of equal disks.
const ALIKE: f64 = 1.05;

/// A range of one disk, and how it is known.
#[derive(Clone, Copy)]
pub(in crate::doctor) struct One {
    pub(in crate::doctor) low: f64,
    pub(in crate::doctor) high: f64,
    pub(in crate::doctor) basis: Basis,
}

/// A disk by itself: as given, as measured alone, or what is usual of its kind.
pub(in crate::doctor) fn one_disk(described: &Described, disk: &Disk, measured: &Measured) -> Option<One> {
    let what = measured.what;
    let single = |m: &Measured| match m.path {
        Path::Disks => matches!(super::used(described, m).as_slice(), [(only, 1)] if only.name == disk.name),
        Path::Local => m.disks == [(disk.name.clone(), 1)],
        Path::Net | Path::Share => false,
    };
    // Of two measurements of one disk by itself the lower is no limit of the higher, and what came through more layers
    // is none of what came through fewer.
    let same = |m: &Measured| m.path == measured.path && single(measured) && m.rate < measured.rate;
    let below = |m: &Measured| m.path <= measured.path && !same(m);
    let each = each_asked(described, measured);
    let alone =
        |m: &&Measured| single(m) && m.what == what && *m != measured && below(m) && asked_as_hard(described, m, &each);
    let alone = described.measured.iter().filter(alone).map(|m| m.rate).reduce(f64::max);
    // What a shared link let through says less of the disk than its own figure.
    let links = described.links.iter().filter(|link| disk.via.contains(&link.name));
    let link = links.map(|link| if what.writes() { link.write } else { link.read }).reduce(f64::min);
    let held = |alone: &f64| link.is_some_and(|most| alone * bytes_each(measured) >= most * PROOF_SHARE);
    if let Some(rate) = disk.rate(what) {
        let rate = knee(described, disk, measured, rate).min(bandwidth(disk, measured));
        let rate = after_seek(disk, measured, rate);
        // What it did here counts more than what it could do.
        return Some(match alone.filter(|alone| *alone < rate * FULL_SHARE && !held(alone)) {
            Some(alone) => One { low: alone, high: alone, basis: Basis::Measured },
            None => One { low: rate, high: rate, basis: Basis::Given },
        });
    }
    if let Some(rate) = alone {
        return Some(One { low: rate, high: rate, basis: Basis::Measured });
    }
    let (low, high) = disk.kind?.physical().usual(what);
    let most = disk.kind?.physical().most_bytes_per_s / bytes_each(measured);
    Some(One { low: low.min(most), high: high.min(most), basis: Basis::Usual })
}

/// What one of several disks is asked when all are: its part of the requests, unless each of them goes to all.
fn each_asked(described: &Described, measured: &Measured) -> Measured {
    let used = super::used(described, measured);
    let all = layout(described, measured, &used).is_some_and(|layout| layout.is_raidz());
    let disks = if all { 1.0 } else { f64::from(count(&used)).max(1.0) };
    let mut each = measured.clone();
    each.how.in_flight = measured.how.in_flight.map(|n| (n / disks).max(1.0));
    each
}

/// However many operations a disk does, their bytes are no more than what it gives in order.
fn bandwidth(disk: &Disk, measured: &Measured) -> f64 {
    let in_order = match measured.what {
        What::RandomRead => disk.read.or(disk.kind.map(|kind| kind.physical().most_bytes_per_s)),
        // What a cache takes fast is taken fast in any order.
        What::RandomWrite => {
            let given = disk.write.map(|write| write.max(disk.write_cached.unwrap_or(0.0)));
            let cached = disk.kind.is_none_or(DiskKind::has_fast_cache) && disk.write_cached.is_none();
            given.filter(|_| !cached).or(disk.kind.map(|kind| kind.physical().most_bytes_per_s))
        }
        What::Read | What::Write => None,
    };
    in_order.map_or(f64::INFINITY, |bytes| bytes / bytes_each(measured))
}

/// A hard disk's head first moves, and then the bytes pass under it. Operations are given for 4 KiB.
fn after_seek(disk: &Disk, measured: &Measured, rate: f64) -> f64 {
    let more = bytes_each(measured) - RANDOM_BLOCK_BYTES as f64;
    let in_order = if measured.what.writes() { disk.write.or(disk.read) } else { disk.read };
    let in_order = in_order.or(disk.kind.map(|kind| kind.physical().most_bytes_per_s));
    match in_order.filter(|_| measured.what.is_random() && more > 0.0 && disk.kind.is_some_and(DiskKind::turns)) {
        Some(bytes) => 1.0 / (1.0 / rate + more / bytes),
        None => rate,
    }
}

/// A disk with a fast cache writes the beginning of a file faster than its rest.
fn knee(described: &Described, disk: &Disk, measured: &Measured, rate: f64) -> f64 {
    let (Some(cache), Some(fast), Some(file)) = (disk.cache_bytes, disk.write_cached, measured.file_bytes) else {
        return rate;
    };
    if measured.what != What::Write || fast <= rate {
        return rate;
    }
    let disks = super::used(described, measured);
    let each = file as f64 * super::amplified(described, measured, &disks) / f64::from(count(&disks)).max(1.0);
    let quick = each.min(cache as f64);
    each / (quick / fast + (each - quick) / rate)
}

/// Where less of a file than this went into a disk's fast cache, the figure is that of the disk without it.
const CACHED_PART: f64 = 0.5;

/// Which part of what was written a disk's fast cache took.
fn cached_part(described: &Described, disk: &Disk, measured: &Measured) -> Option<f64> {
    let rate = disk.rate(measured.what)?;
    let slower = disk.write_cached.is_some_and(|fast| fast > rate) && measured.what == What::Write;
    let disks = super::used(described, measured);
    let each = measured.file_bytes? as f64 * super::amplified(described, measured, &disks);
    slower.then_some(disk.cache_bytes? as f64 / each.max(1.0))
}

/// What no disks of these kinds exceed together, in operations or bytes on the disks: for contradictions.
pub(in crate::doctor) fn allows_at_most(used: &[(&Disk, u32)], what: What) -> f64 {
    let each = |disk: &Disk| {
        let physical = Physical::of(disk.kind);
        if what.is_random() { physical.most_random_per_s } else { physical.most_bytes_per_s }
    };
    used.iter().map(|(disk, n)| each(disk) * f64::from(*n)).sum()
}

pub(super) fn disks(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let each: Vec<(&Disk, One, u32)> =
        used.iter().map(|(disk, n)| Some((*disk, one_disk(described, disk, measured)?, *n))).collect::<Option<_>>()?;
    let basis = each.iter().map(|(_, one, _)| one.basis).max_by_key(|b| *b as u8)?;
    let full_cache = match used {
        [(disk, 1)] => cached_part(described, disk, measured).filter(|part| *part < CACHED_PART),
        _ => None,
    };
    // Several disks are added up with what each one's wire lets through; a single one's wire is a stage of its own.
    let wire = |disk: &Disk| match &disk.connection {
        Some(wire) if count(used) > 1 => wire.practical / bytes_each(measured),
        _ => f64::INFINITY,
    };
    let high: Vec<(f64, u32)> = each.iter().map(|(d, one, n)| (one.high.min(wire(d)), *n)).collect();
    let low: Vec<(f64, u32)> = each.iter().map(|(d, one, n)| (one.low.min(wire(d)), *n)).collect();
    let (capacity, how) = together(described, measured, used, &high)?;
    let (low_at_best, _) = together(described, measured, used, &low)?;
    let capacity_low = unlucky(described, measured, used, &low).map_or(low_at_best, |low| low.min(low_at_best));
    let slowest = slowest(described, measured, used);
    let apart = layout(described, measured, used).is_some_and(|layout| layout != Layout::Linear);
    let name = match slowest.filter(|s| s.unequal && (apart || how.contains("slowest"))) {
        Some(slowest) if how.contains("slowest") => format!("{how} ('{}')", slowest.disk.name),
        Some(slowest) => format!("{how}; '{}' is the slowest", slowest.disk.name),
        None if full_cache.is_some() => format!("{how}, whose fast cache is full"),
        None => how.to_owned(),
    };
    let slowest = slowest.map(|s| s.disk);
    let mut stage = Stage::new(StageKind::Disks, name, capacity, basis);
    stage.capacity_low = capacity_low;
    if basis == Basis::Usual {
        stage.why = slowest.and_then(|d| d.kind).map(|kind| kind.physical().why.to_owned());
    } else if let Some(kind) = slowest.and_then(|d| d.kind).filter(|k| explains(*k, measured.what)) {
        stage.why = Some(kind.physical().why.to_owned());
    }
    Some(stage)
}

/// Of the disks that take part, each with what its wire lets through.
#[derive(Clone, Copy)]
pub(in crate::doctor) struct Slowest<'a> {
    pub(in crate::doctor) disk: &'a Disk,
    pub(in crate::doctor) rate: f64,
    /// Others are faster.
    pub(in crate::doctor) unequal: bool,
}

pub(in crate::doctor) fn slowest<'a>(
    described: &Described,
    measured: &Measured,
    used: &[(&'a Disk, u32)],
) -> Option<Slowest<'a>> {
    let rates: Vec<(&Disk, f64)> =
        used.iter().filter_map(|(disk, _)| Some((*disk, through_wire(described, disk, measured)?))).collect();
    let (disk, rate) = *rates.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Slowest { disk, rate, unequal: rates.iter().any(|(_, other)| *other > rate * ALIKE) })
}

/// One disk by itself, with its own wire.
pub(in crate::doctor) fn through_wire(described: &Described, disk: &Disk, measured: &Measured) -> Option<f64> {
    let wire = disk.connection.as_ref().map_or(f64::INFINITY, |wire| wire.practical / bytes_each(measured));
    Some(one_disk(described, disk, measured)?.high.min(wire))
}

/// A record has one checksum: it is read whole, and written anew whole, for whatever small part of it is asked for.
pub(super) fn records(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let (record, block) = (described.record_bytes?, measured.block_bytes()?);
    if !measured.what.is_random() || record <= block {
        return None;
    }
    let whole = |what: What| disks(described, &Measured { what, ..measured.clone() }, used);
    let read = whole(What::Read)?;
    let (of, basis, verb) = match measured.what.writes() {
        false => ((read.capacity, read.capacity_low), read.basis, "read"),
        true => {
            let write = whole(What::Write)?;
            let both = |a: f64, b: f64| 1.0 / (1.0 / a + 1.0 / b);
            let of = (both(read.capacity, write.capacity), both(read.capacity_low, write.capacity_low));
            (of, if read.basis == Basis::Usual { read.basis } else { write.basis }, "read and write")
        }
    };
    // Heads move to each record before it passes under them, and what takes longer of the two is named.
    let turns = used.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
    let seek = disks(described, measured, used).filter(|_| turns);
    let both = |passes: f64, seek: Option<f64>| seek.map_or(passes, |seek| 1.0 / (1.0 / passes + 1.0 / seek));
    let (passes, passes_low) = (of.0 / record as f64, of.1 / record as f64);
    let capacity = both(passes, seek.as_ref().map(|s| s.capacity));
    let low = both(passes_low, seek.as_ref().map(|s| s.capacity_low));
    if let Some(seek) = seek.filter(|seek| seek.capacity < passes) {
        return Some(Stage { capacity, capacity_low: low, ..seek });
    }
    let name = format!("the disks, which {verb} a whole record of {} for each {}", ByteSize(record), ByteSize(block));
    let mut stage = Stage::new(StageKind::Disks, name, capacity, basis);
    stage.capacity_low = low;
    Some(stage.why("a record has one checksum, so all of it is read to check any part of it"))
}

/// Where a kind's nature is the reason.
fn explains(kind: DiskKind, what: What) -> bool {
    match what {
        What::Write => matches!(kind, DiskKind::Qlc | DiskKind::Smr),
        What::RandomRead | What::RandomWrite => kind.turns(),
        What::Read => false,
    }
}

/// Each disk's own wire: bytes per second, also for operations.
pub(super) fn connections(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let block = bytes_each(measured);
    // A disk whose wire is not given counts with what it can itself.
    let each = |disk: &Disk| match &disk.connection {
        Some(wire) if figure_of_wire(described, disk, measured) => {
            one_disk(described, disk, measured).map(|one| one.high.min(wire.practical / block))
        }
        Some(wire) => Some(wire.practical / block),
        None => one_disk(described, disk, measured).map(|one| one.high),
    };
    let rates: Vec<(f64, u32)> = used.iter().map(|(d, n)| Some((each(d)?, *n))).collect::<Option<_>>()?;
    let wired = used.iter().filter_map(|(disk, _)| Some((*disk, disk.connection.as_ref()?)));
    let (disk, wire) = wired.min_by(|a, b| a.1.practical.total_cmp(&b.1.practical))?;
    // What waits for a disk without a wire does not wait for the others' wires.
    let unwired = used.iter().filter(|(disk, _)| disk.connection.is_none());
    if unwired.filter_map(|(disk, _)| each(disk)).any(|rate| rate <= wire.practical / block) {
        return None;
    }
    let (capacity, _) = together(described, measured, used, &rates)?;
    let name = match used.len() {
        1 => format!("the {} connection of each disk", wire.name),
        _ => format!("the {} connection of '{}'", wire.name, disk.name),
    };
    let name = if count(used) == 1 { format!("the {} connection of the disk", wire.name) } else { name };
    let name = format!("{name}{}", super::although(disk.could.as_ref()));
    Some(Stage::new(StageKind::Link, name, capacity, Basis::Derived).why(wire.why))
}

/// Whether a disk's figure was measured through its wire: it is what the wire carries, and any such disk does more.
pub(in crate::doctor) fn figure_of_wire(described: &Described, disk: &Disk, measured: &Measured) -> bool {
    let Some(wire) = disk.connection.as_ref().filter(|_| !measured.what.is_random()) else { return false };
    let least = without_wire(disk, measured.what);
    let figure = one_disk(described, disk, measured).filter(|one| one.basis != Basis::Usual).map(|one| one.high);
    figure.is_some_and(|rate| rate >= wire.practical * PROOF_SHARE && rate <= wire.line && least > wire.line)
}

/// What the least of its kind gives when no wire holds it back; of an unknown kind a hard disk's, which is the slowest.
pub(in crate::doctor) fn without_wire(disk: &Disk, what: What) -> f64 {
    disk.kind.unwrap_or(DiskKind::Hdd).physical().usual(what).0
}

/// Bytes of what is counted: of an operation, or one.
fn bytes_each(measured: &Measured) -> f64 {
    match measured.what.is_random() {
        true => measured.block_bytes().unwrap_or(RANDOM_BLOCK_BYTES) as f64,
        false => 1.0,
    }
}

/// Single rates, put together as the layout does.
fn together(
    described: &Described,
    measured: &Measured,
    used: &[(&Disk, u32)],
    rates: &[(f64, u32)],
) -> Option<(f64, &'static str)> {
    let sum: f64 = rates.iter().map(|(rate, count)| rate * f64::from(*count)).sum();
    let slowest = rates.iter().map(|(rate, _)| *rate).reduce(f64::min)?;
    let fastest = rates.iter().map(|(rate, _)| *rate).reduce(f64::max)?;
    let n = f64::from(count(used));
    let (random, writes) = (measured.what.is_random(), measured.what.writes());
    let shape = described.shape(measured);
    let groups = f64::from(shape.groups);
    let data = |layout: Layout| (n - f64::from(layout.parity()) * groups).max(1.0);
    // What is smaller on the disks passes them faster; an operation stays one.
    let ratio = match measured.path {
        Path::Local | Path::Share if !random => described.compression_ratio,
        _ => 1.0,
    };
    let (capacity, how) = match layout(described, measured, used) {
        None if n > 1.0 => (sum, "the disks together"),
        None => (sum, "the disk itself"),
        Some(Layout::Linear) => (fastest, "one disk: a file lies on one"),
        // Every disk has the same share of every byte: all wait for the slowest.
        Some(Layout::Stripe) if random => (sum, "the disks together"),
        Some(Layout::Stripe) => (n * slowest, "the disks, as fast as the slowest of them"),
        Some(Layout::Mirror) if writes => {
            let all = copies_at_most(rates, shape.copies);
            (all, "the disks, each byte written as often as there are copies")
        }
        Some(Layout::Mirror) => (sum, "the disks together"),
        Some(layout) if layout.is_raidz() && random => {
            let touched = touched(described, n / groups, layout);
            let whole = touched >= n / groups - f64::from(layout.parity());
            let how = match touched > 1.0 {
                _ if groups > 1.0 && whole => "one disk of each group, the slowest",
                true if whole => "one disk, the slowest: each record of a RAIDZ lies on all of them",
                true => "the disks, of which each small record of a RAIDZ takes several",
                false => "the disks together: a record fits on one",
            };
            (slowest * if whole { groups } else { n / touched }, how)
        }
        Some(layout @ (Layout::Raid5 | Layout::Raid6)) if random && writes => {
            // Old data and parity are read before the new are written: 4 operations for RAID 5, 6 for RAID 6.
            (
                sum / f64::from(2 + 2 * layout.parity()),
                "the disks, which read old data and parity before each small write",
            )
        }
        Some(Layout::Raid5 | Layout::Raid6) if random => (sum, "the disks together"),
        Some(layout) => (data(layout) * slowest, "the disks without parity, as fast as the slowest of them"),
    };
    let (left, how) = match layout(described, measured, used).filter(|_| described.degraded) {
        Some(Layout::Mirror) if !writes => ((n - 1.0) / n, "the disks that are left of the mirrors"),
        // What the missing disk had is read from all others: of n disks n-1 do for each n reads n-1 more.
        Some(Layout::Raid5 | Layout::Raid6) if random && !writes => {
            (0.5, "the disks, which are all read for what was on the missing one")
        }
        _ => (1.0, how),
    };
    Some((capacity * ratio * left, how))
}

/// The most of which each byte reaches as many different disks as there are copies, placed as well as can be: with as
/// many disks as copies the slowest one's rate, and no disk takes more than all that is written.
fn copies_at_most(rates: &[(f64, u32)], copies: u32) -> f64 {
    let mut each: Vec<f64> = rates.iter().flat_map(|(rate, n)| std::iter::repeat_n(*rate, *n as usize)).collect();
    each.sort_by(|a, b| b.total_cmp(a));
    // The fastest k of them hold one copy of everything each; the others share the rest.
    let others = |k: u32| each.iter().skip(k as usize).sum::<f64>() / f64::from(copies - k);
    (0..copies.max(1)).map(others).fold(f64::INFINITY, f64::min)
}

/// Where it depends on where data lies, or on who is asked: the least.
fn unlucky(described: &Described, measured: &Measured, used: &[(&Disk, u32)], rates: &[(f64, u32)]) -> Option<f64> {
    let slowest = rates.iter().map(|(rate, _)| *rate).reduce(f64::min)?;
    let (n, writes) = (f64::from(count(used)), measured.what.writes());
    let shape = described.shape(measured);
    let ratio = if measured.what.is_random() { 1.0 } else { described.compression_ratio };
    match layout(described, measured, used)? {
        Layout::Linear => Some(slowest * ratio),
        // Pairs that have the same share of every byte wait for the slowest pair.
        Layout::Mirror if writes => Some(n * slowest / f64::from(shape.copies) * ratio),
        // One reader of one file may be sent to one of the copies only.
        Layout::Mirror if measured.what == What::Read => Some(n * slowest / f64::from(shape.copies) * ratio),
        // What lies on all alike queues up at the slowest.
        Layout::Stripe | Layout::Mirror => Some(n * slowest * ratio),
        Layout::Raid5 | Layout::Raid6 if measured.what == What::RandomRead => Some(n * slowest),
        _ => None,
    }
}

/// Whether each request takes all disks of a group, so that many are done no sooner than one after the other.
pub(in crate::doctor) fn takes_all(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> bool {
    let groups = f64::from(described.shape(measured).groups).max(1.0);
    let disks = f64::from(count(used)) / groups;
    let raidz = layout(described, measured, used).filter(|layout| layout.is_raidz());
    raidz.is_some_and(|layout| touched(described, disks, layout) >= disks - f64::from(layout.parity()))
}

/// How many disks of a RAIDZ group hold a part of one record, in sectors of 4 KiB.
fn touched(described: &Described, disks: f64, layout: Layout) -> f64 {
    let data = (disks - f64::from(layout.parity())).max(1.0);
    let sectors = described.record_bytes.map_or(f64::MAX, |bytes| bytes.div_ceil(4096) as f64);
    sectors.min(data).max(1.0)
}
