//! Conclusions from a [`Reading`]: rules, each with its reason and the source of that reason, its cost, and the fix.
//!
//! `RULES` is the table. A rule is a pure function from facts to notices; `processor.rs`, `wires.rs`, `storage.rs` and
//! `network.rs` have them by subject. Fixes that only write to files in /sys and /proc are [`Change`]s: they hold until
//! the next start, and the old values are known, so they can be taken back (`fix.rs`).

use larder_facts::disk::{DiskReport, Level};
use larder_facts::reading::Reading;

mod network;
mod notice;
mod processor;
mod storage;
mod wires;

use notice::Rule;
pub use notice::{Change, Gain, Notice};

const RULES: &[&[Rule]] = &[wires::RULES, storage::RULES, processor::RULES, network::RULES];

/// The code of failing disks, which come before everything that is merely slow.
pub(super) const FAILING: &str = "failing";

/// The worst and then the most promising first, each once.
pub fn notices(reading: &Reading) -> Vec<Notice> {
    let mut all: Vec<Notice> =
        RULES.iter().flat_map(|rules| rules.iter()).flat_map(|rule| apply(rule, reading)).collect();
    let checked = of_disks(reading, &all);
    all.extend(checked);
    let gain = |n: &Notice| n.gain.map_or(0.0, |g| g.percent);
    let rank = |n: &Notice| (n.code == FAILING, n.level);
    all.sort_by(|a, b| rank(b).cmp(&rank(a)).then(gain(b).total_cmp(&gain(a))));
    let mut once: Vec<Notice> = Vec::new();
    for notice in all {
        if !once.iter().any(|n| n.code == notice.code && n.what == notice.what) {
            once.push(notice);
        }
    }
    once
}

fn apply(rule: &Rule, reading: &Reading) -> Vec<Notice> {
    let all = (rule.test)(reading).into_iter();
    all.map(|n| Notice {
        code: rule.code,
        level: rule.level,
        what: n.what,
        devices: n.devices,
        why: rule.why.to_owned(),
        source: rule.source,
        gain: n.gain,
        action: Some(n.action).filter(|a| !a.is_empty()),
        changes: n.changes,
    })
    .collect()
}

/// The findings of `disk check` on single disks, without those that concern only a new pool, and those already `said`.
fn of_disks(reading: &Reading, said: &[Notice]) -> Vec<Notice> {
    const OF_POOLS: [&str; 3] = ["in-use", "system-disk", "missing"];
    const SAID_BETTER: [&str; 5] = ["link-slow", "same-wire", "usb-bot", "usb-hub", "hot"];
    let findings = reading.disks.iter().flat_map(|disk| disk.findings.iter().map(move |finding| (disk, finding)));
    let worth = findings.filter(|(_, f)| f.level > Level::Ok && !OF_POOLS.contains(&f.code));
    // Links and heat are said more precisely by the rules about the whole way.
    let worth = worth.filter(|(_, f)| !SAID_BETTER.contains(&f.code));
    let worth = worth.filter(|(disk, f)| f.code != "usb-slow" || !is_said(said, "usb-below-best", disk));
    let mut pairs: Vec<(&str, Vec<&str>)> = Vec::new();
    worth
        .filter(|(_, f)| {
            let pair = (f.code, drives_in(reading, &f.what));
            let new = pair.1.len() < 2 || !pairs.contains(&pair);
            pairs.push(pair);
            new
        })
        .map(|(disk, f)| Notice {
            code: f.code,
            level: f.level.min(Level::Warning),
            what: with_subject(disk, &f.what),
            devices: disk.devices.iter().map(|one| one.device.name.clone()).collect(),
            why: f.why.clone(),
            source: "larder disk check",
            gain: None,
            action: f.action.clone(),
            changes: Vec::new(),
        })
        .collect()
}

fn title(disk: &DiskReport) -> String {
    disk.devices.first().map_or_else(|| disk.given.display().to_string(), |one| one.device.title())
}

fn is_said(said: &[Notice], code: &str, disk: &DiskReport) -> bool {
    let named = |n: &&Notice| disk.devices.iter().any(|one| n.devices.contains(&one.device.name));
    said.iter().filter(|n| n.code == code).any(|n| named(&n))
}

/// The drives that a text names. A finding about two disks comes once for each.
fn drives_in<'a>(reading: &'a Reading, text: &str) -> Vec<&'a str> {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).collect::<Vec<_>>();
    words.sort_unstable();
    let named = reading.drives.iter().filter(|d| words.binary_search(&d.name.as_str()).is_ok());
    named.map(|d| d.name.as_str()).collect()
}

/// Beside its own disk a finding may say `it`; in a list of all of them nobody knows which.
fn with_subject(disk: &DiskReport, what: &str) -> String {
    what.strip_prefix("it ").map_or_else(|| what.to_owned(), |rest| format!("{} {rest}", title(disk)))
}
