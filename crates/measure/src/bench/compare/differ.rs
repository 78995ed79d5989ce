//! Differences in words.

use std::collections::{BTreeMap, BTreeSet};

use super::comparison::{Difference, Effect};
use crate::bench::before::DISTURBANCES;
use crate::bench::result::{BenchResult, Caches, Kind, Run};
use crate::bench::show::{size, words};

fn difference(what: &str, a: &str, b: &str, effect: Effect) -> Option<Difference> {
    let (a, b) = (words::clean(a), words::clean(b));
    (a != b).then(|| Difference { what: what.to_owned(), a, b, effect })
}

/// Between the results as wholes. Another processor, memory or kernel is another box, even under the same name.
pub(super) fn results(a: &BenchResult, b: &BenchResult) -> Vec<Difference> {
    use Effect::{Mentioned, OtherBox};
    let (ma, mb) = (&a.machine, &b.machine);
    let found = [
        difference("host", &ma.host, &mb.host, Mentioned),
        difference("machine", &ma.model, &mb.model, OtherBox),
        difference("processor", &ma.processor, &mb.processor, OtherBox),
        difference("cores", &ma.cores.to_string(), &mb.cores.to_string(), OtherBox),
        memory(ma.memory_bytes, mb.memory_bytes),
        difference("kernel", &ma.kernel, &mb.kernel, OtherBox),
        difference("larder", &a.larder, &b.larder, Mentioned),
        difference("preset", &a.preset, &b.preset, Mentioned),
        difference("interrupted", yes(a.interrupted), yes(b.interrupted), Mentioned),
        difference("disturbed", &disturbances(a), &disturbances(b), Mentioned),
    ];
    found.into_iter().flatten().collect()
}

/// A disturbance that lasts for a whole bench does not show in its repeats, only beside another bench.
pub(super) fn disturbances(result: &BenchResult) -> String {
    let known = DISTURBANCES.iter().filter(|code| result.notes.iter().any(|note| note.code == **code));
    let codes: Vec<&str> = known.copied().collect();
    if codes.is_empty() { "no".to_owned() } else { codes.join(", ") }
}

/// Firmware takes a little of it, now more, now less.
fn memory(a: u64, b: u64) -> Option<Difference> {
    let apart = a.abs_diff(b) as f64 / a.max(b).max(1) as f64;
    difference("memory", &size(a as f64), &size(b as f64), Effect::OtherBox).filter(|_| apart > 0.02)
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// Between two runs of the same kind.
pub(super) fn runs(a: &Run, b: &Run) -> Vec<Difference> {
    use Effect::{Mentioned, OtherMethod};
    let (wa, wb) = (&a.workload, &b.workload);
    let found = [
        difference("block size", &size(wa.block_bytes as f64), &size(wb.block_bytes as f64), OtherMethod),
        difference("requests in flight", &flight(a), &flight(b), OtherMethod),
        difference("caches", words::caches(wa.caches), words::caches(wb.caches), OtherMethod),
        difference("compressible data", yes(wa.compressible), yes(wb.compressible), OtherMethod),
        difference("flushed at the end", yes(wa.synced), yes(wb.synced), OtherMethod),
        data(a, b),
        files(a, b),
        difference(
            "made by",
            &a.with,
            &b.with,
            if program(&a.with) == program(&b.with) { Mentioned } else { OtherMethod },
        ),
        difference("misleading", &misleading(a), &misleading(b), OtherMethod),
        both_misleading(a, b),
    ];
    let properties = properties(a, b).filter_map(|(key, a, b)| {
        let [a, b] = [a, b].map(|value| value.map_or("-", String::as_str));
        difference(&words::clean(key), a, b, Mentioned)
    });
    found.into_iter().flatten().chain(properties).collect()
}

fn flight(run: &Run) -> String {
    format!("{} of each of {}", run.workload.depth, run.workload.jobs)
}

/// The amount of data matters where caches play a part.
fn data(a: &Run, b: &Run) -> Option<Difference> {
    let (da, db) = (a.workload.data_bytes, b.workload.data_bytes);
    let apart = da.max(db) as f64 / da.min(db).max(1) as f64;
    let safe = a.workload.caches == Caches::Bypassed && apart < 2.0;
    let effect = if safe { Effect::Mentioned } else { Effect::OtherMethod };
    difference("amount of data", &size(da as f64), &size(db as f64), effect).filter(|_| apart > 1.05)
}

/// A few files more or less are the same method; of bulk transfers their number is of no interest.
fn files(a: &Run, b: &Run) -> Option<Difference> {
    let (fa, fb) = (a.workload.files, b.workload.files);
    let counted =
        a.workload.kind.counts_operations() || matches!(a.workload.kind, Kind::CopyTreeIn | Kind::CopyTreeOut);
    let apart = fa.max(fb) as f64 / fa.min(fb).max(1) as f64;
    difference("files", &fa.to_string(), &fb.to_string(), Effect::OtherMethod).filter(|_| counted && apart > 1.05)
}

/// Without its version.
fn program(with: &str) -> &str {
    with.split_whitespace().next().unwrap_or("")
}

fn misleading(run: &Run) -> String {
    let mut codes: Vec<&str> = run.notes.iter().filter(|n| n.misleading).map(|n| n.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    if codes.is_empty() { "no".to_owned() } else { codes.join(", ") }
}

/// The same mistake twice is no method either.
fn both_misleading(a: &Run, b: &Run) -> Option<Difference> {
    let (a, b) = (misleading(a), misleading(b));
    (a == b && a != "no").then(|| Difference { what: "misleading".to_owned(), a, b, effect: Effect::OtherMethod })
}

/// Each property of either, with its two values. What only says the subject again is none.
pub(super) fn properties<'a>(
    a: &'a Run,
    b: &'a Run,
) -> impl Iterator<Item = (&'a String, Option<&'a String>, Option<&'a String>)> {
    let (a, b): (BTreeMap<_, _>, BTreeMap<_, _>) = (words::told_variant(a).collect(), words::told_variant(b).collect());
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).copied().collect();
    keys.into_iter().map(move |key| (key, a.get(key).copied(), b.get(key).copied()))
}
