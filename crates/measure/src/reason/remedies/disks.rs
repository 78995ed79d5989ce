//! Remedies for disks and their layout.

use super::catalogue::Remedy;
use super::change::{Change, GAIN_MIN, Sick};
use super::outcome::table_after;
use crate::describe::limits::{DiskKind, Wire};
use crate::describe::{Disk, Layout, Path, What};
use crate::reason::chain::chain;
use crate::reason::disks::Storage;
use crate::reason::evidence::{Evidence, Mode};
use crate::reason::rig::{ResourceId, Rig};
use crate::reason::stage::Basis;
use crate::reason::table::Table;

pub(super) fn of_disks(sick: &Sick) -> Vec<Change> {
    let setup = &sick.measurement.setup;
    let layout = setup.shape.layout;
    let mut all = Vec::new();
    let relaid = |remedy: Remedy, layout: Layout, copies: u32| {
        let mut change = sick.change(remedy, &[ResourceId::Disks]);
        change.keeps_single_disks = true;
        change.setup.shape.layout = layout;
        (change.setup.shape.groups, change.setup.shape.copies) = (1, copies);
        change
    };
    if setup.is_random() && layout.parity() > 0 && setup.layer != Path::Disks {
        all.push(in_proportion(sick, relaid(Remedy::Mirrors, Layout::Mirror, 2)));
    }
    if layout == Layout::Linear && setup.disk_count() > 1 && !setup.is_random() {
        all.push(relaid(Remedy::Stripe, Layout::Stripe, 1));
    }
    if let (true, Some(record)) = (setup.is_random(), sick.rig.described.record_bytes)
        && record as f64 > setup.unit_bytes()
    {
        let mut change = sick.change(Remedy::SmallerRecords, &[ResourceId::Disks]);
        change.after.record_bytes = Some((setup.unit_bytes() as u64).max(16 << 10));
        all.push(change);
    }
    all.extend(rebuild(sick));
    let equal = equal_disk(sick);
    let every: u32 = sick.rig.described.disks.iter().map(|disk| disk.count).sum();
    if setup.disk_count() == every && layout != Layout::Linear && equal.is_none() {
        all.extend(more_disks(sick));
    }
    all.extend(equal);
    all.extend(other_kind(sick));
    // Disks that were waited for and give less than their figure: more of them would be waited for alike.
    if let Evidence::Busy { .. } = sick.verdict.evidence
        && sick.verdict.stages.iter().any(|s| s.resource == ResourceId::Disks && s.basis != Basis::Usual)
    {
        all.retain(|change| change.remedy != Remedy::MoreDisks);
        all.push(sick.change(Remedy::DisksAsFigure, &[ResourceId::Disks]));
    }
    all
}

/// The rate changes in proportion to the disks' limit where only their number or layout changes.
fn in_proportion(sick: &Sick, change: Change) -> Change {
    let limit = |rig: Rig, table: &Table, at: usize| {
        let stages = chain(rig, table, at).into_iter().filter(|s| s.resource == ResourceId::Disks && !s.is_below());
        stages.map(|s| s.limit).reduce(f64::min)
    };
    let (table, at) = table_after(sick, &change);
    let before = limit(sick.rig, sick.table, sick.row);
    let ratio = match (before, limit(Rig::new(&change.after), &table, at)) {
        (Some(before), Some(after)) => after / before,
        _ => f64::from(change.setup.disk_count()) / f64::from(sick.measurement.setup.disk_count().max(1)),
    };
    let below = sick.row_below().map(|row| sick.rate_of(row)).filter(|rate| *rate >= sick.rate());
    Change { at_most: below.unwrap_or(sick.rate()) * ratio, ..change }
}

fn more_disks(sick: &Sick) -> Option<Change> {
    let setup = &sick.measurement.setup;
    let now = setup.disk_count();
    (now > 1 || setup.layer != Path::Disks).then_some(())?;
    let shape = setup.shape;
    let group = now / shape.groups.max(1);
    // Pairs, or whole groups: a single disk beside them would have nobody to be a copy of.
    let more = match shape.layout {
        Layout::Mirror => shape.copies,
        layout if layout.parity() > 0 && (shape.groups > 1 || layout.is_raidz() && setup.is_random()) => group,
        _ => 1,
    };
    let all: u32 = sick.rig.described.disks.iter().map(|disk| disk.count).sum();
    let room = sick.rig.described.slots.is_none_or(|slots| all + more <= slots);
    let (at, _) = setup.disks.last()?;
    let kind = sick.rig.disk(*at)?.kind;
    let soldered = matches!(kind, Some(DiskKind::SdCard | DiskKind::Emmc | DiskKind::UsbStick));
    (room && more > 0 && !soldered).then_some(())?;
    let mut change = Change { keeps_single_disks: true, ..sick.change(Remedy::MoreDisks, &[ResourceId::Disks]) };
    change.thing = Some(if more == 1 { "one more disk".to_owned() } else { format!("{more} more disks") });
    change.after.disks.get_mut(*at)?.count += more;
    change.setup.disks.last_mut()?.1 += more;
    if more == group && shape.layout.parity() > 0 {
        change.setup.shape.groups += 1;
    }
    Some(in_proportion(sick, change))
}

/// The slowest disks replaced by such as the next faster ones.
fn equal_disk(sick: &Sick) -> Option<Change> {
    let setup = &sick.measurement.setup;
    let storage = Storage { rig: sick.rig, table: sick.table, at: sick.row, measurement: sick.measurement };
    let rate = |at: usize| {
        let wire =
            sick.rig.disk(at)?.connection.as_ref().map_or(f64::INFINITY, |wire| wire.practical / setup.unit_bytes());
        Some(storage.one(at, setup.what())?.high.min(wire))
    };
    let rates: Vec<(usize, f64)> = setup.disks.iter().filter_map(|(at, _)| Some((*at, rate(*at)?))).collect();
    let slowest = rates.iter().map(|(_, rate)| *rate).reduce(f64::min)?;
    let (like, next) = *rates.iter().filter(|(_, r)| *r > slowest * GAIN_MIN).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let like = sick.rig.disk(like)?.clone();
    let mut change = sick.change(Remedy::EqualDisk, &[ResourceId::Disks]);
    let mut replaced_names: Vec<&str> = Vec::new();
    for (at, own) in &rates {
        let disk = change.after.disks.get_mut(*at)?;
        let replaced = *own < slowest * 1.01;
        if replaced {
            replaced_names.extend(sick.rig.disk(*at).map(|disk| disk.name.as_str()));
            *disk = Disk { name: disk.name.clone(), count: disk.count, via: disk.via.clone(), ..like.clone() };
        }
        set_rate(disk, setup.what(), if replaced { next } else { *own });
        disk.cache_bytes = None;
    }
    change.thing = Some(replaced_names.join(" and "));
    Some(change)
}

/// A kind of disk without this limit: it counts with the lower end of what is usual.
pub(super) fn other_kind(sick: &Sick) -> Option<Change> {
    let setup = &sick.measurement.setup;
    let used = sick.rig.disks(&setup.disks);
    let kinds = || used.iter().filter_map(|(disk, _)| disk.kind);
    let wanted = match sick.verdict.evidence {
        Evidence::Reached { mode: Mode::Shingled, .. } => Some(DiskKind::Smr),
        Evidence::Reached { mode: Mode::CacheFull, .. } => Some(DiskKind::Qlc),
        _ => None,
    };
    let kind = match wanted {
        Some(kind) => kinds().find(|k| *k == kind)?,
        None => match kinds().next() {
            Some(kind) => kind,
            // Only what turns is so slow at random.
            None if setup.is_random() && sick.rate() / f64::from(setup.disk_count().max(1)) <= 700.0 => DiskKind::Hdd,
            None => return None,
        },
    };
    let lanes =
        |disk: &Disk| disk.connection.as_ref().is_some_and(Wire::is_pcie) || disk.read.is_some_and(|r| r > 600e6);
    let in_lanes = sick.rig.described.disks.iter().any(|disk| disk.kind == Some(kind) && lanes(disk));
    let better = match (kind, setup.what()) {
        (DiskKind::Qlc, What::Write) if in_lanes => DiskKind::Nvme,
        (DiskKind::Qlc, What::Write) => DiskKind::SataSsd,
        (DiskKind::Smr, What::Write) => DiskKind::Hdd,
        (DiskKind::Hdd | DiskKind::Smr, What::RandomRead | What::RandomWrite) => DiskKind::SataSsd,
        (DiskKind::SdCard | DiskKind::UsbStick | DiskKind::Emmc, _) => DiskKind::SataSsd,
        (DiskKind::SataSsd, _) => DiskKind::Nvme,
        _ => return None,
    };
    let physical = better.physical();
    let mut change = sick.change(Remedy::OtherKind, &[ResourceId::Disks]);
    change.thing = Some(format!("{}s instead of {}s", physical.name, kind.physical().name));
    for disk in change.after.disks.iter_mut().filter(|disk| disk.kind.unwrap_or(kind) == kind) {
        disk.kind = Some(better);
        for what in [What::Read, What::Write, What::RandomRead, What::RandomWrite] {
            set_rate(disk, what, physical.usual(what).0);
        }
        (disk.cache_bytes, disk.latency_s, disk.flush_s, disk.temperature_c) = (None, None, None, None);
        let kept = |wire: &Wire| better != DiskKind::Nvme || in_lanes || wire.name.starts_with("USB");
        disk.connection = disk.connection.take().filter(kept);
    }
    Some(change)
}

pub(super) fn rebuild(sick: &Sick) -> Option<Change> {
    let mut change = Change { keeps_single_disks: true, ..sick.change(Remedy::Rebuild, &[ResourceId::Disks]) };
    change.after.degraded = false;
    sick.rig.described.degraded.then_some(change)
}

pub(super) fn set_rate(disk: &mut Disk, what: What, rate: f64) {
    match what {
        What::Read => disk.read = Some(rate),
        What::Write => disk.write = Some(rate),
        What::RandomRead => disk.random_read = Some(rate),
        What::RandomWrite => disk.random_write = Some(rate),
    }
}
