//! Bounds: what physics, a standard or a measurement's own companions allow at most, and companions that do not fit.
//!
//! A bound caps nothing in a chain. A rate above it contradicts the description.

use serde::Serialize;

use super::case::Case;
use super::rig::ResourceId;
use super::stage::{Basis, Stage};
use super::table::Measurement;
use crate::describe::limits::{DiskKind, Physical};
use crate::describe::{Path, What};

/// A figure beside a rate that cannot be of the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misfit {
    /// Cores that work and wait for more than all of the time.
    BusyAndWaiting,
    /// A queue that its own latency shows to be mostly empty.
    QueueNotKept,
    /// A client takes no part in what is measured on the machine itself.
    ClientHere,
    /// Retransmissions need a network; a local measurement has none.
    SegmentsHere,
    /// No disk takes part in a measurement of the wire alone.
    DisksBesideWire,
    BlockBeyondFile,
}

impl Misfit {
    /// Stable, for programs.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::BusyAndWaiting => "busy-and-waiting",
            Self::QueueNotKept => "queue-not-kept",
            Self::ClientHere => "client-here",
            Self::SegmentsHere => "segments-here",
            Self::DisksBesideWire => "disks-beside-wire",
            Self::BlockBeyondFile => "block-beyond-file",
        }
    }
}

type Test = fn(&Case) -> bool;

const MISFITS: &[(Misfit, Test)] = &[
    (Misfit::BusyAndWaiting, is_busy_and_waiting),
    (Misfit::QueueNotKept, is_queue_not_kept),
    (Misfit::ClientHere, |case| is_here(case) && case.measurement.setup.client.is_some()),
    (Misfit::SegmentsHere, |case| is_here(case) && case.measurement.usage.retransmits.is_some_and(|p| p > 0.0)),
    (Misfit::DisksBesideWire, has_disks_beside_wire),
    (Misfit::BlockBeyondFile, |case| {
        case.measurement.setup.block_bytes > case.measurement.file_bytes && case.measurement.file_bytes.is_some()
    }),
];

/// A bench's figures are of many moments: only what a person typed is held against its companions.
pub(super) fn misfit(case: &Case) -> Option<Misfit> {
    let typed = !case.rig.described.of_bench;
    MISFITS.iter().filter(|_| typed).find(|(_, test)| test(case)).map(|(misfit, _)| *misfit)
}

fn is_here(case: &Case) -> bool {
    matches!(case.measurement.setup.layer, Path::Disks | Path::Local)
}

/// The busiest core may stand for a thread that moves, so the others are averaged.
fn is_busy_and_waiting(case: &Case) -> bool {
    const ALL_OF_THE_TIME_PERCENT: f64 = 115.0;
    let usage = &case.measurement.usage;
    let mut cores = usage.cores.clone();
    cores.sort_by(f64::total_cmp);
    let others = cores.len().saturating_sub(1).max(1);
    let busy = cores.iter().take(others).sum::<f64>() / others as f64;
    usage.iowait.is_some_and(|wait| !cores.is_empty() && busy + wait > ALL_OF_THE_TIME_PERCENT)
}

/// Little's law from the other side. About one under way is a program that waits for each request, and a limit.
fn is_queue_not_kept(case: &Case) -> bool {
    const DEEP: f64 = 4.0;
    const KEPT: f64 = 0.3;
    const ONE: std::ops::RangeInclusive<f64> = 0.7..=1.3;
    let m = case.measurement;
    let (Some(depth), Some(latency_s), Some(per_second)) = (m.setup.in_flight, m.latency_s, requests_per_second(m))
    else {
        return false;
    };
    let kept = per_second * latency_s;
    depth >= DEEP && kept < depth * KEPT && !ONE.contains(&kept)
}

fn has_disks_beside_wire(case: &Case) -> bool {
    let usage = &case.measurement.usage;
    let busy = usage.disk_busy.is_some_and(|percent| percent >= 50.0) || usage.iowait.is_some_and(|p| p >= 25.0);
    case.measurement.setup.layer == Path::Net && busy
}

fn requests_per_second(m: &Measurement) -> Option<f64> {
    match m.setup.is_random() {
        true => Some(m.rate),
        false => Some(m.rate / m.setup.block_bytes? as f64),
    }
}

/// The bounds of a case, in the unit of its rate.
pub(super) fn bounds(case: &Case) -> Vec<Stage> {
    let all = [of_kind(case), of_medium(case), of_own_latency(case), of_busy_time(case), of_lossy_wire(case)];
    all.into_iter().flatten().collect()
}

fn bound(resource: ResourceId, limit: f64) -> Option<Stage> {
    (limit.is_finite() && limit > 0.0).then(|| Stage::new(resource, limit, Basis::Physics))
}

/// No disks of these kinds give more.
fn of_kind(case: &Case) -> Option<Stage> {
    let setup = &case.measurement.setup;
    // Caches and filesystems gather random writes.
    let disks = case.rig.disks(&setup.disks);
    if disks.is_empty() || setup.is_random() && setup.writes() {
        return None;
    }
    let bytes: f64 = disks.iter().map(|(disk, n)| Physical::of(disk.kind).most_bytes_per_s * f64::from(*n)).sum();
    let random: f64 = disks.iter().map(|(disk, n)| Physical::of(disk.kind).most_random_per_s * f64::from(*n)).sum();
    let operations = if setup.is_random() { random } else { f64::INFINITY };
    bound(ResourceId::Disks, (bytes / setup.unit_bytes()).min(operations) * case.rig.described.compression_ratio)
}

/// One request after the other, each as quick as the medium. A hard disk has no capacitor that answers a flush.
fn of_medium(case: &Case) -> Option<Stage> {
    let setup = &case.measurement.setup;
    let disks = case.rig.disks(&setup.disks);
    let times = disks.iter().map(|(disk, _)| disk.kind.map(|kind| kind.physical().least_latency_s));
    let least_s = times.reduce(|a, b| Some(a?.min(b?)))??;
    let turns = disks.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
    let flushed = turns && setup.sync && setup.writes();
    let bytes = match setup.what() {
        What::RandomRead => 1.0,
        What::RandomWrite if flushed => 1.0,
        What::Write if flushed => setup.block_bytes? as f64,
        _ => return None,
    };
    bound(ResourceId::Requests, setup.in_flight? / least_s * bytes)
}

/// Little's law over the measurement's own figures.
fn of_own_latency(case: &Case) -> Option<Stage> {
    let m = case.measurement;
    let bytes = if m.setup.is_random() { 1.0 } else { m.setup.block_bytes? as f64 };
    // Figures are rounded.
    bound(ResourceId::Requests, m.setup.in_flight? / m.latency_s? * bytes * 1.2)
}

/// Disks give no more than their limit for the part of the time in which they were busy.
fn of_busy_time(case: &Case) -> Option<Stage> {
    let setup = &case.measurement.setup;
    let busy = case.measurement.usage.disk_busy.filter(|_| setup.layer != Path::Net)? / 100.0;
    let all = case.known_disk_stage()?.limit;
    let gathered = setup.is_random() && setup.writes();
    let share = busy * 1.5 + 0.1;
    (!gathered && !case.rig.described.of_bench && share < 0.9).then(|| bound(ResourceId::Disks, all * share))?
}

/// Retransmitted bytes pass the wire as well. A bench counts the segments of all connections of the machine.
fn of_lossy_wire(case: &Case) -> Option<Stage> {
    let typed = case.measurement.setup.is_remote() && !case.rig.described.of_bench;
    let lost = case.measurement.usage.retransmits.filter(|_| typed)? / 100.0;
    let network = case.rig.network()?;
    let line = network.wire.as_ref().map_or(network.bytes_per_s, |wire| wire.line.max(network.bytes_per_s));
    bound(ResourceId::Network, line * (1.0 - lost) / case.measurement.setup.unit_bytes())
}

/// Heads of hard disks in all, as requests wait for each other there; without a bound for other disks.
pub(super) fn heads(rig: super::rig::Rig, setup: &super::table::Setup) -> f64 {
    let seeks = |at: usize, count: u32| {
        let disk = rig.disk(at)?;
        let kind = disk.kind.filter(|kind| kind.turns())?.physical();
        disk.latency_s.filter(|seconds| *seconds >= kind.least_latency_s)?;
        Some(disk.random_read.unwrap_or(kind.usual_random_read.1) * f64::from(count))
    };
    let each: Option<Vec<f64>> = setup.disks.iter().map(|(at, count)| seeks(*at, *count)).collect();
    let bytes = if setup.is_random() { Some(1.0) } else { setup.block_bytes.map(|block| block as f64) };
    match (each.filter(|each| !each.is_empty() && setup.reads()), bytes) {
        (Some(each), Some(bytes)) => each.iter().sum::<f64>() * bytes,
        _ => f64::INFINITY,
    }
}
