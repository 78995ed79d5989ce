//! The reasoning held against the answers that were frozen, and against what physics says.

use std::collections::BTreeMap;

use super::*;
use crate::boxes;
use crate::doctor::describe::Described;

/// Box and row, and the kind of the resource that was named.
fn frozen() -> BTreeMap<(String, usize), String> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (name, row, kind) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
        Some(((name.to_owned(), row), kind.to_owned()))
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/boxes/frozen.tsv");
    std::fs::read_to_string(path).unwrap().lines().filter_map(line).collect()
}

fn kind(rig: Rig, verdict: &Verdict) -> &'static str {
    match (verdict.evidence, verdict.resource.map(|id| rig.kind(id))) {
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

/// The resource of every row of every box: how many are as they were frozen. `LARDER_SHOW=1` lists the differences.
#[test]
fn resources_are_those_that_were_frozen() {
    let frozen = frozen();
    let show = std::env::var_os("LARDER_SHOW").is_some();
    let mut score: BTreeMap<(bool, &str), (u32, u32)> = BTreeMap::new();
    for (name, text) in boxes::all() {
        let described = Described::parse(&text).unwrap();
        let (rig, table) = (Rig::new(&described), Table::of(&described));
        for at in 0..table.rows.len() {
            let verdict = judge(rig, &table, at).unwrap();
            let Some(was) = frozen.get(&(name.to_owned(), at)) else { panic!("{name} {at}") };
            let now = kind(rig, &verdict);
            let held_back = boxes::is_held_back(name);
            let part = score.entry((held_back, name.split('-').next().unwrap())).or_default();
            part.1 += 1;
            part.0 += u32::from(now == *was);
            if now != *was && show && !held_back {
                println!("{name} {at}: was {was}, is {now}: {:?} {:?}", verdict.resource, verdict.evidence);
            }
        }
    }
    for held_back in [false, true] {
        let parts = || score.iter().filter(|((held, _), _)| *held == held_back);
        let (right, all) = parts().fold((0, 0), |sum, (_, part)| (sum.0 + part.0, sum.1 + part.1));
        println!("{}: {right} of {all}", if held_back { "held back" } else { "seen" });
        for ((_, group), (right, all)) in parts() {
            println!("  {group}: {right} of {all}");
        }
    }
}
