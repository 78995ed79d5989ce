//! The log, power, the doctor and kept benches: answers for people who look after a box.

use serde::{Deserialize, Serialize};

use crate::SnapshotCounts;

/// How grave a line of the log is, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogLevel {
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogLine {
    pub at_ms: u64,
    pub level: LogLevel,
    pub text: String,
}

/// The newest lines of the log since the daemon began, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogKept {
    pub lines: Vec<LogLine>,
    /// Older ones that are not kept any more.
    pub dropped: u64,
}

/// A report: its data as the command gives them with `--json`, and the text that it prints of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    #[serde(default)]
    pub data: serde_json::Value,
    pub text: String,
}

/// What limits the box, as `larder doctor --now` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DoctorReport {
    /// One sentence.
    pub verdict: String,
    pub text: String,
    /// The chain of each measurement: `larder doctor --why`.
    pub why: String,
    /// As `larder doctor --now --json` gives them.
    #[serde(default)]
    pub data: serde_json::Value,
}

/// A result of a bench in the data folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchKept {
    pub id: String,
    pub title: String,
    pub preset: String,
    pub started_ms: u64,
    pub seconds: f64,
    pub runs: u64,
    /// It was stopped: the result is not whole.
    pub interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchCompare {
    pub a: String,
    pub b: String,
}

/// What the box draws now, and costs in a year.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerStatus {
    /// The whole machine. Absent: nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<PowerReading>,
    /// Each source.
    pub readings: Vec<PowerReading>,
    /// Meters that do not answer, and what to do.
    pub faults: Vec<PowerFault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<PowerYear>,
    /// Why there is no year.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year_fault: Option<PowerFault>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerReading {
    pub source: String,
    /// The measured thing, in words.
    pub of: String,
    /// measured, typed in, estimated.
    pub basis: String,
    pub watts: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerFault {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// A year of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerYear {
    /// Where the watts come from, in words.
    pub basis: String,
    pub estimated: bool,
    pub currency: String,
    /// Averaged over the week.
    pub price_per_kwh: f64,
    pub load_hours_per_day: f64,
    pub idle: PowerCost,
    pub load: PowerCost,
    /// With so many hours of load a day.
    pub used: PowerCost,
    /// Of 10^12 usable bytes, idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts_per_tb: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerCost {
    pub watts: f64,
    pub kwh: f64,
    pub cost: f64,
}

/// Settings of a job against each other, each as NAME=WATTS:TIME.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhatIfRequest {
    pub settings: Vec<String>,
    /// Bytes that the job reads or writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How often it is done in a year; 12 when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_year: Option<f64>,
}

/// A schedule of automatic snapshots for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotScheduleSet {
    /// NAME or POOL/NAME.
    pub volume: String,
    /// Absent: none is taken any more; those that are there stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<SnapshotCounts>,
}

/// How often a pool is scrubbed by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScrubSchedule {
    pub pool: String,
    /// off, daily, weekly, monthly, quarterly.
    pub schedule: String,
}
