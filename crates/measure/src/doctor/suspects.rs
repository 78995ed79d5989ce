//! What unexplained figures look like (B7): patterns that builders of boxes met, each with its reason.
//!
//! A suspicion is never a proof: it says what to look at first. The order is from the most to the least specific.

use larder_base::units::ByteSize;
use serde::Serialize;

use super::describe::{Described, Disk, Layout, Link, Measured, Network, Path, What};
use super::diagnose::SLOW_WIRE_BYTES_PER_S;
use super::limits::{DiskKind, Duplex, Wire};
use super::misleading::misleading;
use super::stages::{Basis, PROOF_SHARE, Stage, StageKind, client_of, count, layout, link_of, stages, used};
use super::words::{bytes_words, client_processor, processor, rate_words};

mod waits;

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
    Pattern { code: "one-of-a-bond", test: one_of_a_bond },
    Pattern { code: "retransmits", test: retransmits },
    Pattern { code: "one-direction", test: one_direction },
    Pattern { code: "one-core-irq", test: interrupts },
    Pattern { code: "one-connection", test: waits::one_connection },
    Pattern { code: "rung-below", test: rung_below },
    Pattern { code: "link-rung", test: link_rung },
    Pattern { code: "hot-disk", test: hot },
    Pattern { code: "smr", test: shingled },
    Pattern { code: "fast-cache", test: fast_cache },
    Pattern { code: "qlc", test: four_bits },
    Pattern { code: "flush", test: waits::flush },
    Pattern { code: "one-in-flight", test: waits::one_in_flight },
    Pattern { code: "degraded", test: degraded },
    Pattern { code: "reads-before-writes", test: partial_stripes },
    Pattern { code: "slower-disks", test: slower_than_said },
    Pattern { code: "shared-link", test: shared },
    Pattern { code: "disks-wait", test: disks_wait },
    Pattern { code: "core-nearly-full", test: nearly_full },
    Pattern { code: "client-core-nearly-full", test: client_nearly_full },
    Pattern { code: "one-thread", test: one_thread },
    Pattern { code: "one-copy", test: waits::one_copy },
    Pattern { code: "one-at-a-time", test: waits::one_at_a_time },
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
/// What passes over it by rounding.
const RUNG_OVER: f64 = 1.02;
/// So near a wire alone is to what it carries, and hardly anything else by chance.
const RUNG_EXACT: f64 = 0.97;
/// Seldom negotiated, and many other things give such rates: only what is quite at it is it.
const RUNG_SELDOM: f64 = 0.94;

pub(super) fn suspect(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<Suspicion> {
    let case = Case { described, measured, stages };
    PATTERNS.iter().find_map(|p| (p.test)(&case).map(|(what, why)| Suspicion { code: p.code, what, why }))
}

/// A wire that is just at the rate of a lower standard, although a core is full: of another program's work, or nearly so
/// by chance. No core is filled by 100 Mbit/s, and only a wire alone is so near to any standard's rate.
pub(super) fn slower_wire(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<Suspicion> {
    let case = Case { described, measured, stages };
    let (lower, (what, why)) = network_rung(&case)?;
    let slow = Wire::named("100 Mbit").is_some_and(|least| lower.practical <= least.practical);
    let just = measured.path == Path::Net && measured.rate >= lower.practical * RUNG_EXACT;
    (slow || just).then_some(Suspicion { code: "rung-below", what, why })
}

/// Whether it is the network that has the rate of a lower standard, not a disk's connection.
pub(super) fn slower_network(described: &Described, measured: &Measured, stages: &[Stage]) -> bool {
    network_rung(&Case { described, measured, stages }).is_some()
}

/// The wire alone by several connections, where those carry much more than one does.
pub(super) fn several_connections<'a>(described: &'a Described, measured: &'a Measured) -> Option<&'a Measured> {
    waits::connections(&Case { described, measured, stages: &[] }).map(|(_, several)| several)
}

/// Losses, where they explain that a wire is not full.
pub(super) fn losses(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<Suspicion> {
    let (what, why) = retransmits(&Case { described, measured, stages })?;
    Some(Suspicion { code: "retransmits", what, why })
}

/// What has nothing to do with a processor, and explains a figure as well as a full core does.
pub(super) fn beside_the_processor(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<Suspicion> {
    const BESIDE: [&str; 10] = [
        "client-wifi",
        "client-differs",
        "duplex-mismatch",
        "one-of-a-bond",
        "retransmits",
        "rung-below",
        "hot-disk",
        "smr",
        "fast-cache",
        "disks-wait",
    ];
    let case = Case { described, measured, stages };
    let patterns = PATTERNS.iter().filter(|p| BESIDE.contains(&p.code));
    patterns.filter_map(|p| (p.test)(&case).map(|(what, why)| Suspicion { code: p.code, what, why })).next()
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
    // A wire that is full drops what is too much: that is how TCP finds its pace.
    (network_rung(case).is_none() && one_of_a_bond(case).is_none()).then_some(())?;
    if over_air(case) {
        let why = format!(
            "{again:.1} % of the segments were sent again, and TCP halves its pace at each loss: distance, walls, and others on the channel"
        );
        return said("losses in the air", why);
    }
    let cause = match other_way(case) {
        None if is_far(case) => "a full router or line on the way".to_owned(),
        Some(other) => format!(
            "the other direction gives {}, so the cable is good: look for another MTU at one end, and a port or card that drops what it takes in",
            bytes_words(other.rate)
        ),
        None => "a bad cable, a duplex mismatch, or a switch that drops".to_owned(),
    };
    let why = format!("{again:.1} % of the segments were sent again, and TCP halves its pace at each loss: {cause}");
    said("losses on the wire", why)
}

/// Whether Wi-Fi is a part of the way.
fn over_air(case: &Case) -> bool {
    let network = case.described.network.as_ref().and_then(|n| n.wire.as_ref());
    let client = client_of(case.described, case.measured).and_then(|client| client.wire.as_ref());
    network.is_some_and(Wire::is_air) || client.is_some_and(Wire::is_air)
}

/// Round trips so long leave the house.
const FAR_S: f64 = 0.004;

fn is_far(case: &Case) -> bool {
    case.described.network.as_ref().and_then(|n| n.round_trip_s).is_some_and(|s| s >= FAR_S)
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

/// What a link negotiates holds for both directions: where only one is slow, it is something else. What has no name among
/// such links may well be sold so: a line to the Internet.
fn one_direction(case: &Case) -> Option<(String, String)> {
    let other = other_way(case).filter(|_| case.measured.path == Path::Net)?;
    let network = case.described.network.as_ref()?;
    let half = network.wire.as_ref().is_some_and(|w| w.duplex == Duplex::Half);
    (!half).then_some(())?;
    let gives = format!("the other one gives {} on the same wire", bytes_words(other.rate));
    if is_line(network) {
        let why = format!("{gives}, and lines to the Internet are sold with less in one direction");
        return said(&format!("this direction of {}", network.name), why);
    }
    let why = format!("{gives}: another MTU at one end, flow control, or a card's offloads");
    said("something that slows this direction alone", why)
}

/// No wire of the house by its name: what it gives in one direction says nothing of the other.
pub(super) fn is_line(network: &Network) -> bool {
    network.wire.is_none() || network.round_trip_s.is_some_and(|s| s >= FAR_S)
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
    let network = case.described.network.as_ref().filter(|n| over_network(case) && n.bonded)?;
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
    network_rung(case).or_else(|| disk_rung(case)).map(|(_, said)| said)
}

fn rung_words(rate: f64, have: &Wire, lower: &Wire) -> String {
    let (rate, most) = (bytes_words(rate), bytes_words(lower.practical));
    let look = match have.is_pcie() {
        true => "a slot of fewer lanes, a riser, a bad contact, or saved power",
        false => "a cable, a port, an adapter or a switch between",
    };
    format!("{rate} is what {} carries ({most}), and {} is described: {look}", lower.name, have.name)
}

/// Of the way between the box and its client.
fn network_rung(case: &Case) -> Option<(Wire, (String, String))> {
    let rate = case.measured.bytes_per_s();
    let near = if case.measured.path == Path::Share { RUNG_SHARED } else { RUNG_ALONE };
    // Negotiation holds for all that passes: whoever was faster shows that it is not this.
    let passed = |lower: &Wire| {
        let client = |m: &Measured| m.how.client == case.measured.how.client;
        let over =
            |m: &&Measured| matches!(m.path, Path::Share | Path::Net) && client(m) && m.bytes_per_s() > lower.line;
        case.described.measured.iter().filter(over).any(|m| misleading(case.described, m).is_none())
    };
    let seldom = |wire: &Wire| ["2.5", "5 ", "25", "40"].iter().any(|name| wire.name.starts_with(name));
    let fits = |wire: &Wire| {
        let near = if seldom(wire) { RUNG_SELDOM } else { near };
        // Frames are larger from a gigabit on, and carry more.
        let most = if wire.practical < 20e6 { wire.practical * RUNG_OVER } else { wire.line };
        rate >= wire.practical * near && rate <= most && !passed(wire)
    };
    // What is usual of a card or stick needs no wire as slow as that.
    let usual = |s: &&Stage| s.kind == StageKind::Disks && s.basis == Basis::Usual;
    let usual = case.stages.iter().filter(usual).any(|s| (s.capacity_low..=s.capacity).contains(&case.measured.rate));
    let explained = |wire: &Wire| usual && wire.practical <= SLOW_WIRE_BYTES_PER_S;
    let wire = case.described.network.as_ref().filter(|_| over_network(case))?.wire.as_ref()?;
    let lower = wire.rungs_below().into_iter().find(|wire| fits(wire) && !explained(wire))?;
    let words = said(&format!("a part of the way that runs at {}", lower.name), rung_words(rate, wire, &lower))?;
    Some((lower, words))
}

/// Of the one disk that was asked.
fn disk_rung(case: &Case) -> Option<(Wire, (String, String))> {
    let rate = case.measured.bytes_per_s();
    let disks = used(case.described, case.measured);
    let [(disk, 1)] = disks.as_slice() else { return None };
    // Through a share only where the machine itself did not show more.
    let below = case.measured.path != Path::Net && !case.stages.iter().any(|s| s.kind == StageKind::Storage);
    let wire = disk.connection.as_ref().filter(|_| below && !case.measured.what.is_random())?;
    let passed = |lower: &Wire| {
        let alone = |m: &&Measured| matches!(used(case.described, m).as_slice(), [(d, 1)] if d.name == disk.name);
        let honest = |m: &&Measured| m.path != Path::Net && misleading(case.described, m).is_none();
        case.described.measured.iter().filter(alone).filter(honest).any(|m| m.bytes_per_s() > lower.line)
    };
    let near = if wire.is_pcie() { RUNG_ALONE } else { RUNG_DISK };
    let fits = |w: &Wire| rate >= w.practical * near && rate <= w.line && !passed(w);
    // A rate that is usual of such a disk needs no worse wire, unless this one is known to do more.
    let usual = disk.kind.map(|kind| kind.physical().usual(case.measured.what).0);
    let known = disk.rate(case.measured.what).filter(|_| wire.is_pcie()).map(|given| given * PROOF_SHARE);
    let unusual = usual.is_none_or(|usual| rate < usual) || known.is_some_and(|known| rate < known);
    let mut lower = wire.rungs_below().into_iter().filter(|w| unusual && fits(w));
    let first = lower.next()?;
    let alike = lower.next().map(|other| format!(" or {}", other.name)).unwrap_or_default();
    let words = said(&format!("a connection that runs at {}{alike}", first.name), rung_words(rate, wire, &first))?;
    Some((first, words))
}

/// Of a link by name that something passes on its way: a port, a hub, a card's slot.
fn link_rung(case: &Case) -> Option<(String, String)> {
    let disks = used(case.described, case.measured);
    let several = case.measured.path != Path::Net && count(&disks) > 1;
    // What so slow a disk gives anyway needs no worse link.
    let each = case.measured.rate / f64::from(count(&disks)).max(1.0);
    let usual = |kind: &DiskKind| each >= kind.physical().usual(case.measured.what).0;
    let explained = case.measured.path != Path::Net && kinds(case).iter().any(usual);
    (!case.measured.what.is_random() && !explained).then_some(())?;
    let found = case.described.links.iter().find_map(|link| {
        // Lanes have many rungs, and several disks many reasons to be near one of them.
        let wire = link.wire.as_ref().filter(|w| link.could.is_none() && !(several && w.is_pcie()))?;
        // What somebody measured of it is no name's figure.
        (link.read == wire.practical && link.write == wire.practical).then_some(())?;
        let rate = carried(case.described, case.measured, link)?;
        let passed = |lower: &Wire| {
            let honest = |m: &&Measured| misleading(case.described, m).is_none();
            let all = case.described.measured.iter().filter(honest);
            all.filter_map(|m| carried(case.described, m, link)).any(|other| other > lower.line)
        };
        // A wire of one direction at a time carries twice what comes from disks and goes out through it (B4).
        let passes = |w: &Wire| if w.duplex == Duplex::Half && both_ways(case, link) { rate * 2.0 } else { rate };
        let fits = |w: &Wire| passes(w) >= w.practical * RUNG_ALONE && passes(w) <= w.line && !passed(w);
        let lower = wire.rungs_below().into_iter().find(fits)?;
        let passes = passes(&lower);
        Some((link, wire, lower, passes))
    });
    let (link, wire, lower, rate) = found?;
    said(&format!("{}, which runs at {}", link.name, lower.name), rung_words(rate, wire, &lower))
}

/// Whether a share's bytes come over a link from the disks and leave over it to the network.
fn both_ways(case: &Case, link: &Link) -> bool {
    let card = case.described.network.as_ref().is_some_and(|n| n.via.contains(&link.name));
    let disks = used(case.described, case.measured);
    case.measured.path == Path::Share && card && disks.iter().any(|(disk, _)| disk.via.contains(&link.name))
}

/// Bytes that cross a link, with copies and parity, while so much is measured.
fn carried(described: &Described, measured: &Measured, link: &Link) -> Option<f64> {
    let wire = link.wire.as_ref()?;
    let stages = stages(described, measured);
    let stage = stages.iter().find(|s| link_of(described, s).is_some_and(|of| of.name == link.name))?;
    Some(measured.rate * wire.practical / stage.capacity)
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

/// From here on, degrees Celsius, disks hold themselves back: data sheets of SSDs begin to throttle at 70 to 85, those of
/// hard disks end at 60.
const HOT_FLASH_C: f64 = 70.0;
const HOT_TURNING_C: f64 = 60.0;

fn hot(case: &Case) -> Option<(String, String)> {
    let limit = |disk: &Disk| if disk.kind.is_some_and(DiskKind::turns) { HOT_TURNING_C } else { HOT_FLASH_C };
    let disks = used(case.described, case.measured);
    let hot = disks.iter().filter_map(|(d, _)| Some((d, d.temperature_c.filter(|at| *at >= limit(d))?)));
    let (disk, at) = hot.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| case.measured.path != Path::Net)?;
    said(
        &format!("'{}', which holds itself back while it is hot", disk.name),
        format!("it is at {at:.0} degrees, and such a disk throttles itself from {:.0} on", limit(disk)),
    )
}

/// So much is more than fast caches of flash hold, bytes for each disk.
const BEYOND_CACHES_BYTES: f64 = 50e9;

/// Flash takes the beginning of a file fast, as one bit a cell, and the rest as it can.
fn fast_cache(case: &Case) -> Option<(String, String)> {
    (at_disks(case) && case.measured.what == What::Write && stands_at_disks(case)).then_some(())?;
    let what = "the disk's own writing, once its fast cache is full";
    if let Some(slowed) = &case.measured.how.slowed {
        return said(what, slowed.clone());
    }
    let disks = used(case.described, case.measured);
    let n = f64::from(count(&disks)).max(1.0);
    let flash = disks.iter().all(|(d, _)| matches!(d.kind, Some(DiskKind::SataSsd | DiskKind::Nvme)));
    let file = case.measured.file_bytes.filter(|_| flash && !disks.is_empty())? as f64;
    let all = case.stages.iter().find(|s| s.kind == StageKind::Disks)?;
    (file >= BEYOND_CACHES_BYTES * n && case.measured.rate < all.capacity * PROOF_SHARE).then_some(())?;
    let file = ByteSize(file as u64);
    let why = format!("{file} are more than such a cache holds: write less in one go, and see whether it is faster");
    said(what, why)
}

/// Disks, or what was measured of them, are the lowest of what is known.
fn stands_at_disks(case: &Case) -> bool {
    let lowest = case.stages.first().map(|s| s.kind);
    matches!(lowest, None | Some(StageKind::Disks | StageKind::Link | StageKind::Storage))
}

/// The disks together, which scale in their layout, and give less than they could.
fn together<'a>(case: &Case<'a>) -> Option<(Vec<(&'a Disk, u32)>, &'a Stage)> {
    let disks = used(case.described, case.measured);
    let scales = match layout(case.described, case.measured, &disks) {
        None => true,
        // One reader of a mirror may have been given one copy.
        Some(Layout::Mirror) => case.stages.iter().all(|s| case.measured.rate < s.capacity_low * PROOF_SHARE),
        Some(layout) => !layout.is_raidz() && layout != Layout::Linear,
    };
    (count(&disks) >= 2 && scales && !over_network(case) && !waits::too_few_for_all(case)).then_some(())?;
    let all = case.stages.iter().find(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual)?;
    // Where data lies unevenly on unequal disks that alone may explain it.
    (case.measured.rate < all.capacity_low * PROOF_SHARE).then_some((disks, all))
}

/// The best that one of these disks was measured to give by itself.
fn one_alone(case: &Case, disks: &[(&Disk, u32)]) -> Option<f64> {
    let alone = |m: &&Measured| match used(case.described, m).as_slice() {
        [(one, 1)] => m.path <= case.measured.path && disks.iter().any(|(disk, _)| disk.name == one.name),
        _ => false,
    };
    let alike = case.described.measured.iter().filter(|m| m.what == case.measured.what && m.path != Path::Net);
    alike.filter(alone).filter(|m| misleading(case.described, m).is_none()).map(|m| m.rate).reduce(f64::max)
}

/// No more than so many disks' rate is that of something they share, however little of it they use.
const AS_ONE: f64 = 1.5;
/// The inner tracks of a hard disk have about half of the outer ones' rate.
pub(super) const INNER_TRACKS: f64 = 0.45;

/// Equal disks that each give less than is said of them: data sheets have the outermost track, and nobody measured one.
fn slower_than_said(case: &Case) -> Option<(String, String)> {
    let (disks, all) = together(case)?;
    let n = f64::from(count(&disks));
    let kind = disks.first()?.0.kind.filter(|kind| disks.iter().all(|(disk, _)| disk.kind == Some(*kind)))?;
    let part = case.measured.rate / all.capacity;
    let each = case.measured.rate / n;
    let usual = kind.physical().usual(case.measured.what);
    let alone = one_alone(case, &disks);
    // What one gave by itself all could, but for the tracks that data lies on.
    let tracks = kind.turns() && part >= INNER_TRACKS && case.measured.path == Path::Local;
    let possible = alone.is_none() || tracks;
    let fits =
        possible && each >= usual.0 && each <= usual.1 && alone.is_none_or(|one| case.measured.rate > one * AS_ONE);
    (fits && !case.measured.what.is_random()).then_some(())?;
    let each = rate_words(each, case.measured.what);
    let why = match (alone, kind.turns()) {
        (Some(_), _) => format!("each of the {n:.0} gave {each}, and inner tracks have half of the outer ones' rate"),
        (None, true) => format!(
            "each of the {n:.0} gave {each}, which is usual of a {}: what is described may be its outermost track. Measure one by itself",
            kind.physical().name
        ),
        (None, false) => format!("each of the {n:.0} gave {each}, and no one was measured by itself: do that"),
    };
    said("the disks themselves, slower than described", why)
}

/// Several disks are together no more than one: what they share is the limit.
fn shared(case: &Case) -> Option<(String, String)> {
    let (disks, all) = together(case)?;
    let n = count(&disks);
    let part = case.measured.rate / all.capacity * 100.0;
    let most = rate_words(all.capacity, case.measured.what);
    let why =
        format!("the {n} disks could give {most} and give {part:.0} % of that, so they wait for something they share");
    let as_one = one_alone(case, &disks).is_some_and(|one| case.measured.rate <= one * AS_ONE);
    // What heads gather piece by piece fills nothing.
    let trickles = turn_at_random(case.measured, &disks);
    // A link that is mostly idle is not waited for.
    let loaded = |link: &&Link| (as_one && !trickles) || is_loaded(case, link);
    let common = case.described.links.iter().filter(|link| disks.iter().all(|(disk, _)| disk.via.contains(&link.name)));
    match common.filter(loaded).min_by(|a, b| a.read.total_cmp(&b.read)) {
        Some(link) => said(&format!("{} and the controller behind it", link.name), why),
        // Nothing speaks for what nobody described, where the disks themselves or a core were seen to be busy.
        None if disks_wait(case).is_some() || nearly_full(case).is_some() || trickles => None,
        None => said(
            "something the disks share that is not described (a chipset's uplink, a controller, memory, or the processor)",
            why,
        ),
    }
}

/// From this part of its rate on a link may be what is waited for, as a controller behind it.
const LINK_LOADED: f64 = 0.4;

fn is_loaded(case: &Case, link: &Link) -> bool {
    let stage = case.stages.iter().find(|s| link_of(case.described, s).is_some_and(|l| l.name == link.name));
    stage.is_some_and(|s| case.measured.rate >= s.capacity * LINK_LOADED)
}

/// Hard disks of which small pieces are read in any order.
pub(super) fn turn_at_random(measured: &Measured, disks: &[(&Disk, u32)]) -> bool {
    let turn = !disks.is_empty() && disks.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
    turn && measured.what.is_random()
}

/// Below this part of what reading before writing allows something else is slow.
const PARTIAL_MIN: f64 = 0.1;

/// RAID 5 and 6 compute parity from a whole stripe, or from what they read before. md reads where its cache of stripes is
/// full before they are.
fn partial_stripes(case: &Case) -> Option<(String, String)> {
    let (disks, all) = together(case)?;
    let layout = layout(case.described, case.measured, &disks)?;
    let parity = matches!(layout, Layout::Raid5 | Layout::Raid6).then(|| layout.parity())?;
    let how = &case.measured.how;
    let idle = how.disk_busy_percent.is_some_and(|busy| busy < 50.0) || nearly(&case.measured.cores_percent).is_some();
    let link = |link: &Link| disks.iter().all(|(disk, _)| disk.via.contains(&link.name)) && is_loaded(case, link);
    let apart = !idle && !how.sync && !case.described.links.iter().any(link);
    (case.measured.what == What::Write && apart).then_some(())?;
    // Every disk writes its part of what a whole stripe would take, and 2 (RAID 6: 3) of each are read before.
    let n = f64::from(count(&disks));
    let each = all.capacity / (n - f64::from(parity)).max(1.0);
    let most = n * each / f64::from(2 + 2 * parity);
    (case.measured.rate >= most * PARTIAL_MIN && case.measured.rate <= most * RUNG_OVER).then_some(())?;
    let why = format!(
        "{n:.0} disks that read old data and parity before each write give {} at most, and {} where whole stripes are written: md reads where it has gathered no whole stripe, and a bitmap of small chunks makes the heads go there as well",
        rate_words(most, case.measured.what),
        rate_words(all.capacity, case.measured.what)
    );
    let name = if parity == 1 { "RAID 5" } else { "RAID 6" };
    said(&format!("{name}, which reads before it writes"), why)
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

/// A core with so many times what the next one does is somebody's own.
const OWN_CORE: f64 = 2.0;

/// One thread that wanders shows as several cores that do about the same. One that does most of the work, with room left,
/// is where another thread stays: together they are several, each of which waits.
fn one_thread(case: &Case) -> Option<(String, String)> {
    let mut cores = case.measured.cores_percent.clone();
    cores.sort_by(|a, b| b.total_cmp(a));
    let sum: f64 = cores.iter().sum();
    let [first, second, ..] = cores.as_slice() else { return None };
    let wanders = *first < 85.0 && *first <= second * OWN_CORE && (92.0..=112.0).contains(&sum);
    wanders.then_some(())?;
    said(
        "one thread of work",
        format!("the cores are busy {sum:.0} % together, which is one core's worth that moves about"),
    )
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
            && misleading(case.described, m).is_none()
    };
    let unwatched = case.measured.cores_percent.is_empty() && !case.measured.how.others_work;
    let other = case.described.measured.iter().filter(|_| unwatched).find(alike)?;
    let why = format!(
        "{} kept all cores busy at {}; watch them in this one too",
        super::words::path_words(other),
        rate_words(other.rate, other.what)
    );
    said("the processor", why)
}
