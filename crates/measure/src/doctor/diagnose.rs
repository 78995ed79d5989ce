//! From stages and measurements to causes, and from those to one sentence.

use serde::Serialize;

use super::advice::{Advice, help};
use super::describe::{Described, Measured, Path, What};
use super::misleading::{from_memory, misleading};
use super::questions::{Question, questions};
use super::remarks::remarks;
use super::stages::{Basis, FULL_SHARE, PROOF_SHARE, Stage, StageKind, stages};
use super::suspects::{IRQ_PERCENT, STEAL_PERCENT, Suspicion, THROTTLED_PERCENT, suspect};
use super::words::{client_processor, path_words, processor, rate_words};

/// A core this busy has no more to give.
pub(super) const CORE_FULL_PERCENT: f64 = 95.0;
/// From here on a wire is called full.
const WIRE_FULL_SHARE: f64 = 0.90;
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
    let (mut cause, confidence) = match (doubt, misleading(described, measured)) {
        (Some(question), _) => (Cause::Asked(question.text.clone()), Confidence::Open),
        (None, Some(why)) => {
            past_memory(described, measured, &stages).unwrap_or((Cause::Misleading(why), Confidence::Open))
        }
        (None, None) => cause(described, measured, &stages),
    };
    if let Cause::Stage(stage) = &mut cause {
        name_root(described, measured, stage);
    }
    let mut sentence = sentence(described, measured, &cause, &stages);
    if from_memory(described, measured) && !matches!(cause, Cause::Misleading(_) | Cause::Asked(_)) {
        sentence.push_str(" (the server had the file in memory: its disks may be slower)");
    }
    Finding { title: path_words(measured), measured: measured.clone(), cause, confidence, stages, sentence }
}

/// What was the limit further down is the limit here: it is named, not only where it was seen.
fn name_root(described: &Described, measured: &Measured, stage: &mut Stage) {
    if stage.basis != Basis::Measured || stage.kind == StageKind::Disks {
        return;
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
        return;
    };
    let root = match explain(described, lower, None).cause {
        // Where that one came from further down still, only its beginning is told.
        Cause::Stage(root) if root.basis == Basis::Measured => {
            root.name.split_once(" (the ").map_or(root.name.clone(), |(name, _)| name.to_owned())
        }
        Cause::Stage(root) => root.name,
        Cause::Processor { .. } => processor(lower),
        Cause::Client { .. } => client_processor(lower),
        Cause::Suspected(suspicion) => suspicion.what,
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => return,
    };
    if root != stage.name {
        stage.name = format!("{root} ({})", stage.name);
    }
}

/// A file in the server's memory says nothing of disks. What it says of wire, processor and client is as good as ever.
fn past_memory(described: &Described, measured: &Measured, stages: &[Stage]) -> Option<(Cause, Confidence)> {
    let passed = |s: &&Stage| matches!(s.kind, StageKind::Network | StageKind::Processor | StageKind::Client);
    let stages: Vec<Stage> = stages.iter().filter(passed).cloned().collect();
    let found = from_memory(described, measured).then(|| cause(described, measured, &stages))?;
    let proven = match &found.0 {
        Cause::Stage(_) | Cause::Processor { .. } | Cause::Client { .. } => true,
        Cause::Suspected(suspicion) => AFTER_DISKS.contains(&suspicion.code),
        Cause::Unexplained | Cause::Misleading(_) | Cause::Asked(_) => false,
    };
    proven.then_some(found)
}

/// Suspicions of what comes after the disks.
const AFTER_DISKS: [&str; 12] = [
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
    let proof = if here + there > 0 { FULL_SHARE } else { PROOF_SHARE };
    let known = |s: &&Stage| s.basis != Basis::Usual;
    // A cipher at its rate is the busy core.
    let proof = |s: &&Stage| {
        let own = matches!(s.kind, StageKind::Processor | StageKind::Client);
        measured.rate >= s.capacity * if own { PROOF_SHARE } else { proof }
    };
    if let Some(lowest) = stages.iter().find(known).filter(proof) {
        // The lowest of those that are known proves nothing while one below it may be lower still.
        let first = stages.first().filter(|s| s.capacity < lowest.capacity && measured.rate >= s.capacity_low);
        if first.is_none() {
            let sure = measured.rate >= lowest.capacity * WIRE_FULL_SHARE;
            return (Cause::Stage(lowest.clone()), if sure { Confidence::Certain } else { Confidence::Likely });
        }
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
    if let Some(found) = at_end.into_iter().filter(|(full, _)| *full > 0).find_map(|(_, kind)| named(kind)) {
        return found;
    }
    if here > 0 {
        return (Cause::Processor { full: here, watched: measured.cores_percent.len() }, Confidence::Certain);
    }
    if there > 0 {
        return (Cause::Client { full: there, watched: measured.how.client_cores.len() }, Confidence::Certain);
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

fn sentence(described: &Described, measured: &Measured, cause: &Cause, stages: &[Stage]) -> String {
    let (doing, rate) = (path_words(measured), rate_words(measured.rate, measured.what));
    match cause {
        Cause::Stage(stage) if stage.capacity_low < stage.capacity * PROOF_SHARE => {
            let (low, high) =
                (rate_words(stage.capacity_low, measured.what), rate_words(stage.capacity, measured.what));
            let range = if stage.basis == Basis::Usual { "usual" } else { "possible, by where the data lies" };
            format!("{doing} ({rate}) is most likely capped by {}: {low} to {high} are {range}", stage.name)
        }
        Cause::Stage(stage) => {
            let percent = measured.rate / stage.capacity * 100.0;
            let most = rate_words(stage.capacity, measured.what);
            let alike = stages
                .iter()
                .find(|s| *s != stage && s.capacity >= stage.capacity && s.capacity <= stage.capacity * ALIKE);
            let alike =
                alike.filter(|s| s.kind != stage.kind && s.kind != StageKind::Storage && s.basis != Basis::Usual);
            let alike = alike.map(|s| format!(", and {} allows hardly more", s.name)).unwrap_or_default();
            let itself = |name: String| stage.name.starts_with(&name);
            let of_cores = described.is_work(stage)
                || itself(processor(measured))
                || itself(client_processor(measured))
                || matches!(stage.kind, StageKind::Processor | StageKind::Client);
            let cores = if of_cores { String::new() } else { no_more_to_give(measured) };
            format!(
                "{doing} ({rate}) is capped by {}: {percent:.0} % of the {most} that it allows{alike}{cores}",
                stage.name
            )
        }
        Cause::Processor { full, watched } => {
            let cores = cores_words(*full, *watched);
            let parts = work_words(described, measured, StageKind::Processor, stages);
            format!("{doing} ({rate}) is capped by {}: {cores}{parts}", processor(measured))
        }
        Cause::Client { full, watched } => {
            let cores = cores_words(*full, *watched);
            let parts = work_words(described, measured, StageKind::Client, stages);
            format!("{doing} ({rate}) is capped by {}: {cores}{parts}", client_processor(measured))
        }
        Cause::Suspected(s) => format!("{doing} ({rate}) is most likely capped by {}: {}", s.what, s.why),
        Cause::Misleading(why) => format!("{doing} ({rate}) proves nothing: {why}"),
        Cause::Asked(text) => format!("{doing} ({rate}) cannot be judged: {text}"),
        Cause::Unexplained => {
            let most =
                stages.first().map(|s| format!(": {} would allow {}", s.name, rate_words(s.capacity, measured.what)));
            let look = missing(described, measured, stages);
            format!("{doing} ({rate}) is not explained by what is described{}; {look}", most.unwrap_or_default())
        }
    }
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
    let has = |kind: StageKind| stages.iter().any(|s| s.kind == kind);
    let mut wanted = Vec::new();
    if measured.how.elsewhere.is_some() {
        wanted.push("measure the disks of the machine that serves (there: larder bench disk)");
    } else if measured.path != Path::Net && !has(StageKind::Disks) {
        wanted.push("say how fast one disk is by itself (fio)");
    }
    if described.shape(measured).layout.is_raidz() && measured.what.is_random() && described.record_bytes.is_none() {
        wanted.push("say how large records are (record =)");
    }
    if measured.cores_percent.is_empty() {
        wanted.push("watch the cores meanwhile");
    }
    if measured.path == Path::Share {
        if !stages.iter().any(|s| s.kind == StageKind::Network && s.basis == Basis::Measured) {
            wanted.push("measure the wire alone (iperf3)");
        }
        wanted.push("look at the other end");
    }
    if wanted.is_empty() {
        wanted.push("what do they share that is not described: a chipset's uplink, a hub, memory?");
    }
    wanted.join(", and ")
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
        return (on_paper(described), Confidence::Open);
    }
    let parts: Vec<&str> = picked.iter().map(|f| f.sentence.as_str()).collect();
    let confidence = picked.iter().map(|f| f.confidence).min().unwrap_or(Confidence::Open);
    let full = |f: &&&Finding| {
        matches!(&f.cause, Cause::Stage(s) if s.kind == StageKind::Network && f.measured.rate >= s.capacity * WIRE_FULL_SHARE
            && !s.name.contains("as measured"))
    };
    let prefix =
        if picked.iter().filter(full).count() == picked.len() { "nothing is wrong, the wire is full: " } else { "" };
    (format!("{prefix}{}", parts.join("; ")), confidence)
}

/// Without a measurement: what would be the limit, if all is as described.
fn on_paper(described: &Described) -> String {
    let path = if described.network.is_some() { Path::Share } else { Path::Local };
    let expected = [What::Read, What::Write].map(|what| {
        let imagined = imagined(path, what);
        let lowest = stages(described, &imagined).into_iter().find(|s| s.basis != Basis::Usual)?;
        let most = rate_words(lowest.capacity, what);
        Some(format!("{} would be capped by {} at {most}", path_words(&imagined), lowest.name))
    });
    let expected: Vec<String> = expected.into_iter().flatten().collect();
    let paper = if expected.is_empty() { String::new() } else { format!(" On paper {}.", expected.join("; ")) };
    format!(
        "nothing was measured that could be explained: measure the disks, then the network, then both together.{paper}"
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
