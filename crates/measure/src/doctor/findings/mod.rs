//! What follows from a [`Reading`]: rules, each with its reason and where that comes from, what it costs, and the fix.
//!
//! `RULES` is the table. A rule is a pure function from facts to what it noticed; `processor.rs`, `wires.rs`, `storage.rs` and
//! `network.rs` have them by subject. Fixes that only write to files in /sys and /proc are [`Change`]s: they hold until
//! the next start, and what was there before is known, so they can be taken back (`fix.rs`).

use serde::{Deserialize, Serialize};

use super::reading::Reading;
use crate::disk::Level;

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
    gain: Option<Gain>,
    action: String,
    changes: Vec<Change>,
}

fn noticed(what: impl Into<String>, action: impl Into<String>) -> Noticed {
    Noticed { what: what.into(), gain: None, action: action.into(), changes: Vec::new() }
}

impl Noticed {
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

/// The worst and then the most promising first.
pub fn notices(reading: &Reading) -> Vec<Notice> {
    let mut all: Vec<Notice> =
        RULES.iter().flat_map(|rules| rules.iter()).flat_map(|rule| apply(rule, reading)).collect();
    all.extend(of_disks(reading));
    let gain = |n: &Notice| n.gain.map_or(0.0, |g| g.percent);
    all.sort_by(|a, b| b.level.cmp(&a.level).then(gain(b).total_cmp(&gain(a))));
    all
}

fn apply(rule: &Rule, reading: &Reading) -> Vec<Notice> {
    let all = (rule.test)(reading).into_iter();
    all.map(|n| Notice {
        code: rule.code,
        level: rule.level,
        what: n.what,
        why: rule.why.to_owned(),
        source: rule.source,
        gain: n.gain,
        action: Some(n.action).filter(|a| !a.is_empty()),
        changes: n.changes,
    })
    .collect()
}

/// What `disk check` says of single disks, less what only matters to a pool that is to be made.
fn of_disks(reading: &Reading) -> Vec<Notice> {
    const OF_POOLS: [&str; 3] = ["in-use", "system-disk", "missing"];
    const OF_WAYS: [&str; 4] = ["link-slow", "same-wire", "usb-bot", "usb-hub"];
    let findings = reading.disks.iter().flat_map(|d| &d.findings);
    let worth = findings.filter(|f| f.level > Level::Ok && !OF_POOLS.contains(&f.code));
    // Links are said more precisely by the rules about the whole way.
    let worth = worth.filter(|f| !OF_WAYS.contains(&f.code));
    worth
        .map(|f| Notice {
            code: f.code,
            level: f.level.min(Level::Warning),
            what: f.what.clone(),
            why: f.why.clone(),
            source: "larder disk check",
            gain: None,
            action: f.action.clone(),
            changes: Vec::new(),
        })
        .collect()
}
