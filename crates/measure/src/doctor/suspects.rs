//! What unexplained figures look like (B7): patterns that builders of boxes met, each with its reason.
//!
//! A suspicion is never a proof: it says what to look at first. The order is from the most to the least specific.

use serde::Serialize;

use super::describe::{Described, Layout, Measured, Path, is_bond};
use super::limits::{DiskKind, Duplex, Wire};
use super::misleading::misleading;
use super::stages::{Basis, PROOF_SHARE, Stage, StageKind, count, layout, used};
use super::words::{bytes_words, client_processor, processor, rate_words};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspicion {
    /// Stable, for programs.
    pub code: &'static str,
    /// Completes "is most likely capped by ...".
    pub what: String,
    pub why: String,
}

struct Case<'a> {
    described: &'a Described,
    measured: &'a Measured,
    stages: &'a [Stage],
}

struct Pattern {
    code: &'static str,
    /// What is suspected, and why in this case.
    test: fn(&Case) -> Option<(String, String)>,
}

const PATTERNS: &[Pattern] = &[
    Pattern { code: "cpu-quota", test: quota },
    Pattern { code: "throttled", test: throttled },
    Pattern { code: "client-wifi", test: client_air },
    Pattern { code: "client-differs", test: client_differs },
    Pattern { code: "host-steals", test: host_steals },
    Pattern { code: "duplex-mismatch", test: duplex_mismatch },
    Pattern { code: "retransmits", test: retransmits },
    Pattern { code: "one-direction", test: one_direction },
    Pattern { code: "one-core-irq", test: interrupts },
    Pattern { code: "one-of-a-bond", test: one_of_a_bond },
    Pattern { code: "rung-below", test: rung_below },
    Pattern { code: "smr", test: shingled },
    Pattern { code: "qlc", test: four_bits },
    Pattern { code: "degraded", test: degraded },
    Pattern { code: "shared-link", test: shared },
    Pattern { code: "disks-wait", test: disks_wait },
    Pattern { code: "core-nearly-full", test: nearly_full },
    Pattern { code: "client-core-nearly-full", test: client_nearly_full },
    Pattern { code: "one-thread", test: one_thread },
    Pattern { code: "one-at-a-time", test: one_at_a_time },
    Pattern { code: "wifi", test: air },
    Pattern { code: "other-end", test: other_end },
    Pattern { code: "processor-elsewhere", test: processor_elsewhere },
];

/// Behind a wall or two that much is left.
const AIR_SHARE: f64 = 0.3;
/// Twice as fast is no accident.
const MUCH: f64 = 1.5;
/// Directions that differ so much have not the same limit.
const DIRECTIONS: f64 = 5.0;
/// Interrupts that take so much of a core leave little for the rest.
pub(super) const IRQ_PERCENT: f64 = 70.0;
/// From here on losses are felt.
const LOSSES_PERCENT: f64 = 0.5;
/// A standard's rate is reached so nearly by a wire alone, by a share over it, and by a disk.
const RUNG_ALONE: f64 = 0.92;
const RUNG_SHARED: f64 = 0.88;
const RUNG_DISK: f64 = 0.85;
/// Seldom negotiated, and many other things give such rates: only what is quite at it is it.
const RUNG_SELDOM: f64 = 0.94;

pub(super) fn suspect(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<Suspicion> {
    let case = Case { described, measured, stages };
    PATTERNS.iter().find_map(|p| (p.test)(&case).map(|(what, why)| Suspicion { code: p.code, what, why }))
}

fn said(what: &str, why: impl Into<String>) -> Option<(String, String)> {
    Some((what.to_owned(), why.into()))
}

fn over_network(case: &Case) -> bool {
    matches!(case.measured.path, Path::Share | Path::Net)
}

/// The fastest measurement of the same by another client or program.
pub(super) fn better_client<'a>(described: &'a Described, measured: &Measured) -> Option<&'a Measured> {
    if measured.path != Path::Share {
        return None;
    }
    let other = |m: &&Measured| {
        m.path == Path::Share
            && m.what == measured.what
            && (m.how.client != measured.how.client || m.with != measured.with)
            && m.disks == measured.disks
            && m.how.elsewhere == measured.how.elsewhere
            && m.rate >= measured.rate * MUCH
            && misleading(described, m).is_none()
    };
    described.measured.iter().filter(other).max_by(|a, b| a.rate.total_cmp(&b.rate))
}

/// Field note E: the same box, asked by another program, was not slow.
fn client_differs(case: &Case) -> Option<(String, String)> {
    let better = better_client(case.described, case.measured)?;
    let name = |m: &Measured| match (&m.how.client, &m.with) {
        (Some(client), Some(with)) => format!("{client} ({with})"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "another".to_owned(),
    };
    let rate = rate_words(better.rate, better.what);
    let why = format!("{} got {rate} from the same box, so the server and the wire can do that", name(better));
    said(&format!("the client's side ({})", name(case.measured)), why)
}

/// The client's own air is the narrowest of the way, and carries most of what air carries.
fn client_air(case: &Case) -> Option<(String, String)> {
    let lowest = case.stages.first().filter(|s| s.kind == StageKind::Client && s.name.contains("Wi-Fi"))?;
    (over_network(case) && case.measured.rate >= lowest.capacity * AIR_SHARE).then_some(())?;
    let part = case.measured.rate / lowest.capacity * 100.0;
    let why = format!(
        "{part:.0} % of what it carries next to its station; neighbours on the channel and every wall take a part"
    );
    said(&lowest.name, why)
}

fn quota(case: &Case) -> Option<(String, String)> {
    let why = case.measured.how.quota.as_ref()?;
    said("the part of the processor that a control group allows", why.clone())
}

/// Percent of the time that are felt.
pub(super) const STEAL_PERCENT: f64 = 15.0;
pub(super) const THROTTLED_PERCENT: f64 = 10.0;

fn throttled(case: &Case) -> Option<(String, String)> {
    let time = case.measured.how.throttled_percent.filter(|t| *t >= THROTTLED_PERCENT)?;
    let what = format!("{}, which was throttled", processor(case.measured));
    said(&what, format!("heat or a weak power supply held its clock down {time:.0} % of the time"))
}

/// Rebuilding, and what is computed anew from the disks that are left, takes from everybody.
fn degraded(case: &Case) -> Option<(String, String)> {
    let below = matches!(case.measured.path, Path::Local | Path::Share) && case.measured.how.elsewhere.is_none();
    let lowest = case.stages.iter().find(|s| s.basis != Basis::Usual || s.kind == StageKind::Disks)?;
    let disks = matches!(lowest.kind, StageKind::Disks | StageKind::Link | StageKind::Storage);
    (case.described.degraded && below && disks).then_some(())?;
    said("the degraded pool", "what the missing disk had comes from the others, and a rebuild takes the disks' time")
}

fn host_steals(case: &Case) -> Option<(String, String)> {
    let steal = case.measured.how.steal_percent.filter(|s| *s >= STEAL_PERCENT)?;
    said("the virtual machine's host", format!("it took {steal:.0} % of the processor's time for others"))
}

fn retransmits(case: &Case) -> Option<(String, String)> {
    let again = case.measured.how.retransmits_percent.filter(|r| over_network(case) && *r >= LOSSES_PERCENT)?;
    let cause = match other_way(case) {
        Some(other) => format!(
            "the other direction gives {}, so the cable is good: look for another MTU at one end, and a port or card that drops what it takes in",
            bytes_words(other.rate)
        ),
        None => "a bad cable, a duplex mismatch, or a switch that drops".to_owned(),
    };
    let why = format!("{again:.1} % of the segments were sent again, and TCP halves its pace at each loss: {cause}");
    said("losses on the wire", why)
}

/// The wire alone in the other direction, where that is much faster.
pub(super) fn opposite<'a>(described: &'a Described, measured: &Measured) -> Option<&'a Measured> {
    let other = |m: &&Measured| {
        m.path == Path::Net
            && m.what.writes() != measured.what.writes()
            && m.how.client == measured.how.client
            && m.rate >= measured.bytes_per_s() * DIRECTIONS
    };
    described.measured.iter().filter(other).max_by(|a, b| a.rate.total_cmp(&b.rate))
}

fn other_way<'a>(case: &Case<'a>) -> Option<&'a Measured> {
    opposite(case.described, case.measured).filter(|_| over_network(case))
}

/// At 100 Mbit/s one end may be set to full duplex while the other found nobody to negotiate with and took half: it
/// then drops what arrives while it sends (IEEE 802.3, 28.2.3.1). A gigabit is always negotiated.
fn duplex_mismatch(case: &Case) -> Option<(String, String)> {
    let alone = other_way(case).filter(|_| case.measured.path == Path::Net);
    let other = alone.or_else(|| other_share(case))?;
    let lower = Wire::named("100 Mbit")?;
    let wire = case.described.network.as_ref()?.wire.as_ref().filter(|w| w.name.contains("Ethernet"))?;
    let at_lower = other.rate <= lower.line && other.rate >= lower.practical * 0.5;
    (at_lower && wire.practical >= lower.practical).then_some(())?;
    let why = format!(
        "the other direction gives {}, so the wire runs at 100 Mbit/s, where one end can be at half duplex and the other at full: the one drops what arrives while it sends",
        bytes_words(other.rate)
    );
    said("a duplex mismatch", why)
}

/// A share in the other direction, where segments of the slow one were lost.
fn other_share<'a>(case: &Case<'a>) -> Option<&'a Measured> {
    let lossy = case.measured.how.retransmits_percent.is_some_and(|r| r >= LOSSES_PERCENT);
    let other = |m: &&Measured| {
        m.path == Path::Share
            && m.what.writes() != case.measured.what.writes()
            && m.how.client == case.measured.how.client
            && m.bytes_per_s() >= case.measured.bytes_per_s() * DIRECTIONS
            && misleading(case.described, m).is_none()
    };
    case.described.measured.iter().filter(|_| lossy && case.measured.path == Path::Share).find(other)
}

/// What a link negotiates holds for both directions: where only one is slow, it is something else.
fn one_direction(case: &Case) -> Option<(String, String)> {
    let other = other_way(case).filter(|_| case.measured.path == Path::Net)?;
    let half = case.described.network.as_ref()?.wire.as_ref().is_some_and(|w| w.duplex == Duplex::Half);
    (!half).then_some(())?;
    let why = format!(
        "the other one gives {} on the same wire: another MTU at one end, flow control, or a card's offloads",
        bytes_words(other.rate)
    );
    said("something that slows this direction alone", why)
}

fn interrupts(case: &Case) -> Option<(String, String)> {
    let irq = case.measured.how.irq_percent.filter(|i| *i >= IRQ_PERCENT)?;
    said(
        "the core that handles interrupts",
        format!("they took {irq:.0} % of its time, and one card's queue is one core's"),
    )
}

/// What belongs to one connection keeps to one cable, or it would overtake itself (IEEE 802.1AX, 6.2.1).
fn one_of_a_bond(case: &Case) -> Option<(String, String)> {
    let network = case.described.network.as_ref().filter(|n| over_network(case) && is_bond(&n.name))?;
    let rate = case.measured.bytes_per_s();
    let one = Wire::ethernet_of(rate).filter(|w| rate >= w.practical * PROOF_SHARE && w.line < network.bytes_per_s)?;
    let why = format!(
        "{} is what one {} carries, and a connection stays on one of the bond's cables",
        bytes_words(rate),
        one.name
    );
    said(&format!("one cable of '{}'", network.name), why)
}

/// A rate that is just what the next lower standard carries.
fn rung_below(case: &Case) -> Option<(String, String)> {
    let rate = case.measured.bytes_per_s();
    let near = if case.measured.path == Path::Share { RUNG_SHARED } else { RUNG_ALONE };
    // Negotiation holds for all that passes: whoever was faster shows that it is not this.
    let passed = |lower: &Wire| {
        let client = |m: &Measured| m.how.client == case.measured.how.client;
        let over =
            |m: &&Measured| matches!(m.path, Path::Share | Path::Net) && client(m) && m.bytes_per_s() > lower.line;
        case.described.measured.iter().filter(over).any(|m| misleading(case.described, m).is_none())
    };
    let seldom = |wire: &Wire| wire.name.starts_with("2.5") || wire.name.starts_with("5 ");
    let fits = |wire: &Wire| {
        let near = if seldom(wire) { RUNG_SELDOM } else { near };
        rate >= wire.practical * near && rate <= wire.line && !passed(wire)
    };
    let why = |have: &Wire, lower: &Wire| {
        let (rate, most) = (bytes_words(case.measured.bytes_per_s()), bytes_words(lower.practical));
        format!(
            "{rate} is what {} carries ({most}), and {} is described: a cable, a port, an adapter or a switch between",
            lower.name, have.name
        )
    };
    if over_network(case)
        && let Some(wire) = case.described.network.as_ref().and_then(|n| n.wire.as_ref())
        && let Some(lower) = wire.rungs_below().into_iter().find(fits)
    {
        return said(&format!("a part of the way that runs at {}", lower.name), why(wire, &lower));
    }
    let disks = used(case.described, case.measured);
    let [(disk, 1)] = disks.as_slice() else { return None };
    // Through a share only where the machine itself did not show more.
    let below = case.measured.path != Path::Net && !case.stages.iter().any(|s| s.kind == StageKind::Storage);
    let wire = disk.connection.as_ref().filter(|_| below && !case.measured.what.is_random())?;
    let fits = |w: &Wire| rate >= w.practical * RUNG_DISK && rate <= w.line;
    // A rate that is usual of such a disk needs no worse wire.
    let unusual = disk.kind.is_none_or(|kind| rate < kind.physical().usual(case.measured.what).0);
    let lower = wire.rungs_below().into_iter().find(|w| unusual && fits(w))?;
    said(&format!("a connection that runs at {}", lower.name), why(wire, &lower))
}

fn kinds(case: &Case) -> Vec<DiskKind> {
    used(case.described, case.measured).iter().filter_map(|(disk, _)| disk.kind).collect()
}

/// Whether the disks, not a network, are what stands in question.
fn at_disks(case: &Case) -> bool {
    case.measured.path != Path::Net && case.measured.what.writes()
}

fn shingled(case: &Case) -> Option<(String, String)> {
    let slow = case.stages.first().is_some_and(|s| case.measured.rate < s.capacity * 0.6);
    let smr = kinds(case).contains(&DiskKind::Smr);
    (at_disks(case) && smr && slow).then_some(())?;
    said("the shingled disk", DiskKind::Smr.physical().why)
}

fn four_bits(case: &Case) -> Option<(String, String)> {
    let disks = used(case.described, case.measured);
    let each = case.measured.rate / f64::from(count(&disks)).max(1.0);
    let qlc = kinds(case).contains(&DiskKind::Qlc) && !case.measured.what.is_random();
    (at_disks(case) && qlc && each <= DiskKind::Qlc.physical().usual_write.1).then_some(())?;
    let lowest = case.stages.first()?;
    // Over a network that is slower than that nothing speaks against the disks more than against others.
    matches!(lowest.kind, StageKind::Disks | StageKind::Link | StageKind::Storage).then_some(())?;
    said("the QLC disks themselves", DiskKind::Qlc.physical().why)
}

/// Several disks are together no more than one: what they share is the limit.
fn shared(case: &Case) -> Option<(String, String)> {
    let disks = used(case.described, case.measured);
    let scales = match layout(case.described, case.measured, &disks) {
        None => true,
        // One reader of a mirror may have been given one copy.
        Some(Layout::Mirror) => case.stages.iter().all(|s| case.measured.rate < s.capacity_low * PROOF_SHARE),
        Some(layout) => !layout.is_raidz() && layout != Layout::Linear,
    };
    let n = count(&disks);
    if n < 2 || !scales || over_network(case) {
        return None;
    }
    let all = case.stages.iter().find(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual)?;
    // Where data lies unevenly on unequal disks that alone may explain it.
    (case.measured.rate < all.capacity_low * PROOF_SHARE).then_some(())?;
    let part = case.measured.rate / all.capacity * 100.0;
    let most = rate_words(all.capacity, case.measured.what);
    let why =
        format!("the {n} disks could give {most} and give {part:.0} % of that, so they wait for something they share");
    let common = case.described.links.iter().filter(|link| disks.iter().all(|(disk, _)| disk.via.contains(&link.name)));
    match common.min_by(|a, b| a.read.total_cmp(&b.read)) {
        Some(link) => said(&format!("{} and the controller behind it", link.name), why),
        None => said(
            "something the disks share that is not described (a chipset's uplink, a controller, memory, or the processor)",
            why,
        ),
    }
}

fn disks_wait(case: &Case) -> Option<(String, String)> {
    let how = &case.measured.how;
    if case.measured.path == Path::Net {
        return None;
    }
    let given = case.stages.iter().any(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual);
    let though = if given { ", though they are described as faster" } else { "" };
    if let Some(busy) = how.disk_busy_percent.filter(|b| *b >= 90.0) {
        return said("the disks", format!("they were busy {busy:.0} % of the time{though}"));
    }
    let wait = how.iowait_percent.filter(|w| *w >= 25.0)?;
    said("the disks", format!("cores waited for them {wait:.0} % of the time{though}"))
}

fn nearly_full(case: &Case) -> Option<(String, String)> {
    said(&processor(case.measured), nearly(&case.measured.cores_percent)?)
}

fn client_nearly_full(case: &Case) -> Option<(String, String)> {
    said(&client_processor(case.measured), nearly(&case.measured.how.client_cores)?)
}

fn nearly(cores: &[f64]) -> Option<String> {
    let busiest = cores.iter().copied().reduce(f64::max).filter(|busiest| *busiest >= 85.0)?;
    Some(format!("one core was busy {busiest:.0} % of the time, and short waits count as free time"))
}

/// One thread that wanders shows as several half-busy cores.
fn one_thread(case: &Case) -> Option<(String, String)> {
    let cores = &case.measured.cores_percent;
    let sum: f64 = cores.iter().sum();
    let wanders = cores.len() > 1 && cores.iter().all(|c| *c < 85.0) && (92.0..=112.0).contains(&sum);
    wanders.then_some(())?;
    said(
        "one thread of work",
        format!("the cores are busy {sum:.0} % together, which is one core's worth that moves about"),
    )
}

fn one_at_a_time(case: &Case) -> Option<(String, String)> {
    let block = case.measured.block_bytes()? as f64;
    let depth = case.measured.how.in_flight.filter(|d| *d <= 2.0)?;
    let each_ms = depth * block / case.measured.bytes_per_s() * 1e3;
    let why = format!(
        "{depth:.0} in flight, and each takes {each_ms:.2} ms (Little's law): the time goes into waiting, not into transfer"
    );
    said("the time of single requests", why)
}

fn air(case: &Case) -> Option<(String, String)> {
    let wire = case.described.network.as_ref()?.wire.as_ref().filter(|w| w.name.starts_with("Wi-Fi"))?;
    over_network(case).then_some(())?;
    said("the air", format!("{} shares its channel with neighbours, and every wall takes a part", wire.name))
}

/// Field note E by exclusion: storage and wire were measured, and both can do much more.
fn other_end(case: &Case) -> Option<(String, String)> {
    if case.measured.path != Path::Share {
        return None;
    }
    let measured = |kind: StageKind| case.stages.iter().filter(move |s| s.kind == kind && s.basis == Basis::Measured);
    let wire = measured(StageKind::Network).map(|s| s.capacity).reduce(f64::min)?;
    let storage = measured(StageKind::Storage).map(|s| s.capacity).reduce(f64::min)?;
    let least = case.measured.rate * MUCH;
    let busiest = case.measured.cores_percent.iter().copied().reduce(f64::max).unwrap_or(0.0);
    (wire >= least && storage >= least && busiest < 85.0).then_some(())?;
    let (wire, storage) = (rate_words(wire, case.measured.what), rate_words(storage, case.measured.what));
    let why = format!("the storage alone gives {storage} and the wire alone {wire}, so neither is the limit");
    said("the client or the protocol", why)
}

/// Another measurement of the same way kept every core busy, and nobody watched them in this one.
fn processor_elsewhere(case: &Case) -> Option<(String, String)> {
    let alike = |m: &&Measured| {
        m.path == case.measured.path
            && m.what.is_random() == case.measured.what.is_random()
            && !m.cores_percent.is_empty()
            && m.cores_percent.iter().all(|c| *c >= super::diagnose::CORE_FULL_PERCENT)
            && (0.5..=2.0).contains(&(m.rate / case.measured.rate))
    };
    let other = case.described.measured.iter().filter(|_| case.measured.cores_percent.is_empty()).find(alike)?;
    let why = format!(
        "{} kept all cores busy at {}; watch them in this one too",
        super::words::path_words(other),
        rate_words(other.rate, other.what)
    );
    said("the processor", why)
}
