//! Evidence: what a measurement beside its chain says of one resource.
//!
//! Each function here looks at one case and finds one kind of evidence or none. `verdict.rs` has their order.

use serde::Serialize;

use super::bounds::Misfit;
use super::case::{CORE_FULL_PERCENT, Case};
use super::contrast::{Contrast, Property, SPREAD, differing_properties};
use super::rig::{End, ResourceId, ResourceKind};
use super::stage::{Basis, Stage};
use super::table::{Measurement, Pattern};
use crate::describe::limits::{DiskKind, Duplex, Wire};
use crate::describe::{Disk, Layout, Path, What};

/// A slower way in which a resource works. Each is found by one function of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It works as it should, at its limit.
    Normal,
    /// Negotiated at a lower standard: a worse cable, port, slot or adapter.
    SlowerStandard,
    /// One end at half duplex, the other at full.
    DuplexMismatch,
    OneCableOfBond,
    /// Radio behind walls, and with neighbours on its channel.
    WeakRadio,
    Losses,
    Hot,
    /// A shingled disk that rewrites bands.
    Shingled,
    /// Flash whose fast cache is full.
    CacheFull,
    Degraded,
    /// Parity that reads old data before each write.
    ReadsBeforeWrites,
    OneCopy,
    Flush,
    /// One request under way where many were meant.
    OneInFlight,
    /// So few were asked for that each one's time is the limit.
    FewInFlight,
    /// Equal disks that each give what is usual of their kind, and less than is typed.
    BelowFigure,
    /// An adapter, dock or port between two faster things, which nobody described: it has a rate of its own.
    Between,
    /// Each small access moves a whole record.
    WholeRecords,
    /// A file in many pieces, each of which is looked for.
    InPieces,
    /// Small files, each of which waits for the one before.
    OneFileAtATime,
}

/// A resource that was seen busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    Cores,
    OneThread,
    Interrupts,
    Quota,
    Throttled,
    /// Taken by the host of a virtual machine.
    Stolen,
    Disks,
    IoWait,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The rate is this share of a limit.
    Reached {
        mode: Mode,
        share: f64,
    },
    /// Percent of the time.
    Busy {
        what: Use,
        percent: f64,
    },
    /// Another row, where only this property differs, gave so many times the rate.
    Contrast {
        property: Property,
        row: usize,
        ratio: f64,
    },
    /// The rate lies within what is usual of such a resource.
    Usual,
    /// Nobody has varied this yet.
    Missing(Property),
    /// The rate exceeds this limit beyond its slack.
    Contradiction {
        limit: f64,
        basis: Basis,
    },
    /// A figure beside the rate is of something else.
    Misfit(Misfit),
    Doubtful,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub resource: ResourceId,
    pub evidence: Evidence,
}

impl Found {
    pub(super) fn mode(resource: ResourceId, mode: Mode, share: f64) -> Option<Self> {
        Some(Self { resource, evidence: Evidence::Reached { mode, share } })
    }

    fn busy(resource: ResourceId, what: Use, percent: f64) -> Option<Self> {
        Some(Self { resource, evidence: Evidence::Busy { what, percent } })
    }

    fn contrast(resource: ResourceId, contrast: Contrast) -> Option<Self> {
        let Contrast { property, row, ratio } = contrast;
        Some(Self { resource, evidence: Evidence::Contrast { property, row, ratio } })
    }
}

/// From this share of a limit on it is reached: protocols and gaps take the rest.
pub(super) const REACHED: f64 = 0.80;
/// Beside a full core only this share counts: below, the core may have kept the rest from being used.
const REACHED_BESIDE_CORE: f64 = 0.95;
/// 100 Mbit/s fill no core: beside a full core such a wire is reached from here on.
const REACHED_SLOW_WIRE: f64 = 0.70;
pub(super) const SLOW_WIRE_BYTES_PER_S: f64 = 12.5e6;
/// Below this share losses keep a wire from being full; a full wire drops what is too much.
const FULL_WITH_LOSSES: f64 = 0.94;
/// From here on short waits hide the rest.
const CORE_NEARLY_FULL_PERCENT: f64 = 85.0;
const LOSSES_PERCENT: f64 = 0.5;
const IRQ_PERCENT: f64 = 70.0;
const STEAL_PERCENT: f64 = 15.0;
const THROTTLED_PERCENT: f64 = 10.0;
const DISK_BUSY_PERCENT: f64 = 90.0;
const IOWAIT_PERCENT: f64 = 25.0;
/// Rates that differ by this factor do not have the same limit.
pub(super) const STRONG: f64 = 1.5;
/// Directions of one negotiated wire never differ by this factor.
const DIRECTIONS: f64 = 5.0;

/// The rate is near the lowest known limit.
pub(super) fn limit(case: &Case) -> Option<Found> {
    let lowest = case.lowest()?;
    let kind = case.rig.kind(lowest.resource);
    let slow_wire =
        kind == ResourceKind::Network && lowest.limit * case.measurement.setup.unit_bytes() <= SLOW_WIRE_BYTES_PER_S;
    let of_core = matches!(lowest.resource, ResourceId::Work(_)) || kind == ResourceKind::Client;
    let least = match case.has_full_core() && !of_core {
        true if slow_wire => REACHED_SLOW_WIRE,
        true => REACHED_BESIDE_CORE,
        false => REACHED,
    };
    let share = case.rate() / lowest.limit;
    // It proves nothing while a limit that is a range may be lower still.
    let first = case.stages.first().filter(|s| s.limit < lowest.limit && case.rate() >= s.limit_low);
    // Losses keep a wire from being full.
    let wire = kind == ResourceKind::Network && !lowest.is_below();
    let lossy = wire && share < FULL_WITH_LOSSES && !case.has_full_core() && losses(case).is_some();
    (share >= least && first.is_none() && !lossy && !is_passed(case, kind)).then_some(())?;
    Found::mode(lowest.resource, Mode::Normal, share)
}

/// Whether the same with one choice made otherwise passed what all of them cross: then the choice holds this row.
fn is_passed(case: &Case, kind: ResourceKind) -> bool {
    let common = matches!(kind, ResourceKind::Disks | ResourceKind::Link | ResourceKind::Network);
    let choice = |c: &Contrast| {
        let chosen = matches!(c.property, Property::Program | Property::Client | Property::Encryption | Property::Port);
        chosen && c.ratio >= SPREAD
    };
    common && case.contrasts.iter().any(choice)
}

/// Something took processor time away from this work.
pub(super) fn taken(case: &Case) -> Option<Found> {
    let usage = &case.measurement.usage;
    let server = ResourceId::Processor(End::Server);
    if usage.quota {
        return Found::busy(server, Use::Quota, 100.0);
    }
    None
}

pub(super) fn throttled(case: &Case) -> Option<Found> {
    let percent = case.measurement.usage.throttled.filter(|percent| *percent >= THROTTLED_PERCENT)?;
    Found::busy(ResourceId::Processor(End::Server), Use::Throttled, percent)
}

pub(super) fn stolen(case: &Case) -> Option<Found> {
    let percent = case.measurement.usage.steal.filter(|percent| *percent >= STEAL_PERCENT)?;
    Found::busy(ResourceId::Processor(End::Server), Use::Stolen, percent)
}

/// Described work that takes most of a full core; else the core.
pub(super) fn full_core(case: &Case) -> Option<Found> {
    let (server, client) = (case.full_cores(End::Server), case.full_cores(End::Client));
    let end = match (server, client) {
        (0, 0) => return None,
        (_, 0) => End::Server,
        (0, _) => End::Client,
        _ => return Found::busy(ResourceId::BothProcessors, Use::Cores, 100.0),
    };
    let kind = case.rig.kind(ResourceId::Processor(end));
    let works = case.stages.iter().filter(|s| matches!(s.resource, ResourceId::Work(_)));
    let work = works.filter(|s| case.rig.kind(s.resource) == kind).find(|s| case.rate() >= s.limit * REACHED);
    match work {
        Some(work) => Found::mode(work.resource, Mode::Normal, case.rate() / work.limit),
        None => Found::busy(ResourceId::Processor(end), Use::Cores, case.busiest(end).unwrap_or(100.0)),
    }
}

pub(super) fn nearly_full_core(case: &Case) -> Option<Found> {
    let ends = [End::Server, End::Client].into_iter();
    let (end, percent) =
        ends.filter_map(|end| Some((end, case.busiest(end)?))).find(|(_, p)| *p >= CORE_NEARLY_FULL_PERCENT)?;
    Found::busy(ResourceId::Processor(end), Use::Cores, percent)
}

/// One thread that moves between cores shows as several that do about the same, and together one core's work.
pub(super) fn one_thread(case: &Case) -> Option<Found> {
    const ONE_CORE_PERCENT: std::ops::RangeInclusive<f64> = 92.0..=112.0;
    /// A core with this many times the next one's work belongs to another thread.
    const OWN_CORE: f64 = 2.0;
    let mut cores = case.measurement.usage.cores.clone();
    cores.sort_by(|a, b| b.total_cmp(a));
    let [first, second, ..] = cores.as_slice() else { return None };
    let sum: f64 = cores.iter().sum();
    let moves = *first < CORE_NEARLY_FULL_PERCENT && *first <= second * OWN_CORE && ONE_CORE_PERCENT.contains(&sum);
    moves.then_some(())?;
    Found::busy(ResourceId::Processor(End::Server), Use::OneThread, sum)
}

pub(super) fn interrupts(case: &Case) -> Option<Found> {
    let percent = case.measurement.usage.irq.filter(|percent| *percent >= IRQ_PERCENT)?;
    Found::busy(ResourceId::Processor(End::Server), Use::Interrupts, percent)
}

pub(super) fn busy_disks(case: &Case) -> Option<Found> {
    let usage = &case.measurement.usage;
    (case.layer() != Path::Net).then_some(())?;
    if let Some(percent) = usage.disk_busy.filter(|percent| *percent >= DISK_BUSY_PERCENT) {
        return Found::busy(ResourceId::Disks, Use::Disks, percent);
    }
    let percent = usage.iowait.filter(|percent| *percent >= IOWAIT_PERCENT)?;
    Found::busy(ResourceId::Disks, Use::IoWait, percent)
}

/// Another measurement of the same layer kept every core busy, and nobody watched them here.
pub(super) fn cores_of_another(case: &Case) -> Option<Found> {
    let unwatched = case.measurement.usage.cores.is_empty() && !case.measurement.usage.foreign_work;
    let alike = |m: &Measurement| {
        let full = !m.usage.cores.is_empty() && m.usage.cores.iter().all(|busy| *busy >= CORE_FULL_PERCENT);
        let near = (0.5..=2.0).contains(&(m.rate / case.rate()));
        m.setup.layer == case.layer() && m.setup.pattern == case.measurement.setup.pattern && full && near
    };
    let (row, other) = case.table.others(case.at).filter(|_| unwatched).find(|(_, m)| alike(m))?;
    let property = Property::CoresWatched;
    Found::contrast(ResourceId::Processor(End::Server), Contrast { property, row, ratio: other.rate / case.rate() })
}

/// The client's own radio is the narrowest limit, and carries a good part of what radio carries.
pub(super) fn client_radio(case: &Case) -> Option<Found> {
    /// Behind a wall or two this share is left.
    const RADIO_SHARE: f64 = 0.3;
    let first = case.stages.first().filter(|_| case.is_remote())?;
    let ResourceId::ClientCard(at) = first.resource else { return None };
    let wire = case.rig.client(Some(at)).and_then(|client| client.wire.as_ref());
    let share = case.rate() / first.limit;
    (wire.is_some_and(Wire::is_air) && share >= RADIO_SHARE).then_some(())?;
    Found::mode(first.resource, Mode::WeakRadio, share)
}

pub(super) fn network_radio(case: &Case) -> Option<Found> {
    let network = case.rig.network().filter(|_| case.is_remote())?;
    network.radio.then_some(())?;
    Found::mode(ResourceId::Network, Mode::WeakRadio, case.measurement.bytes_per_s() / network.bytes_per_s)
}

/// At 100 Mbit/s one end can be fixed at full duplex while the other negotiates, finds nobody, and takes half: it drops
/// what arrives while it sends (IEEE 802.3, 28.2.3.1).
pub(super) fn duplex_mismatch(case: &Case) -> Option<Found> {
    let slow = Wire::named("100 Mbit")?;
    let wire = case.rig.network()?.wire.as_ref().filter(|wire| wire.is_ethernet())?;
    let lossy = case.measurement.usage.retransmits.is_some_and(|percent| percent >= LOSSES_PERCENT);
    let other_share = |m: &&Measurement| {
        let other = m.setup.layer == Path::Share && m.setup.direction != case.measurement.setup.direction;
        other && m.bytes_per_s() >= case.measurement.bytes_per_s() * DIRECTIONS
    };
    let other = match case.layer() {
        Path::Net => case.other_direction(DIRECTIONS),
        Path::Share => case.over_this_wire().filter(|_| lossy).find(other_share),
        Path::Disks | Path::Local => None,
    };
    let rate = other?.bytes_per_s();
    let at_slow = rate <= slow.line && rate >= slow.practical * 0.5 && wire.practical >= slow.practical;
    at_slow.then_some(())?;
    Found::mode(ResourceId::Network, Mode::DuplexMismatch, case.measurement.bytes_per_s() / rate)
}

/// A connection keeps to one cable, so that its packets do not overtake one another (IEEE 802.1AX, 6.2.1).
pub(super) fn one_cable_of_bond(case: &Case) -> Option<Found> {
    let network = case.rig.network().filter(|_| case.is_remote() && case.rig.is_bonded())?;
    let rate = case.measurement.bytes_per_s();
    let cable = Wire::ethernet_of(rate).filter(|w| rate >= w.practical * REACHED && w.line < network.bytes_per_s)?;
    Found::mode(ResourceId::Network, Mode::OneCableOfBond, rate / cable.practical)
}

pub(super) fn losses(case: &Case) -> Option<Found> {
    let percent = case.measurement.usage.retransmits.filter(|percent| *percent >= LOSSES_PERCENT);
    percent.filter(|_| case.is_remote())?;
    // A wire that is full drops what is too much: that is how TCP finds its pace.
    (slower_network(case).is_none() && one_cable_of_bond(case).is_none()).then_some(())?;
    let radio = case.rig.is_radio(case.measurement.setup.client);
    let resource = match (radio, case.measurement.setup.client, case.rig.is_half_duplex()) {
        (true, Some(at), false) => ResourceId::ClientCard(at),
        _ => ResourceId::Network,
    };
    let limit = case.rig.network().map_or(f64::INFINITY, |network| network.bytes_per_s);
    Found::mode(resource, Mode::Losses, case.measurement.bytes_per_s() / limit)
}

/// One direction of the wire is much slower than the other, which no negotiated speed is.
pub(super) fn one_direction(case: &Case) -> Option<Found> {
    (case.layer() == Path::Net && !case.rig.is_half_duplex()).then_some(())?;
    Found::contrast(ResourceId::Network, case.faster(Property::Direction, DIRECTIONS)?)
}

/// One direction of the wire gives less than the other, beyond the spread.
pub(super) fn unequal_directions(case: &Case) -> Option<Found> {
    (case.layer() == Path::Net && !case.rig.is_half_duplex()).then_some(())?;
    Found::contrast(ResourceId::Network, case.faster(Property::Direction, SPREAD)?)
}

/// Several connections carry more than this one.
pub(super) fn one_connection(case: &Case) -> Option<Found> {
    case.is_remote().then_some(())?;
    let direction = case.measurement.setup.direction;
    let wires = || case.over_this_wire().filter(move |m| m.setup.layer == Path::Net && m.setup.direction == direction);
    let one = wires().filter(|m| m.setup.in_flight == Some(1.0)).max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let several = |m: &&Measurement| m.setup.in_flight.is_some_and(|n| n > 1.0) && m.rate >= one.rate * STRONG;
    let several = wires().filter(several).max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let fits = match case.layer() {
        Path::Net => case.measurement.setup.in_flight == Some(1.0),
        // A share has one connection where nobody asked for more.
        _ => (REACHED..=1.15).contains(&(case.measurement.bytes_per_s() / one.rate)),
    };
    fits.then_some(())?;
    let row = case.table.rows.iter().position(|m| std::ptr::eq(m, several))?;
    let contrast = Contrast { property: Property::InFlight, row, ratio: several.rate / case.measurement.bytes_per_s() };
    Found::contrast(ResourceId::Connection, contrast)
}

/// Another client, adapter or program was much faster on the same disks, or on the same wire.
pub(super) fn another_client(case: &Case) -> Option<Found> {
    faster_client(case, STRONG)
}

/// The same beyond the spread alone.
pub(super) fn another_client_by_little(case: &Case) -> Option<Found> {
    faster_client(case, SPREAD)
}

fn faster_client(case: &Case, factor: f64) -> Option<Found> {
    case.is_remote().then_some(())?;
    // A core that is nearly full says more than another program's rate.
    (case.busiest(End::Client).unwrap_or(0.0) < CORE_NEARLY_FULL_PERCENT).then_some(())?;
    let found = case.faster(Property::Program, factor).or_else(|| case.faster(Property::Client, factor))?;
    Found::contrast(ResourceId::ClientSide, found)
}

/// On the machine itself another program or driver was faster, asked the same way.
pub(super) fn another_program_here(case: &Case) -> Option<Found> {
    (!case.is_remote()).then_some(())?;
    Found::contrast(ResourceId::ClientSide, case.faster(Property::Program, SPREAD)?)
}

/// Small files wait for one another: each is opened, read or written, and closed.
pub(super) fn small_files(case: &Case) -> Option<Found> {
    case.measurement.setup.small_files.then_some(())?;
    match case.faster(Property::SmallFiles, SPREAD) {
        Some(contrast) => Found::contrast(ResourceId::Requests, contrast),
        None => Found::mode(ResourceId::Requests, Mode::OneFileAtATime, 1.0),
    }
}

/// A head looks for each piece of a file: from there to a neighbour a few milliseconds, across the disk with half a turn
/// three times as many.
pub(super) fn in_pieces(case: &Case) -> Option<Found> {
    const SEEK_S: std::ops::RangeInclusive<f64> = 2e-3..=15e-3;
    let setup = &case.measurement.setup;
    let piece = case.measurement.piece_bytes.filter(|_| is_in_order(case) && case.all_turn())?;
    let limit = case.disk_stage()?.limit;
    let with = |seek_s: f64| piece / (piece / limit + seek_s);
    // Several disks look for pieces side by side at best.
    let most = with(*SEEK_S.start()) * case.disk_count();
    let fits = case.rate() >= with(*SEEK_S.end()) * REACHED && case.rate() <= most && case.rate() < limit * REACHED;
    (fits && setup.in_flight.is_none_or(|n| n <= 1.0 || setup.reads()) && !case.is_watched_and_busy()).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::InPieces, case.rate() / limit)
}

/// One large file through a filesystem.
fn is_in_order(case: &Case) -> bool {
    let setup = &case.measurement.setup;
    matches!(case.layer(), Path::Local | Path::Share) && !setup.is_random() && !setup.small_files && !setup.sync
}

/// Turning disks that gave much less of a file than they give alone, where nobody looked how the file lies on them.
pub(super) fn may_be_in_pieces(case: &Case) -> bool {
    let unknown = case.measurement.piece_bytes.is_none() && case.layer() == Path::Local;
    let slow = case.known_disk_stage().is_some_and(|stage| case.rate() < stage.limit_low * REACHED);
    unknown && slow && is_in_order(case) && case.measurement.setup.reads() && case.all_turn()
}

/// A record is read and written as one, so small random access moves many times its bytes.
pub(super) fn whole_records(case: &Case) -> Option<Found> {
    /// From here on the record, and not the access, is what the disks move.
    const MANY: f64 = 4.0;
    let setup = &case.measurement.setup;
    let record = case.rig.described.record_bytes.filter(|_| setup.is_random() && case.layer() != Path::Disks)? as f64;
    (record >= setup.unit_bytes() * MANY && !case.is_watched_and_busy()).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::WholeRecords, setup.unit_bytes() / record)
}

/// On another port, or with another cable, adapter or enclosure, the same was faster.
pub(super) fn another_port(case: &Case) -> Option<Found> {
    Found::contrast(ResourceId::UnknownLink, case.faster(Property::Port, SPREAD)?)
}

/// The same without encryption, or with another kind of it, was faster.
pub(super) fn encryption(case: &Case) -> Option<Found> {
    /// Ciphers of files and disks work on whole blocks of this size: less than one costs as much as one.
    const CIPHER_BLOCK_BYTES: u64 = 4096;
    let setup = &case.measurement.setup;
    setup.encryption.as_ref()?;
    let alone = setup.in_flight.is_some_and(|n| n <= 1.0) && !setup.is_random();
    let tiny = alone && setup.block_bytes.is_some_and(|bytes| bytes < CIPHER_BLOCK_BYTES);
    let resource = if tiny { ResourceId::Requests } else { ResourceId::Cipher };
    Found::contrast(resource, case.faster(Property::Encryption, SPREAD)?)
}

/// Another disk of the same kind was faster, asked the same way.
fn faster_sibling(case: &Case) -> Option<Contrast> {
    let disk = |m: &Measurement| match m.setup.disks.as_slice() {
        [(at, 1)] => case.rig.disk(*at),
        _ => None,
    };
    let this = disk(case.measurement)?;
    let sibling = |c: &&Contrast| {
        let other = case.table.rows.get(c.row).and_then(disk);
        c.property == Property::Disks && c.ratio >= SPREAD && other.is_some_and(|other| other.kind == this.kind)
    };
    case.contrasts.iter().find(sibling).copied()
}

/// A disk alone that is slower than its siblings.
pub(super) fn slow_sibling(case: &Case) -> Option<Found> {
    Found::contrast(ResourceId::Disks, faster_sibling(case)?)
}

/// Something between two faster things that nobody described: an adapter, a dock, a hub. Disks and processors seldom
/// read as fast as they write, so both directions alike are its second witness.
pub(super) fn between(case: &Case) -> Option<Found> {
    const ALIKE: std::ops::RangeInclusive<f64> = 0.92..=1.08;
    let setup = &case.measurement.setup;
    let idle = |end| case.busiest(end).is_none_or(|busy| busy < CORE_NEARLY_FULL_PERCENT);
    let ends = match case.layer() {
        Path::Net => !case.measurement.usage.cores.is_empty() && case.rig.network().is_some(),
        Path::Disks => setup.disk_count() == 1 && case.known_disk_stage().is_some() && !case.all_turn(),
        Path::Local | Path::Share => false,
    };
    let several = setup.in_flight.map_or(case.layer() == Path::Disks, |n| n > 1.0);
    let asked = !setup.is_random() && !setup.sync && several && !case.rig.is_half_duplex();
    (ends && asked && idle(End::Server) && idle(End::Client)).then_some(())?;
    let lowest = case.lowest().filter(|stage| case.rate() < stage.limit * REACHED)?;
    let turned = |m: &Measurement| {
        let one = differing_properties(setup, &m.setup) == [Property::Direction];
        one && ALIKE.contains(&(m.rate / case.rate()))
    };
    case.table.others(case.at).any(|(_, m)| turned(m)).then_some(())?;
    Found::mode(ResourceId::UnknownLink, Mode::Between, case.rate() / lowest.limit)
}

/// A single difference, where nothing stronger explains the rate.
pub(super) fn any_contrast(case: &Case) -> Option<Found> {
    let setup = &case.measurement.setup;
    let single = |row: usize| case.table.rows.get(row).is_some_and(|other| other.setup.disk_count() == 1);
    let resource = |contrast: &Contrast| match contrast.property {
        Property::InFlight if setup.layer == Path::Net => Some(ResourceId::Connection),
        Property::InFlight => Some(ResourceId::Requests),
        // Of random access larger blocks are always more bytes.
        Property::Block if !setup.is_random() => Some(ResourceId::Requests),
        Property::Sync if setup.sync => Some(ResourceId::Disks),
        Property::SmallFiles if setup.small_files => Some(ResourceId::Requests),
        Property::Disks if setup.disk_count() == 1 && single(contrast.row) => Some(ResourceId::Disks),
        Property::Layout => Some(ResourceId::Disks),
        _ => None,
    };
    let faster = case.contrasts.iter().filter(|contrast| contrast.ratio >= SPREAD);
    faster.filter_map(|contrast| Found::contrast(resource(contrast)?, *contrast)).next()
}

/// Disks and wire alone each give much more, so the client or the protocol is left.
pub(super) fn client_is_left(case: &Case) -> Option<Found> {
    (case.layer() == Path::Share).then_some(())?;
    let below = |kind: ResourceKind| {
        let stages = case.stages.iter().filter(move |s| s.is_below() && case.rig.kind(s.resource) == kind);
        stages.min_by(|a, b| a.limit.total_cmp(&b.limit))
    };
    let (wire, disks) = (below(ResourceKind::Network)?, below(ResourceKind::Disks)?);
    let least = case.rate() * STRONG;
    // Without a look at the server's cores it is either end.
    let idle = case.busiest(End::Server).is_some_and(|busy| busy < CORE_NEARLY_FULL_PERCENT);
    (wire.limit >= least && disks.limit >= least && idle).then_some(())?;
    let row = disks.row?;
    Found::contrast(
        ResourceId::ClientSide,
        Contrast { property: Property::Layer, row, ratio: disks.limit / case.rate() },
    )
}

/// The network runs at a lower standard than its name says.
pub(super) fn slower_network(case: &Case) -> Option<Found> {
    let (_, share) = lower_standard(case).filter(|(lower, _)| has_witness(case, lower))?;
    Found::mode(ResourceId::Network, Mode::SlowerStandard, share)
}

/// A rate alone proves no standard: many things give it. Another row at the same standard does, and so does a load that
/// left cores and disks idle.
fn has_witness(case: &Case, lower: &Wire) -> bool {
    let at_standard = |m: &Measurement| (lower.practical * NEAR_SHARE..=lower.line).contains(&m.bytes_per_s());
    // A repeat of the same measurement is no second witness.
    let setup = &case.measurement.setup;
    let mut others = case.over_this_wire().filter(|m| !differing_properties(setup, &m.setup).is_empty());
    let idle = case.busiest(End::Server).is_some_and(|busy| busy < CORE_NEARLY_FULL_PERCENT);
    let disks = case.stages.iter().filter(|s| s.resource == ResourceId::Disks).map(|s| s.limit_low);
    let disks_idle = case.layer() == Path::Net || disks.reduce(f64::min).is_some_and(|low| low >= case.rate() * SPREAD);
    // Nothing but the wire is at work in a wire alone, and nothing else stops at 100 Mbit/s.
    let exact = case.layer() == Path::Net && lower.practical <= SLOW_WIRE_BYTES_PER_S;
    let rare = case.layer() == Path::Share && RARE.contains(&lower.practical);
    exact || others.any(at_standard) || idle && disks_idle && !rare
}

/// Whether the rate is that of a lower standard, of which nothing else tells.
pub(super) fn looks_negotiated(case: &Case) -> bool {
    lower_standard(case).is_some() || lower_port(case).is_some() || lower_link(case).is_some()
}

/// Beside a full core only what cores have no part in: 100 Mbit/s, or just what the wire alone carries.
pub(super) fn slower_network_beside_core(case: &Case) -> Option<Found> {
    const EXACTLY: f64 = 0.97;
    let (lower, share) = lower_standard(case).filter(|_| case.has_full_core())?;
    let slow = lower.practical <= SLOW_WIRE_BYTES_PER_S;
    (slow || case.layer() == Path::Net && share >= EXACTLY).then_some(())?;
    Found::mode(ResourceId::Network, Mode::SlowerStandard, share)
}

/// A share reaches a standard's rate from here on.
const NEAR_SHARE: f64 = 0.88;
/// These standards are rarely negotiated, so require a closer match, and of a share another row at the same standard.
const RARE: [f64; 4] = [294e6, 588e6, 2.94e9, 4.7e9];

fn lower_standard(case: &Case) -> Option<(Wire, f64)> {
    /// The same of a wire alone.
    const NEAR_ALONE: f64 = 0.92;
    const NEAR_RARE: f64 = 0.94;
    /// By so much a rate may exceed what a wire carries, and still be that wire's.
    const ABOVE: f64 = 1.02;
    let wire = case.rig.network().filter(|_| case.is_remote())?.wire.as_ref()?;
    let rate = case.measurement.bytes_per_s();
    let fits = |lower: &Wire| {
        let near = match (RARE.contains(&lower.practical), case.layer()) {
            (true, _) => NEAR_RARE,
            (false, Path::Share) => NEAR_SHARE,
            (false, _) => NEAR_ALONE,
        };
        let exact = lower.practical <= SLOW_WIRE_BYTES_PER_S || RARE.contains(&lower.practical);
        let most = if exact { lower.practical * ABOVE } else { lower.line };
        let passed = case.over_this_wire().any(|m| m.bytes_per_s() > lower.line);
        // A rate that is usual of the disk needs no slower wire.
        let usual = case
            .disk_stage()
            .is_some_and(|s| s.basis == Basis::Usual && case.rate() >= s.limit_low && case.rate() <= s.limit);
        let explained = usual && lower.practical <= SLOW_WIRE_BYTES_PER_S;
        rate >= lower.practical * near && rate <= most && !passed && !explained
    };
    let lower = wire.rungs_below().into_iter().find(fits)?;
    let share = rate / lower.practical;
    Some((lower, share))
}

/// A single disk's port runs at a lower standard. The second witness is the other direction at the same standard, a
/// faster sibling, or the figure of a disk behind a cable. Of PCIe a data sheet is none: heat, a full cache and a
/// worn disk have such rates, too.
pub(super) fn slower_port(case: &Case) -> Option<Found> {
    let (at, lower) = lower_port(case)?;
    let setup = &case.measurement.setup;
    let rate = case.measurement.bytes_per_s();
    let turned = |other: &Measurement| {
        let near = (lower.practical * REACHED..=lower.line).contains(&other.bytes_per_s());
        near && differing_properties(setup, &other.setup) == [Property::Direction]
    };
    let figure = case.rig.disk(at).and_then(|disk| disk.rate(setup.what())).is_some_and(|f| rate < f * REACHED);
    let figure = figure && !lower.is_pcie();
    let witness = figure || case.table.others(case.at).any(|(_, m)| turned(m)) || faster_sibling(case).is_some();
    witness.then(|| Found::mode(ResourceId::Port(at), Mode::SlowerStandard, rate / lower.practical))?
}

fn lower_port(case: &Case) -> Option<(usize, Wire)> {
    const NEAR_PCIE: f64 = 0.92;
    const NEAR: f64 = 0.85;
    let setup = &case.measurement.setup;
    let [(at, 1)] = setup.disks.as_slice() else { return None };
    let disk = case.rig.disk(*at)?;
    let storage_measured = case.stages.iter().any(|s| s.is_below() && s.resource == ResourceId::Disks);
    let wire = disk.connection.as_ref().filter(|_| !setup.is_random() && !storage_measured)?;
    let rate = case.measurement.bytes_per_s();
    let passed = |lower: &Wire| {
        let alone = case.table.rows.iter().filter(|m| m.doubt.is_none() && m.setup.disks == setup.disks);
        alone.into_iter().any(|m| m.bytes_per_s() > lower.line)
    };
    let near = if wire.is_pcie() { NEAR_PCIE } else { NEAR };
    // A rate that is usual of such a disk needs no worse wire, unless this disk is known to do more.
    let usual = disk.kind.map(|kind| kind.physical().usual(setup.what()).0);
    let known = disk.rate(setup.what()).filter(|_| wire.is_pcie()).map(|figure| figure * REACHED);
    let unusual = usual.is_none_or(|usual| rate < usual) || known.is_some_and(|known| rate < known);
    // Writes leave a wire more gaps: beside reads at the standard they fill it a little less.
    let beside = |lower: &Wire| {
        let at_it = |m: &Measurement| m.bytes_per_s() >= lower.practical * near && m.bytes_per_s() <= lower.line;
        let turned = |m: &Measurement| differing_properties(setup, &m.setup) == [Property::Direction];
        case.table.others(case.at).any(|(_, m)| turned(m) && at_it(m))
    };
    let least = |lower: &Wire| lower.practical * if beside(lower) { REACHED } else { near };
    let fits = |lower: &Wire| rate >= least(lower) && rate <= lower.line && !passed(lower);
    Some((*at, wire.rungs_below().into_iter().filter(|_| unusual).find(fits)?))
}

/// A shared link runs at a lower standard than its name. Its second witness is another row at the same standard.
pub(super) fn slower_link(case: &Case) -> Option<Found> {
    let (at, lower, share) = lower_link(case)?;
    let at_standard = |(row, m): (usize, &Measurement)| {
        let stages = super::chain::chain(case.rig, case.table, row);
        let other = Case { rig: case.rig, table: case.table, at: row, measurement: m, stages, contrasts: Vec::new() };
        let differs = !differing_properties(&m.setup, &case.measurement.setup).is_empty();
        differs && lower_link(&other).is_some_and(|(link, wire, _)| link == at && wire.practical == lower.practical)
    };
    let idle = case.busiest(End::Server).is_some_and(|busy| busy < CORE_NEARLY_FULL_PERCENT);
    (idle || case.table.others(case.at).any(at_standard)).then_some(())?;
    Found::mode(ResourceId::Link(at), Mode::SlowerStandard, share)
}

fn lower_link(case: &Case) -> Option<(usize, Wire, f64)> {
    const NEAR: f64 = 0.92;
    let setup = &case.measurement.setup;
    let each = case.rate() / case.disk_count().max(1.0);
    let usual =
        case.disks().iter().filter_map(|(disk, _)| disk.kind).any(|kind| each >= kind.physical().usual(setup.what()).0);
    if setup.is_random() || usual {
        return None;
    }
    case.rig.described.links.iter().enumerate().find_map(|(at, link)| {
        let several = setup.disk_count() > 1;
        let wire = link.wire.as_ref().filter(|wire| link.could.is_none() && !(several && wire.is_pcie()))?;
        // A figure that somebody measured of it is no name's figure.
        (link.read == wire.practical && link.write == wire.practical).then_some(())?;
        let crossed = |m: &Measurement, stages: &[Stage]| {
            let stage = stages.iter().find(|s| s.resource == ResourceId::Link(at))?;
            Some(m.rate / stage.limit * wire.practical)
        };
        let rate = crossed(case.measurement, &case.stages)?;
        let others = || case.table.rows.iter().enumerate().filter(|(_, m)| m.doubt.is_none());
        let passed = |lower: &Wire| {
            let carried = |(row, m): (usize, &Measurement)| crossed(m, &super::chain::chain(case.rig, case.table, row));
            others().filter_map(carried).any(|other| other > lower.line)
        };
        let twice = case.stages.iter().find(|s| s.resource == ResourceId::Link(at)).is_some_and(|s| s.crossings >= 2.0);
        let over = |lower: &Wire| if lower.duplex == Duplex::Half && twice { rate * 2.0 } else { rate };
        let fits = |lower: &Wire| over(lower) >= lower.practical * NEAR && over(lower) <= lower.line && !passed(lower);
        let lower = wire.rungs_below().into_iter().find(fits)?;
        let share = over(&lower) / lower.practical;
        Some((at, lower, share))
    })
}

/// A disk at the limit that it names itself.
pub(super) fn hot_disk(case: &Case) -> Option<Found> {
    let hot = |disk: &Disk| disk.temperature_c.zip(disk.temperature_max_c).is_some_and(|(now, most)| now >= most);
    (case.layer() != Path::Net && case.disks().iter().any(|(disk, _)| hot(disk))).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::Hot, share_of_disks(case))
}

/// A disk whose own limit nobody knows, at a temperature from which some of its kind throttle: data sheets say 70 to 85
/// degrees Celsius for flash, 60 for hard disks.
pub(super) fn warm_disk(case: &Case) -> Option<Found> {
    const HOT_FLASH_C: f64 = 70.0;
    const HOT_TURNING_C: f64 = 60.0;
    let usual = |disk: &Disk| if disk.kind.is_some_and(DiskKind::turns) { HOT_TURNING_C } else { HOT_FLASH_C };
    let unknown = |disk: &Disk| disk.temperature_max_c.is_none();
    let hot = |disk: &Disk| unknown(disk) && disk.temperature_c.is_some_and(|degrees| degrees >= usual(disk));
    (case.layer() != Path::Net && case.disks().iter().any(|(disk, _)| hot(disk))).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::Hot, share_of_disks(case))
}

fn share_of_disks(case: &Case) -> f64 {
    case.disk_stage().map_or(0.0, |stage| case.rate() / stage.limit)
}

pub(super) fn shingled(case: &Case) -> Option<Found> {
    /// Below this share of the first limit the bands explain the rest.
    const SLOW: f64 = 0.6;
    let kind = case.disks().iter().any(|(disk, _)| disk.kind == Some(DiskKind::Smr));
    let slow = case.stages.first().is_some_and(|stage| case.rate() < stage.limit * SLOW);
    (kind && slow && case.writes_to_disks()).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::Shingled, share_of_disks(case))
}

/// Flash takes the beginning of a file fast, as one bit a cell, and the rest at its own rate.
pub(super) fn full_cache(case: &Case) -> Option<Found> {
    /// No disk's fast cache holds more.
    const CACHE_BYTES_MAX: f64 = 50e9;
    let setup = &case.measurement.setup;
    (case.writes_to_disks() && !setup.is_random() && case.stands_at_disks()).then_some(())?;
    if case.measurement.usage.slowed {
        return Found::mode(ResourceId::Disks, Mode::CacheFull, share_of_disks(case));
    }
    let disks = case.disks();
    let each = case.rate() / case.disk_count().max(1.0);
    let is = |kinds: &[DiskKind]| disks.iter().all(|(disk, _)| disk.kind.is_some_and(|kind| kinds.contains(&kind)));
    let four_bits = disks.iter().any(|(disk, _)| disk.kind == Some(DiskKind::Qlc));
    if four_bits && each <= DiskKind::Qlc.physical().usual_write.1 {
        return Found::mode(ResourceId::Disks, Mode::CacheFull, share_of_disks(case));
    }
    let file = case.measurement.file_bytes.filter(|_| !disks.is_empty() && is(&[DiskKind::SataSsd, DiskKind::Nvme]))?;
    let below = case.disk_stage().is_some_and(|stage| case.rate() < stage.limit * REACHED);
    (below && file as f64 >= CACHE_BYTES_MAX * case.disk_count()).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::CacheFull, share_of_disks(case))
}

/// A write that waits for a flush that nobody timed.
pub(super) fn flush(case: &Case) -> Option<Found> {
    /// Flash with capacitors answers a flush in a few hundredths of this.
    const FLASH_S: f64 = 0.2e-3;
    let setup = &case.measurement.setup;
    let disks = case.disks();
    let untimed = disks.iter().all(|(disk, _)| disk.flush_s.is_none()) && setup.server.is_none();
    let idle = case.busiest(End::Server).unwrap_or(0.0) < CORE_NEARLY_FULL_PERCENT;
    ((setup.sync || looks_synced(case)) && case.writes_to_disks() && untimed && idle).then_some(())?;
    let each_s = setup.in_flight.unwrap_or(1.0) / per_second(case)? - round_trip_s(case);
    let turns = disks.iter().any(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
    let least_s = if turns { DiskKind::Hdd.physical().least_latency_s } else { FLASH_S };
    (each_s >= least_s).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::Flush, share_of_disks(case))
}

/// A small write that nobody waits for ends in memory. On hard disks one at a time that takes longer than a seek and a
/// turn is waited for: `O_SYNC`, a mount with `sync`, an fsync after each.
fn looks_synced(case: &Case) -> bool {
    const SMALL_BYTES: u64 = 64 << 10;
    const LONG_S: f64 = 20e-3;
    let setup = &case.measurement.setup;
    let small = setup.block_bytes.is_some_and(|bytes| bytes <= SMALL_BYTES) && !setup.is_random();
    let alone = setup.in_flight.is_some_and(|n| n <= 1.0) && !case.is_remote() && case.all_turn();
    small && alone && per_second(case).is_some_and(|n| 1.0 / n >= LONG_S)
}

/// Requests a second, where their size is known.
fn per_second(case: &Case) -> Option<f64> {
    match case.measurement.setup.pattern {
        Pattern::Random => Some(case.rate()),
        Pattern::Sequential => Some(case.rate() / case.measurement.setup.block_bytes? as f64),
    }
}

fn round_trip_s(case: &Case) -> f64 {
    let round_trip = case.rig.network().and_then(|network| network.round_trip_s);
    round_trip.filter(|_| case.layer() == Path::Share).unwrap_or(0.0)
}

/// fio's psync engine, and many programs, have one request under way, whatever depth they are given.
pub(super) fn one_in_flight(case: &Case) -> Option<Found> {
    /// From here on a depth was meant to keep something busy.
    const DEEP: f64 = 4.0;
    const ABOUT: std::ops::RangeInclusive<f64> = 0.7..=1.3;
    let setup = &case.measurement.setup;
    let depth = setup.in_flight.filter(|depth| *depth >= DEEP && case.layer() != Path::Net)?;
    let per_second = per_second(case)?;
    (!case.storage().asks_all_disks()).then_some(())?;
    let disks = case.disks();
    let slowest = |time: fn(&Disk) -> Option<f64>| disks.iter().filter_map(|(disk, _)| time(disk)).reduce(f64::max);
    let timed = match setup.sync && setup.writes() {
        true => slowest(|disk| disk.flush_s),
        false => slowest(|disk| disk.latency_s).filter(|_| setup.what() != What::Write),
    };
    // One head at a time is at work then.
    let turning = |disk: &Disk| disk.random_read.filter(|_| disk.kind.is_some_and(DiskKind::turns)).map(|n| 1.0 / n);
    let seek = || slowest(turning).filter(|_| setup.disk_count() > 1 && setup.what() == What::RandomRead);
    let disk_s = timed.or_else(seek).map(|seconds| seconds + round_trip_s(case));
    let each_s = case.measurement.latency_s.or(disk_s)?;
    ABOUT.contains(&(per_second * each_s)).then_some(())?;
    Found::mode(ResourceId::Requests, Mode::OneInFlight, 1.0 / depth)
}

/// So few requests in flight that each one's time is the limit. More of them, or larger ones, were faster where that was
/// measured.
pub(super) fn few_in_flight(case: &Case) -> Option<Found> {
    const FEW: f64 = 2.0;
    let setup = &case.measurement.setup;
    let depth = setup.in_flight.filter(|depth| *depth <= FEW || is_fewer_than_disks(case))?;
    (setup.block_bytes.is_some() || setup.is_random()).then_some(())?;
    let block = case.faster(Property::Block, SPREAD).filter(|_| !setup.is_random());
    if let Some(contrast) = case.faster(Property::InFlight, SPREAD).or(block) {
        return Found::contrast(ResourceId::Requests, contrast);
    }
    // Read-ahead keeps a disk busy: at its usual rate nothing waited.
    let usual = case
        .disk_stage()
        .is_some_and(|s| s.is_range() && s.limit <= s.limit_low * STRONG && case.rate() >= s.limit_low);
    (setup.is_random() || !usual).then_some(())?;
    Found::mode(ResourceId::Requests, Mode::FewInFlight, 1.0 / depth)
}

fn is_fewer_than_disks(case: &Case) -> bool {
    let setup = &case.measurement.setup;
    // Read-ahead asks several disks for one program.
    let alone = setup.is_random() || setup.caches == Some(crate::describe::Caching::Bypassed);
    alone && setup.in_flight.is_some_and(|depth| depth < case.disk_count())
}

/// A missing disk's data is computed from the others, and a rebuild takes their time.
pub(super) fn degraded(case: &Case) -> Option<Found> {
    let here = matches!(case.layer(), Path::Local | Path::Share) && case.measurement.setup.server.is_none();
    let first = case.stages.iter().find(|s| s.basis != Basis::Usual || s.resource == ResourceId::Disks)?;
    let disks = matches!(case.rig.kind(first.resource), ResourceKind::Disks | ResourceKind::Link);
    (case.rig.described.degraded && here && disks).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::Degraded, share_of_disks(case))
}

/// Disks in a layout that scales, on this machine, that give less than they could together.
fn below_together<'a>(case: &'a Case) -> Option<&'a Stage> {
    let scales = match case.storage().layout() {
        None => true,
        // One reader of a mirror may have been given one copy.
        Some(Layout::Mirror) => case.stages.iter().all(|stage| case.rate() < stage.limit_low * REACHED),
        Some(layout) => !layout.is_raidz() && layout != Layout::Linear,
    };
    (case.disk_count() >= 2.0 && scales && !case.is_remote() && !is_fewer_than_disks(case)).then_some(())?;
    case.known_disk_stage().filter(|stage| case.rate() < stage.limit_low * REACHED)
}

/// RAID 5 and 6 compute parity from a whole stripe, or from what they read before each write.
pub(super) fn reads_before_writes(case: &Case) -> Option<Found> {
    const LEAST: f64 = 0.1;
    const ROUNDED: f64 = 1.02;
    let all = below_together(case)?;
    let layout = case.storage().layout().filter(|layout| matches!(layout, Layout::Raid5 | Layout::Raid6))?;
    let usage = &case.measurement.usage;
    let idle = usage.disk_busy.is_some_and(|busy| busy < 50.0)
        || case.busiest(End::Server).is_some_and(|b| b >= CORE_NEARLY_FULL_PERCENT);
    let setup = &case.measurement.setup;
    let loaded = case.stages.iter().any(|s| matches!(s.resource, ResourceId::Link(_)) && is_loaded(case, s));
    (setup.what() == What::Write && !idle && !setup.sync && !loaded).then_some(())?;
    let (count, parity) = (case.disk_count(), f64::from(layout.parity()));
    let most = count * (all.limit / (count - parity).max(1.0)) / (2.0 + 2.0 * parity);
    (case.rate() >= most * LEAST && case.rate() <= most * ROUNDED).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::ReadsBeforeWrites, case.rate() / most)
}

/// A link that carries less than this share of its rate is not waited for.
fn is_loaded(case: &Case, stage: &Stage) -> bool {
    const LOADED: f64 = 0.4;
    case.rate() >= stage.limit * LOADED
}

/// The best that one of these disks gave by itself.
fn one_alone(case: &Case) -> Option<f64> {
    let setup = &case.measurement.setup;
    let alone = |m: &Measurement| match m.setup.disks.as_slice() {
        [(at, 1)] => m.setup.layer <= setup.layer && setup.disks.iter().any(|(disk, _)| disk == at),
        _ => false,
    };
    let rows = case.table.rows.iter().filter(|m| m.doubt.is_none() && m.setup.what() == setup.what());
    rows.filter(|m| alone(m)).map(|m| m.rate).reduce(f64::max)
}

/// Several disks are no faster than this many times one of them: they share a limit.
const AS_ONE: f64 = 1.5;

/// Equal disks that each give what is usual, where nobody measured one: the figure is of the outermost track.
pub(super) fn below_figure(case: &Case) -> Option<Found> {
    /// Inner tracks have about half of the outer ones' rate.
    const INNER_TRACKS: f64 = 0.45;
    let all = below_together(case)?;
    let setup = &case.measurement.setup;
    let disks = case.disks();
    let kind = disks.first()?.0.kind.filter(|kind| disks.iter().all(|(disk, _)| disk.kind == Some(*kind)))?;
    let (each, share) = (case.rate() / case.disk_count(), case.rate() / all.limit);
    let (low, high) = kind.physical().usual(setup.what());
    let alone = one_alone(case);
    let tracks = kind.turns() && share >= INNER_TRACKS && case.layer() == Path::Local;
    let possible = alone.is_none_or(|one| tracks && case.rate() > one * AS_ONE);
    (!setup.is_random() && possible && each >= low && each <= high).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::BelowFigure, share)
}

/// Several disks give hardly more than one: a shared link, described or not.
pub(super) fn shared_link(case: &Case) -> Option<Found> {
    let all = below_together(case)?;
    let share = case.rate() / all.limit;
    let as_one = one_alone(case).is_some_and(|one| case.rate() <= one * AS_ONE);
    // Random pieces of hard disks fill no link.
    let trickles = case.all_turn() && case.measurement.setup.is_random();
    let common = |at: usize| {
        let link = case.rig.link(at);
        link.is_some_and(|link| case.disks().iter().all(|(disk, _)| disk.via.contains(&link.name)))
    };
    let links = case.stages.iter().filter(|s| matches!(s.resource, ResourceId::Link(at) if common(at)));
    let link = links.filter(|s| (as_one && !trickles) || is_loaded(case, s)).min_by(|a, b| a.limit.total_cmp(&b.limit));
    let resource = match link {
        Some(link) => link.resource,
        // Nothing speaks for an undescribed link where disks or a core were seen to be busy.
        None if trickles || busy_disks(case).is_some() || nearly_full_core(case).is_some() => return None,
        // One rate of all of them is no witness of what they share.
        None if one_alone(case).is_none() => return None,
        None => ResourceId::UnknownLink,
    };
    let alone = case.table.rows.iter().position(|m| m.setup.disk_count() == 1 && Some(m.rate) == one_alone(case));
    let contrast = Contrast { property: Property::Disks, row: alone.unwrap_or(case.at), ratio: 1.0 / share };
    Found::contrast(resource, contrast)
}

/// One reader of one file may be sent to one copy of a mirror.
pub(super) fn one_copy(case: &Case) -> Option<Found> {
    let setup = &case.measurement.setup;
    let mirror = case.storage().layout() == Some(Layout::Mirror) && setup.what() == What::Read;
    let stage = case.disk_stage().filter(|_| mirror && case.stands_at_disks())?;
    let fits = (stage.limit_low * REACHED..=stage.limit_low * 1.15).contains(&case.rate());
    (fits && stage.limit_low < stage.limit * REACHED).then_some(())?;
    Found::mode(ResourceId::Disks, Mode::OneCopy, case.rate() / stage.limit_low)
}

/// The rate lies within what is usual of a resource.
pub(super) fn usual(case: &Case) -> Option<Found> {
    let within = |stage: &&Stage| {
        let narrow = stage.is_range() && stage.limit < stage.limit_low * super::chain::RANGE_MAX;
        narrow && case.rate() >= stage.limit_low * REACHED && case.rate() <= stage.limit
    };
    let stage = case.stages.iter().find(within)?;
    Some(Found { resource: stage.resource, evidence: Evidence::Usual })
}
