//! Everything together: the machine, a bench's measurements, what follows, and what to change first.

use serde::Serialize;

use super::answer::{Advice, Diagnosis, Finding, NamedStage, diagnose, paper};
use super::chain::chain;
use super::findings::{FAILING, Notice, notices};
use super::from_bench;
use crate::Machine;
use crate::bench::BenchResult;
use crate::describe::{BadDescription, Described, Path};
use crate::live::Transfer;
use crate::reason::{Cost, End, FIXES_MAX, ResourceId, ResourceKind, order};
use larder_facts::disk::Level;
use larder_facts::reading::Reading;

/// Transfers beside the busiest that are told of.
const TRANSFERS_MAX: usize = 4;

/// The answer of `larder doctor` about a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    pub diagnosis: Diagnosis,
    pub notices: Vec<Notice>,
}

/// The sources of an examination. `reading`: of this machine, unless another one was measured.
#[derive(Debug, Default)]
pub struct Sources<'a> {
    pub bench: Option<&'a BenchResult>,
    /// TOML: a `[[client]]` of a description without that line.
    pub client: Option<&'a str>,
    /// Of a running daemon: what limits its clients now, the busiest first.
    pub now: Option<&'a [Transfer]>,
}

pub fn examine(machine: &Machine, reading: Reading, sources: &Sources) -> Result<Examination, BadDescription> {
    let described = described(machine, &reading, sources)?;
    let here = is_here(&reading, sources);
    let notices = if here { notices(&reading) } else { Vec::new() };
    let mut diagnosis = diagnose(&described);
    match sources.bench {
        Some(bench) => {
            diagnosis.remarks.extend(of_bench(bench));
            join(&mut diagnosis, &described, &notices, &reading);
        }
        None if is_empty(&reading) => {
            diagnosis.verdict = "nothing could be read: there is neither /proc nor /sys of a machine".to_owned();
        }
        None => stands_out(&mut diagnosis, &described, &notices),
    }
    if let Some(now) = sources.now {
        is_now(&mut diagnosis, now);
    }
    Ok(Examination { version: 2, reading: here.then_some(reading), diagnosis, notices })
}

/// The machine and what a bench measured of it, as a description.
pub fn described(machine: &Machine, reading: &Reading, sources: &Sources) -> Result<Described, BadDescription> {
    let here = is_here(reading, sources);
    let mut described = match sources.bench {
        Some(bench) => from_bench::described(bench, here.then_some(reading), machine),
        None => chain(reading),
    };
    if let Some(text) = sources.client {
        described.clients.push(Described::client(text)?);
    }
    Ok(described)
}

/// A result from elsewhere says nothing of this machine, nor this machine of it.
fn is_here(reading: &Reading, sources: &Sources) -> bool {
    sources.bench.is_none_or(|b| b.machine.host.is_empty() || b.machine.host == reading.host.name)
}

/// The diagnosis from a result alone, wherever it was measured.
pub(crate) fn judge_result(bench: &BenchResult) -> Diagnosis {
    diagnose(&from_bench::described(bench, None, &Machine::unknown()))
}

/// A folder that holds no copy of a machine.
fn is_empty(reading: &Reading) -> bool {
    let host = reading.host.memory_bytes.is_none() && reading.host.kernel.is_none();
    host && reading.drives.is_empty() && reading.nics.is_empty()
}

fn of_bench(bench: &BenchResult) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    if bench.runs.iter().any(|r| r.samples.throttled > 0) {
        remarks.push("the processor was throttled during the bench: heat or a weak power supply".to_owned());
    }
    let mut shared: Vec<String> = bench.runs.iter().filter_map(from_bench::same_disk).map(str::to_owned).collect();
    shared.sort();
    shared.dedup();
    remarks.extend(shared.into_iter().take(8));
    let knees = bench.runs.iter().filter_map(|r| Some((r, r.repeats.iter().find_map(|p| p.knee)?)));
    remarks.extend(knees.take(8).map(|(run, knee)| {
        format!(
            "{} writes {} until {}, then {}: its fast cache is full",
            run.subject,
            super::words::bytes_words(knee.before_bytes_per_s),
            larder_base::units::ByteSize(knee.bytes),
            super::words::bytes_words(knee.after_bytes_per_s)
        )
    }));
    if bench.interrupted {
        remarks.push("the bench was interrupted: what is missing cannot be judged".to_owned());
    }
    remarks
}

/// Transfers that run are measurements of the whole way: the busiest is the verdict, and what was found without them is
/// a remark.
fn is_now(diagnosis: &mut Diagnosis, now: &[Transfer]) {
    let Some((busiest, others)) = now.split_first() else {
        diagnosis.remarks.push("no client transfers anything now".to_owned());
        return;
    };
    let said = |one: &Transfer| format!("the {} of {} over {}: {}", one.does, one.address, one.door, one.sentence);
    let before = std::mem::replace(&mut diagnosis.verdict, said(busiest));
    diagnosis.confidence = busiest.confidence;
    let help = |one: &Transfer| one.help.as_ref().map(|help| format!("what would help: {help}"));
    diagnosis.remarks.extend(help(busiest));
    for one in others.iter().take(TRANSFERS_MAX) {
        diagnosis.remarks.push(said(one));
        diagnosis.remarks.extend(help(one));
    }
    diagnosis.remarks.push(format!("apart from transfers: {before}"));
}

/// No measurement: what stands out, and what would be the limit if all else were well.
fn stands_out(diagnosis: &mut Diagnosis, described: &Described, notices: &[Notice]) {
    let warnings = notices.iter().filter(|n| n.level >= Level::Warning).count();
    let first = notices.first().map(|n| n.what.as_str()).unwrap_or_default();
    let failing = notices.first().filter(|n| n.code == FAILING);
    let sentence = match (warnings, notices.len()) {
        (1, _) if failing.is_some() => format!("{first}: see to that before anything else"),
        (n, _) if failing.is_some() => {
            format!("{first}: see to that before anything else, then to {} more warnings", n - 1)
        }
        (0, 0) => "nothing stands out".to_owned(),
        (0, _) => format!("nothing is wrong, and some could be better, first: {first}"),
        (1, _) => format!("one thing is slower than it could be: {first}"),
        (n, _) => format!("{n} things are slower than they could be, first: {first}"),
    };
    let paper = paper(described).map_or(String::new(), |paper| format!(". {paper}"));
    diagnosis.verdict = format!("{sentence}{paper}; to know, measure: larder bench all");
}

/// Codes of notices, by the resource that they concern.
const PROCESSOR: &[&str] = &[
    "governor",
    "ondemand-io",
    "clock-capped",
    "irq-one-core",
    "rps-off",
    "offload-off",
    "no-aes",
    "throttled",
    "hog",
    "stolen",
    "cpu-quota",
];
const NETWORK: &[&str] = &[
    "nic-slow",
    "half-duplex",
    "nic-errors",
    "nic-drops",
    "nic-lane",
    "pcie-below-both",
    "tcp-buffers",
    "window-scaling",
    "backlog",
    "wireless",
    "net-and-disks-share",
];
const LINKS: &[&str] = &[
    "nic-lane",
    "pcie-below-both",
    "pcie-slot",
    "sata-below-both",
    "usb-below-best",
    "shared-wire",
    "usb-bot-bandwidth",
    "net-and-disks-share",
];
const STORAGE: &[&str] = &[
    "pcie-below-both",
    "pcie-slot",
    "sata-below-both",
    "usb-below-best",
    "shared-wire",
    "usb-bot-bandwidth",
    "scheduler",
    "read-ahead",
    "hot-disk",
    "net-and-disks-share",
    "mount-discard",
    "zfs-full",
    "zfs-degraded",
];
/// Notices that say what a wire carries: nothing else makes a full wire faster.
const WIDER: &[&str] = &[
    "nic-slow",
    "half-duplex",
    "nic-lane",
    "wireless",
    "net-and-disks-share",
    "pcie-below-both",
    "pcie-slot",
    "sata-below-both",
    "usb-below-best",
    "shared-wire",
];

/// Codes of notices that concern what limits. A client that measures another machine's share notices its own end.
fn concerned(finding: &Finding, kind: ResourceKind) -> &'static [&'static str] {
    let at_client = finding.measured.how.elsewhere.is_some();
    match kind {
        ResourceKind::Processor if !at_client => PROCESSOR,
        ResourceKind::Client if at_client => PROCESSOR,
        ResourceKind::Network => NETWORK,
        ResourceKind::Link if finding.measured.path == Path::Net => NETWORK,
        ResourceKind::Link => LINKS,
        ResourceKind::Disks | ResourceKind::Waiting if !at_client => STORAGE,
        _ => &[],
    }
}

/// Adds the fixes of notices about a bottleneck to its finding: they are the cheapest.
fn join(diagnosis: &mut Diagnosis, described: &Described, notices: &[Notice], reading: &Reading) {
    if !diagnosis.questions.is_empty() {
        return;
    }
    let rig = crate::reason::Rig::new(described);
    for row in diagnosis.asked.clone() {
        let Some(finding) = diagnosis.findings.get(row) else { continue };
        let Some(resource) = finding.resource else { continue };
        let codes = concerned(finding, rig.kind(resource));
        let mine = notices.iter().filter(|n| codes.contains(&n.code) && is_about(n, finding, rig, resource, reading));
        let more: Vec<Advice> =
            mine.filter_map(|notice| advice(finding, resource, rig.kind(resource), notice)).collect();
        let new = |a: &Advice| !diagnosis.advice.iter().any(|other| other.what == a.what);
        let more: Vec<Advice> = more.into_iter().filter(new).collect();
        diagnosis.advice.extend(more);
    }
    order(&mut diagnosis.advice, |a| a.rate_after / a.rate_before, |a| a.cost, |a| a.remedy);
    diagnosis.advice.truncate(FIXES_MAX);
}

/// A notice about a disk or card concerns every measurement that passed it.
fn is_about(notice: &Notice, finding: &Finding, rig: crate::reason::Rig, limit: ResourceId, reading: &Reading) -> bool {
    let cards = || reading.nics.iter().filter(|nic| notice.devices.contains(&nic.name));
    let drives = reading.drives.iter().filter(|drive| notice.devices.contains(&drive.name));
    let drives: Vec<&str> = drives.map(|drive| drive.name.as_str()).collect();
    let used = &finding.measured.disks;
    let of_these = drives.is_empty()
        || used.is_empty()
        || used.iter().any(|(name, _)| drives.contains(&name.trim_start_matches("/dev/")));
    let network = rig.kind(limit) == ResourceKind::Network || finding.measured.path == Path::Net;
    // A card's own link is told by its address.
    let link = match limit {
        ResourceId::Link(at) => rig.link(at).and_then(|link| link.address.as_ref()),
        _ => None,
    };
    let of_link = link.is_some_and(|address| cards().flat_map(|nic| &nic.hops).any(|hop| hop.address == *address));
    match notice.code {
        "nic-lane" => network || of_link,
        "pcie-below-both" if network => cards().next().is_some(),
        "pcie-below-both" if cards().next().is_some() => of_link,
        _ => of_these,
    }
}

fn advice(finding: &Finding, limit: ResourceId, kind: ResourceKind, notice: &Notice) -> Option<Advice> {
    let gain = notice.gain?;
    let measured = &finding.measured;
    let own = |stage: &&NamedStage| stage.stage.resource == limit;
    let this = finding.stages.iter().find(own);
    // No more than the next limit on the way, which is not the one that this would lift.
    let least = this.map_or(measured.rate, |this| this.stage.limit.max(measured.rate));
    // A wire at its end gets more by nothing but what makes the wire faster.
    let wire = matches!(kind, ResourceKind::Network | ResourceKind::Link) && this.is_some_and(|s| !s.stage.is_below());
    let held = wire && !WIDER.contains(&notice.code);
    let next = finding.stages.iter().find(|s| s.stage.limit > least || held && s.stage.limit >= measured.rate);
    // Nor more than the busiest core can take, unless it is what gets relief.
    let cores = match PROCESSOR.contains(&notice.code) {
        true => f64::INFINITY,
        false => {
            [End::Server, End::Client].into_iter().filter_map(|end| spare(finding, end)).fold(f64::INFINITY, f64::min)
        }
    };
    let most = next.map_or(f64::INFINITY, |next| next.stage.limit).min(cores);
    let after = (measured.rate * (1.0 + gain.percent / 100.0)).min(most);
    (after > measured.rate * 1.01).then_some(())?;
    let cost = if notice.changes.is_empty() { Cost::Work } else { Cost::Free };
    let then = next.filter(|next| next.stage.limit <= after).map(|next| next.name.clone());
    let how = notice.action.clone().unwrap_or_default();
    Some(Advice::new(measured, notice.what.clone(), cost, how, finding.title.clone(), after, then))
}

/// The rate at which the busiest core of an end would be full.
fn spare(finding: &Finding, end: End) -> Option<f64> {
    let cores = match end {
        End::Server => &finding.measured.cores_percent,
        End::Client => &finding.measured.how.client_cores,
    };
    crate::reason::rate_of_full_core(cores, finding.measured.rate)
}
