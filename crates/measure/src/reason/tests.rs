//! The reasoning held against the answers that were frozen, and against what physics says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::contrast::contrasts;
use super::remedies::REMEDIES;
use super::*;
use crate::boxes;
use crate::describe::Described;
use crate::doctor::from_bench;
use crate::fixture::Fixture;
use larder_facts::reading::{ReadOptions, Reading};

mod contrasts;
mod properties;
mod twins;

/// A box seen as the rig and the table of measurements.
struct Boxed {
    name: String,
    described: Described,
    table: Table,
}

impl Boxed {
    fn new(name: &str, described: Described) -> Self {
        let table = Table::of(&described);
        Self { name: name.to_owned(), described, table }
    }

    fn parse(text: &str) -> Self {
        Self::new("box", Described::parse(text).unwrap())
    }

    fn rig(&self) -> Rig<'_> {
        Rig::new(&self.described)
    }

    fn verdict(&self, row: usize) -> Verdict {
        judge(self.rig(), &self.table, row).unwrap()
    }

    fn kind(&self, row: usize) -> &'static str {
        let verdict = self.verdict(row);
        match (verdict.evidence, verdict.resource.map(|id| self.rig().kind(id))) {
            (Evidence::Contradiction { .. } | Evidence::Misfit(_), _) => "asked",
            (Evidence::Doubtful, _) => "doubtful",
            (_, None) => "unexplained",
            (_, Some(ResourceKind::Disks)) => "disks",
            (_, Some(ResourceKind::Link)) => "link",
            (_, Some(ResourceKind::Network)) => "network",
            (_, Some(ResourceKind::Waiting)) => "waiting",
            (_, Some(ResourceKind::Processor)) => "processor",
            (_, Some(ResourceKind::Client)) => "client",
            (_, Some(ResourceKind::BothEnds)) => "both-ends",
        }
    }

    fn first_fix(&self) -> Option<Fix> {
        self.fixes().into_iter().next()
    }

    fn fixes(&self) -> Vec<Fix> {
        let rows = 0..self.table.rows.len();
        if rows.clone().any(|row| self.kind(row) == "asked") {
            return Vec::new();
        }
        let verdicts: Vec<Verdict> = rows.map(|row| self.verdict(row)).collect();
        let rows = asked_about(&self.table, &verdicts, self.described.of_bench).into_iter();
        let mut all: Vec<Fix> = rows.flat_map(|row| fixes(self.rig(), &self.table, row, &self.verdict(row))).collect();
        remedies::sort(&mut all);
        all
    }
}

/// Every box, and every result of a bench.
fn all() -> Vec<Boxed> {
    let described = boxes::all().into_iter().map(|(name, text)| Boxed::new(name, Described::parse(&text).unwrap()));
    let fixture = Fixture::new(include_str!("../../../facts/fixtures/virtual-machine.txt"));
    let reading = Reading::of(&fixture.machine, ReadOptions { smart: false, watch: Duration::ZERO });
    let result = |(name, result): (String, crate::bench::BenchResult)| {
        let host = &result.machine.host;
        let here = host.is_empty() || *host == reading.host.name;
        let described = from_bench::described(&result, here.then_some(&reading), &fixture.machine);
        Boxed::new(&format!("result-{name}"), described)
    };
    described.chain(boxes::results().into_iter().map(result)).collect()
}

fn fixture(file: &str) -> String {
    std::fs::read_to_string(format!("{}/fixtures/boxes/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Lines of `box, row, ...` by box and row.
fn lines(file: &str) -> BTreeMap<(String, String), Vec<String>> {
    let text = fixture(file);
    let fields = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').map(str::to_owned));
    fields.filter_map(|mut fields| Some(((fields.next()?, fields.next()?), fields.collect::<Vec<_>>()))).collect()
}

/// Right, partly right (not explained, with what to measure next) and wrong, of boxes whose answer was written first.
fn of_written() -> [u32; 3] {
    let mut score = [0; 3];
    for (name, expected, text) in boxes::written() {
        let one = Boxed::new(name, Described::parse(text).unwrap());
        let verdicts: Vec<Verdict> = (0..one.table.rows.len()).map(|row| one.verdict(row)).collect();
        let kinds: Vec<&str> = (0..verdicts.len()).map(|row| one.kind(row)).collect();
        let asked = asked_about(&one.table, &verdicts, false);
        let slowest = asked.into_iter().min_by(|a, b| {
            let bytes = |row: &usize| one.table.rows[*row].bytes_per_s();
            bytes(a).total_cmp(&bytes(b))
        });
        let kind = if kinds.contains(&"asked") { "asked" } else { slowest.map_or("nothing", |row| kinds[row]) };
        let place = match kind {
            kind if kind == expected => 0,
            "unexplained" => 1,
            _ => 2,
        };
        if place > 0 {
            println!("{name}: {kind} instead of {expected}: {:?}", slowest.map(|row| &verdicts[row].evidence));
        }
        score[place] += 1;
    }
    score
}

/// Nine of ten boxes whose answer was written down before the doctor was asked are right.
#[test]
fn boxes_whose_answer_was_written_first_are_right() {
    let [right, partly, wrong] = of_written();
    println!("written first: {right} right, {partly} partly, {wrong} wrong");
    assert!(right * 10 >= (right + partly + wrong) * 9, "{right} right, {partly} partly, {wrong} wrong");
}

/// Every difference from the frozen answers is accepted by name, with its reason; nothing else differs.
#[test]
fn every_difference_from_the_frozen_answers_is_accepted() {
    let (frozen, accepted) = (lines("frozen.tsv"), lines("accepted.tsv"));
    let mut differ: BTreeSet<(String, String)> = BTreeSet::new();
    let mut new = Vec::new();
    // Boxes seen and held back: as frozen, different with a reason, different without one.
    let mut score = [[0; 3]; 2];
    for one in all() {
        let mut places = vec![0];
        let mut compare = |row: &str, same: bool, was: &str, now: String| {
            let key = (one.name.clone(), row.to_owned());
            let accepted = accepted.contains_key(&key);
            if !same && !accepted {
                new.push(format!("{}\t{row}\twas {was}, is {now}", one.name));
            }
            if !same {
                places.push(if accepted { 1 } else { 2 });
                differ.insert(key);
            }
        };
        for row in 0..one.table.rows.len() {
            let was = &frozen[&(one.name.clone(), row.to_string())][0];
            let (now, verdict) = (one.kind(row), one.verdict(row));
            let told = format!("{now}: {:?} {:?}", verdict.resource, verdict.evidence);
            compare(&row.to_string(), now == was.as_str(), was, told);
        }
        if !one.name.starts_with("result-") {
            let was = &frozen[&(one.name.clone(), "fix".to_owned())];
            let fix = one.first_fix();
            let same = match (&fix, was[1].parse::<f64>()) {
                (Some(fix), Ok(rate)) => (fix.rate_after / rate - 1.0).abs() < 0.02,
                (None, Err(_)) => true,
                _ => false,
            };
            let now = fix.map(|fix| (fix.remedy, fix.rate_after, fix.then));
            compare("fix", same, &format!("{} {}", was[1], was[2]), format!("{now:?}"));
        }
        let place = places.into_iter().max().unwrap_or(0);
        score[usize::from(boxes::is_held_back(&one.name))][place] += 1;
    }
    println!("{:<32}{:>6}{:>8}{:>7}", "BOXES", "RIGHT", "PARTLY", "WRONG");
    for (part, [right, partly, wrong]) in [
        ("seen, as they were answered", score[0]),
        ("held back, as they were answered", score[1]),
        ("answer written before asking", of_written()),
    ] {
        println!("{part:<32}{right:>6}{partly:>8}{wrong:>7}");
    }
    let stale: Vec<_> = accepted.keys().filter(|key| !differ.contains(key)).collect();
    assert!(new.is_empty() && stale.is_empty(), "not accepted:\n{}\nno longer different: {stale:?}", new.join("\n"));
}
