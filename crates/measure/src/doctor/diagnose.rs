//! From stages and measurements to causes, and from those to one sentence.

use serde::Serialize;

use super::advice::{Advice, help};
use super::describe::{Described, Measured, Path, What};
use super::limits::DiskKind;
use super::misleading::{from_memory, misleading};
use super::questions::{Question, questions};
use super::remarks::remarks;
use super::stages::{Basis, FULL_SHARE, PROOF_SHARE, Stage, StageKind, count, link_of, stages, used};
use super::suspects::{
    INNER_TRACKS, IRQ_PERCENT, STEAL_PERCENT, Suspicion, THROTTLED_PERCENT, beside_the_processor, losses, slower_wire,
    suspect, turn_at_random,
};
use super::words::{client_processor, path_words, processor, rate_words};

/// A core this busy has no more to give.
pub(super) const CORE_FULL_PERCENT: f64 = 95.0;
/// From here on a wire is called full.
const WIRE_FULL_SHARE: f64 = 0.90;
/// A wire on which segments are lost is called full from here on: below, the losses keep it from being so.
const LOSSY_FULL_SHARE: f64 = 0.94;
/// What exceeds a capacity by more than this was not held by it, or is not known so well.
const EXACT_SHARE: f64 = 1.05;
/// A wire so slow is filled long before any core.
pub(super) const SLOW_WIRE_BYTES_PER_S: f64 = 12.5e6;
/// So much of it is enough beside cores that are full: those have other work, and little time for what it needs.
const SLOW_WIRE_SHARE: f64 = 0.70;
/// The upper end of what is usual, over the lower.
const RANGE_MAX: f64 = 12.0;
/// Two stages this near to each other cap alike.
const ALIKE: f64 = 1.08;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "detail")]
pub enum Cause {
    /// B1.
    Stage(Stage),
    /// B2: how many cores are full, and of how many that were watched.
    Processor { full: usize, watched: usize },
    /// B2, at the other end.
    Client { full: usize, watched: usize },
    /// B2, at both ends at the same time.
    #[serde(rename = "both-ends")]
    BothEnds { full: usize, watched: usize, client_full: usize, client_watched: usize },
    /// B7: what the figures look like, though none of them proves it.
    Suspected(Suspicion),
    /// B3.
    Unexplained,
    /// B5.
    Misleading(String),
    /// B6.
    Asked(String),
}

impl Cause {
    /// The limit by name, for a table.
    pub fn name(&self) -> String {
        match self {
            Self::Stage(stage) => stage.name.clone(),
            Self::Processor { full, watched } => format!("the processor ({full} of {watched} cores full)"),
            Self::Client { full, watched } => format!("the client's processor ({full} of {watched} cores full)"),
            Self::BothEnds { full, watched, client_full, client_watched } => format!(
                "both processors ({full} of {watched} cores full, {client_full} of {client_watched} at the client)"
            ),
            Self::Suspected(suspicion) => suspicion.what.clone(),
            Self::Unexplained => "not explained".to_owned(),
            Self::Misleading(_) => "proves nothing".to_owned(),
            Self::Asked(_) => "a question".to_owned(),
        }
    }
}

impl Confidence {
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

/// How sure a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    Open,
    Likely,
    Certain,
}

/// One measurement, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Way and kind in words.
    pub title: String,
    pub measured: Measured,
    pub cause: Cause,
    pub confidence: Confidence,
    /// What the description allows, the lowest first.
    pub stages: Vec<Stage>,
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    pub version: u32,
    pub name: String,
    /// One sentence.
    pub verdict: String,
    pub confidence: Confidence,
    /// Contradictions: while there are any the verdict is the first of them.
    pub questions: Vec<Question>,
    pub findings: Vec<Finding>,
    /// What is known without a measurement: outliers, what the figures leave out.
    pub remarks: Vec<String>,
    /// At most three, the greatest gain first.
    pub advice: Vec<Advice>,
}

pub fn diagnose(described: &Described) -> Diagnosis {
    let questions = questions(described);
    let explained = described.measured.iter().enumerate();
    let findings: Vec<Finding> = explained.map(|(at, m)| explain(described, m, doubt(&questions, at))).collect();
    let (verdict, confidence) = match questions.first() {
        Some(first) => (asked(first, questions.len()), Confidence::Open),
        None => verdict(described, &findings),
    };
    let advice = if questions.is_empty() { help(described, &findings) } else { Vec::new() };
    let remarks = remarks(described, &findings);
    Diagnosis { version: 1, name: described.name.clone(), verdict, confidence, questions, findings, remarks, advice }
}

fn doubt(questions: &[Question], at: usize) -> Option<&Question> {
    questions.iter().find(|q| q.measured == Some(at))
}

fn asked(first: &Question, count: usize) -> String {
    let more = match count {
        1 => String::new(),
        2 => " (and one question more)".to_owned(),
        n => format!(" (and {} questions more)", n - 1),
    };
    format!("the description contradicts itself, so nothing is concluded: {}{more}", first.text)
}

pub(super) fn explain(described: &Described, measured: &Measured, doubt: Option<&Question>) -> Finding {
    let stages = stages(described, measured);
    let (mut cause, mut confidence) = match (doubt, misleading(described, measured)) {
        (Some(question), _) => (Cause::Asked(question.text.clone()), Confidence::Open),
        (None, Some(why)) => {
            past_memory(described, measured, &stages).unwrap_or((Cause::Misleading(why), Confidence::Open))
        }
        (None, None) => cause(described, measured, &stages),
    };
    if let Cause::Stage(stage) = &mut cause {
        confidence = confidence.min(name_root(described, measured, stage));
    }
    let mut sentence = sentence(described, measured, (&cause, confidence), &stages);
    if from_memory(described, measured) && !matches!(cause, Cause::Misleading(_) | Cause::Asked(_)) {
        sentence.push_str(" (the server had the file in memory: its disks may be slower)");
    }
    Finding { title: path_words(measured), measured: measured.clone(), cause, confidence, stages, sentence }
}

/// What was the limit further down is the limit here: it is named, not only where it was seen. How sure that is.
fn name_root(described: &Described, measured: &Measured, stage: &mut Stage) -> Confidence {
    if stage.basis != Basis::Measured || stage.kind == StageKind::Disks {
        return Confidence::Certain;
    }
    let below = |m: &&Measured| {
        let wire = stage.kind == StageKind::Network;
        let path = if wire { m.path == Path::Net } else { m.path < measured.path && m.path != Path::Net };
        path && m.what.writes() == measured.what.writes() && (wire || m.what == measured.what)
    };
    let Some(lower) = described
        .measured
        .iter()
        .filter(below)
        .min_by(|a, b| (a.rate - stage.capacity).abs().total_cmp(&(b.rate - stage.capacity).abs()))
    else {
        return Confidence::Certain;
    };
    let found = explain(described, lower, None);
    let root = match found.cause {
        // Where that one came from further down still, only its beginning is told.
        Cause::Stage(root) if root.basis == Basis::Measured => {
            root.name.split_once(" (the ").map_or(root.name.clone(), |(name, _)| name.to_owned())
        }
        Cause::Stage(root) => root.name,
        Cause::Processor { .. } => processor(lower),
        Cause::Client { .. } => client_processor(lower),
        Cause::Suspected(suspicion) => suspicion.what,
        Cause::BothEnds { .. } => format!("{} and {}", processor(lower), client_processor(lower)),
        // That what is below is the limit was measured, whatever holds that.
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => return Confidence::Certain,
    };
    if !stage.name.starts_with(&root) {
        stage.name = format!("{root} ({})", stage.name);
    }
    found.confidence
}

/// A file in the server's memory says nothing of disks. What it says of wire, processor and client is as good as ever.
fn past_memory(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<(Cause, Confidence)> {
    let passed = |s: &&Stage| matches!(s.kind, StageKind::Network | StageKind::Processor | StageKind::Client);
    let stages: Vec<Stage> = stages.iter().filter(passed).cloned().collect();
    let found = from_memory(described, measured).then(|| cause(described, measured, &stages))?;
    let proven = match &found.0 {
        Cause::Stage(_) | Cause::Processor { .. } | Cause::Client { .. } | Cause::BothEnds { .. } => true,
        Cause::Suspected(suspicion) => AFTER_DISKS.contains(&suspicion.code),
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => false,
    };
    proven.then_some(found)
}

/// Suspicions of what comes after the disks.
const AFTER_DISKS: [&str; 13] = [
    "one-connection",
    "one-of-a-bond",
    "cpu-quota",
    "host-steals",
    "throttled",
    "duplex-mismatch",
    "client-wifi",
    "retransmits",
    "one-direction",
    "one-core-irq",
    "rung-below",
    "core-nearly-full",
    "wifi",
];

fn full(cores: &[f64]) -> usize {
    cores.iter().filter(|&&busy| busy >= CORE_FULL_PERCENT).count()
}

fn cause(described: &Described, measured: &Measured, stages: &[Stage]) -> (Cause, Confidence) {
    let (here, there) = (full(&measured.cores_percent), full(&measured.how.client_cores));
    let busy = here + there > 0;
    let known = |s: &&Stage| s.basis != Basis::Usual;
    let proof = |s: &&Stage| measured.rate >= s.capacity * proof_share(s, busy);
    if let Some(lowest) = stages.iter().find(known).filter(proof) {
        // The lowest of those that are known proves nothing while one below it may be lower still.
        let first = stages.first().filter(|s| s.capacity < lowest.capacity && measured.rate >= s.capacity_low);
        let wire = lowest.kind == StageKind::Network && lowest.basis != Basis::Measured;
        let lossy = wire && measured.rate < lowest.capacity * LOSSY_FULL_SHARE;
        if let Some(losses) = losses(described, measured, stages).filter(|_| lossy && !busy) {
            return (Cause::Suspected(losses), Confidence::Likely);
        }
        if first.is_none() {
            return (Cause::Stage(lowest.clone()), how_sure(described, measured, lowest, stages));
        }
    }
    if let Some(slower) = slower_wire(described, measured, stages).filter(|_| busy) {
        return (Cause::Suspected(slower), Confidence::Likely);
    }
    // A quota is more than the cores say: what they do meanwhile may be somebody else's.
    let held_back = measured.how.quota.is_some();
    if let Some(suspicion) = suspect(described, measured, stages).filter(|_| held_back) {
        return (Cause::Suspected(suspicion), Confidence::Likely);
    }
    // A core that is full, and most of it with work that has a name: that name says more.
    let named = |kind: StageKind| {
        let work = stages.iter().find(|s| s.kind == kind && described.is_work(s))?;
        (measured.rate >= work.capacity * PROOF_SHARE).then(|| (Cause::Stage(work.clone()), Confidence::Certain))
    };
    let at_end = [(here, StageKind::Processor), (there, StageKind::Client)];
    let at_end = at_end.into_iter().filter(|_| here == 0 || there == 0);
    if let Some(found) = at_end.filter(|(full, _)| *full > 0).find_map(|(_, kind)| named(kind)) {
        return found;
    }
    let (watched, client_watched) = (measured.cores_percent.len(), measured.how.client_cores.len());
    let full = match (here, there) {
        (0, 0) => None,
        (full, 0) => Some(Cause::Processor { full, watched }),
        (0, full) => Some(Cause::Client { full, watched: client_watched }),
        (full, client_full) => Some(Cause::BothEnds { full, watched, client_full, client_watched }),
    };
    if let Some(full) = full {
        let other = beside_the_processor(described, measured, stages).is_some();
        return (full, if other { Confidence::Likely } else { Confidence::Certain });
    }
    if let Some(suspicion) = suspect(described, measured, stages) {
        return (Cause::Suspected(suspicion), Confidence::Likely);
    }
    // A range so wide that everything lies in it says nothing.
    let narrow = |s: &&Stage| s.capacity_low < s.capacity && s.capacity < s.capacity_low * RANGE_MAX;
    let within = |s: &&Stage| measured.rate >= s.capacity_low * PROOF_SHARE && measured.rate <= s.capacity;
    match stages.iter().filter(narrow).find(within) {
        Some(usual) => (Cause::Stage(usual.clone()), Confidence::Likely),
        None => (Cause::Unexplained, Confidence::Open),
    }
}

/// From which part of a capacity on a measurement proves it.
fn proof_share(stage: &Stage, busy: bool) -> f64 {
    // A cipher at its rate is the busy core.
    let own = matches!(stage.kind, StageKind::Processor | StageKind::Client);
    let slow_wire = stage.kind == StageKind::Network && stage.capacity <= SLOW_WIRE_BYTES_PER_S;
    match busy && !own {
        true if slow_wire => SLOW_WIRE_SHARE,
        true => FULL_SHARE,
        false => PROOF_SHARE,
    }
}

/// Certain is what was reached, and what nothing else explains as well.
fn how_sure(described: &Described, measured: &Measured, stage: &Stage, stages: &[Stage]) -> Confidence {
    let reached = measured.rate / stage.capacity;
    let of_cores = is_of_cores(described, measured, stage);
    let cores = full(&measured.cores_percent) + full(&measured.how.client_cores) > 0 && !of_cores;
    let wires = |s: &Stage| matches!(s.kind, StageKind::Network | StageKind::Link | StageKind::Client);
    // A switch's wire like the card's is the same limit.
    let other = alike(stage, stages).is_some_and(|s| !wires(s) || !wires(stage));
    // What was measured below has a reason of its own, which may be that other.
    let other = other && stage.basis != Basis::Measured;
    match (WIRE_FULL_SHARE..=EXACT_SHARE).contains(&reached) && !other && !cores {
        true => Confidence::Certain,
        false => Confidence::Likely,
    }
}

/// Another stage, of another kind, that allows hardly more.
fn alike<'a>(stage: &Stage, stages: &'a [Stage]) -> Option<&'a Stage> {
    let near = |s: &&Stage| *s != stage && s.capacity >= stage.capacity && s.capacity <= stage.capacity * ALIKE;
    let other = |s: &&Stage| s.kind != stage.kind && s.kind != StageKind::Storage && s.basis != Basis::Usual;
    // Disks that give just what each one's wire carries are that wire once more.
    let again =
        |s: &&Stage| stage.kind == StageKind::Link && s.kind == StageKind::Disks && s.capacity == stage.capacity;
    stages.iter().filter(near).filter(|s| !again(s)).find(other)
}

fn is_of_cores(described: &Described, measured: &Measured, stage: &Stage) -> bool {
    let itself = |name: String| stage.name.starts_with(&name);
    described.is_work(stage)
        || itself(processor(measured))
        || itself(client_processor(measured))
        || matches!(stage.kind, StageKind::Processor | StageKind::Client)
}

/// Capacities have names of one and of several things.
fn allow(name: &str) -> &'static str {
    let several = ["the disks", "both processors"].iter().any(|start| name.starts_with(start))
        || name.contains("requests in flight");
    if several { "they allow" } else { "it allows" }
}

/// Whether no more can be said than that a rate lies within what is usual, or possible. At its upper end it is that.
fn is_range(stage: &Stage, rate: f64) -> bool {
    let wide = stage.capacity_low < stage.capacity * PROOF_SHARE;
    wide && (stage.basis == Basis::Usual || rate < stage.capacity * PROOF_SHARE)
}

/// The kind of disk that a range is usual of, where all are of one.
fn of_kind(described: &Described, measured: &Measured) -> String {
    let used = used(described, measured);
    let kind = used.first().and_then(|(disk, _)| disk.kind);
    let Some(kind) = kind.filter(|kind| used.iter().all(|(disk, _)| disk.kind == Some(*kind))) else {
        return String::new();
    };
    let name = kind.physical().name;
    match count(&used) {
        1 if name.starts_with(['N', 'e']) => format!(" of an {name}"),
        1 => format!(" of a {name}"),
        n => format!(" of {n} {name}s"),
    }
}

fn sentence(
    described: &Described,
    measured: &Measured,
    (cause, confidence): (&Cause, Confidence),
    stages: &[Stage],
) -> String {
    let is = if confidence == Confidence::Certain { "is" } else { "is most likely" };
    let (doing, rate) = (path_words(measured), rate_words(measured.rate, measured.what));
    match cause {
        Cause::Stage(stage) if is_range(stage, measured.rate) => {
            let (low, high) =
                (rate_words(stage.capacity_low, measured.what), rate_words(stage.capacity, measured.what));
            let range = match stage.basis {
                Basis::Usual => format!("usual{}", of_kind(described, measured)),
                _ => "possible, by where the data lies".to_owned(),
            };
            format!("{doing} ({rate}) is most likely capped by {}: {low} to {high} are {range}", stage.name)
        }
        Cause::Stage(stage) => {
            let percent = measured.rate / stage.capacity * 100.0;
            let most = rate_words(stage.capacity, measured.what);
            let alike = alike(stage, stages).filter(|s| !stage.name.starts_with(&s.name));
            let alike = alike.map(|s| format!(", and {} allow{} hardly more", s.name, plural(&s.name)));
            let cores = if is_of_cores(described, measured, stage) { String::new() } else { no_more_to_give(measured) };
            let how = match percent > EXACT_SHARE * 100.0 {
                true if stage.basis == Basis::Measured => {
                    format!("alone {} gave {most}, so one of the two was measured differently", pronoun(&stage.name))
                }
                true => format!("{percent:.0} % of the {most} that are said of it"),
                false => format!("{percent:.0} % of the {most} that {}", allow(&stage.name)),
            };
            format!("{doing} ({rate}) {is} capped by {}: {how}{}{cores}", stage.name, alike.unwrap_or_default())
        }
        Cause::Processor { full, watched } => {
            let cores = cores_words(*full, *watched);
            let parts = work_words(described, measured, StageKind::Processor, stages);
            format!("{doing} ({rate}) {is} capped by {}: {cores}{parts}", processor(measured))
        }
        Cause::Client { full, watched } => {
            let cores = cores_words(*full, *watched);
            let parts = work_words(described, measured, StageKind::Client, stages);
            format!("{doing} ({rate}) {is} capped by {}: {cores}{parts}", client_processor(measured))
        }
        Cause::BothEnds { full, watched, client_full, client_watched } => {
            let (here, there) = (processor(measured), client_processor(measured));
            let (cores, client) = (cores_words(*full, *watched), cores_words(*client_full, *client_watched));
            let parts = work_words(described, measured, StageKind::Processor, stages);
            let others = work_words(described, measured, StageKind::Client, stages);
            format!("{doing} ({rate}) {is} capped by both ends: {here}, {cores}{parts}; {there}, {client}{others}")
        }
        Cause::Suspected(s) => {
            let cores = if s.code == "rung-below" { no_more_to_give(measured) } else { String::new() };
            format!("{doing} ({rate}) is most likely capped by {}: {}{cores}", s.what, s.why)
        }
        Cause::Misleading(why) => format!("{doing} ({rate}) proves nothing: {why}{}", beside_memory(measured, stages)),
        Cause::Asked(text) => format!("{doing} ({rate}) cannot be judged: {text}"),
        Cause::Unexplained => {
            let more = stages.iter().find(|s| s.capacity >= measured.rate);
            let most = more.map(|s| format!(": {} would allow {}", s.name, rate_words(s.capacity, measured.what)));
            let look = missing(described, measured, stages);
            format!("{doing} ({rate}) is not explained by what is described{}; {look}", most.unwrap_or_default())
        }
    }
}

/// Whatever answered, so much passed the wire.
fn beside_memory(measured: &Measured, stages: &[Stage]) -> String {
    let wire = stages.iter().find(|s| s.kind == StageKind::Network && s.basis != Basis::Measured);
    let full = |s: &&Stage| (WIRE_FULL_SHARE..=EXACT_SHARE).contains(&(measured.rate / s.capacity));
    let words = wire.filter(full).filter(|_| measured.path == Path::Share).map(|s| {
        let part = measured.rate / s.capacity * 100.0;
        format!(" (it is {part:.0} % of what {} carries, so that is full, and of the disks nothing is known)", s.name)
    });
    words.unwrap_or_default()
}

/// A wire or disk that is full beside a core that is full.
fn no_more_to_give(measured: &Measured) -> String {
    let ends =
        [(processor(measured), &measured.cores_percent), (client_processor(measured), &measured.how.client_cores)];
    let full = ends.into_iter().filter(|(_, cores)| full(cores) > 0);
    let words = full.map(|(name, cores)| {
        format!("; {name} has no more to give either: {}", cores_words(self::full(cores), cores.len()))
    });
    words.collect()
}

/// What is known of the work that fills the cores.
fn work_words(described: &Described, measured: &Measured, kind: StageKind, stages: &[Stage]) -> String {
    let mut words = String::new();
    if let Some(irq) = measured.how.irq_percent.filter(|irq| kind == StageKind::Processor && *irq >= IRQ_PERCENT) {
        words.push_str(&format!(", and interrupts took {irq:.0} % of the busiest one's time"));
    }
    if let Some(steal) = measured.how.steal_percent.filter(|s| kind == StageKind::Processor && *s >= STEAL_PERCENT) {
        words.push_str(&format!(", and the host took {steal:.0} % of its time for others"));
    }
    let throttled = measured.how.throttled_percent.filter(|t| kind == StageKind::Processor && *t >= THROTTLED_PERCENT);
    if let Some(time) = throttled {
        words.push_str(&format!(", and heat or a weak power supply held the clock down {time:.0} % of the time"));
    }
    for work in stages.iter().filter(|s| s.kind == kind && described.is_work(s)) {
        let part = measured.rate / work.capacity * 100.0;
        words.push_str(&format!(", and {} has {part:.0} % of what it allows", work.name));
    }
    words
}

fn pronoun(name: &str) -> &'static str {
    if allow(name) == "they allow" { "they" } else { "it" }
}

fn plural(name: &str) -> &'static str {
    if allow(name) == "they allow" { "" } else { "s" }
}

fn cores_words(full: usize, watched: usize) -> String {
    match (full, watched) {
        (1, 1) => "its core is busy".to_owned(),
        (n, all) if n == all => format!("all {n} cores are busy"),
        (1, _) => "1 core at its end, others have room".to_owned(),
        (n, _) => format!("{n} cores at their end, others have room"),
    }
}

/// What to measure next, so that it could be explained.
fn missing(described: &Described, measured: &Measured, stages: &[Stage]) -> String {
    let wanted = match measured.path {
        Path::Net => missing_of_wire(described, measured),
        _ => missing_of_storage(described, measured, stages),
    };
    wanted.join(", and ")
}

fn missing_of_wire(described: &Described, measured: &Measured) -> Vec<&'static str> {
    let mut wanted = unwatched(measured);
    if measured.how.in_flight.is_none_or(|n| n <= 1.0) {
        wanted.push("measure several connections at once (iperf3 -P 4)");
    }
    if described.network.as_ref().is_none_or(|n| n.round_trip_s.is_none()) {
        wanted.push("say how long a packet takes there and back (round_trip =, ping says)");
    }
    if measured.how.client_cores.is_empty() {
        wanted.push("watch the client's cores");
    }
    if wanted.is_empty() {
        wanted.push("try another cable, port and card at each end (ethtool IFACE says what was negotiated)");
    }
    wanted
}

/// Cores that nobody watched, or that say nothing of this.
fn unwatched(measured: &Measured) -> Vec<&'static str> {
    if measured.how.others_work {
        return vec!["the cores were full of somebody else's work meanwhile: stop that, and measure again"];
    }
    if measured.cores_percent.is_empty() { vec!["watch the cores meanwhile"] } else { Vec::new() }
}

fn missing_of_storage(described: &Described, measured: &Measured, stages: &[Stage]) -> Vec<&'static str> {
    let has = |kind: StageKind| stages.iter().any(|s| s.kind == kind);
    let mut wanted = unwatched(measured);
    if measured.how.elsewhere.is_some() {
        wanted.push("measure the disks of the machine that serves (there: larder bench disk)");
    } else if measured.path == Path::Disks && count(&used(described, measured)) == 1 {
        wanted.push("say what its data sheet promises (read =, write =)");
    } else if !has(StageKind::Disks) {
        wanted.push("say how fast one disk is by itself (fio)");
    } else if measured.path == Path::Share && !has(StageKind::Storage) {
        wanted.push("measure the same on the machine itself");
    }
    if described.shape(measured).layout.is_raidz() && measured.what.is_random() && described.record_bytes.is_none() {
        wanted.push("say how large records are (record =)");
    }
    if measured.path == Path::Share {
        if !stages.iter().any(|s| s.kind == StageKind::Network && s.basis == Basis::Measured) {
            wanted.push("measure the wire alone (iperf3)");
        }
        wanted.push("look at the other end");
    }
    if inner_tracks(described, measured, stages) {
        wanted.insert(0, "see where the file lies: a hard disk's inner tracks have half of the outer ones' rate");
    }
    if wanted.is_empty() {
        let used = used(described, measured);
        wanted.push(match count(&used) {
            2.. if turn_at_random(measured, &used) => {
                "see how many requests are under way at each disk (iostat -x: aqu-sz), and on how many of them the file lies"
            }
            0 | 1 => {
                "measure the disk alone, with nothing between (larder bench disk DEVICE), and then what comes after it"
            }
            _ => "what do they share that is not described: a chipset's uplink, a hub, memory?",
        });
    }
    wanted
}

/// Whether a hard disk that gives so much of its rate may just be read further in.
fn inner_tracks(described: &Described, measured: &Measured, stages: &[Stage]) -> bool {
    let disks = used(described, measured);
    let turns = !disks.is_empty() && disks.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
    let first = stages.first().filter(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual);
    turns && !measured.what.is_random() && first.is_some_and(|s| measured.rate >= s.capacity * INNER_TRACKS)
}

/// Over the network counts most, because that is what people feel; then what is on the machine itself.
pub(super) fn foremost(findings: &[Finding]) -> Vec<&Finding> {
    let proven = |f: &&Finding| !matches!(f.cause, Cause::Misleading(_));
    for path in [Path::Share, Path::Local, Path::Disks, Path::Net] {
        let of = || findings.iter().filter(proven).filter(move |f| f.measured.path == path);
        let kinds = [What::Read, What::Write, What::RandomRead, What::RandomWrite];
        let picked: Vec<&Finding> =
            kinds.iter().filter_map(|what| latest(of().filter(|f| f.measured.what == *what))).collect();
        if !picked.is_empty() {
            return picked;
        }
    }
    Vec::new()
}

/// The last measurement of a kind is of the box as it is: single disks are tried before. Of several clients and
/// programs the slowest is what somebody complains of.
fn latest<'a>(of_kind: impl Iterator<Item = &'a Finding>) -> Option<&'a Finding> {
    let mut last: Vec<&Finding> = Vec::new();
    for finding in of_kind {
        let m = &finding.measured;
        if m.path != Path::Share {
            last.clear();
        }
        match last.iter_mut().find(|f| (&f.measured.how.client, &f.measured.with) == (&m.how.client, &m.with)) {
            Some(same) => *same = finding,
            None => last.push(finding),
        }
    }
    last.into_iter().min_by(|a, b| a.measured.rate.total_cmp(&b.measured.rate))
}

fn verdict(described: &Described, findings: &[Finding]) -> (String, Confidence) {
    let picked = foremost(findings);
    if picked.is_empty() {
        return (on_paper(described, findings.first()), Confidence::Open);
    }
    let parts: Vec<&str> = picked.iter().map(|f| f.sentence.as_str()).collect();
    let confidence = picked.iter().map(|f| f.confidence).min().unwrap_or(Confidence::Open);
    let full = |f: &&&Finding| fills_its_wire(described, f);
    let prefix =
        if picked.iter().filter(full).count() == picked.len() { "nothing is wrong, the wire is full: " } else { "" };
    (format!("{prefix}{}", parts.join("; ")), confidence)
}

/// At the full rate of the box's wire, by its name or its figure, whatever of that wire is named: a switch or what was
/// measured of it alone.
fn fills_its_wire(described: &Described, finding: &Finding) -> bool {
    let Cause::Stage(stage) = &finding.cause else { return false };
    let Some(network) = &described.network else { return false };
    let wire = match stage.kind {
        StageKind::Network => true,
        StageKind::Link => {
            link_of(described, stage).is_some_and(|link| network.via.contains(&link.name) && link.could.is_none())
        }
        _ => false,
    };
    let share = finding.measured.bytes_per_s() / network.bytes_per_s;
    let whole = network.wire.as_ref().is_none_or(|of| network.bytes_per_s >= of.practical * PROOF_SHARE);
    wire && whole && share >= WIRE_FULL_SHARE
}

/// Without a measurement: what would be the limit, if all is as described. What is only usual is no figure of this box,
/// but where even the best of a kind gives less than what is described it is the limit.
/// What was measured instead is told.
fn on_paper(described: &Described, instead: Option<&Finding>) -> String {
    let path = if described.network.is_some() { Path::Share } else { Path::Local };
    let expected = [What::Read, What::Write].map(|what| {
        let imagined = imagined(path, what);
        let stages = stages(described, &imagined);
        let described = stages.iter().any(|s| s.basis != Basis::Usual);
        let lowest = stages.first().filter(|_| described)?;
        let most = rate_words(lowest.capacity, what);
        let usual = if lowest.basis == Basis::Usual { "no more than " } else { "" };
        Some(format!("{} would be capped by {} at {usual}{most}", path_words(&imagined), lowest.name))
    });
    let expected: Vec<String> = expected.into_iter().flatten().collect();
    let paper = if expected.is_empty() { String::new() } else { format!(" On paper {}.", expected.join("; ")) };
    let instead = instead.map_or(String::new(), |finding| format!(" ({})", finding.sentence));
    format!(
        "nothing was measured that could be explained{instead}: measure the disks, then the network, then both together.{paper}"
    )
}

fn imagined(path: Path, what: What) -> Measured {
    Measured {
        path,
        what,
        rate: f64::MIN_POSITIVE,
        disks: Vec::new(),
        cores_percent: Vec::new(),
        file_bytes: None,
        with: None,
        how: Default::default(),
    }
}
