//! The verdict on one measurement: the strongest evidence, in the order of one table.
//!
//! `verdict.is`          A limit was reached within a tenth and has no rival, or a core is full beside nothing else.
//! `verdict.probably`    A witness beside the rate speaks for it: a limit that is nearly reached, a busy resource, or
//!                       another row that differs in one property and is half as fast again.
//! `verdict.may_be`      Nothing but the rate fits, or all else was excluded.
//! `verdict.not_varied`  Without evidence the answer asks for a property that no row varied.

use serde::Serialize;

use super::bounds::{bounds, misfit};
use super::case::{CORE_FULL_PERCENT, Case};
use super::chain::{chain, is_of_cores};
use super::contrast::{Property, contrasts};
use super::doubt::Doubt;
use super::evidence::{self as find, Evidence, Found, Mode};
use super::rig::{ResourceId, ResourceKind, Rig};
use super::stage::{Basis, Stage};
use super::table::{Measurement, Table};
use crate::describe::Path;
use crate::stats;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    Open,
    /// `may be`: the rate alone fits, or all else was excluded. `verdict.may_be`
    Maybe,
    /// `is probably`: a witness beside the rate speaks for it. `verdict.probably`
    Likely,
    /// `is`: a limit that was reached without a rival, or a full core beside nothing else. `verdict.is`
    Certain,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Nothing where there is no evidence, or where nothing can be concluded.
    pub resource: Option<ResourceId>,
    pub evidence: Evidence,
    pub confidence: Confidence,
    /// The row of [`RANKING`] that decided, or why none was asked.
    pub rule: &'static str,
    /// The row that the evidence is of: another one where a limit was measured further down.
    pub row: usize,
    /// The chain, the lowest limit first.
    pub stages: Vec<Stage>,
}

type Finder = fn(&Case) -> Option<Found>;

/// Evidence from the strongest to the weakest. A row is a name for what it says, and the function that finds it.
pub(crate) const RANKING: &[(&str, Finder)] = &[
    ("a limit is reached", find::limit),
    ("a slow standard beside a full core", find::slower_network_beside_core),
    ("a quota is used up", find::taken),
    ("a core is full", find::full_core),
    ("the clock is held down", find::throttled),
    ("small files wait for one another", find::small_files),
    ("another port, cable or adapter is faster", find::another_port),
    ("the client's radio is the narrowest limit", find::client_radio),
    ("another client or program is much faster", find::another_client),
    ("the same without encryption is faster", find::encryption),
    ("a host takes processor time", find::stolen),
    ("the ends disagree about duplex", find::duplex_mismatch),
    ("one cable of a bond is full", find::one_cable_of_bond),
    ("segments are lost", find::losses),
    ("one direction of the wire is many times slower", find::one_direction),
    ("one core is busy with interrupts", find::interrupts),
    ("several connections carry much more than one", find::one_connection),
    ("the network runs at a lower standard", find::slower_network),
    ("the disk's port runs at a lower standard", find::slower_port),
    ("a shared link runs at a lower standard", find::slower_link),
    ("a disk is hot", find::hot_disk),
    ("a shingled disk rewrites bands", find::shingled),
    ("a fast cache is full", find::full_cache),
    ("each write waits for a flush", find::flush),
    ("a file lies in many pieces", find::in_pieces),
    ("one request is under way instead of many", find::one_in_flight),
    ("the pool is degraded", find::degraded),
    ("parity reads before it writes", find::reads_before_writes),
    ("equal disks give less than their figure", find::below_figure),
    ("disks together are no faster than one", find::shared_link),
    ("the disks are busy", find::busy_disks),
    ("a core is nearly full", find::nearly_full_core),
    ("one thread moves between cores", find::one_thread),
    ("one copy of a mirror is read", find::one_copy),
    ("few requests are in flight", find::few_in_flight),
    ("the network is radio", find::network_radio),
    ("disks and wire alone are much faster", find::client_is_left),
    ("each small access moves a whole record", find::whole_records),
    ("another measurement like this kept every core busy", find::cores_of_another),
    ("another client or program is faster", find::another_client_by_little),
    ("another program on the machine itself is faster", find::another_program_here),
    ("one direction of the wire is slower", find::unequal_directions),
    ("a sibling is faster", find::slow_sibling),
    ("a disk is warm", find::warm_disk),
    ("the rate is usual of the resource", find::usual),
    ("something between two faster things has a rate of its own", find::between),
    ("another measurement differs in one property and is faster", find::any_contrast),
];

const OF_MEMORY: &str = "it measured something else than it says";

/// Verdicts on lower measurements are asked for at most so deep: the layers of a way.
const DEPTH_MAX: u32 = 4;

pub(crate) fn judge(rig: Rig, table: &Table, at: usize) -> Option<Verdict> {
    judge_at(rig, table, at, 0)
}

fn judge_at(rig: Rig, table: &Table, at: usize, depth: u32) -> Option<Verdict> {
    let measurement = table.rows.get(at)?;
    let (mut stages, contrasts) = (chain(rig, table, at), contrasts(table, at));
    let from_memory = is_from_memory(measurement);
    if from_memory {
        stages.retain(|stage| is_after_disks(rig, stage.resource));
    }
    let case = Case { rig, table, at, measurement, stages, contrasts };
    let nothing = |rule, evidence| (rule, (None, evidence, Confidence::Open, at));
    let mut found = RANKING.iter().filter_map(|(rule, find)| Some((*rule, find(&case)?)));
    let (rule, (resource, evidence, confidence, row)) = if from_memory {
        let found = found.find(|(_, f)| is_after_disks(rig, f.resource) && f.evidence != Evidence::Usual);
        found.map_or(nothing(OF_MEMORY, Evidence::Doubtful), |(rule, found)| (rule, explained(&case, found, depth)))
    } else if measurement.doubt.is_some() {
        nothing(OF_MEMORY, Evidence::Doubtful)
    } else if let Some(misfit) = misfit(&case) {
        nothing("a figure does not fit the others", Evidence::Misfit(misfit))
    } else if let Some(stage) = contradiction(&case) {
        let Stage { limit, basis, .. } = stage;
        let contradiction = Evidence::Contradiction { limit, basis };
        ("the rate exceeds a limit by more than its slack", (Some(stage.resource), contradiction, Confidence::Open, at))
    } else {
        match found.next() {
            Some((rule, found)) => (rule, explained(&case, found, depth)),
            None => nothing("no evidence was found", Evidence::Missing(missing(&case))),
        }
    };
    drop(found);
    Some(Verdict { resource, evidence, confidence, rule, row, stages: case.stages })
}

/// A file in the server's memory says nothing of disks. It still crossed the wire and both processors.
fn is_from_memory(measurement: &Measurement) -> bool {
    let in_memory = matches!(measurement.doubt, Some(Doubt::FileInMemory { .. }));
    in_memory && measurement.past_client && measurement.setup.layer == Path::Share
}

fn is_after_disks(rig: Rig, id: ResourceId) -> bool {
    let waits = matches!(id, ResourceId::Connection);
    waits || !matches!(rig.kind(id), ResourceKind::Disks | ResourceKind::Link | ResourceKind::Waiting)
}

/// A limit that was measured further down has its own reason: that one is named.
fn explained(case: &Case, found: Found, depth: u32) -> (Option<ResourceId>, Evidence, Confidence, usize) {
    let confidence = confidence(case, &found);
    let own = (Some(found.resource), found.evidence, confidence, case.at);
    let Evidence::Reached { mode: Mode::Normal, .. } = found.evidence else { return own };
    let below = case.lowest().filter(|stage| stage.resource == found.resource).and_then(|stage| stage.row);
    let Some(row) = below.filter(|_| depth < DEPTH_MAX) else { return own };
    match judge_at(case.rig, case.table, row, depth + 1) {
        Some(Verdict { resource: Some(root), evidence, confidence: sure, row, .. })
            if !matches!(evidence, Evidence::Contradiction { .. } | Evidence::Misfit(_)) =>
        {
            (Some(root), evidence, sure.min(confidence), row)
        }
        // The way below is slow for a reason that is not known: it need not be the disks.
        Some(Verdict { evidence: Evidence::Missing(_), .. }) => (own.0, own.1, own.2.min(Confidence::Likely), own.3),
        _ => own,
    }
}

/// A rate above a limit by more than the slack of the limit's basis.
fn contradiction(case: &Case) -> Option<Stage> {
    let slack = |stage: &Stage| -> Option<f64> {
        let kind = case.rig.kind(stage.resource);
        match (kind, stage.basis) {
            (_, Basis::Usual) => None,
            // Many names lie in each block of a folder.
            _ if case.measurement.setup.small_files && case.measurement.setup.is_random() => None,
            _ if !stage.strict => None,
            // Moments of one bench, of which each may have had another neighbour.
            (_, Basis::Measured) if case.rig.described.of_bench && stage.resource == ResourceId::Disks => Some(1.6),
            // Tracks, read-ahead and the order of runs differ between two measurements of disks.
            (ResourceKind::Disks, Basis::Measured) if !is_of_pool(case, stage) => Some(1.25),
            // A core that was full in one connection says nothing of several.
            (ResourceKind::Network, Basis::Measured) if stage.row.is_some_and(|row| had_full_core(case, row)) => None,
            // Caches smooth small differences between two layers.
            (_, Basis::Measured) if !case.measurement.setup.is_random() || stage.resource == ResourceId::Disks => {
                Some(1.15)
            }
            (_, Basis::Measured) => None,
            (ResourceKind::Disks | ResourceKind::Waiting, Basis::Physics) => Some(1.10),
            // Many connections or requests were counted roughly.
            (ResourceKind::Waiting, _) => Some(1.3),
            // A clock's error: what a wire carries is exact.
            (ResourceKind::Network, _) | (ResourceKind::Client, _) => Some(1.05),
            _ => Some(1.10),
        }
    };
    let most = |stage: &Stage| slack(stage).map(|slack| (stage.limit * slack).max(line_rate(case, stage)));
    let exceeded = |stage: &&Stage| most(stage).is_some_and(|most| case.measurement.rate > most);
    bounds(case).iter().chain(&case.stages).find(exceeded).cloned()
}

/// A network's rate by its name is what frames of 1500 bytes leave of it. Jumbo frames leave more, up to the line's rate.
fn line_rate(case: &Case, stage: &Stage) -> f64 {
    let network = case.rig.network().filter(|_| stage.resource == ResourceId::Network && stage.basis == Basis::Typed);
    let by_name = network.and_then(|n| n.wire.as_ref().filter(|wire| n.bytes_per_s == wire.practical));
    by_name.map_or(0.0, |wire| wire.line / case.measurement.setup.unit_bytes())
}

/// Whether the limit is what the machine itself gave through its pool.
fn is_of_pool(case: &Case, stage: &Stage) -> bool {
    stage.row.and_then(|row| case.table.rows.get(row)).is_some_and(|m| m.setup.layer == Path::Local)
}

fn had_full_core(case: &Case, row: usize) -> bool {
    let usage = case.table.rows.get(row).map(|m| &m.usage);
    usage.is_some_and(|u| u.cores.iter().chain(&u.client_cores).any(|busy| *busy >= CORE_FULL_PERCENT))
}

/// Certain is a limit that was reached and has no rival, and a core that is full beside nothing else.
fn confidence(case: &Case, found: &Found) -> Confidence {
    /// From here on a limit is called full.
    const FULL: std::ops::RangeInclusive<f64> = 0.90..=1.05;
    match found.evidence {
        Evidence::Reached { mode: Mode::Normal, share } => {
            let stage = case.stages.iter().find(|stage| stage.resource == found.resource);
            let below = stage.is_some_and(Stage::is_below);
            let range = stage.is_some_and(|stage| stage.limit_low < stage.limit * find::REACHED);
            let rival = !below && stage.is_some_and(|stage| has_rival(case, stage));
            let core = case.has_full_core() && !is_of_cores(case.rig, found.resource);
            match FULL.contains(&share) && !rival && !core && !range {
                true => Confidence::Certain,
                false => Confidence::Likely,
            }
        }
        Evidence::Busy { what: find::Use::Cores, percent } if percent >= CORE_FULL_PERCENT => {
            let beside = [find::client_radio, find::another_client, find::duplex_mismatch, find::one_cable_of_bond];
            let more = [find::losses, find::slower_network, find::hot_disk, find::shingled, find::full_cache];
            let rival =
                beside.iter().chain(&more).chain(&[find::busy_disks as Finder]).any(|find| find(case).is_some());
            if rival { Confidence::Likely } else { Confidence::Certain }
        }
        _ if is_of_rate_alone(case, found) => Confidence::Maybe,
        _ => Confidence::Likely,
    }
}

/// `verdict.may_be`: nothing but the rate fits, and other causes give such rates as well.
fn is_of_rate_alone(case: &Case, found: &Found) -> bool {
    match found.evidence {
        Evidence::Usual => true,
        Evidence::Reached { mode, .. } => match mode {
            Mode::WeakRadio | Mode::Degraded | Mode::BelowFigure | Mode::FewInFlight | Mode::OneFileAtATime => true,
            Mode::ReadsBeforeWrites | Mode::WholeRecords => true,
            // Another row in which the same disk was fast is the witness of a cache or of bands.
            Mode::CacheFull => !case.measurement.usage.slowed && !was_faster(case),
            Mode::Shingled => !was_faster(case),
            // That it was synchronous is concluded from its time.
            Mode::Flush => !case.measurement.setup.sync,
            Mode::Hot => find::hot_disk(case).is_none(),
            _ => false,
        },
        Evidence::Contrast { property: Property::Layer | Property::CoresWatched, .. } => true,
        Evidence::Contrast { row, ratio, .. } => ratio < find::STRONG && !has_repeats(case, row),
        _ => false,
    }
}

/// Whether the same disks wrote faster in another row.
fn was_faster(case: &Case) -> bool {
    let setup = &case.measurement.setup;
    let rows = case.table.others(case.at).map(|(_, m)| m);
    rows.filter(|m| m.setup.writes() && m.setup.disks == setup.disks).any(|m| m.rate >= case.rate() * find::STRONG)
}

/// Repeats of both rows prove a difference that one run of each does not.
fn has_repeats(case: &Case, row: usize) -> bool {
    case.table.rows.get(row).is_some_and(|other| stats::differ(&case.measurement.sample, &other.sample) == Some(true))
}

/// Another stage, of another kind, that allows hardly more.
fn has_rival(case: &Case, stage: &Stage) -> bool {
    /// Two limits this near to each other cap alike.
    const ALIKE: f64 = 1.08;
    let wire = |kind| matches!(kind, ResourceKind::Network | ResourceKind::Link | ResourceKind::Client);
    let kind = case.rig.kind(stage.resource);
    case.stages.iter().any(|other| {
        let near = other.limit >= stage.limit && other.limit <= stage.limit * ALIKE;
        let other_kind = case.rig.kind(other.resource);
        // Disks at the rate of their port are that port once more.
        let same = kind == ResourceKind::Link && other_kind == ResourceKind::Disks && other.limit == stage.limit;
        let known = other.basis != Basis::Usual && !(other.is_below() && other_kind == ResourceKind::Disks);
        near && known && !same && other_kind != kind && !(wire(kind) && wire(other_kind))
    })
}

/// `verdict.not_varied`: the property that no row varied, from the outside to the inside of the way.
fn missing(case: &Case) -> Property {
    let (setup, usage) = (&case.measurement.setup, &case.measurement.usage);
    let lower = |layer: Path| {
        let of = |row: usize| case.table.rows.get(row).is_some_and(|m| m.setup.layer == layer);
        case.stages.iter().any(|s| s.row.is_some_and(of))
    };
    let rows = || case.table.others(case.at).map(|(_, m)| m);
    let plain = rows().any(|m| m.setup.encryption.is_none() && m.setup.layer == setup.layer);
    let turned = rows().any(|m| m.setup.layer == setup.layer && m.setup.direction != setup.direction);
    // One disk's own row is its figure, and no stage below.
    let disks_alone = rows().any(|m| {
        m.setup.layer == Path::Disks && setup.disks.iter().all(|(at, _)| m.setup.disks.iter().any(|(o, _)| o == at))
    });
    let one_alone = rows().any(|m| m.setup.layer == Path::Disks && m.setup.disk_count() == 1);
    let of_raidz = setup.is_random() && setup.shape.layout.is_raidz() && case.rig.described.record_bytes.is_none();
    match setup.layer {
        _ if find::looks_negotiated(case) => Property::Negotiated,
        _ if usage.foreign_work => Property::CoresWatched,
        Path::Net if setup.in_flight.is_none_or(|n| n <= 1.0) => Property::InFlight,
        Path::Net if !turned => Property::Direction,
        Path::Net => Property::Client,
        Path::Share if !lower(Path::Net) => Property::Layer,
        Path::Share if !lower(Path::Local) => Property::Layer,
        _ if setup.encryption.is_some() && !plain => Property::Encryption,
        Path::Share => Property::Ends,
        _ if of_raidz => Property::Record,
        _ if find::may_be_in_pieces(case) => Property::Pieces,
        Path::Local if !lower(Path::Disks) && !disks_alone => Property::Layer,
        _ if usage.cores.is_empty() && setup.layer == Path::Local => Property::CoresWatched,
        Path::Local => Property::Program,
        Path::Disks if setup.disk_count() > 1 && !one_alone => Property::Disks,
        Path::Disks => Property::Port,
    }
}
