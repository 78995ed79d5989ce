//! Which runs belong to each other, and what two of them say.

use super::comparison::{Difference, Effect, Figures, Row, Verdict};
use super::differ::{self, properties};
use super::sampling::{self, SEED, resampled, sampled};
use crate::bench::result::{BenchResult, Run};
use crate::bench::show::{median_p99_us, ratio, runs, words};
use crate::stats::{self, CHANCE, Random, SAME_WITHIN};

pub(super) struct Matched<'a> {
    pub(super) pairs: Vec<(&'a Run, &'a Run)>,
    pub(super) only_a: Vec<String>,
    pub(super) only_b: Vec<String>,
}

/// How nearly two runs are the same, the best first. What comes later only finds what is left: at last what one property
/// tells apart, for that is what somebody compares who measured once with it and once without.
const LIKENESS: [fn(&Role<'_>, &Role<'_>) -> bool; 6] = [
    |a, b| differing_count(a, b) == 0 && a.run.subject == b.run.subject && same_workload(a.run, b.run),
    |a, b| differing_count(a, b) == 0 && a.subject == b.subject && same_workload(a.run, b.run),
    |a, b| differing_count(a, b) == 0 && a.run.subject == b.run.subject,
    |a, b| differing_count(a, b) == 0 && a.subject == b.subject,
    |a, b| differing_count(a, b) == 1 && a.run.subject == b.run.subject && same_workload(a.run, b.run),
    |a, b| differing_count(a, b) == 1 && a.subject == b.subject && same_workload(a.run, b.run),
];

/// In how many of their properties two runs differ.
fn differing_count(a: &Role<'_>, b: &Role<'_>) -> usize {
    properties(a.run, b.run).filter(|(_, a, b)| a != b).count()
}

/// `compression zstd, encryption none / aes-256-gcm`
fn variant(a: &Run, b: &Run) -> String {
    let value = |v: Option<&String>| v.map_or_else(|| "-".to_owned(), |v| words::clean(v));
    let told = properties(a, b).map(|(key, a, b)| match a == b {
        true => format!("{} {}", words::clean(key), value(a)),
        false => format!("{} {} / {}", words::clean(key), value(a), value(b)),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// A run, and the part its subject plays: the n-th of its layer and access. Another box's `/mnt/tank` is this one's
/// `/srv/raid0`.
struct Role<'a> {
    run: &'a Run,
    subject: usize,
}

fn roles(result: &BenchResult) -> Vec<Role<'_>> {
    let mut known: Vec<(&Run, usize)> = Vec::new();
    let mut found = Vec::new();
    for run in runs(result) {
        let beside = |other: &Run| other.layer == run.layer && other.access == run.access;
        let number = known.iter().find(|(other, _)| beside(other) && other.subject == run.subject).map(|(_, n)| *n);
        let subject = number.unwrap_or_else(|| {
            let next = known.iter().filter(|(other, _)| beside(other)).count();
            known.push((run, next));
            next
        });
        found.push(Role { run, subject });
    }
    found
}

/// Whether two runs can be compared at all.
fn related(a: &Run, b: &Run) -> bool {
    a.layer == b.layer && a.access == b.access && a.workload.kind == b.workload.kind
}

fn same_workload(a: &Run, b: &Run) -> bool {
    let (a, b) = (&a.workload, &b.workload);
    a.block_bytes == b.block_bytes && a.depth == b.depth && a.jobs == b.jobs && a.compressible == b.compressible
}

pub(super) fn matched<'a>(a: &'a BenchResult, b: &'a BenchResult) -> Matched<'a> {
    let (left, right) = (roles(a), roles(b));
    let mut partner: Vec<Option<usize>> = vec![None; left.len()];
    let mut taken = vec![false; right.len()];
    for alike in LIKENESS {
        for (n, one) in left.iter().enumerate().filter(|(n, _)| partner[*n].is_none()).collect::<Vec<_>>() {
            let fits = |(m, other): &(usize, &Role<'_>)| !taken[*m] && related(one.run, other.run) && alike(one, other);
            if let Some((m, _)) = right.iter().enumerate().find(fits) {
                (partner[n], taken[m]) = (Some(m), true);
            }
        }
    }
    let name =
        |run: &Run| format!("{}: {}, {}", words::layer(run.layer), words::subject(run), words::workload(&run.workload));
    let pair = |(n, role): (usize, &Role<'a>)| partner[n].map(|m| (role.run, right[m].run));
    Matched {
        pairs: left.iter().enumerate().filter_map(pair).collect(),
        only_a: left.iter().enumerate().filter(|(n, _)| partner[*n].is_none()).map(|(_, r)| name(r.run)).collect(),
        only_b: right.iter().enumerate().filter(|(m, _)| !taken[*m]).map(|(_, r)| name(r.run)).collect(),
    }
}

fn figures(run: &Run) -> Figures {
    let values = sampling::values(run);
    let known = values.len() == run.repeats.len();
    Figures {
        median: run.median().filter(|m| m.is_finite()),
        spread: run.spread().filter(|_| known && values.len() > 1),
        repeats: run.repeats.len(),
        values,
        p99_us: median_p99_us(run),
    }
}

/// The ratio, as far as moments within the repeats leave it open.
fn within(ratio: f64, a: &[Vec<f64>], b: &[Vec<f64>]) -> Option<[f64; 2]> {
    let mean_of = |drawn: &[Vec<f64>]| -> Option<Vec<f64>> {
        let first = drawn.first()?;
        Some((0..first.len()).map(|n| drawn.iter().map(|d| d[n]).sum::<f64>() / drawn.len() as f64).collect())
    };
    let (a, b) = (mean_of(a)?, mean_of(b)?);
    stats::middle(a.iter().zip(&b).map(|(a, b)| ratio * b / a).collect())
}

/// One row, and for a mixed workload one more for its reads and one for its writes.
pub(super) fn rows(a: &Run, b: &Run, whole: &[Difference]) -> Vec<Row> {
    let mut found = vec![row(a, b, whole)];
    for ((name, a), (other, b)) in a.sides().iter().zip(&b.sides()) {
        if name == other {
            let one = row(a, b, whole);
            found.push(Row { workload: format!("{}, {name}", one.workload), ..one });
        }
    }
    found
}

/// Everything but the verdict, which needs all rows.
fn row(a: &Run, b: &Run, whole: &[Difference]) -> Row {
    let mut random = Random::new(SEED);
    let (fa, fb) = (figures(a), figures(b));
    let (drawn_a, drawn_b) = (resampled(a, &mut random), resampled(b, &mut random));
    let ratio = fa.median.zip(fb.median).filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| b / a);
    let welch = stats::welch(&sampled(&fa.values, &drawn_a), &sampled(&fb.values, &drawn_b));
    let mut differences = differ::runs(a, b);
    differences.extend(whole.iter().filter(|d| d.effect == Effect::OtherBox).cloned());
    Row {
        layer: a.layer,
        subject_a: words::clean(&a.subject),
        subject_b: words::clean(&b.subject),
        access: words::clean(&a.access),
        variant: variant(a, b),
        workload: words::workload(&a.workload),
        unit: if a.workload.kind.counts_operations() { "operations/s" } else { "bytes/s" },
        ratio,
        interval: welch.map(|w| w.interval),
        interval_within: ratio.and_then(|r| within(r, &drawn_a, &drawn_b)),
        p: welch.map(|w| w.p),
        p_adjusted: None,
        verdict: Verdict::CannotTell,
        why: String::new(),
        comparable: differences.iter().all(|d| d.effect == Effect::Mentioned),
        differences,
        a: fa,
        b: fb,
    }
}

/// Adjusts for the number of rows, then says what each proves.
pub(super) fn judge(rows: &mut [Row]) {
    let has_verdict = |row: &Row| row.differences.iter().all(|d| d.effect != Effect::OtherMethod);
    let tested: Vec<usize> = (0..rows.len()).filter(|n| has_verdict(&rows[*n]) && rows[*n].p.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|n| rows[*n].p).collect();
    for (n, adjusted) in tested.into_iter().zip(stats::adjusted(&p)) {
        rows[n].p_adjusted = Some(adjusted);
    }
    for row in rows {
        (row.verdict, row.why) = verdict(row);
    }
}

fn verdict(row: &Row) -> (Verdict, String) {
    let other: Vec<String> = row
        .differences
        .iter()
        .filter(|d| d.effect == Effect::OtherMethod)
        .map(|d| {
            if d.a == d.b { format!("{}: {} in both", d.what, d.a) } else { format!("{}: {} and {}", d.what, d.a, d.b) }
        })
        .collect();
    if !other.is_empty() {
        return (Verdict::NotComparable, other.join("; "));
    }
    let repeats = row.a.values.len().min(row.b.values.len());
    let cannot = |why: String| (Verdict::CannotTell, why);
    if repeats == 0 {
        return cannot("one of them has no repeat with a rate".to_owned());
    }
    let (Some(interval), Some(p)) = (row.interval, row.p_adjusted) else {
        let within =
            row.interval_within.map(|[low, high]| format!(" (within the repeats {} to {})", ratio(low), ratio(high)));
        return cannot(format!(
            "cannot tell with 1 repeat: how much repeats differ is not known{}",
            within.unwrap_or_default()
        ));
    };
    let range = format!("{} to {}", ratio(interval[0]), ratio(interval[1]));
    let (excluded, slight) = (stats::excludes_none(interval), row.ratio.is_some_and(stats::is_slight));
    if p <= CHANCE && excluded && !slight {
        let verdict = if interval[0] > 1.0 { Verdict::Faster } else { Verdict::Slower };
        return (verdict, format!("{range}, p = {}", chance(p)));
    }
    if slight && (excluded || interval[0] >= 1.0 - SAME_WITHIN && interval[1] <= 1.0 + SAME_WITHIN) {
        return (Verdict::Same, format!("{range}: no difference of 5 % or more"));
    }
    cannot(match excluded {
        true => format!("cannot tell among so many rows: {range}, p = {}", chance(p)),
        false => format!("cannot tell with {repeats} repeats: {range}"),
    })
}

fn chance(p: f64) -> String {
    if p < 0.001 { "less than 0.001".to_owned() } else { format!("{p:.3}") }
}
