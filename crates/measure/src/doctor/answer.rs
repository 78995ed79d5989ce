//! The answer: what was found of each row, one sentence on top, and at most three fixes.

use serde::Serialize;

use super::goals::{ToldGoal, goals};
use super::questions::{Question, questions};
use super::sentences::{Words, what_words};
use super::words::{bytes_words, rate_words};
use crate::bench::show::words::{folded, shortened};
use crate::describe::{Described, Measured, Path, What};
use crate::reason::{
    Basis, Confidence, Contrast, Cost, Evidence, FIXES_MAX, Fix, Measurement, Mode, Property, Remedy, ResourceId,
    ResourceKind, Rig, SPREAD, Stage, Table, Verdict, asked_about, chain, contrasts, differing_properties, fixes,
    judge, sort,
};

/// One measurement, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The way in words, and what tells it from the others.
    pub title: String,
    pub measured: Measured,
    /// The bottleneck, where one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceId>,
    /// The class of the bottleneck, by which answers are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ResourceKind>,
    /// Its name, or why there is none.
    pub limit: String,
    /// The evidence for it, or the next measurement to take.
    pub why: String,
    pub evidence: Evidence,
    /// The row of the ranking of evidence that decided.
    pub decided: &'static str,
    pub confidence: Confidence,
    /// The chain, the lowest limit first.
    pub stages: Vec<NamedStage>,
    pub sentence: String,
}

/// A stage of a chain, with the name that people gave to its resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedStage {
    pub name: String,
    /// How the limit is known: measured, negotiated, typed, computed or assumed.
    pub known: String,
    #[serde(flatten)]
    pub stage: Stage,
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
    /// Rows that differ in one property alone, and gave different rates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<ToldContrast>,
    /// Remarks beside the verdict: disks that differ from their siblings.
    pub remarks: Vec<String>,
    /// At most three, the greatest gain first.
    pub advice: Vec<Advice>,
    /// Whether the box reaches what somebody wants of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<ToldGoal>,
    /// Indices of the findings that the verdict is about, the headline first.
    #[serde(rename = "headline")]
    pub(super) asked: Vec<usize>,
    /// Whether the verdict had room for the first disk that differs from its siblings.
    #[serde(skip)]
    names_sibling: bool,
}

impl Diagnosis {
    /// The verdict where something was found, and the first disk that differs from its siblings.
    pub(crate) fn conclusions(&self) -> impl Iterator<Item = &str> {
        let explained = self.asked.iter().filter_map(|row| self.findings.get(*row)).any(|f| f.resource.is_some());
        let verdict = Some(self.verdict.as_str()).filter(|_| explained && self.questions.is_empty());
        let named = self.names_sibling && verdict.is_some();
        verdict.into_iter().chain(self.remarks.first().filter(|_| !named).map(String::as_str))
    }
}

/// Two rows with one property different, told of the slower one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToldContrast {
    /// Indices of the findings.
    pub row: usize,
    pub other: usize,
    pub property: Property,
    /// The other rate, as a multiple of this one.
    pub ratio: f64,
    pub sentence: String,
}

/// A remedy, and its gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub what: String,
    /// The remedy, where it is one of the chain's and not a notice's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    pub cost: Cost,
    /// The command to type, or what to buy or do.
    pub how: String,
    pub path: Path,
    pub of: What,
    pub rate_before: f64,
    /// The rate that the next stage allows.
    pub rate_after: f64,
    /// MB/s; of operations, times their size.
    pub gain_mb_per_s: f64,
    pub gain_percent: f64,
    /// The next bottleneck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    pub sentence: String,
}

/// From this share of a direction's own rate on a wire is full.
const WIRE_FULL: std::ops::RangeInclusive<f64> = 0.90..=1.05;
/// The verdict fits two lines of a narrow terminal, with the name of the box before it.
const COLUMNS: usize = 80;
const LINES_MAX: usize = 2;
/// Of a sentence full of long names.
const SHORT_CHARS: usize = 100;

pub fn diagnose(described: &Described) -> Diagnosis {
    let (rig, table) = (Rig::new(described), Table::of(described));
    let words = Words { rig, table: &table };
    let verdicts: Vec<Verdict> = (0..table.rows.len()).filter_map(|row| judge(rig, &table, row)).collect();
    let mut asked: Vec<Question> = questions(described);
    asked.extend(verdicts.iter().enumerate().filter_map(|(row, verdict)| {
        let (code, text) = words.question(row, verdict)?;
        Some(Question { code, text, measured: Some(row) })
    }));
    let findings = words.titles().into_iter().zip(&verdicts).enumerate();
    let findings: Vec<Finding> =
        findings.filter_map(|(row, (title, verdict))| finding(words, row, title, verdict)).collect();
    let rows = slowest_first(&table, asked_about(&table, &verdicts, described.of_bench));
    let confidence = rows.iter().filter_map(|row| verdicts.get(*row)).map(|verdict| verdict.confidence).min();
    let mut names_sibling = false;
    let (verdict, confidence) = match asked.first() {
        Some(_) => (contradiction(asked.len()), Confidence::Open),
        None if rows.is_empty() => (on_paper(described), Confidence::Open),
        None => {
            let slow = slow_siblings(words, &findings).into_iter().next();
            let slow = slow.as_ref().map(|slow| slow.name.as_str());
            let verdict = headline(words, &verdicts, &rows, slow, &mut names_sibling);
            (verdict, confidence.unwrap_or(Confidence::Open))
        }
    };
    Diagnosis {
        version: 2,
        name: described.name.clone(),
        verdict,
        confidence,
        advice: if asked.is_empty() { advice(words, &verdicts, &rows) } else { Vec::new() },
        goals: if asked.is_empty() { goals(described) } else { Vec::new() },
        questions: asked,
        contrasts: told_contrasts(words, &findings),
        remarks: slow_siblings(words, &findings).iter().map(|slow| sibling(words, slow)).collect(),
        findings,
        asked: rows,
        names_sibling,
    }
}

fn finding(words: Words, row: usize, title: String, verdict: &Verdict) -> Option<Finding> {
    let measured = words.rig.described.measured.get(row)?;
    let named = |stage: &Stage| NamedStage {
        name: words.resource(row, stage.resource),
        known: words.known(stage),
        stage: stage.clone(),
    };
    let (limit, why) = match (words.limit(row, verdict), &verdict.evidence) {
        (Some(limit), _) => (limit.name, limit.why),
        (None, Evidence::Missing(property)) => ("not explained".to_owned(), words.open(row, verdict, *property)),
        (None, Evidence::Doubtful) => ("proves nothing".to_owned(), words.doubt(row)),
        (None, _) => ("a question".to_owned(), words.question(row, verdict).map_or(String::new(), |(_, text)| text)),
    };
    Some(Finding {
        title,
        measured: measured.clone(),
        resource: verdict.resource,
        class: verdict.resource.map(|id| words.rig.kind(id)),
        limit,
        why,
        evidence: verdict.evidence,
        decided: verdict.rule,
        confidence: verdict.confidence,
        stages: verdict.stages.iter().map(named).collect(),
        sentence: words.sentence(row, verdict),
    })
}

/// Of each row the strongest contrast in each property that somebody can choose.
fn told_contrasts(words: Words, findings: &[Finding]) -> Vec<ToldContrast> {
    use Property::{Block, Client, Direction, Disks, Encryption, InFlight, Layout, Port, Program, Sync};
    let mut told: Vec<ToldContrast> = Vec::new();
    for (row, finding) in findings.iter().enumerate() {
        let Some(m) = words.table.rows.get(row).filter(|m| m.doubt.is_none()) else { continue };
        let chosen = |property| match property {
            Direction => m.setup.layer == Path::Net,
            Disks => m.setup.layer == Path::Disks && m.setup.disk_count() == 1,
            other => matches!(other, Block | Client | Encryption | InFlight | Layout | Port | Program | Sync),
        };
        for contrast in contrasts(words.table, row).into_iter().filter(|c| c.ratio > 1.0 && chosen(c.property)) {
            if told.iter().any(|known| known.row == row && known.property == contrast.property) {
                continue;
            }
            let rate = rate_words(finding.measured.rate, finding.measured.what);
            let sentence = format!("{} ({rate}): {}", finding.title, words.differs(row, contrast));
            let Contrast { property, row: other, ratio } = contrast;
            told.push(ToldContrast { row, other, property, ratio, sentence });
        }
    }
    told
}

fn contradiction(count: usize) -> String {
    let questions = if count == 1 { "one question".to_owned() } else { format!("{count} questions") };
    format!("the description contradicts itself, so nothing is concluded: {questions}")
}

/// Whole files before random access, and the slower before the faster.
fn slowest_first(table: &Table, mut rows: Vec<usize>) -> Vec<usize> {
    let bytes = |row: &usize| table.rows.get(*row).map_or(f64::INFINITY, Measurement::bytes_per_s);
    let random = |row: &usize| table.rows.get(*row).is_some_and(|m| m.setup.is_random());
    rows.sort_by(|a, b| random(a).cmp(&random(b)).then(bytes(a).total_cmp(&bytes(b))));
    rows
}

/// The slowest of what people asked about first; the others as far as two lines of a terminal have room.
fn headline(
    words: Words,
    verdicts: &[Verdict],
    rows: &[usize],
    sibling: Option<&str>,
    names_sibling: &mut bool,
) -> String {
    let mut left: Vec<usize> = rows.to_vec();
    let fits = |text: &str| folded(&format!("{}: {text}", words.rig.described.name), COLUMNS).len() <= LINES_MAX;
    let full = left.iter().all(|row| verdicts.get(*row).is_some_and(|verdict| fills_its_wire(words, *row, verdict)));
    let full = full && !verdicts.iter().enumerate().any(|(row, verdict)| is_slower_without_limit(words, row, verdict));
    let mut text = if full { "nothing is wrong, the wire is full: ".to_owned() } else { String::new() };
    let mut is_first = true;
    let sibling = sibling.map(|name| format!("; {name} is slower than its siblings"));
    while let Some(row) = left.first().copied() {
        let Some(verdict) = verdicts.get(row) else { break };
        let same =
            |other: &usize| *other == row || verdicts.get(*other).is_some_and(|other| is_same_limit(verdict, other));
        let (alike, others): (Vec<usize>, Vec<usize>) = left.iter().copied().partition(same);
        left = others;
        let clause = match is_first {
            true => lead(words, verdict, &alike, |clause| fits(&format!("{text}{clause}"))),
            false => format!("; {}", aside(words, verdict, &alike)),
        };
        if is_first || fits(&format!("{text}{clause}")) {
            text.push_str(&clause);
        }
        if let Some(sibling) = sibling.as_ref().filter(|sibling| is_first && fits(&format!("{text}{sibling}"))) {
            text.push_str(sibling);
            *names_sibling = true;
        }
        is_first = false;
    }
    text
}

/// Something over the network that is slower than the wire, and that nobody explains or only a contrast does.
fn is_slower_without_limit(words: Words, row: usize, verdict: &Verdict) -> bool {
    let Some(m) = words.table.rows.get(row).filter(|m| m.setup.is_remote() && m.doubt.is_none()) else { return false };
    let carries = words.rig.network().map_or(0.0, |network| network.bytes_per_s);
    let open = matches!(verdict.evidence, Evidence::Missing(_) | Evidence::Contrast { .. });
    open && !m.setup.is_random() && m.rate < carries * WIRE_FULL.start()
}

/// The headline: the whole sentence, or as much of it as fits.
fn lead(words: Words, verdict: &Verdict, rows: &[usize], fits: impl Fn(&str) -> bool) -> String {
    let row = rows.first().copied().unwrap_or_default();
    let whole = match rows {
        [_] => words.claim(row, verdict),
        rows => together(words, verdict, rows),
    };
    let short = || match (words.limit(row, verdict), verdict.evidence) {
        (Some(limit), _) => format!("{} {} {}", words.doing(row), verdict.confidence.is_limited_by(), limit.name),
        (None, Evidence::Missing(_)) => format!("{} is not explained", words.doing(row)),
        (None, _) => whole.clone(),
    };
    let all = [whole.clone(), short()];
    all.into_iter().find(|text| fits(text)).unwrap_or_else(|| shortened(&whole, SHORT_CHARS))
}

/// `reading (108 MB/s) by gigabit Ethernet`, after another clause.
fn aside(words: Words, verdict: &Verdict, rows: &[usize]) -> String {
    let ways = ways(words, rows);
    match (words.limit(rows.first().copied().unwrap_or_default(), verdict), verdict.evidence) {
        (Some(limit), _) => format!("{ways} by {}", limit.name),
        (None, Evidence::Doubtful) => format!("{ways} proves nothing"),
        (None, _) => format!("{ways} is not explained"),
    }
}

/// `reading (108 MB/s) and writing (97 MB/s)`.
fn ways(words: Words, rows: &[usize]) -> String {
    let measured = rows.iter().filter_map(|row| words.rig.described.measured.get(*row));
    let one = |m: &Measured| format!("{} ({})", what_words(m.what), rate_words(m.rate, m.what));
    measured.map(one).collect::<Vec<_>>().join(" and ")
}

fn is_same_limit(a: &Verdict, b: &Verdict) -> bool {
    if let (Evidence::Missing(_), true) = (a.evidence, a.evidence == b.evidence) {
        return true;
    }
    let named = !matches!(a.evidence, Evidence::Doubtful | Evidence::Missing(_)) && a.resource.is_some();
    let same = std::mem::discriminant(&a.evidence) == std::mem::discriminant(&b.evidence);
    named && same && a.resource == b.resource && a.confidence == b.confidence
}

/// Ways that have the same limit, in one sentence.
fn together(words: Words, verdict: &Verdict, rows: &[usize]) -> String {
    let row = rows.first().copied().unwrap_or_default();
    let place = match words.rig.described.measured.get(row) {
        Some(m) if m.path == Path::Share => match &m.how.client {
            Some(client) => format!(" over the network with {client}"),
            None => " over the network".to_owned(),
        },
        Some(m) if m.path == Path::Local => " on the machine itself".to_owned(),
        Some(m) if m.path == Path::Net => " over the wire alone".to_owned(),
        _ => String::new(),
    };
    let sure = verdict.confidence.are_limited_by();
    let told = match (words.limit(row, verdict), verdict.evidence) {
        (Some(limit), _) => format!("{sure} {}: {}", limit.name, limit.why),
        (None, Evidence::Missing(property)) => format!("are not explained: {}", words.next(row, verdict, property)),
        (None, _) => "prove nothing".to_owned(),
    };
    format!("{}{place} {told}", ways(words, rows))
}

/// At the full rate of what this direction of the wire carries, by its name and as measured alone.
fn fills_its_wire(words: Words, row: usize, verdict: &Verdict) -> bool {
    let (Some(network), Some(m)) = (words.rig.network(), words.table.rows.get(row)) else { return false };
    let wire = match verdict.resource {
        Some(ResourceId::Network) => true,
        Some(ResourceId::Link(at)) => {
            words.rig.link(at).is_some_and(|link| network.via.contains(&link.name) && link.could.is_none())
        }
        _ => false,
    };
    let normal = matches!(verdict.evidence, Evidence::Reached { mode: Mode::Normal, .. });
    let whole = network.wire.as_ref().is_none_or(|wire| network.bytes_per_s >= wire.practical * 0.8);
    wire && normal && whole && WIRE_FULL.contains(&(m.bytes_per_s() / network.bytes_per_s))
}

/// Without a measurement: what would be the limit if all is as described.
fn on_paper(described: &Described) -> String {
    let paper = paper(described).map_or(String::new(), |paper| format!(". {paper}"));
    format!("nothing was measured that could be explained{paper}")
}

/// `On paper, over the network: reading 117 MB/s and writing 117 MB/s by gigabit Ethernet`.
pub(super) fn paper(described: &Described) -> Option<String> {
    let path = if described.network.is_some() { Path::Share } else { Path::Local };
    let expected = [What::Read, What::Write].map(|what| {
        let imagined = Described { measured: vec![Measured::imagined(path, what)], ..described.clone() };
        let (rig, table) = (Rig::new(&imagined), Table::of(&imagined));
        let stages = chain(rig, &table, 0);
        let known = stages.iter().any(|stage| stage.basis != Basis::Usual);
        let lowest = stages.first().filter(|_| known)?;
        let name = Words { rig, table: &table }.resource(0, lowest.resource);
        let usual = if lowest.basis == Basis::Usual { "at most " } else { "" };
        Some((format!("{} {usual}{}", what_words(what), rate_words(lowest.limit, what)), name))
    });
    let place = if path == Path::Share { "over the network" } else { "on the machine itself" };
    let told = match expected {
        [Some((read, of)), Some((write, by))] if of == by => format!("{read} and {write}, by {by}"),
        [read, write] => {
            let each = [read, write].into_iter().flatten().map(|(rate, by)| format!("{rate}, by {by}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    (!told.is_empty()).then(|| format!("On paper, {place}: {told}"))
}

fn advice(words: Words, verdicts: &[Verdict], rows: &[usize]) -> Vec<Advice> {
    let rows = rows.iter().filter_map(|row| Some((*row, verdicts.get(*row)?)));
    let mut all: Vec<Fix> = rows.flat_map(|(row, verdict)| fixes(words.rig, words.table, row, verdict)).collect();
    sort(&mut all);
    let mut told: Vec<Advice> = Vec::new();
    for fix in &all {
        let Some(advice) = advised(words, fix) else { continue };
        // One change that helps two ways is one change.
        if told.len() < FIXES_MAX && told.iter().all(|other| other.what != advice.what) {
            told.push(advice);
        }
    }
    told
}

fn advised(words: Words, fix: &Fix) -> Option<Advice> {
    let measured = words.rig.described.measured.get(fix.row)?;
    let then = words.then(fix);
    Some(Advice {
        remedy: Some(fix.remedy),
        ..Advice::new(
            measured,
            words.remedy(fix),
            fix.remedy.cost(),
            words.how(fix),
            words.way(fix.row),
            fix.rate_after,
            then,
        )
    })
}

impl Advice {
    pub(super) fn new(
        measured: &Measured,
        what: String,
        cost: Cost,
        how: String,
        way: String,
        rate_after: f64,
        then: Option<String>,
    ) -> Self {
        let gain_percent = (rate_after / measured.rate - 1.0) * 100.0;
        let gain_mb_per_s = (rate_after - measured.rate) * measured.bytes_per_s() / measured.rate / 1e6;
        let next = then.as_ref().map_or(String::new(), |then| format!("; then the limit is {then}"));
        let sentence = format!(
            "{what}: {way} goes from {} to at most {} (+{}, +{gain_percent:.0} %){next}",
            rate_words(measured.rate, measured.what),
            rate_words(rate_after, measured.what),
            bytes_words(gain_mb_per_s * 1e6),
        );
        Self {
            what,
            remedy: None,
            cost,
            how,
            path: measured.path,
            of: measured.what,
            rate_before: measured.rate,
            rate_after,
            gain_mb_per_s,
            gain_percent,
            then,
            sentence,
        }
    }
}

/// A disk that gives less than its siblings.
struct Slow {
    name: String,
    what: What,
    rate: f64,
    others: f64,
}

/// Single disks that give less than most of those that were measured alike.
fn slow_siblings(words: Words, findings: &[Finding]) -> Vec<Slow> {
    let rows = &words.table.rows;
    let mut told: Vec<Slow> = Vec::new();
    for (row, one) in rows.iter().enumerate() {
        let single = one.setup.disk_count() == 1 && one.setup.layer == Path::Disks && one.doubt.is_none();
        let alike = |other: &&Measurement| differing_properties(&one.setup, &other.setup) == [Property::Disks];
        let rates = rows.iter().filter(|other| single && other.doubt.is_none() && other.setup.disk_count() == 1);
        let rates: Vec<f64> = rates.filter(alike).map(|other| other.rate).collect();
        let faster = rates.iter().filter(|rate| **rate >= one.rate * SPREAD).count();
        let best = rates.iter().copied().reduce(f64::max);
        let (Some(others), Some(finding)) = (best.filter(|_| faster * 2 > rates.len()), findings.get(row)) else {
            continue;
        };
        let name = finding.measured.disks.first().map_or("the disk", |(name, _)| name.as_str()).to_owned();
        told.push(Slow { name, what: finding.measured.what, rate: one.rate, others });
    }
    let typed = typed_siblings(words);
    // A measured figure says more than a typed one.
    let new = |slow: &Slow| !told.iter().any(|known| known.name == slow.name && known.what == slow.what);
    let typed: Vec<Slow> = typed.into_iter().filter(new).collect();
    told.extend(typed);
    told
}

/// By the figures of the description itself.
fn typed_siblings(words: Words) -> Vec<Slow> {
    let disks = &words.rig.described.disks;
    let mut told = Vec::new();
    for what in [What::Read, What::RandomRead] {
        for disk in disks {
            let Some(rate) = disk.rate(what) else { continue };
            let alike = disks.iter().filter(|other| other.kind == disk.kind);
            let faster: Vec<(u32, f64)> = alike
                .filter_map(|other| Some((other.count, other.rate(what).filter(|r| *r >= rate * SPREAD)?)))
                .collect();
            let best = faster.iter().map(|(_, rate)| *rate).reduce(f64::max);
            if let Some(others) = best.filter(|_| faster.iter().map(|(count, _)| count).sum::<u32>() > disk.count) {
                told.push(Slow { name: disk.name.clone(), what, rate, others });
            }
        }
    }
    told
}

fn sibling(words: Words, slow: &Slow) -> String {
    let Slow { name, what, rate, others } = slow;
    let disk = words.rig.described.disks.iter().find(|disk| disk.name == *name);
    let why = match disk.and_then(|disk| disk.connection.as_ref()) {
        Some(wire) if wire.practical * 0.75 <= *rate && !what.is_random() => {
            format!(": its {} port explains that", wire.name)
        }
        Some(_) => ": its port does not explain that; look at heat, firmware and free space".to_owned(),
        None => ": compare its port, its temperature and its free space".to_owned(),
    };
    format!(
        "{name} is slower than its siblings: {} instead of {}{why}",
        rate_words(*rate, *what),
        rate_words(*others, *what)
    )
}
