//! Everything together: the machine, a bench's measurements, what follows, and what to change first.

use serde::Serialize;

use super::advice::{ADVICE_MAX, Advice, Means, spare};
use super::chain::chain;
use super::describe::{BadDescription, Described, Path, Side};
use super::diagnose::{Cause, Diagnosis, Finding, diagnose, foremost};
use super::findings::{FAILING, Notice, notices};
use super::from_bench;
use super::reading::Reading;
use super::stages::{Basis, Stage, StageKind};
use super::words::path_words;
use crate::Machine;
use crate::bench::BenchResult;
use crate::disk::Level;

/// What `larder doctor` answers about a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    pub diagnosis: Diagnosis,
    pub notices: Vec<Notice>,
}

/// What a measurement says of the box. `reading`: of this machine, unless another one was measured.
#[derive(Debug, Default)]
pub struct Evidence<'a> {
    pub bench: Option<&'a BenchResult>,
    /// TOML: a `[[client]]` of a description without that line.
    pub client: Option<&'a str>,
}

pub fn examine(machine: &Machine, reading: Reading, evidence: &Evidence) -> Result<Examination, BadDescription> {
    // A result from elsewhere says nothing of this machine, nor this machine of it.
    let here = evidence.bench.is_none_or(|b| b.machine.host.is_empty() || b.machine.host == reading.host.name);
    let mut described = match evidence.bench {
        Some(bench) => from_bench::described(bench, here.then_some(&reading), machine),
        None => chain(&reading),
    };
    if let Some(text) = evidence.client {
        described.clients.push(Described::client(text)?);
    }
    let notices = if here { notices(&reading) } else { Vec::new() };
    let mut diagnosis = diagnose(&described);
    match evidence.bench {
        Some(bench) => {
            diagnosis.remarks.extend(of_bench(bench));
            join(&mut diagnosis, &notices, &reading);
        }
        None if is_empty(&reading) => {
            diagnosis.verdict = "nothing could be read: there is neither /proc nor /sys of a machine".to_owned();
        }
        None => on_paper(&mut diagnosis, &notices),
    }
    Ok(Examination { version: 1, reading: here.then_some(reading), diagnosis, notices })
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

/// No measurement: what stands out, and what would be the limit if all else were well.
fn on_paper(diagnosis: &mut Diagnosis, notices: &[Notice]) {
    let warnings = notices.iter().filter(|n| n.level >= Level::Warning).count();
    let first = notices.first().map(|n| n.what.as_str()).unwrap_or_default();
    let paper =
        diagnosis.verdict.split_once("On paper ").map(|(_, rest)| format!(". On paper {rest}")).unwrap_or_default();
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
    diagnosis.verdict = format!("{sentence}{}; to know, measure: larder bench all", paper.trim_end_matches('.'));
}

/// Codes of notices that concern a processor.
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

/// Codes of notices that concern a cause.
fn concerned(finding: &Finding) -> &'static [&'static str] {
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
    // Whoever measured another machine's share is its client: what was noticed here is of that end.
    let elsewhere = finding.measured.how.elsewhere.is_some();
    let (server, client): (&[&str], &[&str]) = if elsewhere { (&[], PROCESSOR) } else { (PROCESSOR, &[]) };
    let storage: &[&str] = if elsewhere { &[] } else { STORAGE };
    match &finding.cause {
        Cause::Processor { .. } => server,
        Cause::Client { .. } => client,
        Cause::Stage(stage) => match stage.kind {
            StageKind::Network => NETWORK,
            StageKind::Processor => server,
            StageKind::Link if finding.measured.path == Path::Net => NETWORK,
            StageKind::Link => LINKS,
            StageKind::Disks | StageKind::Storage | StageKind::Latency => storage,
            StageKind::Client => client,
        },
        Cause::Suspected(suspicion) => match suspicion.code {
            "retransmits" | "duplex-mismatch" | "one-direction" | "one-of-a-bond" | "rung-below" | "wifi"
            | "client-wifi" | "other-end" => NETWORK,
            "one-core-irq"
            | "core-nearly-full"
            | "one-thread"
            | "processor-elsewhere"
            | "host-steals"
            | "throttled"
            | "cpu-quota" => server,
            "client-core-nearly-full" | "client-differs" => client,
            _ => storage,
        },
        Cause::BothEnds { .. } | Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => &[],
    }
}

/// What was noticed about the very thing that is the limit is the cheapest fix.
fn join(diagnosis: &mut Diagnosis, notices: &[Notice], reading: &Reading) {
    if !diagnosis.questions.is_empty() {
        return;
    }
    let mut more: Vec<Advice> = Vec::new();
    for finding in foremost(&diagnosis.findings) {
        let codes = concerned(finding);
        let mine = notices.iter().filter(|n| codes.contains(&n.code) && is_about(n, finding, reading));
        more.extend(mine.filter_map(|notice| advice(finding, notice)));
    }
    for advice in more {
        if !diagnosis.advice.iter().any(|a| a.what == advice.what) {
            diagnosis.advice.push(advice);
        }
    }
    diagnosis.advice.sort_by(|a, b| b.gain_percent.total_cmp(&a.gain_percent).then(a.means.cmp(&b.means)));
    diagnosis.advice.truncate(ADVICE_MAX);
}

/// A wire by its name or figure, and no measurement of which other things may have been the limit.
fn is_wire(stage: &Stage) -> bool {
    matches!(stage.kind, StageKind::Network | StageKind::Link) && stage.basis != Basis::Measured
}

/// Codes of notices about what a wire carries.
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

/// What was noticed about a disk or card concerns what passed it.
fn is_about(notice: &Notice, finding: &Finding, reading: &Reading) -> bool {
    let words: Vec<&str> = notice.what.split(|c: char| !c.is_alphanumeric()).collect();
    let network = concerned(finding).contains(&"nic-slow");
    let card = reading.nics.iter().any(|nic| words.contains(&nic.name.as_str()));
    let mut drives = reading.drives.iter().filter(|drive| words.contains(&drive.name.as_str())).peekable();
    let used = &finding.measured.disks;
    let of_these = drives.peek().is_none()
        || used.is_empty()
        || drives.any(|drive| used.iter().any(|(name, _)| name.trim_start_matches("/dev/") == drive.name));
    // A card's own link is told by its address.
    let of_link = |stage: &Stage| {
        let cards = reading.nics.iter().filter(|nic| words.contains(&nic.name.as_str()));
        cards.flat_map(|nic| &nic.hops).any(|hop| stage.name.contains(&hop.address))
    };
    let link = matches!(&finding.cause, Cause::Stage(stage) if stage.kind == StageKind::Link && of_link(stage));
    match notice.code {
        "nic-lane" => network || link,
        "pcie-below-both" if network => card,
        "pcie-below-both" if card => link,
        _ => of_these,
    }
}

fn advice(finding: &Finding, notice: &Notice) -> Option<Advice> {
    let gain = notice.gain?;
    let measured = &finding.measured;
    // No more than the next limit on the way, which is not the one that this would lift.
    let least =
        if let Cause::Stage(stage) = &finding.cause { stage.capacity.max(measured.rate) } else { measured.rate };
    // A wire at its end gets more by nothing but what makes the wire faster.
    let held = matches!(&finding.cause, Cause::Stage(s) if is_wire(s)) && !WIDER.contains(&notice.code);
    let limit = finding.stages.iter().find(|s| s.capacity > least || held && s.capacity >= measured.rate);
    // Nor more than the busiest core can take, unless it is what gets relief.
    let relieved: &[Side] = if PROCESSOR.contains(&notice.code) { &[Side::Server, Side::Client] } else { &[] };
    let cores = spare(measured, relieved).into_iter().map(|(most, _)| most).fold(f64::INFINITY, f64::min);
    let most = limit.map_or(f64::INFINITY, |s| s.capacity).min(cores);
    let after = (measured.rate * (1.0 + gain.percent / 100.0)).min(most);
    (after > measured.rate * 1.01).then_some(())?;
    let percent = (after / measured.rate - 1.0) * 100.0;
    let mb_per_s = (after - measured.rate) * measured.bytes_per_s() / measured.rate / 1e6;
    let then = match limit {
        Some(stage) if stage.capacity <= after => format!("; then the limit is {}", stage.name),
        Some(_) => String::new(),
        None => "; what would be the limit then was not measured".to_owned(),
    };
    let means = if notice.changes.is_empty() { Means::Change } else { Means::Command };
    Some(Advice {
        what: notice.what.clone(),
        means,
        how: notice.action.clone().unwrap_or_default(),
        path: measured.path,
        of: measured.what,
        rate_before: measured.rate,
        rate_after: after,
        gain_mb_per_s: mb_per_s,
        gain_percent: percent,
        sentence: format!(
            "{}: {} may gain up to {mb_per_s:.0} MB/s (+{percent:.0} %), by {}{then}",
            notice.what,
            path_words(measured),
            gain.rests_on
        ),
    })
}
