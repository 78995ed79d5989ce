//! Remedies: a change of the rig, and what its chain allows afterwards.
//!
//! A fix is computed, not promised: the remedy is applied to the description, rows of the table that crossed what
//! changed are dropped, the chain is built again, and its lowest limit is the rate after the fix. So no fix exceeds the
//! next stage, and each says what that stage is. A purchase never stands before a free change of about the same gain.

use serde::Serialize;

use super::bounds;
use super::chain::{chain, cores_of};
use super::contrast::{Property, contrasts};
use super::disks::least_of_kind;
use super::evidence::{Evidence, Mode, SLOW_WIRE_BYTES_PER_S, STRONG, Use};
use super::rig::{End, ResourceId, Rig};
use super::table::{Measurement, Setup, Table};
use super::verdict::{Verdict, judge};
use crate::doctor::describe::{Described, Disk, Layout, Network, Path, Side, What};
use crate::doctor::limits::{BOT, DiskKind, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// Something to type.
    Free,
    /// Something to arrange otherwise.
    Work,
    Money,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    FullSpeed,
    FullRate,
    BothEndsSpeed,
    FasterNetwork,
    Upgrade,
    WithoutLosses,
    BothDirections,
    WithoutAdapter,
    FullDuplex,
    SeveralConnections,
    LargerWindow,
    WiderLink,
    OwnLinkForCard,
    OwnPaths,
    FasterPort,
    OtherKind,
    EqualDisk,
    MoreDisks,
    Mirrors,
    SmallerRecords,
    Stripe,
    Rebuild,
    CoolDisk,
    DisksAsFigure,
    WholeStripes,
    SeveralFiles,
    PowerLossProtection,
    MoreRequests,
    RequestsAsMeant,
    SpreadWork,
    SpreadInterrupts,
    FasterCore,
    LessWork,
    CoolProcessor,
    CalmHost,
    OtherProgram,
    FasterClientCard,
    CableForRadio,
    FasterClientDisk,
}

/// What a remedy costs, what it is, and how it is done: `{at}` is the resource that limits, `{thing}` what the remedy
/// names. A new remedy is a row here and an arm of [`changes`].
pub(crate) const REMEDIES: &[(Remedy, Cost, &str, &str)] = &[
    (
        Remedy::FullSpeed,
        Cost::Work,
        "the full speed of {at}",
        "Replace the cable, then change the port: ethtool IFACE, smartctl -i or lsusb -t say what was negotiated",
    ),
    (
        Remedy::FullRate,
        Cost::Work,
        "the rate that {at} has by its name",
        "Find what holds the card: a USB 2.0 port, a slot of one lane (lsusb -t, lspci -vv)",
    ),
    (
        Remedy::BothEndsSpeed,
        Cost::Work,
        "{thing}, which both ends support",
        "Reseat it or replace the cable: both ends support more than they negotiated",
    ),
    (
        Remedy::FasterNetwork,
        Cost::Money,
        "{thing}",
        "Buy cards for both ends, a switch port and a cable of that standard",
    ),
    (Remedy::Upgrade, Cost::Money, "{thing}", "Buy it, and what it needs at the other end"),
    (
        Remedy::WithoutLosses,
        Cost::Work,
        "a way without losses",
        "Replace the cable and the switch port: ethtool -S IFACE counts errors",
    ),
    (
        Remedy::BothDirections,
        Cost::Work,
        "both directions as fast as the better one",
        "Set one MTU at both ends (ip link set IFACE mtu 1500); then try without flow control and offloads",
    ),
    (
        Remedy::WithoutAdapter,
        Cost::Work,
        "another adapter, dock, port or cable",
        "Change them one at a time: lsusb -t and ethtool IFACE say what was negotiated",
    ),
    (Remedy::FullDuplex, Cost::Free, "full duplex at both ends", "ethtool -s IFACE autoneg on"),
    (
        Remedy::SeveralConnections,
        Cost::Free,
        "several connections",
        "mount -o nconnect=4 (NFS), multichannel (SMB), several files at once",
    ),
    (Remedy::LargerWindow, Cost::Free, "larger TCP windows", "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'"),
    (
        Remedy::WiderLink,
        Cost::Money,
        "a wider link than {at}",
        "Divide its devices over several links, or buy a wider one",
    ),
    (
        Remedy::OwnLinkForCard,
        Cost::Work,
        "a port of its own for the network card",
        "Move the network card to a port that does not share {at}",
    ),
    (
        Remedy::OwnPaths,
        Cost::Work,
        "a port of its own for each disk",
        "larder bench disk A B finds disks that slow each other: give each its own port",
    ),
    (Remedy::FasterPort, Cost::Work, "a faster port than {at}", "Move the disk to a faster port, slot or enclosure"),
    (Remedy::OtherKind, Cost::Money, "{thing}", "Replace the disks by a kind without this limit"),
    (
        Remedy::EqualDisk,
        Cost::Money,
        "a disk like the others instead of {thing}",
        "Replace the slowest disk by one like the others",
    ),
    (Remedy::MoreDisks, Cost::Money, "{thing}", "Buy as many disks as the layout takes at a time"),
    (
        Remedy::Mirrors,
        Cost::Work,
        "mirrors instead of parity",
        "Make the pool anew of mirrors: each pair answers by itself, for half of the space",
    ),
    (
        Remedy::SmallerRecords,
        Cost::Work,
        "records as small as the requests",
        "zfs set recordsize=16K DATASET, and write the files anew",
    ),
    (
        Remedy::Stripe,
        Cost::Work,
        "files on several disks",
        "Make the pool anew as a stripe, mirror or with parity, so that a file lies on several disks",
    ),
    (Remedy::Rebuild, Cost::Work, "a rebuilt pool", "Replace the missing disk, and wait until it is rebuilt"),
    (Remedy::CoolDisk, Cost::Work, "cooler disks", "Give them air or a heat sink"),
    (
        Remedy::DisksAsFigure,
        Cost::Work,
        "disks that give their own figure",
        "Find the disk that is waited for: iostat -x 5, smartctl -a, larder bench disk",
    ),
    (Remedy::WholeStripes, Cost::Free, "whole stripes in one write", "echo 8192 > /sys/block/mdX/md/stripe_cache_size"),
    (
        Remedy::SeveralFiles,
        Cost::Free,
        "several readers at once",
        "Read several files at once: fio --numjobs=4, rclone copy --transfers=4",
    ),
    (
        Remedy::PowerLossProtection,
        Cost::Money,
        "a disk with power-loss protection",
        "Buy an SSD with capacitors, for all or for the log alone",
    ),
    (
        Remedy::MoreRequests,
        Cost::Free,
        "more requests in flight",
        "fio --iodepth=8 --numjobs=4; mount -o nconnect=8; several files at once",
    ),
    (
        Remedy::RequestsAsMeant,
        Cost::Free,
        "as many requests in flight as were meant",
        "fio --ioengine=io_uring --direct=1; several threads of an application",
    ),
    (
        Remedy::SpreadWork,
        Cost::Free,
        "the work on all cores",
        "mount -o nconnect=4 (NFS), multichannel (SMB), more server threads or jobs",
    ),
    (Remedy::SpreadInterrupts, Cost::Free, "interrupts on all cores", "larder doctor --fix"),
    (
        Remedy::FasterCore,
        Cost::Money,
        "a processor with faster cores",
        "Buy a processor with faster cores; before that, set the governor to performance",
    ),
    (Remedy::LessWork, Cost::Work, "less work for the processor than {at}", "Choose a lighter cipher or compression"),
    (
        Remedy::CoolProcessor,
        Cost::Work,
        "a processor at its full clock",
        "Add a heat sink or a fan; give a Pi its own power supply",
    ),
    (
        Remedy::CalmHost,
        Cost::Work,
        "a host that leaves this machine its cores",
        "At the host: fewer guests, or cores reserved for this one",
    ),
    (Remedy::OtherProgram, Cost::Free, "{thing}", "Use the client or program that was faster"),
    (Remedy::FasterClientCard, Cost::Money, "{thing} at the client", "Buy a faster card or adapter for the client"),
    (Remedy::CableForRadio, Cost::Work, "a cable to the client", "Connect the client by cable"),
    (Remedy::FasterClientDisk, Cost::Money, "{thing} at the client", "Copy to or from a faster disk at the client"),
];

impl Remedy {
    fn row(self) -> &'static (Self, Cost, &'static str, &'static str) {
        REMEDIES.iter().find(|(remedy, ..)| *remedy == self).unwrap_or(&REMEDIES[0])
    }

    pub(crate) fn cost(self) -> Cost {
        self.row().1
    }

    pub(crate) fn what(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn how(self) -> &'static str {
        self.row().3
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fix {
    pub remedy: Remedy,
    pub row: usize,
    pub rate_before: f64,
    pub rate_after: f64,
    /// What limits afterwards; nothing where the remedy has a bound of its own.
    pub then: Option<ResourceId>,
    /// The wire, disk, program or network that the remedy brings, by name.
    pub thing: Option<String>,
    /// The resource that limits now.
    pub at: ResourceId,
}

impl Fix {
    pub(crate) fn gain(&self) -> f64 {
        self.rate_after / self.rate_before
    }
}

/// Fixes with less gain are not worth a person's time.
const GAIN_MIN: f64 = 1.05;
/// A person weighs at most so many.
pub(crate) const FIXES_MAX: usize = 3;
/// Gains this close count as equal: then the cheaper remedy comes first.
const LIKE_GAIN: f64 = 1.10;
/// A core that does less may do something else, and says nothing of what it could do.
const CORE_IDLE_PERCENT: f64 = 20.0;
const CORE_BUSY_PERCENT: f64 = 85.0;

/// A change of the rig.
struct Change {
    remedy: Remedy,
    after: Described,
    /// How it would be measured then.
    setup: Setup,
    /// Rows that crossed one of these say nothing any more.
    touched: Vec<ResourceId>,
    /// Rows of single disks stay: only the number or the layout of the disks changed.
    keeps_single_disks: bool,
    relieves: Vec<End>,
    /// A bound of the remedy itself.
    at_most: f64,
    thing: Option<String>,
}

struct Sick<'a> {
    rig: Rig<'a>,
    table: &'a Table,
    row: usize,
    measurement: &'a Measurement,
    verdict: &'a Verdict,
}

/// The fixes for one row, the best first.
pub(crate) fn fixes(rig: Rig, table: &Table, row: usize, verdict: &Verdict) -> Vec<Fix> {
    let Some(measurement) = table.rows.get(row) else { return Vec::new() };
    let sick = Sick { rig, table, row, measurement, verdict };
    let mut found: Vec<Fix> = changes(&sick).iter().filter_map(|change| weigh(&sick, change)).collect();
    sort(&mut found);
    found
}

/// The greatest gain first; of two alike the cheaper one. No purchase stands before a cheaper change of like gain.
/// A wire is repaired before it is replaced.
pub(crate) fn order<T>(
    all: &mut [T],
    gain: impl Fn(&T) -> f64,
    cost: impl Fn(&T) -> Cost,
    remedy: impl Fn(&T) -> Option<Remedy>,
) {
    all.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(cost(a).cmp(&cost(b))));
    for end in (1..all.len()).rev() {
        for at in 0..end {
            let (this, next) = (&all[at], &all[at + 1]);
            let dearer = cost(this) == Cost::Money && cost(next) != Cost::Money;
            let repairs = replaces_wire(remedy(this)) && repairs_wire(remedy(next));
            if dearer && (repairs || gain(this) < gain(next) * LIKE_GAIN) {
                all.swap(at, at + 1);
            }
        }
    }
}

fn replaces_wire(remedy: Option<Remedy>) -> bool {
    matches!(remedy, Some(Remedy::FasterNetwork | Remedy::Upgrade))
}

fn repairs_wire(remedy: Option<Remedy>) -> bool {
    use Remedy::{BothDirections, FullDuplex, FullRate, FullSpeed, WithoutAdapter, WithoutLosses};
    matches!(remedy, Some(BothDirections | FullDuplex | FullRate | FullSpeed | WithoutAdapter | WithoutLosses))
}

/// Ordered, and without a faster wire that gains no more than a slower one.
pub(crate) fn sort(fixes: &mut Vec<Fix>) {
    order(fixes, Fix::gain, |fix| fix.remedy.cost(), |fix| Some(fix.remedy));
    let mut seen: Vec<(Remedy, usize, f64)> = Vec::new();
    fixes.retain(|fix| {
        let same =
            |s: &(Remedy, usize, f64)| (s.0, s.1) == (fix.remedy, fix.row) && (s.2 / fix.rate_after - 1.0).abs() < 0.02;
        let repeated = seen.iter().any(same);
        seen.push((fix.remedy, fix.row, fix.rate_after));
        !repeated
    });
}

fn weigh(sick: &Sick, change: &Change) -> Option<Fix> {
    let rate_before = sick.measurement.rate;
    let (rate_after, then) = outcome(sick, change);
    let worth = rate_after.is_finite() && rate_after >= rate_before * GAIN_MIN;
    worth.then(|| Fix {
        remedy: change.remedy,
        row: sick.row,
        rate_before,
        rate_after,
        then,
        thing: change.thing.clone(),
        at: sick.verdict.resource.unwrap_or(ResourceId::Network),
    })
}

/// The lowest limit after a change, and of which resource it is.
fn outcome(sick: &Sick, change: &Change) -> (f64, Option<ResourceId>) {
    let rig = Rig::new(&change.after);
    let (table, at) = table_after(sick, change);
    let stages = chain(rig, &table, at);
    let stages = stages.iter().map(|stage| (stage.limit, stage.resource));
    let (limit, resource) = stages.chain(spare_cores(sick, change)).min_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let limit = limit.unwrap_or(f64::INFINITY);
    (limit.min(change.at_most), resource.filter(|_| limit <= change.at_most))
}

/// What a row would give in another rig, where these resources are other ones.
pub(crate) fn in_another_rig(
    rig: Rig,
    table: &Table,
    row: usize,
    after: &Described,
    touched: &[ResourceId],
) -> Option<(f64, Option<ResourceId>)> {
    let (measurement, verdict) = (table.rows.get(row)?, judge(rig, table, row)?);
    let sick = Sick { rig, table, row, measurement, verdict: &verdict };
    let mut change = Change { after: after.clone(), keeps_single_disks: true, ..sick.change(Remedy::Upgrade, touched) };
    let all = |described: &Described| described.disks.iter().map(|disk| disk.count).sum::<u32>();
    if change.setup.disk_count() == all(rig.described) && touched.contains(&ResourceId::Disks) {
        change.setup.disks = after.disks.iter().enumerate().map(|(at, disk)| (at, disk.count)).collect();
        change.setup.shape = after.own_shape();
    }
    Some(outcome(&sick, &change))
}

/// More bytes are more work: the busiest core at each end is full first, unless the remedy relieves it.
fn spare_cores<'a>(sick: &'a Sick, change: &'a Change) -> impl Iterator<Item = (f64, ResourceId)> + 'a {
    let ends = [End::Server, End::Client].into_iter().filter(|end| !change.relieves.contains(end));
    ends.filter_map(|end| {
        let rate = rate_of_full_core(cores_of(sick.measurement, end), sick.measurement.rate)?;
        Some((rate, ResourceId::Processor(end)))
    })
}

/// The rate at which the busiest core would be full; nothing where none did much.
pub(crate) fn rate_of_full_core(cores: &[f64], rate: f64) -> Option<f64> {
    let busiest = cores.iter().copied().reduce(f64::max).filter(|busiest| *busiest >= CORE_IDLE_PERCENT)?;
    Some(rate * 100.0 / busiest.min(100.0))
}

/// The table without rows that crossed what changed, and the row that is asked about as it would be measured then.
fn table_after(sick: &Sick, change: &Change) -> (Table, usize) {
    let single = |m: &Measurement| change.keeps_single_disks && m.setup.disk_count() == 1;
    let mut rows: Vec<Measurement> = Vec::new();
    for (at, row) in sick.table.rows.iter().enumerate() {
        let crossed = change.touched.iter().any(|id| crosses(sick, at, row, *id)) && !single(row);
        if at != sick.row && !crossed {
            rows.push(row.clone());
        }
    }
    // Each disk keeps its part of the file: what its fast cache takes of it stays the same.
    let more = f64::from(change.setup.disk_count().max(1)) / f64::from(sick.measurement.setup.disk_count().max(1));
    let file_bytes = sick.measurement.file_bytes.map(|bytes| (bytes as f64 * more) as u64);
    rows.push(Measurement { setup: change.setup.clone(), file_bytes, ..sick.measurement.clone() });
    let at = rows.len() - 1;
    (Table { rows }, at)
}

fn crosses(sick: &Sick, at: usize, row: &Measurement, id: ResourceId) -> bool {
    match id {
        ResourceId::Disks => matches!(row.setup.layer, Path::Disks | Path::Local),
        ResourceId::Port(disk) => row.setup.disks.iter().any(|(used, _)| *used == disk),
        ResourceId::Network | ResourceId::ClientCard(_) => row.setup.layer == Path::Net,
        ResourceId::Processor(end) => {
            let busy = cores_of(row, end).iter().any(|busy| *busy >= CORE_BUSY_PERCENT);
            let works = || {
                chain(sick.rig, sick.table, at)
                    .into_iter()
                    .find(|s| !s.is_below())
                    .is_some_and(|s| matches!(s.resource, ResourceId::Work(_)))
            };
            row.setup.layer != Path::Share && (busy || works())
        }
        ResourceId::Connection => row.setup.layer == Path::Net && row.setup.in_flight.is_none_or(|n| n <= 1.0),
        id => chain(sick.rig, sick.table, at).iter().any(|stage| stage.resource == id),
    }
}

impl Sick<'_> {
    fn change(&self, remedy: Remedy, touched: &[ResourceId]) -> Change {
        Change {
            remedy,
            after: self.rig.described.clone(),
            setup: self.measurement.setup.clone(),
            touched: touched.to_vec(),
            keeps_single_disks: false,
            relieves: Vec::new(),
            at_most: f64::INFINITY,
            thing: None,
        }
    }

    fn at_most(&self, remedy: Remedy, touched: &[ResourceId], at_most: f64) -> Change {
        Change { at_most, ..self.change(remedy, touched) }
    }

    fn rate(&self) -> f64 {
        self.measurement.rate
    }

    fn what(&self) -> What {
        self.measurement.setup.what()
    }

    fn rate_of(&self, row: usize) -> f64 {
        self.table.rows.get(row).map_or(f64::INFINITY, |m| m.rate)
    }

    fn disk_limit(&self) -> f64 {
        let stages = self.verdict.stages.iter().filter(|s| s.resource == ResourceId::Disks && !s.is_below());
        stages.map(|s| s.limit).fold(f64::INFINITY, f64::min)
    }
}

fn changes(sick: &Sick) -> Vec<Change> {
    let Some(resource) = sick.verdict.resource else { return Vec::new() };
    let mut all = match sick.verdict.evidence {
        // What limits the measurement below is not known: more of the same resource would be held alike.
        Evidence::Reached { mode: Mode::Normal, .. } if is_of_unexplained(sick) => of_unexplained(sick, resource),
        Evidence::Busy { what: Use::Stolen, .. } => only(of_processor(sick, &[End::Server]), Remedy::CalmHost),
        Evidence::Busy { what: Use::Throttled, .. } => only(of_processor(sick, &[End::Server]), Remedy::CoolProcessor),

        Evidence::Contradiction { .. } | Evidence::Misfit(_) | Evidence::Doubtful | Evidence::Missing(_) => {
            return Vec::new();
        }
        Evidence::Reached { mode, .. } if mode != Mode::Normal => of_mode(sick, resource, mode),
        Evidence::Contrast { row, .. } => of_contrast(sick, resource, row),
        _ => of_resource(sick, resource),
    };
    if let Evidence::Busy { what: Use::Cores, .. } = sick.verdict.evidence {
        all.extend(other_program(sick));
    }
    if sick.measurement.setup.layer == Path::Share {
        all.extend(sick.rig.described.upgrades.iter().map(|network| {
            let thing = Some(network.name.clone());
            Change { thing, ..with_network(sick, Remedy::Upgrade, network.clone()) }
        }));
    }
    all
}

fn only(mut changes: Vec<Change>, remedy: Remedy) -> Vec<Change> {
    changes.retain(|change| change.remedy == remedy);
    changes
}

/// The row that gave the lowest limit of the chain, where it was measured further down.
fn row_below(sick: &Sick) -> Option<usize> {
    let known = |stage: &&super::chain::Stage| stage.basis != super::chain::Basis::Usual;
    sick.verdict.stages.iter().find(known)?.row
}

fn is_of_unexplained(sick: &Sick) -> bool {
    row_below(sick)
        .is_some_and(|row| judge(sick.rig, sick.table, row).is_some_and(|verdict| verdict.resource.is_none()))
}

fn of_unexplained(sick: &Sick, resource: ResourceId) -> Vec<Change> {
    if resource == ResourceId::Network {
        return vec![sick.change(Remedy::FullRate, &[ResourceId::Network])];
    }
    // A link that was reached still further down is in the way once the rest is explained.
    let rows = sick.table.rows.iter().enumerate().filter(|(_, m)| m.setup.what() == sick.what());
    let verdicts = rows.filter_map(|(row, _)| judge(sick.rig, sick.table, row));
    let links = verdicts
        .filter_map(|verdict| verdict.resource.filter(|_| matches!(verdict.evidence, Evidence::Reached { .. })));
    let mut links: Vec<ResourceId> =
        links.filter(|id| matches!(id, ResourceId::Link(_) | ResourceId::Port(_))).collect();
    links.dedup();
    links.into_iter().flat_map(|link| of_resource(sick, link)).collect()
}

/// Another client or program that was much faster, though a core is full with this one.
fn other_program(sick: &Sick) -> Option<Change> {
    let contrasts = contrasts(sick.table, sick.row);
    let mut faster = contrasts.iter().filter(|c| matches!(c.property, Property::Program | Property::Client));
    let row = faster.find(|c| c.ratio >= STRONG && sick.measurement.setup.layer == Path::Share)?.row;
    let one = as_row(sick, row);
    Some(Change { relieves: vec![End::Server, End::Client], ..one })
}

/// What the faster client or program of another row gets.
fn as_row(sick: &Sick, row: usize) -> Change {
    let other = sick.table.rows.get(row).map(|m| &m.setup);
    let names = other.and_then(|setup| sick.rig.differing_side(setup, &sick.measurement.setup));
    let thing = Some(names.unwrap_or_else(|| "another client or program".to_owned()));
    Change { thing, ..sick.at_most(Remedy::OtherProgram, &[], sick.rate_of(row)) }
}

fn of_mode(sick: &Sick, resource: ResourceId, mode: Mode) -> Vec<Change> {
    let network = [ResourceId::Network];
    match mode {
        Mode::SlowerStandard => {
            let mut one = sick.change(Remedy::FullSpeed, &[resource]);
            // Cores that a slow wire left idle, or that other work fills, say nothing of a faster one.
            let full = |end| cores_of(sick.measurement, end).iter().any(|busy| *busy >= 95.0);
            if full(End::Server) || full(End::Client) {
                one.relieves = vec![End::Server, End::Client];
            }
            vec![one]
        }
        Mode::DuplexMismatch => vec![sick.at_most(Remedy::FullDuplex, &network, opposite(sick))],
        Mode::Losses => vec![sick.at_most(Remedy::WithoutLosses, &network, opposite(sick))],
        Mode::OneCableOfBond => vec![sick.change(Remedy::SeveralConnections, &[])],
        Mode::WeakRadio => match resource {
            ResourceId::ClientCard(at) => vec![cable_for_radio(sick, at)],
            _ => of_resource(sick, ResourceId::Network),
        },
        Mode::Hot => vec![sick.at_most(Remedy::CoolDisk, &[ResourceId::Disks], sick.disk_limit())],
        Mode::Shingled | Mode::CacheFull => other_kind(sick).into_iter().collect(),
        Mode::Degraded => rebuild(sick).into_iter().collect(),
        Mode::ReadsBeforeWrites => {
            let figure = sick.change(Remedy::DisksAsFigure, &[ResourceId::Disks]);
            vec![sick.change(Remedy::WholeStripes, &[ResourceId::Disks]), figure]
        }
        Mode::OneCopy => {
            let several = sick.at_most(Remedy::SeveralFiles, &[], sick.disk_limit());
            std::iter::once(several).chain(of_disks(sick)).collect()
        }
        Mode::Flush => std::iter::once(power_loss_protection(sick)).chain(more_requests(sick)).collect(),
        Mode::FewInFlight => of_requests(sick),
        Mode::OneInFlight => {
            let depth = sick.measurement.setup.in_flight.unwrap_or(1.0);
            vec![sick.at_most(Remedy::RequestsAsMeant, &[], sick.rate() * depth)]
        }
        Mode::Between => {
            let remote = sick.measurement.setup.is_remote();
            vec![sick.change(Remedy::WithoutAdapter, &[if remote { ResourceId::Network } else { ResourceId::Disks }])]
        }
        Mode::BelowFigure | Mode::Normal => Vec::new(),
    }
}

/// The best that the wire alone carries in the other direction, where that is known to be much more.
fn opposite(sick: &Sick) -> f64 {
    let this = &sick.measurement.setup;
    let other = |m: &&Measurement| {
        let same = m.setup.layer == Path::Net && m.setup.client == this.client;
        same && m.setup.direction != this.direction && m.rate >= sick.rate() * 5.0
    };
    sick.table.rows.iter().filter(other).map(|m| m.rate).reduce(f64::max).unwrap_or(f64::INFINITY)
}

fn of_contrast(sick: &Sick, resource: ResourceId, row: usize) -> Vec<Change> {
    match resource {
        ResourceId::Network => vec![sick.at_most(Remedy::BothDirections, &[resource], sick.rate_of(row))],
        ResourceId::Connection => {
            let at_most = sick.rate_of(row) / sick.measurement.setup.unit_bytes();
            let one = sick.at_most(Remedy::SeveralConnections, &[ResourceId::Connection], at_most);
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        // What another client's wire alone carries, this one's would, too.
        ResourceId::ClientSide if sick.table.rows.get(row).is_some_and(|m| m.setup.layer == Path::Net) => {
            vec![sick.at_most(
                Remedy::WithoutAdapter,
                &[ResourceId::Network],
                sick.rate_of(row) / sick.measurement.setup.unit_bytes(),
            )]
        }
        ResourceId::ClientSide if sick.table.rows.get(row).is_some_and(|m| m.setup.layer == Path::Share) => {
            let one = as_row(sick, row);
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        ResourceId::ClientSide => {
            let thing = Some("another client or program".to_owned());
            vec![Change { thing, ..sick.change(Remedy::OtherProgram, &[]) }]
        }
        ResourceId::Cipher => {
            let one = sick.at_most(Remedy::LessWork, &[], sick.rate_of(row));
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        ResourceId::UnknownLink => {
            let low = sick.verdict.stages.iter().filter(|s| s.resource == ResourceId::Disks && !s.is_below());
            let low = low.map(|s| s.limit_low).fold(f64::INFINITY, f64::min);
            let one = sick.at_most(Remedy::OwnPaths, &[ResourceId::Disks], low);
            vec![Change { keeps_single_disks: true, ..one }]
        }
        _ => of_resource(sick, resource),
    }
}

fn of_resource(sick: &Sick, resource: ResourceId) -> Vec<Change> {
    match resource {
        ResourceId::Disks => of_disks(sick),
        ResourceId::Port(at) => of_port(sick, at),
        ResourceId::Link(at) => of_link(sick, at),
        ResourceId::UnknownLink => Vec::new(),
        ResourceId::Network => of_network(sick),
        ResourceId::Connection => {
            let mut one = sick.change(Remedy::LargerWindow, &[ResourceId::Network]);
            if let Some(network) = one.after.network.as_mut() {
                network.window_bytes = None;
            }
            std::iter::once(one).chain(more_requests(sick)).collect()
        }
        ResourceId::Requests => of_requests(sick),
        ResourceId::Processor(end) => of_processor(sick, &[end]),
        ResourceId::BothProcessors => of_processor(sick, &[End::Server, End::Client]),
        ResourceId::Work(at) => of_work(sick, at),
        ResourceId::ClientCard(at) => of_client_card(sick, at),
        ResourceId::ClientDisk(at) => vec![faster_client_disk(sick, at)],
        ResourceId::ClientSide | ResourceId::Cipher => Vec::new(),
    }
}

fn with_network(sick: &Sick, remedy: Remedy, network: Network) -> Change {
    let mut change = sick.change(remedy, &[ResourceId::Network]);
    // A faster network comes with cards for the clients and with a switch.
    change.after.clients.iter_mut().for_each(|client| client.network = None);
    let links = &sick.rig.described.links;
    let switch =
        |name: &String| links.iter().any(|l| l.name == *name && l.wire.as_ref().is_some_and(Wire::is_ethernet));
    let via = network.via.iter().filter(|name| !switch(name)).cloned().collect();
    change.after.network = Some(Network { via, ..network });
    change
}

fn of_network(sick: &Sick) -> Vec<Change> {
    let Some(network) = sick.rig.network() else { return Vec::new() };
    // A wire far below its name's rate is held by something else, and a faster one would be held alike.
    let wire = network.wire.clone().or_else(|| Wire::ethernet_of(network.bytes_per_s));
    if !sick.rig.described.upgrades.is_empty() {
        return Vec::new();
    }
    let named = network.wire.as_ref().filter(|wire| network.bytes_per_s < wire.practical * 0.8);
    if let Some(wire) = named {
        let lower = wire
            .rungs_below()
            .into_iter()
            .find(|w| network.bytes_per_s >= w.practical * 0.92 && network.bytes_per_s <= w.line);
        let remedy = if lower.is_some() { Remedy::FullSpeed } else { Remedy::FullRate };
        let mut change = sick.change(remedy, &[ResourceId::Network]);
        change.after.network = Some(Network { bytes_per_s: wire.practical, ..network.clone() });
        return vec![change];
    }
    let far = network.round_trip_s.is_some_and(|seconds| seconds >= 0.004);
    let above = wire.filter(|_| !far).map(|wire| wire.rungs_above()).unwrap_or_default();
    // Cores that are full beside 100 Mbit/s have other work.
    let slow = network.bytes_per_s <= SLOW_WIRE_BYTES_PER_S;
    let bought = |wire: Wire| {
        let faster = Network { bytes_per_s: wire.practical, wire: Some(wire.clone()), ..network.clone() };
        let relieves = if slow { vec![End::Server, End::Client] } else { Vec::new() };
        Change { thing: Some(wire.name), relieves, ..with_network(sick, Remedy::FasterNetwork, faster) }
    };
    above.into_iter().map(bought).collect()
}

fn of_link(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(link) = sick.rig.link(at) else { return Vec::new() };
    let mut all = Vec::new();
    let card = sick.rig.network().is_some_and(|n| n.via.contains(&link.name)) && sick.measurement.setup.is_remote();
    let disks = sick.rig.disks(&sick.measurement.setup.disks).iter().any(|(disk, _)| disk.via.contains(&link.name));
    let touched = [ResourceId::Link(at), if disks { ResourceId::Disks } else { ResourceId::Network }];
    if card && disks {
        let mut own = sick.change(Remedy::OwnLinkForCard, &[ResourceId::Network]);
        if let Some(network) = own.after.network.as_mut() {
            network.via.retain(|name| *name != link.name);
        }
        all.push(own);
    }
    let without_figure = |after: &mut Described| {
        // A figure that was measured through the link says nothing of the disk on another.
        for disk in after.disks.iter_mut().filter(|disk| disk.via.contains(&link.name)) {
            let most = if sick.measurement.setup.reads() { link.read } else { link.write };
            let of_link = disk.rate(sick.what()).is_some_and(|rate| rate >= most * 0.8 && rate <= most * 1.1);
            if of_link && least_of_kind(disk, sick.what()) > most * 1.1 {
                set_rate(disk, sick.what(), least_of_kind(disk, sick.what()));
            }
        }
    };
    if let Some(could) = &link.could {
        let mut better = sick.change(Remedy::BothEndsSpeed, &touched);
        if let Some(of) = better.after.links.get_mut(at) {
            (of.read, of.write, of.could, of.wire) = (could.practical, could.practical, None, Some(could.clone()));
        }
        without_figure(&mut better.after);
        all.push(Change { thing: Some(could.name.clone()), ..better });
        return all;
    }
    let mut wider = sick.change(Remedy::WiderLink, &touched);
    if let Some(of) = wider.after.links.get_mut(at) {
        (of.read, of.write) = (f64::INFINITY, f64::INFINITY);
    }
    without_figure(&mut wider.after);
    let is_switch = link.wire.as_ref().is_some_and(Wire::is_ethernet);
    let as_fast = sick.rig.network().is_some_and(|n| link.read >= n.bytes_per_s / GAIN_MIN);
    match is_switch && as_fast {
        true => all.extend(of_network(sick)),
        false => all.push(wider),
    }
    all
}

fn of_port(sick: &Sick, at: usize) -> Vec<Change> {
    let Some((disk, wire)) = sick.rig.disk(at).and_then(|disk| Some((disk, disk.connection.as_ref()?))) else {
        return Vec::new();
    };
    // There is no faster port of that kind.
    if wire.name == "SATA 6 Gbit/s" {
        return other_kind(sick).into_iter().collect();
    }
    let remedy = if disk.could.is_some() { Remedy::BothEndsSpeed } else { Remedy::FasterPort };
    let mut change = sick.change(remedy, &[ResourceId::Port(at)]);
    if let Some(of) = change.after.disks.get_mut(at) {
        let figure = of.rate(sick.what()).is_some_and(|rate| rate >= wire.practical * 0.8 && rate <= wire.line);
        if figure && least_of_kind(of, sick.what()) > wire.line {
            let least = least_of_kind(of, sick.what());
            set_rate(of, sick.what(), least);
        }
        of.connection = of.could.take();
    }
    vec![Change { thing: disk.could.as_ref().map(|wire| wire.name.clone()), ..change }]
}

fn set_rate(disk: &mut Disk, what: What, rate: f64) {
    match what {
        What::Read => disk.read = Some(rate),
        What::Write => disk.write = Some(rate),
        What::RandomRead => disk.random_read = Some(rate),
        What::RandomWrite => disk.random_write = Some(rate),
    }
}

fn of_disks(sick: &Sick) -> Vec<Change> {
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
        && sick.verdict.stages.iter().any(|s| s.resource == ResourceId::Disks && s.basis != super::chain::Basis::Usual)
    {
        all.retain(|change| change.remedy != Remedy::MoreDisks);
        all.push(sick.change(Remedy::DisksAsFigure, &[ResourceId::Disks]));
    }
    all
}

/// Where only number or layout of the disks changes, the rate changes as their limit does.
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
    let below = row_below(sick).map(|row| sick.rate_of(row)).filter(|rate| *rate >= sick.rate());
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
    let storage =
        super::disks::Storage { rig: sick.rig, table: sick.table, at: sick.row, measurement: sick.measurement };
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
fn other_kind(sick: &Sick) -> Option<Change> {
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

fn rebuild(sick: &Sick) -> Option<Change> {
    let mut change = Change { keeps_single_disks: true, ..sick.change(Remedy::Rebuild, &[ResourceId::Disks]) };
    change.after.degraded = false;
    sick.rig.described.degraded.then_some(change)
}

fn of_requests(sick: &Sick) -> Vec<Change> {
    let setup = &sick.measurement.setup;
    let mut all = Vec::new();
    if setup.sync && setup.writes() {
        all.push(power_loss_protection(sick));
    }
    let bulk_only = setup.disks.iter().find(|(at, _)| is_bulk_only(sick, *at)).map(|(at, _)| *at);
    match bulk_only {
        Some(at) => all.extend(of_port(sick, at)),
        None => all.extend(more_requests(sick)),
    }
    all
}

fn is_bulk_only(sick: &Sick, at: usize) -> bool {
    sick.rig.disk(at).and_then(|disk| disk.connection.as_ref()).is_some_and(|wire| wire.name.ends_with(BOT))
}

fn power_loss_protection(sick: &Sick) -> Change {
    /// Of a flush that a capacitor backs.
    const BACKED_FLUSH_S: f64 = 50e-6;
    let mut change = sick.change(Remedy::PowerLossProtection, &[]);
    let slower = |disk: &&mut Disk| disk.flush_s.is_none_or(|seconds| seconds > BACKED_FLUSH_S);
    change.after.disks.iter_mut().filter(slower).for_each(|disk| disk.flush_s = Some(BACKED_FLUSH_S));
    change.setup.in_flight = change.setup.in_flight.or(Some(1.0));
    // Rows that waited for flushes say nothing of a disk that answers them at once.
    if sick.table.rows.iter().enumerate().any(|(at, m)| at != sick.row && m.setup.sync) {
        change.touched.push(ResourceId::Disks);
    }
    change
}

fn more_requests(sick: &Sick) -> Option<Change> {
    const MORE: f64 = 8.0;
    let setup = &sick.measurement.setup;
    let mut change = sick.at_most(Remedy::MoreRequests, &[], sick.rate() * MORE);
    change.setup.in_flight = Some(setup.in_flight? * MORE);
    change.at_most = change.at_most.min(bounds::heads(sick.rig, setup));
    Some(change)
}

fn of_processor(sick: &Sick, ends: &[End]) -> Vec<Change> {
    let touched: Vec<ResourceId> = ends.iter().map(|end| ResourceId::Processor(*end)).collect();
    let relieved =
        |remedy: Remedy, at_most: f64| Change { relieves: ends.to_vec(), ..sick.at_most(remedy, &touched, at_most) };
    let usage = &sick.measurement.usage;
    let mut all = Vec::new();
    let spread = ends.iter().map(|end| spread_over(sick, *end)).reduce(|a, b| Some(a?.min(b?))).flatten();
    if let Some(at_most) = spread {
        if usage.irq.is_some_and(|percent| percent >= 70.0) && ends.contains(&End::Server) {
            all.push(relieved(Remedy::SpreadInterrupts, at_most));
        }
        all.push(relieved(Remedy::SpreadWork, at_most));
    }
    if let Some(time) = usage.throttled.filter(|percent| *percent >= 10.0) {
        // A clock that is held down is about half of what it could be.
        all.push(relieved(Remedy::CoolProcessor, sick.rate() / (1.0 - time.min(100.0) / 200.0)));
    }
    if let Some(taken) = usage.steal.filter(|percent| *percent >= 15.0) {
        all.push(relieved(Remedy::CalmHost, sick.rate() / (1.0 - taken.min(99.0) / 100.0)));
    }
    let mut faster = relieved(Remedy::FasterCore, f64::INFINITY);
    let stays = |side: Side| match side {
        Side::Server => !ends.contains(&End::Server),
        Side::Client => !ends.contains(&End::Client),
    };
    faster.after.work.retain(|work| stays(work.at));
    all.push(faster);
    all
}

/// What all cores of an end could do together, where some have room.
fn spread_over(sick: &Sick, end: End) -> Option<f64> {
    let cores = cores_of(sick.measurement, end);
    let (busy, count) = (cores.iter().sum::<f64>(), cores.len() as f64);
    let idle = cores.len() > 1 && busy > 0.0 && busy < 90.0 * count;
    idle.then(|| sick.rate() * count * 100.0 / busy)
}

fn of_work(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(work) = sick.rig.work(at) else { return Vec::new() };
    let end = if work.at == Side::Server { End::Server } else { End::Client };
    let mut less = Change { relieves: vec![end], ..sick.change(Remedy::LessWork, &[ResourceId::Processor(end)]) };
    less.after.work.remove(at);
    let mut faster = of_processor(sick, &[end]);
    faster.retain(|change| change.remedy == Remedy::FasterCore);
    std::iter::once(less).chain(faster).collect()
}

fn of_client_card(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(client) = sick.rig.client(Some(at)) else { return Vec::new() };
    let had = client.network.as_ref().map_or(0.0, |(_, bytes)| *bytes);
    let wire = client.wire.clone().or_else(|| Wire::ethernet_of(had));
    if wire.as_ref().is_some_and(Wire::is_air) {
        return vec![cable_for_radio(sick, at)];
    }
    let with = |wire: Wire| {
        let mut change = sick.change(Remedy::FasterClientCard, &[ResourceId::ClientCard(at)]);
        if let Some(client) = change.after.clients.get_mut(at) {
            client.network = Some((wire.name.clone(), wire.practical));
        }
        Change { thing: Some(wire.name), ..change }
    };
    wire.map(|wire| wire.rungs_above()).unwrap_or_default().into_iter().map(with).collect()
}

fn cable_for_radio(sick: &Sick, at: usize) -> Change {
    let mut change = sick.change(Remedy::CableForRadio, &[ResourceId::ClientCard(at)]);
    if let Some(client) = change.after.clients.get_mut(at) {
        client.network = None;
    }
    change
}

fn faster_client_disk(sick: &Sick, at: usize) -> Change {
    let least = |kind: DiskKind| kind.physical().usual_read.0.min(kind.physical().usual_write.0);
    let kind = if least(DiskKind::SataSsd) > sick.rate() * GAIN_MIN { DiskKind::SataSsd } else { DiskKind::Nvme };
    let mut change = sick.change(Remedy::FasterClientDisk, &[]);
    let name = kind.physical().name;
    change.thing = Some(format!("{} {name}", if name.starts_with('N') { "an" } else { "a" }));
    if let Some(client) = change.after.clients.get_mut(at) {
        let physical = kind.physical();
        (client.disk_read, client.disk_write) = (Some(physical.usual_read.0), Some(physical.usual_write.0));
    }
    change
}
