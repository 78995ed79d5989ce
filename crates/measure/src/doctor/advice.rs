//! What would help, and how much of it would arrive (B4).
//!
//! Every candidate is a change of the description: the stages of the changed box say what would be the limit then. So
//! no fix promises more than the next stage allows.

use serde::Serialize;

use super::describe::{Described, Layout, Measured, Network, Path, What};
use super::diagnose::{Cause, Finding, explain, foremost};
use super::limits::{DiskKind, Wire};
use super::stages::{Stage, StageKind, stages};
use super::suspects::better_client;
use super::words::{bytes_words, path_words, rate_words};

/// A gain below this is not worth money.
const GAIN_MIN: f64 = 1.05;
/// The number of fixes a person can weigh.
pub(super) const ADVICE_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// Something to type; costs nothing.
    Command,
    /// Something to arrange otherwise; costs work.
    Change,
    Purchase,
}

/// What would help, and how much of it would arrive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub what: String,
    pub means: Means,
    /// The command to type, or what to buy or do.
    pub how: String,
    pub path: Path,
    pub of: What,
    pub rate_before: f64,
    /// What the next stage allows.
    pub rate_after: f64,
    /// MB/s; of operations, times their size.
    pub gain_mb_per_s: f64,
    pub gain_percent: f64,
    pub sentence: String,
}

/// One change, and the box after it.
struct Candidate {
    what: String,
    means: Means,
    how: String,
    after: Described,
    /// How it would be measured then.
    measured: Measured,
    /// A bound of its own, beside the stages.
    at_most: f64,
}

pub(super) fn help(described: &Described, findings: &[Finding]) -> Vec<Advice> {
    let mut advice: Vec<Advice> = Vec::new();
    // What is nearest to people first; single disks only where nothing was measured above them.
    for finding in foremost(findings) {
        for candidate in candidates(described, finding, findings) {
            let Some(found) = weigh(finding, &candidate) else { continue };
            match advice.iter_mut().find(|a| a.what == found.what) {
                Some(same) if same.gain_percent >= found.gain_percent => {}
                Some(same) => *same = found,
                None => advice.push(found),
            }
        }
    }
    advice.sort_by(|a, b| b.gain_percent.total_cmp(&a.gain_percent).then(a.means.cmp(&b.means)));
    drop_dearer(&mut advice);
    advice.truncate(ADVICE_MAX);
    advice
}

/// A faster network that brings no more than a slower one is not worth naming.
fn drop_dearer(advice: &mut Vec<Advice>) {
    let mut seen: Vec<(Path, What, f64)> = Vec::new();
    advice.retain(|a| {
        let network = a.what.contains("Ethernet");
        let same = |s: &(Path, What, f64)| s.0 == a.path && s.1 == a.of && (s.2 / a.rate_after - 1.0).abs() < 0.02;
        let drop = network && seen.iter().any(same);
        if network {
            seen.push((a.path, a.of, a.rate_after));
        }
        !drop
    });
}

fn weigh(finding: &Finding, candidate: &Candidate) -> Option<Advice> {
    let measured = &finding.measured;
    let next = stages(&candidate.after, &candidate.measured);
    let next = next.first();
    let after = next.map_or(f64::INFINITY, |s| s.capacity).min(candidate.at_most);
    if !after.is_finite() || after < measured.rate * GAIN_MIN {
        return None;
    }
    let then = next.filter(|s| s.capacity <= candidate.at_most).map(|s| format!("; then the limit is {}", s.name));
    let bytes = measured.bytes_per_s() / measured.rate;
    let gain_mb_per_s = (after - measured.rate) * bytes / 1e6;
    let gain_percent = (after / measured.rate - 1.0) * 100.0;
    let sentence = format!(
        "{}: {} goes from {} to at most {} (+{}, +{gain_percent:.0} %){}",
        candidate.what,
        path_words(measured),
        rate_words(measured.rate, measured.what),
        rate_words(after, measured.what),
        bytes_words(gain_mb_per_s * 1e6),
        then.unwrap_or_default()
    );
    Some(Advice {
        what: candidate.what.clone(),
        means: candidate.means,
        how: candidate.how.clone(),
        path: measured.path,
        of: measured.what,
        rate_before: measured.rate,
        rate_after: after,
        gain_mb_per_s,
        gain_percent,
        sentence,
    })
}

/// The box without what was measured at or below a path: after a change that says nothing any more.
fn forget(described: &Described, paths: &[Path]) -> Described {
    let mut after = described.clone();
    after.measured.retain(|m| !paths.contains(&m.path));
    after
}

const STORAGE: &[Path] = &[Path::Disks, Path::Local];

fn candidates(described: &Described, finding: &Finding, findings: &[Finding]) -> Vec<Candidate> {
    let measured = &finding.measured;
    let mut all = match &finding.cause {
        Cause::Stage(stage) => at_stage(described, measured, stage, findings),
        Cause::Processor { .. } => at_processor(described, measured),
        Cause::Client { .. } => vec![at_client(described, measured)],
        Cause::Suspected(suspicion) => suspected(described, measured, suspicion.code, findings),
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => Vec::new(),
    };
    let networked = matches!(finding.cause, Cause::Stage(_)) && measured.path == Path::Share;
    if networked {
        all.extend(described.upgrades.iter().map(|upgrade| with_network(described, measured, upgrade.clone())));
    }
    all
}

fn candidate(
    what: impl Into<String>,
    means: Means,
    how: impl Into<String>,
    after: Described,
    measured: &Measured,
) -> Candidate {
    Candidate { what: what.into(), means, how: how.into(), after, measured: measured.clone(), at_most: f64::INFINITY }
}

fn with_network(described: &Described, measured: &Measured, network: Network) -> Candidate {
    let mut after = forget(described, &[Path::Net]);
    let what = network.name.clone();
    let how = format!("buy {what} and what it needs at the other end: switch port, cable, client's card");
    // Whoever buys a faster network gives it to the client too.
    after.clients.iter_mut().for_each(|c| c.network = None);
    after.network = Some(network);
    candidate(what, Means::Purchase, how, after, measured)
}

fn at_stage(described: &Described, measured: &Measured, stage: &Stage, findings: &[Finding]) -> Vec<Candidate> {
    match stage.kind {
        StageKind::Network if stage.name.contains("as measured alone") => wire_below(described, measured, findings),
        StageKind::Network => faster_networks(described, measured),
        StageKind::Link => links(described, measured, stage),
        StageKind::Disks => disks(described, measured),
        StageKind::Latency => latency(described, measured),
        StageKind::Processor => {
            let mut after = forget(described, STORAGE);
            after.work.retain(|w| !stage.name.starts_with(&w.name));
            let what = format!("less work for the processor than {}", stage.name);
            vec![candidate(
                what,
                Means::Change,
                "a lighter setting of it, or a processor with instructions for it",
                after,
                measured,
            )]
        }
        StageKind::Client => vec![at_client(described, measured)],
        StageKind::Storage => storage_below(described, measured, findings),
    }
}

/// The limit was found further down: what helps there helps here, as far as the rest allows.
fn storage_below(described: &Described, measured: &Measured, findings: &[Finding]) -> Vec<Candidate> {
    let below = findings.iter().rfind(|f| {
        STORAGE.contains(&f.measured.path) && f.measured.path != measured.path && f.measured.what == measured.what
    });
    let Some(below) = below else { return Vec::new() };
    let all = candidates(described, below, findings);
    all.into_iter().map(|c| Candidate { measured: measured.clone(), after: forget(&c.after, STORAGE), ..c }).collect()
}

fn wire_below(described: &Described, measured: &Measured, findings: &[Finding]) -> Vec<Candidate> {
    let below =
        findings.iter().rfind(|f| f.measured.path == Path::Net && f.measured.what.writes() == measured.what.writes());
    match below {
        Some(below) if matches!(below.cause, Cause::Processor { .. } | Cause::Client { .. }) => {
            let all = candidates(described, below, findings).into_iter();
            all.map(|c| Candidate { measured: measured.clone(), after: forget(&c.after, &[Path::Net]), ..c }).collect()
        }
        Some(below) if !matches!(below.cause, Cause::Stage(_)) => {
            let after = forget(described, &[Path::Net]);
            let how = "another cable and port; then: iperf3 -c HOST, iperf3 -c HOST -R, ethtool IFACE";
            vec![candidate("a wire as fast as it is described", Means::Change, how, after, measured)]
        }
        _ => faster_networks(described, measured),
    }
}

/// Only where no upgrade was thought of.
fn faster_networks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let Some(network) = described.network.as_ref().filter(|_| described.upgrades.is_empty()) else { return Vec::new() };
    let wire = network.wire.clone().or_else(|| Wire::ethernet_of(network.bytes_per_s));
    let rungs = wire.map(|w| w.rungs_above()).unwrap_or_default();
    let faster = rungs.into_iter().filter(|w| w.practical > network.bytes_per_s * GAIN_MIN);
    faster
        .map(|wire| {
            let name = wire.name.clone();
            with_network(
                described,
                measured,
                Network { name, bytes_per_s: wire.practical, wire: Some(wire), ..network.clone() },
            )
        })
        .collect()
}

fn links(described: &Described, measured: &Measured, stage: &Stage) -> Vec<Candidate> {
    let bare = stage.name.trim_end_matches(", which disks and network share").to_owned();
    let Some(link) = described.links.iter().find(|l| l.name == bare) else { return connections(described, measured) };
    let mut all = Vec::new();
    if bare != stage.name {
        let mut after = described.clone();
        after.network.iter_mut().for_each(|n| n.via.retain(|via| *via != bare));
        all.push(candidate(
            format!("the network card on a link of its own instead of {bare}"),
            Means::Change,
            "plug card or disks into another slot or port",
            after,
            measured,
        ));
    }
    let mut after = forget(described, STORAGE);
    after.links.retain(|l| l.name != bare);
    let how = match &link.wire {
        Some(wire) if wire.name.starts_with("USB 2") => "a USB 3 port and cable, or SATA",
        Some(wire) if wire.name.starts_with("PCIe") => "a slot with more lanes or of a newer generation",
        Some(wire) if wire.name.contains("Ethernet") => "a faster switch or cable in its place",
        _ => "divide what hangs on it over several, or buy a wider one",
    };
    all.push(candidate(format!("without the limit of {bare}"), Means::Purchase, how, after, measured));
    all
}

fn connections(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let wired = described.disks.iter().filter_map(|d| Some((d, d.connection.as_ref()?)));
    let Some((slow, wire)) = wired.min_by(|a, b| a.1.practical.total_cmp(&b.1.practical)) else { return Vec::new() };
    let mut after = forget(described, STORAGE);
    let name = slow.name.clone();
    after.disks.iter_mut().filter(|d| d.name == name).for_each(|disk| disk.connection = None);
    let how = match wire.name.as_str() {
        "USB 2.0 with BOT" => "a bridge that speaks UAS, in a USB 3 port",
        name if name.starts_with("USB") => "a USB 3 port and cable, or SATA",
        name if name.starts_with("PCIe") => {
            "a slot with more lanes or of a newer generation; larder doctor shows which slots negotiate what"
        }
        _ => "a newer port, controller or cable",
    };
    vec![candidate(format!("'{name}' on a faster connection than {}", wire.name), Means::Change, how, after, measured)]
}

fn disks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    let random = measured.what.is_random();
    if random && described.layout.parity() > 0 {
        let mut after = forget(described, STORAGE);
        (after.layout, after.copies, after.groups) = (Layout::Mirror, 2, 1);
        let how = "make the pool anew as mirrors of two: each pair answers by itself, for half of the room";
        all.push(in_proportion(described, candidate("mirrors instead of parity", Means::Change, how, after, measured)));
    }
    let rates: Vec<f64> = described.disks.iter().filter_map(|d| d.rate(measured.what)).collect();
    if let Some(slowest) = rates.iter().copied().reduce(f64::min)
        && let Some(next) = rates.iter().copied().filter(|r| *r > slowest * GAIN_MIN).reduce(f64::min)
    {
        let mut after = forget(described, STORAGE);
        let mut names = Vec::new();
        for disk in after.disks.iter_mut().filter(|d| d.rate(measured.what).is_some_and(|r| r < slowest * 1.01)) {
            names.push(format!("'{}'", disk.name));
            set(disk, measured.what, next);
            disk.connection = None;
        }
        let how = "another slot if its connection is slower than the others', otherwise another disk";
        all.push(candidate(
            format!("{} as fast as the others", names.join(" and ")),
            Means::Purchase,
            how,
            after,
            measured,
        ));
    }
    all.extend(other_kind(described, measured));
    if measured.disks.is_empty() && described.layout != Layout::Linear {
        let mut after = forget(described, STORAGE);
        if let Some(disk) = after.disks.last_mut() {
            disk.count += 1;
            let how = format!("buy another '{}'", disk.name);
            all.push(in_proportion(described, candidate("one disk more", Means::Purchase, how, after, measured)));
        }
    }
    all
}

/// Where the disks are the limit and only their number or layout changes, what was measured changes as they do.
fn in_proportion(described: &Described, candidate: Candidate) -> Candidate {
    let disks = |d: &Described| {
        stages(d, &candidate.measured).into_iter().find(|s| s.kind == StageKind::Disks).map(|s| s.capacity)
    };
    let at_most = match (disks(described), disks(&candidate.after)) {
        (Some(before), Some(after)) => candidate.measured.rate * after / before,
        _ => candidate.at_most,
    };
    Candidate { at_most, ..candidate }
}

fn set(disk: &mut super::describe::Disk, what: What, rate: f64) {
    match what {
        What::Read => disk.read = Some(rate),
        What::Write => disk.write = Some(rate),
        What::RandomRead => disk.random_read = Some(rate),
        What::RandomWrite => disk.random_write = Some(rate),
    }
}

/// A kind of disk that does not have this limit; it counts with the lower end of what is usual.
fn other_kind(described: &Described, measured: &Measured) -> Option<Candidate> {
    let kind = described.disks.iter().find_map(|d| d.kind)?;
    let (better, what) = match (kind, measured.what) {
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
    for disk in after.disks.iter_mut().filter(|d| d.kind == Some(kind)) {
        disk.kind = Some(better);
        (disk.read, disk.write) = (Some(read), Some(write));
        (disk.random_read, disk.random_write) = (Some(usual.usual_random_read.0), Some(usual.usual_random_write.0));
        (disk.cache_bytes, disk.latency_s, disk.flush_s) = (None, None, None);
        disk.connection = disk.connection.take().filter(|_| better != DiskKind::Nvme);
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

fn latency(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    if measured.how.sync && measured.what.writes() {
        let mut after = forget(described, STORAGE);
        // A capacitor lets a disk answer from its memory.
        after.disks.iter_mut().filter(|d| d.flush_s.is_some_and(|s| s > 50e-6)).for_each(|d| d.flush_s = Some(50e-6));
        let how = "an SSD with capacitors (data centre models), for all or for the log alone";
        all.push(candidate("a disk with power-loss protection", Means::Purchase, how, after, measured));
    }
    let mut more = measured.clone();
    more.how.in_flight = more.how.in_flight.map(|n| n * 8.0);
    let how = match measured.path {
        Path::Share => {
            "mount -o nconnect=8,rsize=1048576,wsize=1048576 ..., or a client that sends several requests at once"
        }
        _ => "fio --iodepth=8 --numjobs=4, or an application that asks for several things at once",
    };
    all.push(candidate("eight times as many requests at once", Means::Command, how, described.clone(), &more));
    if let Some(network) = described.network.as_ref().filter(|n| n.window_bytes.is_some()) {
        let mut after = described.clone();
        after.network = Some(Network { window_bytes: None, ..network.clone() });
        let how = "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 16384 16777216'";
        all.push(candidate("larger TCP windows", Means::Command, how, after, measured));
    }
    let bulk_only = |d: &super::describe::Disk| d.connection.as_ref().is_some_and(|w| w.name.contains("BOT"));
    if described.disks.iter().any(bulk_only) {
        all.extend(connections(described, measured));
    }
    all
}

fn at_processor(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let after = forget(described, STORAGE);
    let mut all = Vec::new();
    let cores = &measured.cores_percent;
    let busy: f64 = cores.iter().sum();
    if cores.len() > 1 && busy > 0.0 && busy < 90.0 * cores.len() as f64 {
        let how = match measured.path {
            Path::Share => {
                "mount -o nconnect=4 ... (NFS), multichannel (SMB), more server threads; IRQs of the card off cpu0: larder doctor --fix"
            }
            _ => "more jobs at once, so that more than one core works",
        };
        let mut spread = candidate("the work spread over the idle cores", Means::Command, how, after.clone(), measured);
        spread.at_most = measured.rate * cores.len() as f64 * 100.0 / busy;
        all.push(spread);
    }
    let how = "a processor with faster cores; before that: governor performance (larder doctor --fix), no compression or a lighter cipher";
    let what =
        if all.is_empty() { "a faster processor, or less work for it" } else { "a faster core, or less work for it" };
    all.push(candidate(what, Means::Purchase, how, after, measured));
    all
}

fn at_client(described: &Described, measured: &Measured) -> Candidate {
    let mut after = described.clone();
    after.clients.clear();
    after.work.retain(|w| w.at == super::describe::Side::Server);
    let how = "measure with another client; then its card, its processor and its program one by one";
    candidate("a faster client", Means::Change, how, after, measured)
}

fn suspected(described: &Described, measured: &Measured, code: &str, findings: &[Finding]) -> Vec<Candidate> {
    let as_is = |what: &str, means, how: &str| vec![candidate(what, means, how, described.clone(), measured)];
    match code {
        "client-differs" => {
            let Some(better) = better_client(described, measured) else { return Vec::new() };
            let name = better.with.as_ref().or(better.how.client.as_ref()).cloned().unwrap_or_default();
            let mut one = candidate(
                format!("the client that was faster ({name})"),
                Means::Change,
                "use it, or find what its settings do differently",
                described.clone(),
                measured,
            );
            one.at_most = better.rate;
            vec![one]
        }
        "retransmits" => as_is(
            "a wire without losses",
            Means::Change,
            "another cable and switch port; then: ethtool -S IFACE | grep -i err, nstat TcpRetransSegs",
        ),
        "one-core-irq" => {
            as_is("interrupts spread over the cores", Means::Command, "larder doctor --fix (IRQ affinity, RPS)")
        }
        "rung-below" => {
            let after = forget(described, &[Path::Net]);
            vec![candidate(
                "the full speed of what is there",
                Means::Change,
                "another cable and port; then: ethtool IFACE, lsusb -t, dmesg | grep -i speed",
                after,
                measured,
            )]
        }
        "qlc" | "smr" => other_kind(described, measured).into_iter().collect(),
        "core-nearly-full" | "one-thread" | "processor-elsewhere" => at_processor(described, measured),
        "one-at-a-time" => {
            let mut more = measured.clone();
            more.how.in_flight = more.how.in_flight.map(|n| n * 8.0);
            let mut one = candidate(
                "eight times as many requests at once",
                Means::Command,
                "mount -o nconnect=8 ..., a larger rsize and read-ahead, or a program with several at once",
                described.clone(),
                &more,
            );
            one.at_most = measured.rate * 8.0;
            vec![one]
        }
        "wifi" => faster_networks(described, measured),
        "other-end" => as_is(
            "a client or protocol without this limit",
            Means::Change,
            "try another program and another client with the same file: larder bench share URL",
        ),
        "shared-link" => {
            let disks = super::stages::used(described, measured);
            let common = described.links.iter().find(|l| disks.iter().all(|(disk, _)| disk.via.contains(&l.name)));
            let stage = common.and_then(|link| {
                explain(described, measured, None).stages.into_iter().find(|s| s.name.starts_with(&link.name))
            });
            stage.map(|s| at_stage(described, measured, &s, findings)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
