//! What would help, and how much of it would arrive (B4).
//!
//! Every candidate is a change of the description: the stages of the changed box say what would be the limit then. So
//! no fix promises more than the next stage allows. Each file has candidates against limits of one kind: `network.rs`,
//! `links.rs`, `disks.rs`, `latency.rs`, `processor.rs`, `client.rs`, and `suspected.rs` against what is only likely.

use serde::Serialize;

use super::describe::{Described, Measured, Path, Side, What};
use super::diagnose::{Cause, Finding, explain, foremost};
use super::stages::{Stage, StageKind, stages, used};
use super::words::{bytes_words, client_processor, path_words, processor, rate_words};

mod client;
mod disks;
mod latency;
mod links;
mod network;
mod processor;
mod suspected;

use client::{at_both_ends, at_client, at_client_stage, faster_client};
use disks::{disks, storage_below};
use latency::latency;
use links::links;
use network::{faster_networks, wire_below, with_network};
use processor::{at_processor, faster_core, less_work};
use suspected::suspected;

/// Below that much of what a core does may be other things, and what it could do is a guess.
const CORE_IDLE_PERCENT: f64 = 20.0;
/// A core that is busier has little to spare.
const CORE_BUSY_PERCENT: f64 = 85.0;

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
    /// Whose cores then have other work to do: what they had to spare says nothing of it.
    relieves: &'static [Side],
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
    if advice.is_empty() {
        advice.extend(below(described, findings));
    }
    advice.sort_by(|a, b| b.gain_percent.total_cmp(&a.gain_percent).then(a.means.cmp(&b.means)));
    drop_dearer(&mut advice);
    advice.truncate(ADVICE_MAX);
    advice
}

/// Where nothing helps what people feel, because it is not explained: a link that was proven to be a limit further down is
/// in its way once that is.
fn below(described: &Described, findings: &[Finding]) -> Vec<Advice> {
    let unexplained = |f: &&Finding| matches!(f.cause, Cause::Unexplained);
    if !findings.iter().any(|f| unexplained(&f)) {
        return Vec::new();
    }
    let link = |f: &&Finding| matches!(&f.cause, Cause::Stage(stage) if stage.kind == StageKind::Link);
    let all = findings.iter().filter(link).flat_map(|f| {
        candidates(described, f, findings).into_iter().filter_map(|candidate| weigh(f, &candidate)).collect::<Vec<_>>()
    });
    all.collect()
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
    let next = stages(&candidate.after, &candidate.measured).into_iter().map(|s| (s.capacity, s.name));
    let (capacity, name) = next.chain(spare(measured, candidate.relieves)).min_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let after = capacity.unwrap_or(f64::INFINITY).min(candidate.at_most);
    if !after.is_finite() || after < measured.rate * GAIN_MIN {
        return None;
    }
    let then = name.filter(|_| capacity <= Some(candidate.at_most)).map(|name| format!("; then the limit is {name}"));
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

/// What the busiest core at each end had to spare: more bytes are more work, and the core that has most of it is full
/// first.
pub(super) fn spare(measured: &Measured, relieved: &[Side]) -> Vec<(f64, String)> {
    let server = (Side::Server, processor(measured), &measured.cores_percent);
    let client = (Side::Client, client_processor(measured), &measured.how.client_cores);
    let ends = [server, client].into_iter().filter(|(side, ..)| !relieved.contains(side));
    let spare = |(_, name, cores): (Side, String, &Vec<f64>)| {
        let busiest = cores.iter().copied().reduce(f64::max).filter(|busiest| *busiest >= CORE_IDLE_PERCENT)?;
        let why = format!("{name}, of which one core was busy {busiest:.0} % already");
        Some((measured.rate * 100.0 / busiest.min(100.0), why))
    };
    ends.filter_map(spare).collect()
}

fn candidates(described: &Described, finding: &Finding, findings: &[Finding]) -> Vec<Candidate> {
    let measured = &finding.measured;
    let mut all = match &finding.cause {
        Cause::Stage(stage) => at_stage(described, measured, stage, findings),
        Cause::Processor { .. } => at_processor(described, measured),
        Cause::Client { .. } => at_client(described, measured),
        Cause::BothEnds { .. } => at_both_ends(described, measured),
        Cause::Suspected(suspicion) => suspected(described, measured, suspicion.code, findings),
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => Vec::new(),
    };
    if let Cause::Processor { .. } | Cause::Client { .. } | Cause::BothEnds { .. } = finding.cause {
        all.extend(faster_client(described, measured));
    }
    let networked = matches!(finding.cause, Cause::Stage(_)) && measured.path == Path::Share;
    if networked {
        all.extend(described.upgrades.iter().map(|upgrade| with_network(described, measured, upgrade.clone())));
    }
    all
}

fn at_stage(described: &Described, measured: &Measured, stage: &Stage, findings: &[Finding]) -> Vec<Candidate> {
    match stage.kind {
        StageKind::Network if stage.name.contains("as measured alone") => wire_below(described, measured, findings),
        StageKind::Network => faster_networks(described, measured),
        StageKind::Link => links(described, measured, stage),
        StageKind::Disks => disks(described, measured),
        StageKind::Latency => latency(described, measured),
        StageKind::Processor => vec![less_work(described, measured, stage), faster_core(described, measured)],
        StageKind::Client => at_client_stage(described, measured, stage),
        StageKind::Storage => storage_below(described, measured, findings),
    }
}

const STORAGE: &[Path] = &[Path::Disks, Path::Local];

/// The box without what was measured further down and was the processor's limit there too.
fn forget_busy(described: &Described, side: Side) -> Described {
    let busy = |m: &Measured| {
        let cores = if side == Side::Server { &m.cores_percent } else { &m.how.client_cores };
        let proven = match explain(described, m, None).cause {
            Cause::Processor { .. } => side == Side::Server,
            Cause::Client { .. } => side == Side::Client,
            Cause::BothEnds { .. } => true,
            Cause::Stage(stage) => described.work.iter().any(|w| w.at == side && stage.name.starts_with(&w.name)),
            _ => false,
        };
        proven || cores.iter().any(|busy| *busy >= CORE_BUSY_PERCENT)
    };
    let mut after = described.clone();
    after.measured.retain(|m| m.path == Path::Share || !busy(m));
    after
}

/// The box without what was measured at or below a path: after a change that says nothing any more.
fn forget(described: &Described, paths: &[Path]) -> Described {
    let mut after = described.clone();
    after.measured.retain(|m| !paths.contains(&m.path));
    after
}

/// The same, but with what was measured of single disks: of those only their number or layout changes.
fn forget_together(described: &Described) -> Described {
    let alone = |m: &Measured| match used(described, m).as_slice() {
        [(disk, 1)] if STORAGE.contains(&m.path) => Some(Measured { disks: vec![(disk.name.clone(), 1)], ..m.clone() }),
        _ => None,
    };
    let mut after = forget(described, STORAGE);
    after.measured.extend(described.measured.iter().filter_map(alone));
    after
}

fn candidate(
    what: impl Into<String>,
    means: Means,
    how: impl Into<String>,
    after: Described,
    measured: &Measured,
) -> Candidate {
    Candidate {
        what: what.into(),
        means,
        how: how.into(),
        after,
        measured: measured.clone(),
        at_most: f64::INFINITY,
        relieves: &[],
    }
}
