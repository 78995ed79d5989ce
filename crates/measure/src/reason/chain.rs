//! The chain: what each resource on the way allows for one setup.
//!
//! A limit is in the unit of the measurement: bytes, or operations of its block size. How it is known decides how much
//! a rate may exceed it before the two contradict each other.

use super::disks::{Storage, least_of_kind};
use super::rig::{End, ResourceId, ResourceKind, Rig};
use super::stage::{Basis, Stage};
use super::table::{Direction, Measurement, Pattern, Setup, Table, is_asked_as_hard};
use crate::describe::limits::{BOT, DiskKind, Duplex};
use crate::describe::{Path, Side};

/// A limit that is a range wider than this says nothing.
pub(super) const RANGE_MAX: f64 = 12.0;
/// Two figures of one wire, by name and as measured, differ by less.
const SAME_WIRE: f64 = 0.95;
/// Cores that did less than this share of the work's need show that the work costs less than its figure.
const WORK_SEEN: f64 = 0.8;
/// Flash behind a bulk-only bridge answers so many random reads, one at a time.
const BULK_ONLY_PER_S: (f64, f64) = (1500.0, 10e3);

/// The stages of a row's way, the lowest limit first.
pub(crate) fn chain(rig: Rig, table: &Table, at: usize) -> Vec<Stage> {
    match table.rows.get(at).and_then(|m| m.setup.reads_percent) {
        Some(percent) => chain_of_mix(rig, table, at, percent / 100.0),
        None => chain_of_one(rig, table, at),
    }
}

/// Of reads and writes in turn each takes its time: the limit of a mix is their harmonic mean.
fn chain_of_mix(rig: Rig, table: &Table, at: usize, reads: f64) -> Vec<Stage> {
    let of = |direction: Direction| {
        let mut pure = table.clone();
        if let Some(row) = pure.rows.get_mut(at) {
            row.setup = Setup { reads_percent: None, ..row.setup.with_direction(direction) };
        }
        chain_of_one(rig, &pure, at)
    };
    let (read, write) = (of(Direction::Read), of(Direction::Write));
    let mean = |a: f64, b: f64| 1.0 / (reads / a + (1.0 - reads) / b);
    let both = read.into_iter().filter_map(|stage| {
        let other = write.iter().find(|other| other.resource == stage.resource && other.row.is_none())?;
        Some(Stage {
            limit: mean(stage.limit, other.limit),
            limit_low: mean(stage.limit_low, other.limit_low),
            basis: stage.basis.max(other.basis),
            // Writes are gathered.
            strict: stage.strict && other.strict,
            ..stage
        })
    });
    let mut stages: Vec<Stage> = both.filter(|stage| stage.row.is_none()).collect();
    stages.sort_by(|a, b| a.limit.total_cmp(&b.limit));
    stages
}

fn chain_of_one(rig: Rig, table: &Table, at: usize) -> Vec<Stage> {
    let Some(measurement) = table.rows.get(at) else { return Vec::new() };
    let storage = Storage { rig, table, at, measurement };
    let setup = &measurement.setup;
    let mut stages = Vec::new();
    if !setup.disks.is_empty() {
        stages.extend(disks(&storage));
        stages.extend(records(&storage));
        stages.extend(ports(&storage));
        stages.extend(bulk_only(rig, setup));
    }
    stages.extend(links(&storage));
    stages.extend(network(rig, setup));
    stages.extend(client(rig, setup));
    stages.extend(requests(&storage, &stages));
    stages.extend(work(rig, measurement));
    stages.extend(cipher(rig, setup));
    stages.extend(below(&storage));
    stages.retain(|stage| stage.limit.is_finite() && stage.limit > 0.0);
    name_the_wire(&storage, &mut stages);
    // Of two alike the wire is named: it can be changed.
    let rank = |stage: &Stage| u8::from(stage.resource == ResourceId::Disks);
    stages.sort_by(|a, b| a.limit.total_cmp(&b.limit).then(rank(a).cmp(&rank(b))));
    stages
}

fn disks(storage: &Storage) -> Option<Stage> {
    let setup = &storage.measurement.setup;
    let (most, least, basis) = disks_for(storage, setup.direction, setup.pattern)?;
    let mut stage = Stage::new(ResourceId::Disks, most, basis);
    (stage.limit_low, stage.crossings) = (least.min(most), storage.amplification());
    // Caches and filesystems gather random writes into sequential ones.
    stage.strict = !(setup.is_random() && setup.writes());
    Some(stage)
}

/// The disks in their layout, each with what its own port lets through where there are several.
fn disks_for(storage: &Storage, direction: Direction, pattern: Pattern) -> Option<(f64, f64, Basis)> {
    let setup = &storage.measurement.setup;
    let what = Setup { pattern, ..setup.with_direction(direction) }.what();
    let unit = if pattern == Pattern::Random { setup.unit_bytes() } else { 1.0 };
    let several = setup.disk_count() > 1;
    let port = |at: usize| {
        let wire = storage.rig.disk(at).filter(|_| several).and_then(|disk| disk.connection.as_ref());
        wire.map_or(f64::INFINITY, |wire| wire.practical / unit)
    };
    let ranges = setup.disks.iter().map(|(at, count)| Some((*at, storage.one(*at, what)?, *count)));
    let ranges = ranges.collect::<Option<Vec<_>>>()?;
    let basis = ranges.iter().map(|(_, range, _)| range.basis).max()?;
    let high: Vec<(f64, u32)> = ranges.iter().map(|(at, range, n)| (range.high.min(port(*at)), *n)).collect();
    let low: Vec<(f64, u32)> = ranges.iter().map(|(at, range, n)| (range.low.min(port(*at)), *n)).collect();
    let (most, _) = storage.together(&high, direction, pattern)?;
    let (at_best, at_worst) = storage.together(&low, direction, pattern)?;
    Some((most, at_best.min(at_worst), basis))
}

/// A record has one checksum: it is read whole, and written whole, for whatever part of it is asked for.
fn records(storage: &Storage) -> Option<Stage> {
    let setup = &storage.measurement.setup;
    // A pool has records, a raw disk has none.
    let record = storage.rig.described.record_bytes.filter(|_| setup.is_random() && setup.layer != Path::Disks)? as f64;
    if record <= setup.unit_bytes() {
        return None;
    }
    let (read, read_low, basis) = disks_for(storage, Direction::Read, Pattern::Sequential)?;
    let both = |a: f64, b: f64| 1.0 / (1.0 / a + 1.0 / b);
    let (mut bytes, mut bytes_low) = (read, read_low);
    if setup.writes() {
        let (write, write_low, _) = disks_for(storage, Direction::Write, Pattern::Sequential)?;
        (bytes, bytes_low) = (both(read, write), both(read_low, write_low));
    }
    let mut stage = Stage::new(ResourceId::Disks, bytes / record, basis);
    stage.limit_low = bytes_low / record;
    // A head moves to each record before it passes.
    let turns = |disk: &crate::describe::Disk| disk.kind.is_some_and(DiskKind::turns);
    let heads = storage.rig.disks(&setup.disks).iter().all(|(disk, _)| turns(disk));
    if let Some((seek, seek_low, _)) = disks_for(storage, setup.direction, Pattern::Random).filter(|_| heads) {
        stage.limit = both(stage.limit, seek);
        stage.limit_low = both(stage.limit_low, seek_low);
    }
    stage.strict = !setup.writes();
    Some(stage)
}

/// Each disk's own wire.
fn ports(storage: &Storage) -> Option<Stage> {
    let setup = &storage.measurement.setup;
    let unit = setup.unit_bytes();
    let rate = |at: usize| -> Option<f64> {
        let wire = storage.rig.disk(at)?.connection.as_ref();
        let one = storage.one(at, setup.what());
        match wire {
            Some(wire) if storage.is_figure_of_port(at, setup.what()) => one.map(|r| r.high.min(wire.practical / unit)),
            Some(wire) => Some(wire.practical / unit),
            None => one.map(|range| range.high),
        }
    };
    let rates = setup.disks.iter().map(|(at, count)| Some((*at, rate(*at)?, *count))).collect::<Option<Vec<_>>>()?;
    let practical = |at: usize| Some(storage.rig.disk(at)?.connection.as_ref()?.practical);
    let wired = rates.iter().filter_map(|(at, ..)| Some((*at, practical(*at)?)));
    let (slowest, least) = wired.min_by(|a, b| a.1.total_cmp(&b.1))?;
    // A disk without a known wire that is slower than all wires is the limit itself.
    let unwired = rates.iter().filter(|(at, ..)| practical(*at).is_none());
    if unwired.map(|(_, rate, _)| *rate).any(|rate| rate <= least / unit) {
        return None;
    }
    let rates: Vec<(f64, u32)> = rates.into_iter().map(|(_, rate, count)| (rate, count)).collect();
    let (limit, _) = storage.together(&rates, setup.direction, setup.pattern)?;
    Some(Stage::new(ResourceId::Port(slowest), limit, Basis::Standard))
}

/// A bulk-only bridge gives its disk the next command when the last one is done (USB Mass Storage, Bulk-Only 1.0, 5.3).
fn bulk_only(rig: Rig, setup: &Setup) -> Option<Stage> {
    let disks = rig.disks(&setup.disks);
    let (slow, fast) = BULK_ONLY_PER_S;
    let waits = |disk: &crate::describe::Disk| {
        let bridged = disk.connection.as_ref().is_some_and(|wire| wire.name.ends_with(BOT));
        let turns = disk.kind.is_none_or(DiskKind::turns);
        let timed = disk.latency_s.is_some() || disk.rate(setup.what()).is_some_and(|rate| rate < fast);
        bridged && !turns && !timed
    };
    let count = f64::from(setup.disk_count());
    let stage = Stage::new(ResourceId::Requests, fast * count, Basis::Usual);
    let bound = setup.is_random() && disks.iter().any(|(disk, _)| waits(disk));
    bound.then_some(Stage { limit_low: slow * count, ..stage })
}

/// Links that several things share. A byte from a disk to a card behind the same link crosses it twice: in one
/// direction after the other on a half-duplex link, in opposite directions at once on a full-duplex one.
fn links(storage: &Storage) -> Vec<Stage> {
    let setup = &storage.measurement.setup;
    let used = storage.rig.disks(&setup.disks);
    let count = f64::from(setup.disk_count()).max(1.0);
    let network = storage.rig.network().filter(|_| setup.is_remote());
    let mut stages = Vec::new();
    for (at, link) in storage.rig.described.links.iter().enumerate() {
        let behind = used.iter().filter(|(disk, _)| disk.via.contains(&link.name));
        let disks = behind.map(|(_, n)| f64::from(*n)).sum::<f64>() / count * storage.amplification();
        let card = if network.is_some_and(|network| network.via.contains(&link.name)) { 1.0 } else { 0.0 };
        if disks + card <= 0.0 {
            continue;
        }
        let (from_disks, to_card) = if setup.reads() { (link.read, link.write) } else { (link.write, link.read) };
        let limit = match link.duplex {
            Duplex::Half => 1.0 / (disks / from_disks + card / to_card),
            Duplex::Full => {
                let lane = |rate: f64, crossings: f64| if crossings > 0.0 { rate / crossings } else { f64::INFINITY };
                lane(from_disks, disks).min(lane(to_card, card))
            }
        };
        let basis = if link.wire.is_some() { Basis::Standard } else { Basis::Typed };
        let stage = Stage::new(ResourceId::Link(at), limit / setup.unit_bytes(), basis);
        stages.push(Stage { crossings: disks + card, ..stage });
    }
    stages
}

fn network(rig: Rig, setup: &Setup) -> Vec<Stage> {
    let Some(network) = rig.network().filter(|_| setup.is_remote()) else { return Vec::new() };
    let unit = setup.unit_bytes();
    let mut stages = vec![Stage::new(ResourceId::Network, network.bytes_per_s / unit, Basis::Typed)];
    if let (Some(window), Some(round_trip_s)) = (network.window_bytes, network.round_trip_s) {
        // At most one window is under way in a round trip (RFC 7323).
        let connections = setup.in_flight.filter(|_| setup.layer == Path::Net).unwrap_or(1.0);
        let limit = connections * window as f64 / round_trip_s / unit;
        stages.push(Stage::new(ResourceId::Connection, limit, Basis::Standard));
    }
    stages
}

fn client(rig: Rig, setup: &Setup) -> Vec<Stage> {
    let mut stages = Vec::new();
    let Some((at, client)) = setup.client.and_then(|at| Some((at, rig.client(Some(at))?))) else { return stages };
    if !setup.is_remote() {
        return stages;
    }
    // A card of the network's own rate is the same wire.
    let narrower = |bytes: f64| rig.network().is_none_or(|network| bytes < network.bytes_per_s * SAME_WIRE);
    if let Some((_, bytes)) = client.network.as_ref().filter(|(_, bytes)| narrower(*bytes)) {
        stages.push(Stage::new(ResourceId::ClientCard(at), bytes / setup.unit_bytes(), Basis::Typed));
    }
    let disk = if setup.reads() { client.disk_write } else { client.disk_read };
    if let Some(bytes) = disk.filter(|_| setup.layer == Path::Share && !setup.is_random()) {
        stages.push(Stage::new(ResourceId::ClientDisk(at), bytes, Basis::Typed));
    }
    stages
}

/// Requests in flight, divided by the time of each, are requests per second (J. D. C. Little, 1961).
fn requests(storage: &Storage, stages: &[Stage]) -> Option<Stage> {
    let setup = &storage.measurement.setup;
    let mut in_flight = setup.in_flight?;
    let bytes = if setup.is_random() { 1.0 } else { setup.block_bytes? as f64 };
    let disks = storage.rig.disks(&setup.disks);
    if disks.iter().any(|(disk, _)| disk.connection.as_ref().is_some_and(|wire| wire.name.ends_with(BOT))) {
        in_flight = in_flight.min(f64::from(setup.disk_count()));
    }
    let slowest = |time: fn(&crate::describe::Disk) -> Option<f64>| {
        disks.iter().filter_map(|(disk, _)| time(disk)).reduce(f64::max)
    };
    let flushed = setup.sync && setup.writes();
    let disk_s = match setup.layer {
        Path::Net => None,
        _ if flushed => slowest(|disk| disk.flush_s).or(slowest(|disk| disk.latency_s)),
        // Sequential writes are gathered in memory.
        _ if setup.writes() && !setup.is_random() => None,
        _ => slowest(|disk| disk.latency_s),
    };
    let round_trip_s = storage.rig.network().and_then(|network| network.round_trip_s);
    let round_trip_s = round_trip_s.filter(|_| setup.layer == Path::Share);
    let wait_s = disk_s.unwrap_or(0.0) + round_trip_s.unwrap_or(0.0);
    if wait_s == 0.0 {
        return None;
    }
    // A write that waits for its flush has the wire and the disks one after the other.
    let alone = in_flight == 1.0 && flushed && !setup.is_random();
    let passed = |stage: &&Stage| {
        let known = stage.resource == ResourceId::Disks && stage.basis != Basis::Usual;
        known || stage.resource == ResourceId::Network
    };
    let transfer_s: f64 = stages.iter().filter(|_| alone).filter(passed).map(|stage| bytes / stage.limit).sum();
    let stage = Stage::new(ResourceId::Requests, in_flight / (wait_s + transfer_s) * bytes, Basis::Standard);
    let gathered = setup.writes() && setup.is_random() && !flushed;
    Some(Stage { strict: flushed || setup.is_random() && !gathered, ..stage })
}

/// Ciphers, compressors and checksums, unless the cores did less than the figure needs.
fn work(rig: Rig, measurement: &Measurement) -> Vec<Stage> {
    let setup = &measurement.setup;
    let mut stages = Vec::new();
    for (at, work) in rig.described.work.iter().enumerate() {
        let passes = match work.paths.is_empty() {
            true => setup.layer == Path::Share || (setup.layer == Path::Local && work.at == Side::Server),
            false => work.paths.contains(&setup.layer),
        };
        let of = work.of.is_empty() || work.of.contains(&setup.what());
        let end = if work.at == Side::Server { End::Server } else { End::Client };
        let cores = cores_of(measurement, end);
        let needed = measurement.bytes_per_s() / (work.bytes_per_s / f64::from(work.cores));
        let cheaper = !cores.is_empty() && cores.iter().sum::<f64>() / 100.0 < needed * WORK_SEEN;
        if passes && of && !cheaper {
            stages.push(Stage::new(ResourceId::Work(at), work.bytes_per_s / setup.unit_bytes(), Basis::Typed));
        }
    }
    stages
}

/// One connection is encrypted by one core. Several exceed it.
fn cipher(rig: Rig, setup: &Setup) -> Option<Stage> {
    let plain = |name: &str| name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let used = plain(setup.encryption.as_ref()?);
    let (_, rate) = rig.described.ciphers.iter().find(|(name, _)| used.contains(&plain(name)))?;
    let stage = Stage::new(ResourceId::Cipher, rate / setup.unit_bytes(), Basis::Measured);
    Some(Stage { strict: false, ..stage })
}

pub(super) fn cores_of(measurement: &Measurement, end: End) -> &[f64] {
    match end {
        End::Server => &measurement.usage.cores,
        End::Client => &measurement.usage.client_cores,
    }
}

/// Limits measured further down: no more than that arrives further up.
fn below(storage: &Storage) -> Vec<Stage> {
    let upper = &storage.measurement.setup;
    let same_disks = |m: &Measurement| m.setup.disks == upper.disks && m.setup.server == upper.server;
    let best = |layer: Path| {
        let lower = |m: &Measurement| {
            m.setup.layer == layer
                && m.setup.what() == upper.what()
                && same_disks(m)
                && is_asked_as_hard(&m.setup, upper)
        };
        let rows = storage.table.others(storage.at).filter(|(_, m)| lower(m));
        rows.max_by(|a, b| a.1.rate.total_cmp(&b.1.rate))
    };
    let mut stages = Vec::new();
    let mut push = |resource, limit: f64, row: usize| {
        stages.push(Stage { row: Some(row), ..Stage::new(resource, limit, Basis::Measured) });
    };
    if upper.layer == Path::Share {
        if let Some((row, local)) = best(Path::Local) {
            push(ResourceId::Disks, local.rate, row);
        }
        let client =
            |m: &Measurement| m.setup.client.is_none() || m.setup.client == upper.client || upper.client.is_none();
        let wire = |m: &Measurement| m.setup.layer == Path::Net && m.setup.direction == upper.direction && client(m);
        let wires = storage.table.others(storage.at).filter(|(_, m)| wire(m));
        if let Some((row, wire)) = wires.max_by(|a, b| a.1.rate.total_cmp(&b.1.rate)) {
            push(ResourceId::Network, wire.rate / upper.unit_bytes(), row);
        }
    }
    let side_by_side = matches!(upper.layer, Path::Share | Path::Local) && !upper.is_random() && upper.disk_count() > 1;
    if let Some((row, disks)) = best(Path::Disks).filter(|_| side_by_side) {
        push(ResourceId::Disks, disks.rate / storage.amplification(), row);
    }
    stages
}

/// A single disk's figure that is what a link on its way carries was measured through that link: it is the link's.
fn name_the_wire(storage: &Storage, stages: &mut [Stage]) {
    const SLACK: f64 = 1.10;
    let setup = &storage.measurement.setup;
    let [(at, 1)] = setup.disks.as_slice() else { return };
    let Some(disk) = storage.rig.disk(*at).filter(|_| !setup.is_random()) else { return };
    let Some(figure) = disk.rate(setup.what()) else { return };
    for stage in stages.iter_mut() {
        let ResourceId::Link(link) = stage.resource else { continue };
        let through = storage.rig.link(link).is_some_and(|link| disk.via.contains(&link.name));
        let near = figure >= stage.limit * 0.8 && figure <= stage.limit * SLACK;
        if through && near && least_of_kind(disk, setup.what()) > stage.limit * SLACK {
            stage.limit = stage.limit.min(figure);
            stage.limit_low = stage.limit_low.min(figure);
        }
    }
}

/// Whether a resource is a processor's own work, so that a full core is no rival of it.
pub(super) fn is_of_cores(rig: Rig, id: ResourceId) -> bool {
    matches!(id, ResourceId::Work(_) | ResourceId::Processor(_) | ResourceId::BothProcessors)
        || rig.kind(id) == ResourceKind::Client
}
