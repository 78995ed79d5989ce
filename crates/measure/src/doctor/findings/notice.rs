//! Rules, and the notices that they give.

use serde::{Deserialize, Serialize};

use larder_facts::disk::Level;
use larder_facts::reading::Reading;

/// A file in /sys or /proc, and what to write to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub file: String,
    pub value: String,
}

/// A remark about one thing.
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
    /// The authority for the reason.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub source: &'static str,
    /// The gain at most: MB/s and percent, where that can be said.
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
    pub(super) fn between(now: f64, best: f64) -> Option<Self> {
        (best > now * 1.02 && now > 0.0).then(|| Self {
            mb_per_s: Some((best - now) / 1e6),
            percent: (best / now - 1.0) * 100.0,
            rests_on: "what that wire carries",
        })
    }

    /// The gain that others had: nobody has measured it here.
    pub(super) fn thumb(percent: f64) -> Option<Self> {
        Self::by(percent, "a rule of thumb")
    }

    /// Computed from what was read.
    pub(super) fn by(percent: f64, rests_on: &'static str) -> Option<Self> {
        Some(Self { mb_per_s: None, percent, rests_on })
    }
}

/// One case of a rule: everything that differs from case to case.
pub(super) struct Noticed {
    pub(super) what: String,
    pub(super) devices: Vec<String>,
    pub(super) gain: Option<Gain>,
    pub(super) action: String,
    pub(super) changes: Vec<Change>,
}

pub(super) fn noticed(what: impl Into<String>, action: impl Into<String>) -> Noticed {
    Noticed { what: what.into(), devices: Vec::new(), gain: None, action: action.into(), changes: Vec::new() }
}

impl Noticed {
    pub(super) fn on(mut self, device: &str) -> Self {
        self.devices.push(device.to_owned());
        self
    }

    pub(super) fn gain(mut self, gain: Option<Gain>) -> Self {
        self.gain = gain;
        self
    }

    pub(super) fn write(mut self, file: impl Into<String>, value: impl Into<String>) -> Self {
        self.changes.push(Change { file: file.into(), value: value.into() });
        self
    }
}

pub(super) struct Rule {
    pub(super) code: &'static str,
    pub(super) level: Level,
    pub(super) why: &'static str,
    pub(super) source: &'static str,
    pub(super) test: fn(&Reading) -> Vec<Noticed>,
}
