//! A result arranged for showing: the chain of layers, sums, sweeps, comparisons and the headline.
//! Text, HTML and SVG only draw what is decided here.
//!
//! A run that is marked misleading is shown, but never speaks for its layer.

use std::collections::{BTreeMap, BTreeSet};

use super::{units, words};
use crate::bench::compare::sample;
use crate::bench::result::{BenchResult, Caches, ENCRYPTION, Kind, Layer, Note, Run, Saturation};
use crate::stats;

/// A result has hundreds of runs at most; whatever a file claims, no more are shown.
pub(crate) const RUNS_MAX: usize = 600;
/// As many block sizes of one workload are a sweep.
const SWEEP_BLOCKS_MIN: usize = 4;
/// The one that stands for a sweep elsewhere: what bulk copies use.
const SWEEP_REFERENCE: u64 = 1 << 20;
/// So much of the sum of all disks is as good as all of it.
const SUM_HOLDS: f64 = 0.9;
/// A core that is full for this part of a run while others are not is a limit of its own.
const CORE_ALONE_MIN: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// From the storage to who asks.
    Read,
    Write,
}

impl Way {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Bulk transfers have a direction; the wire's are seen from the measuring end.
fn way(kind: Kind) -> Option<Way> {
    match kind {
        Kind::Read | Kind::Receive => Some(Way::Read),
        Kind::Write | Kind::Send => Some(Way::Write),
        _ => None,
    }
}

pub(crate) fn runs(result: &BenchResult) -> &[Run] {
    &result.runs[..result.runs.len().min(RUNS_MAX)]
}

pub(crate) fn misleading(run: &Run) -> Option<&Note> {
    run.notes.iter().find(|n| n.misleading)
}

/// One bar of the chain: the best that a layer did.
#[derive(Clone, Debug)]
pub(crate) struct Step<'a> {
    pub(crate) run: &'a Run,
    pub(crate) name: String,
    pub(crate) bytes_per_s: f64,
    /// Of the disks one by one, where this is all of them together.
    pub(crate) promised: Option<f64>,
}

/// From the bottom to the top; of the share one step for each way of access.
pub(crate) fn chain(result: &BenchResult, towards: Way) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for layer in words::LAYERS {
        let of_layer = runs(result).iter().filter(|r| r.layer == layer && way(r.workload.kind) == Some(towards));
        for run in of_layer.filter(|r| misleading(r).is_none()) {
            let Some(median) = run.median().filter(|m| m.is_finite()) else { continue };
            let name = step_name(result, run);
            match steps.iter_mut().find(|s| s.run.layer == layer && s.name == name) {
                Some(step) if step.bytes_per_s >= median => {}
                Some(step) => (step.run, step.bytes_per_s) = (run, median),
                None => steps.push(Step { run, name, bytes_per_s: median, promised: None }),
            }
        }
    }
    for step in &mut steps {
        step.promised = sum(result, step.run).map(|s| s.promised);
    }
    steps
}

/// Why there is no chain to show, where there is none.
pub(crate) fn no_chain(result: &BenchResult) -> Option<String> {
    if [Way::Read, Way::Write].iter().any(|way| !chain(result, *way).is_empty()) {
        return None;
    }
    let bulk: Vec<&Run> = runs(result).iter().filter(|r| way(r.workload.kind).is_some()).collect();
    if bulk.is_empty() {
        return Some(
            "No bulk transfer was measured, so the layers cannot be held against each other: measure with read and write."
                .to_owned(),
        );
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for note in bulk.iter().filter_map(|run| misleading(run)) {
        *reasons.entry(note.text.as_str()).or_default() += 1;
    }
    let more = match reasons.len() {
        0 | 1 => String::new(),
        2 => " (and one reason more)".to_owned(),
        n => format!(" (and {} reasons more)", n - 1),
    };
    let most = reasons.iter().max_by_key(|(_, count)| **count);
    let first = most.map_or(String::new(), |(why, _)| format!(": {}{more}", words::clean(why.trim_end_matches('.'))));
    let which = match bulk.len() {
        1 => "The only bulk transfer proves".to_owned(),
        2 => "Both bulk transfers prove".to_owned(),
        n => format!("All {n} bulk transfers prove"),
    };
    Some(format!("{which} nothing, so there is no chain of layers to show{first}."))
}

fn step_name(result: &BenchResult, run: &Run) -> String {
    match run.layer {
        Layer::Share => format!("share, {}", share_name(result, run)),
        Layer::Disk => "best single disk".to_owned(),
        Layer::Both if run.access == "tcp" => "the wire beside the disks".to_owned(),
        Layer::Both => "the disks beside the wire".to_owned(),
        layer => words::layer(layer).to_owned(),
    }
}

/// `nfs3`; the share itself where several are reached in that way.
fn share_name(result: &BenchResult, run: &Run) -> String {
    let alike = |r: &&Run| r.layer == Layer::Share && r.access == run.access && r.subject != run.subject;
    match runs(result).iter().find(alike) {
        Some(_) => words::subject(run),
        None => words::clean(&run.access),
    }
}

/// The saturated resources. A core is left out where all cores of its end are named, and it was full for hardly longer
/// than they: only the time in which it was full by itself counts, at either end.
pub(crate) fn saturated(run: &Run) -> Vec<Saturation> {
    let all = |end: &str| {
        let same = |s: &&Saturation| s.what.strip_suffix("all cores") == Some(end);
        run.saturated.iter().find(same).map(|s| s.share)
    };
    let told = |s: &&Saturation| {
        let end = s.what.rsplit_once("core ").filter(|(_, core)| core.parse::<u32>().is_ok()).map(|(end, _)| end);
        end.and_then(all).is_none_or(|all| s.share - all >= CORE_ALONE_MIN)
    };
    run.saturated.iter().filter(told).cloned().collect()
}

/// All disks at once beside each alone.
#[derive(Clone, Debug)]
pub(crate) struct Sum<'a> {
    pub(crate) run: &'a Run,
    pub(crate) disks: usize,
    pub(crate) promised: f64,
    pub(crate) together: f64,
}

impl Sum<'_> {
    pub(crate) fn part(&self) -> f64 {
        self.together / self.promised.max(f64::MIN_POSITIVE)
    }

    pub(crate) fn holds(&self) -> bool {
        self.part() >= SUM_HOLDS
    }

    /// `402 MB/s of 1650 MB/s (24 %)`
    pub(crate) fn sentence(&self) -> String {
        let show = unit(self.run);
        let verdict = if self.holds() { "the sum holds" } else { "they share a limit" };
        format!(
            "{}: {} disks together reach {} of {}, the sum of each alone ({}): {verdict}",
            words::workload(&self.run.workload),
            self.disks,
            show.show(self.together),
            show.show(self.promised),
            units::percent(self.part())
        )
    }
}

/// The rates of its disks one by one, if each of them was measured with the same workload.
fn sum<'a>(result: &BenchResult, run: &'a Run) -> Option<Sum<'a>> {
    if run.layer != Layer::Disks {
        return None;
    }
    let names: Vec<&str> = run.subject.split(", ").collect();
    let alone = |name: &&str| {
        let same = |r: &&Run| {
            r.layer == Layer::Disk
                && r.subject == *name
                && r.workload.kind == run.workload.kind
                && r.workload.block_bytes == run.workload.block_bytes
        };
        let medians = runs(result).iter().filter(same).filter_map(Run::median);
        medians.filter(|m| m.is_finite()).reduce(f64::max)
    };
    let each: Option<Vec<f64>> = names.iter().map(alone).collect();
    let promised = each?.iter().sum();
    Some(Sum { run, disks: names.len(), promised, together: run.median().filter(|m| m.is_finite())? })
}

pub(crate) fn sums(result: &BenchResult) -> Vec<Sum<'_>> {
    runs(result).iter().filter(|run| misleading(run).is_none()).filter_map(|run| sum(result, run)).collect()
}

pub(crate) fn unit(run: &Run) -> units::Unit {
    match run.workload.kind {
        kind if kind.counts_files() => units::Unit::Files,
        kind if kind.counts_operations() => units::Unit::Iops,
        _ => units::Unit::Rate,
    }
}

/// Throughput against block size, one line per way of access.
#[derive(Clone, Debug)]
pub(crate) struct Sweep<'a> {
    pub(crate) kind: Kind,
    pub(crate) lines: Vec<SweepLine<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct SweepLine<'a> {
    pub(crate) name: String,
    /// By block size.
    pub(crate) runs: Vec<&'a Run>,
}

impl SweepLine<'_> {
    /// Bytes per second at each block size, also for random access: the axis is the same for all.
    pub(crate) fn points(&self) -> Vec<(f64, f64)> {
        self.runs.iter().filter_map(|r| Some((r.workload.block_bytes as f64, bytes_per_s(r)?))).collect()
    }
}

/// The median of bytes per second, whatever the kind counts.
pub(crate) fn bytes_per_s(run: &Run) -> Option<f64> {
    let mut values: Vec<f64> = run.repeats.iter().map(|r| r.bytes_per_s).filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

pub(crate) fn sweeps(result: &BenchResult) -> Vec<Sweep<'_>> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for group in grouped(runs(result), same_but_block) {
        let mut group = group;
        group.sort_by_key(|r| r.workload.block_bytes);
        group.dedup_by_key(|r| r.workload.block_bytes);
        let Some(first) = group.first().copied().filter(|_| group.len() >= SWEEP_BLOCKS_MIN) else { continue };
        let line = SweepLine { name: line_name(first), runs: group };
        match sweeps.iter_mut().find(|s| s.kind == first.workload.kind) {
            Some(sweep) => sweep.lines.push(line),
            None => sweeps.push(Sweep { kind: first.workload.kind, lines: vec![line] }),
        }
    }
    sweeps.iter_mut().for_each(|s| distinct(&mut s.lines));
    sweeps
}

/// A run's part of the best one's rate, and how to say it: medians within 5 % are the same, and where the repeats are
/// too far apart for more nobody can tell.
pub(crate) fn beside_best(run: &Run, best: Option<&Run>) -> (f64, String) {
    let part = best.and_then(|best| Some(run.median()? / best.median()?)).filter(|part| part.is_finite());
    let (Some(best), Some(part)) = (best, part) else { return (0.0, String::new()) };
    let differ = stats::differ(&sample(run), &sample(best)).filter(|_| !std::ptr::eq(run, best));
    let told = match differ {
        Some(false) if stats::is_slight(part) => "the same".to_owned(),
        Some(false) => "cannot tell".to_owned(),
        _ => units::percent(part),
    };
    (part, told)
}

fn same_but_block(a: &Run, b: &Run) -> bool {
    a.layer == b.layer
        && a.subject == b.subject
        && a.access == b.access
        && a.variant == b.variant
        && a.workload.kind == b.workload.kind
        && a.workload.block_bytes > 0
}

fn line_name(run: &Run) -> String {
    let variant = words::variant(run);
    let access = words::clean(&run.access);
    if variant.is_empty() { access } else { format!("{access}, {variant}") }
}

/// Lines of the same name get their subject as well.
fn distinct(lines: &mut [SweepLine<'_>]) {
    let names: Vec<String> = lines.iter().map(|l| l.name.clone()).collect();
    for line in lines {
        if names.iter().filter(|n| **n == line.name).count() > 1 {
            let subject = line.runs.first().map(|r| words::clean(&r.subject)).unwrap_or_default();
            line.name = format!("{} {subject}", line.name);
        }
    }
}

/// Runs that slowed down when a fast cache was full, by layer and workload.
pub(crate) fn knees(result: &BenchResult) -> Vec<Vec<&Run>> {
    let same = |a: &Run, b: &Run| a.layer == b.layer && a.workload.kind == b.workload.kind;
    let with_knee = |r: &&Run| r.repeats.iter().any(|r| r.knee.is_some() && r.over_time.len() > 1);
    let groups = grouped(runs(result), same).into_iter();
    groups.map(|g| g.into_iter().filter(with_knee).collect::<Vec<_>>()).filter(|g| !g.is_empty()).collect()
}

/// Runs that belong together, in the order of their first.
fn grouped(runs: &[Run], same: impl Fn(&Run, &Run) -> bool) -> Vec<Vec<&Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|g| same(g[0], run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// All runs but those of sweeps, for which the one of 1 MiB stands.
pub(crate) fn main_runs(result: &BenchResult) -> Vec<&Run> {
    let sweeps = sweeps(result);
    let lines = || sweeps.iter().flat_map(|s| &s.lines);
    let stands = |line: &SweepLine<'_>, run: &Run| {
        let distance = |r: &&&Run| (r.workload.block_bytes as f64 / SWEEP_REFERENCE as f64).log2().abs();
        let nearest = line.runs.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.is_some_and(|r| std::ptr::eq(*r, run))
    };
    let shown = |run: &&Run| match lines().find(|l| l.runs.iter().any(|r| std::ptr::eq(*r, *run))) {
        Some(line) => stands(line, run),
        None => true,
    };
    runs(result).iter().filter(shown).collect()
}

/// One property varied, everything else the same: values down, workloads across.
#[derive(Clone, Debug)]
pub(crate) struct Compared<'a> {
    /// `encryption`, `access`, `disk`.
    pub(crate) key: String,
    /// The properties that stayed the same.
    pub(crate) fixed: String,
    pub(crate) workloads: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<Option<&'a Run>>)>,
}

impl<'a> Compared<'a> {
    fn add(&mut self, value: String, run: &'a Run) {
        let workload = words::workload(&run.workload);
        let column = match self.workloads.iter().position(|w| *w == workload) {
            Some(column) => column,
            None => {
                self.workloads.push(workload);
                self.workloads.len() - 1
            }
        };
        let row = match self.rows.iter().position(|(name, _)| *name == value) {
            Some(row) => row,
            None => {
                self.rows.push((value, Vec::new()));
                self.rows.len() - 1
            }
        };
        let cells = &mut self.rows[row].1;
        cells.resize(cells.len().max(column + 1), None);
        cells[column] = Some(run);
    }

    /// The best of a column, to which the others are compared.
    pub(crate) fn best(&self, column: usize) -> Option<&'a Run> {
        let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column).copied().flatten());
        let known = cells.filter(|run| run.median().is_some_and(f64::is_finite));
        known.max_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))
    }
}

pub(crate) fn compared(result: &BenchResult) -> Vec<Compared<'_>> {
    let mut found: Vec<Compared<'_>> = Vec::new();
    let main = main_runs(result);
    // Shares are compared to the pool, or to the disks where there is none.
    let bases = [Layer::Pool, Layer::Disks, Layer::Disk];
    let base = bases.into_iter().find(|l| main.iter().any(|r| r.layer == *l)).unwrap_or(Layer::Disk);
    let sharing = main.iter().any(|r| r.layer == Layer::Share);
    let kinds: BTreeSet<&String> = main.iter().filter_map(|r| encrypts_subject(r)).collect();
    for run in main {
        // Encryption below a folder, or on the way to a share, is a property of that folder or share.
        let encrypts = encrypts_subject(run);
        if let Some(kind) = encrypts.filter(|_| kinds.len() > 1) {
            let value = format!("{}: {}", words::clean(kind), words::clean(&run.subject));
            place(&mut found, ENCRYPTION, words::layer(run.layer).to_owned(), value, run);
        }
        let apart = |k: &&String| *k != ENCRYPTION || encrypts.is_none();
        for (key, value) in run.variant.iter().filter(|(k, _)| apart(k)) {
            let others = run.variant.iter().filter(|(k, _)| *k != key && apart(k));
            let mut fixed = vec![words::layer(run.layer).to_owned(), words::clean(&run.access)];
            fixed.extend(others.map(|(k, v)| format!("{} {}", words::clean(k), words::clean(v))));
            place(&mut found, &words::clean(key), fixed.join(", "), words::clean(value), run);
        }
        if run.layer == Layer::Disk && !run.variant.contains_key("disk") {
            place(&mut found, "disk", "each by itself".to_owned(), words::clean(&run.subject), run);
        }
        if sharing && (run.layer == Layer::Share || run.layer == base) {
            let name = match run.layer {
                Layer::Share => share_name(result, run),
                _ => format!("{} of this machine", words::layer(base)),
            };
            let told: Vec<String> = run
                .variant
                .iter()
                .filter(|(k, _)| !matches!(k.as_str(), "access" | "disk") && apart(k))
                .map(|(k, v)| format!("{} {}", words::clean(k), words::clean(v)))
                .collect();
            let fixed = [vec!["the storage of this machine, and shares".to_owned()], told].concat().join(", ");
            place(&mut found, "access", fixed, name, run);
        }
    }
    found.retain(|c| c.rows.len() >= 2);
    for compared in &mut found {
        let columns = compared.workloads.len();
        compared.rows.iter_mut().for_each(|(_, cells)| cells.resize(columns, None));
    }
    found
}

/// The kind of encryption of a subject that has one of its own.
fn encrypts_subject(run: &Run) -> Option<&String> {
    run.variant.get(ENCRYPTION).filter(|_| matches!(run.layer, Layer::Disk | Layer::Share))
}

fn place<'a>(found: &mut Vec<Compared<'a>>, key: &str, fixed: String, value: String, run: &'a Run) {
    if let Some(compared) = found.iter_mut().find(|c| c.key == key && c.fixed == fixed) {
        return compared.add(value, run);
    }
    let mut compared = Compared { key: key.to_owned(), fixed, workloads: Vec::new(), rows: Vec::new() };
    compared.add(value, run);
    found.push(compared);
}

/// A sentence to quote: the rates at the top, and the doctor's conclusion.
pub(crate) fn headline(result: &BenchResult) -> String {
    let copies = alone(result, Kind::Copy);
    if let Some(run) = runs(result).iter().find(|run| run.layer == Layer::Copy).filter(|_| !copies.is_empty()) {
        return format!("{}: {}.", words::clean(&run.subject), copies.join(", "));
    }
    let (read, write) = (chain(result, Way::Read), chain(result, Way::Write));
    let top = |steps: &[Step<'_>]| steps.iter().map(|s| rank(s.run.layer)).filter(|rank| *rank > 0).max();
    let best = top(&read).max(top(&write));
    // Of several shares one is told of, and the doctor of the slowest.
    let top_name = fastest(&read, best, None).or_else(|| fastest(&write, best, None)).map(|s| s.name.clone());
    let mut parts: Vec<String> = Vec::new();
    for (steps, verb) in [(&read, "reads"), (&write, "writes")] {
        if let Some(step) = top_name.as_deref().and_then(|name| fastest(steps, best, Some(name))) {
            let warm = step.run.layer == Layer::Share && step.run.workload.caches == Caches::Warm;
            let from = if warm { " from its server's memory" } else { "" };
            parts.push(format!("{verb} {}{from}", units::rate(step.bytes_per_s)));
        }
    }
    parts.extend(best.and_then(|rank| random(result, rank, top_name.as_deref())));
    parts.extend(alone(result, Kind::Scrub).into_iter().filter(|_| top_name.is_some()));
    let Some(name) = top_name.or_else(|| only(result)) else {
        return "Nothing was measured that could be trusted: the notes say why.".to_owned();
    };
    let said = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let mut text = format!("{}{said}.", capital(&name));
    uneven_wire(result).iter().for_each(|sentence| text.push_str(&format!(" {sentence}.")));
    let found = crate::doctor::judge_result(result);
    found.conclusions().for_each(|sentence| text.push_str(&format!(" {}.", capital(&words::clean(sentence)))));
    text
}

/// A wire that carries much more in one direction than in the other, as this machine sees it.
fn uneven_wire(result: &BenchResult) -> Option<String> {
    const UNEVEN: f64 = 1.25;
    let best = |kind: Kind| {
        let of = runs(result).iter().filter(|run| run.layer == Layer::Net && run.workload.kind == kind);
        let sound = of.filter(|run| misleading(run).is_none());
        sound.filter_map(|run| Some((run, run.median()?))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let ((out, sent), (back, received)) = best(Kind::Send).zip(best(Kind::Receive))?;
    let ratio = if sent > received { sent / received } else { received / sent };
    let by_chance = stats::differ(&sample(out), &sample(back)) == Some(false);
    let told = || format!("The wire sends {} and receives {}", units::rate(sent), units::rate(received));
    (ratio >= UNEVEN && !by_chance).then(told)
}

/// How near to a user a layer is; the wire alone is near only if there is nothing else.
fn rank(layer: Layer) -> u8 {
    match layer {
        Layer::Share => 6,
        Layer::Pool => 5,
        Layer::Disks => 4,
        Layer::Disk => 3,
        Layer::Net => 2,
        Layer::Both | Layer::Copy => 1,
    }
}

/// Copies and scrubs, which have no way of their own in the chain.
fn alone(result: &BenchResult, kind: Kind) -> Vec<String> {
    let of = runs(result).iter().filter(|run| run.workload.kind == kind && misleading(run).is_none());
    of.filter_map(|run| Some(format!("{} {}", words::workload(&run.workload), unit(run).show(run.median()?)))).collect()
}

fn fastest<'a, 'b>(steps: &'b [Step<'a>], top: Option<u8>, name: Option<&str>) -> Option<&'b Step<'a>> {
    let of_top = steps.iter().filter(|s| Some(rank(s.run.layer)) == top && name.is_none_or(|name| s.name == name));
    of_top.max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
}

fn random(result: &BenchResult, top: u8, name: Option<&str>) -> Option<String> {
    let of_it = |r: &Run| name.is_none_or(|name| step_name(result, r) == name);
    let of =
        |r: &&Run| rank(r.layer) == top && r.workload.kind == Kind::RandomRead && misleading(r).is_none() && of_it(r);
    let medians = runs(result).iter().filter(of).filter_map(Run::median);
    medians.filter(|m| m.is_finite()).reduce(f64::max).map(|m| format!("random reads {}", units::iops(m)))
}

/// A bench without bulk transfers: the most operations of each kind at its top, or its first run.
fn only(result: &BenchResult) -> Option<String> {
    let trusted = || runs(result).iter().filter(|r| misleading(r).is_none() && r.median().is_some_and(f64::is_finite));
    let top = trusted().max_by_key(|r| rank(r.layer))?.layer;
    let kinds =
        [(Kind::RandomRead, "random reads"), (Kind::RandomWrite, "random writes"), (Kind::RandomMixed, "random 75/25")];
    let best = kinds.iter().filter_map(|(kind, verb)| {
        let of = trusted().filter(|r| r.layer == top && r.workload.kind == *kind);
        Some(format!("{verb} {}", units::iops(of.filter_map(Run::median).reduce(f64::max)?)))
    });
    let best: Vec<String> = best.collect();
    if !best.is_empty() {
        return Some(format!("{}: {}", words::layer(top), best.join(", ")));
    }
    let run = trusted().next()?;
    let median = unit(run).show(run.median()?);
    Some(format!("{}, {} {median}", words::layer(run.layer), words::workload(&run.workload)))
}

pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
