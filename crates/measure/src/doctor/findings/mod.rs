//! What follows from a [`Reading`]: rules, each with its reason and where that comes from, what it costs, and the fix.
//!
//! `RULES` is the table. A rule is a pure function from facts to what it noticed; `processor.rs`, `wires.rs`, `storage.rs` and
//! `network.rs` have them by subject. Fixes that only write to files in /sys and /proc are [`Change`]s: they hold until
//! the next start, and what was there before is known, so they can be taken back (`fix.rs`).

use serde::{Deserialize, Serialize};

use larder_facts::disk::{DiskReport, Level};
use larder_facts::reading::Reading;

mod network;
mod processor;
mod storage;
mod wires;

/// A file in /sys or /proc, and what to write to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub file: String,
    pub value: String,
}

/// What was noticed about one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// Stable, for scripts: the rule's.
    pub code: &'static str,
    pub level: Level,
    pub what: String,
    /// The disks and cards that it is about, as the kernel names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    pub why: String,
    /// Who says so.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub source: &'static str,
    /// What would be gained at most: MB/s and percent, where that can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Safe and reversible: `doctor --fix` offers them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

/// At most; what a whole way gains ends at the next limit on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    pub mb_per_s: Option<f64>,
    pub percent: f64,
    /// Completes "by ...".
    pub rests_on: &'static str,
}

impl Gain {
    /// From one rate to another, in bytes per second.
    fn between(now: f64, best: f64) -> Option<Self> {
        (best > now * 1.02 && now > 0.0).then(|| Self {
            mb_per_s: Some((best - now) / 1e6),
            percent: (best / now - 1.0) * 100.0,
            rests_on: "what that wire carries",
        })
    }

    /// What others gained by it: nobody has measured it here.
    fn thumb(percent: f64) -> Option<Self> {
        Self::by(percent, "a rule of thumb")
    }

    /// Computed from what was read.
    fn by(percent: f64, rests_on: &'static str) -> Option<Self> {
        Some(Self { mb_per_s: None, percent, rests_on })
    }
}

/// What a rule noticed: everything that differs from case to case.
struct Noticed {
    what: String,
    devices: Vec<String>,
    gain: Option<Gain>,
    action: String,
    changes: Vec<Change>,
}

fn noticed(what: impl Into<String>, action: impl Into<String>) -> Noticed {
    Noticed { what: what.into(), devices: Vec::new(), gain: None, action: action.into(), changes: Vec::new() }
}

impl Noticed {
    fn on(mut self, device: &str) -> Self {
        self.devices.push(device.to_owned());
        self
    }

    fn gain(mut self, gain: Option<Gain>) -> Self {
        self.gain = gain;
        self
    }

    fn write(mut self, file: impl Into<String>, value: impl Into<String>) -> Self {
        self.changes.push(Change { file: file.into(), value: value.into() });
        self
    }
}

struct Rule {
    code: &'static str,
    level: Level,
    why: &'static str,
    source: &'static str,
    test: fn(&Reading) -> Vec<Noticed>,
}

const RULES: &[&[Rule]] = &[wires::RULES, storage::RULES, processor::RULES, network::RULES];

/// What comes before all that is merely slow.
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

/// What `disk check` says of single disks, less what only matters to a pool that is to be made, and what was `said`.
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

/// What is said of two disks is said of each in the face of the other.
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
