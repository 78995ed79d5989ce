//! Alerts, the audit log, and the health of disks: requests and answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An alert: something that is the case, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertStatus {
    /// By which it is acknowledged and silenced.
    pub id: u64,
    /// As docs/alerts.md lists them.
    pub event: String,
    pub subject: String,
    /// info, warning, critical.
    pub severity: String,
    pub text: String,
    /// What to do.
    pub action: String,
    pub since_ms: u64,
    /// When it was over; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    #[serde(default)]
    pub acknowledged: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_until_ms: Option<u64>,
}

/// A receiver of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertReceiver {
    pub name: String,
    /// webhook, ntfy, mail, command, ping.
    pub kind: String,
    /// Messages that wait for it.
    pub waiting: u64,
    /// The last time that it took one, since larder was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_ms: Option<u64>,
    /// Why it does not take the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Messages that were dropped since larder was started, because it refused them for good.
    #[serde(default)]
    pub given_up: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertsStatus {
    /// The worst first.
    pub open: Vec<AlertStatus>,
    /// Those that are over, the last first.
    pub past: Vec<AlertStatus>,
    pub receivers: Vec<AlertReceiver>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum AlertChange {
    /// No more reminders of it.
    Acknowledge { id: u64 },
    /// Nothing is told of it for so long.
    Silence { id: u64, seconds: u64 },
    /// Vouches for the client that it is about: it may write again, and the alert is over.
    Release { id: u64 },
}

/// The files that lost data, now and before, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamageKept {
    pub entries: Vec<DamageEntry>,
    /// Older ones that are not kept.
    pub left_out: u64,
}

/// A file, or an object of metadata, that lost data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamageEntry {
    /// `pool/volume`.
    pub place: String,
    /// Its names then; none for metadata, and for a file that was removed already.
    pub paths: Vec<String>,
    /// `inode 17`, or `metadata` and the object.
    pub id: String,
    /// That no redundancy gave back.
    pub bytes: u64,
    pub since_ms: u64,
    /// When it was restored or removed. Absent: it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// The battery behind the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpsStatus {
    pub name: String,
    pub model: Option<String>,
    /// The last answer, in words. Absent: there was none yet.
    pub says: Option<String>,
    pub on_battery: bool,
    pub on_battery_seconds: Option<u64>,
    pub charge_percent: Option<u32>,
    pub runtime_seconds: Option<u64>,
    /// When larder stops.
    pub plan: String,
    /// Why it cannot be asked, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Whether a test message was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertTested {
    pub name: String,
    pub kind: String,
    /// Absent: it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Which records of the audit log are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AuditQuery {
    pub since_ms: u64,
    /// Those behind this number: an answer has 10,000 at most.
    pub after_number: u64,
    /// So many of the newest but for operations on files, 500 at most, and nothing else: they are known without a look at a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditRecord {
    pub number: u64,
    pub at_ms: u64,
    /// act, config, login, refusal, file.
    pub kind: String,
    /// The user of the machine who acted, or the user who logged in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// An address, or `local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// command, page, api, file, or a protocol.
    pub by: String,
    /// The endpoint of an act; a sentence of what else happened.
    pub what: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// `done`, or why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
}

/// What a disk says of itself, and how it is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiskHealth {
    /// The kernel's name, such as sda.
    pub name: String,
    pub path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    pub size_bytes: u64,
    /// HDD, SSD, ...
    pub medium: String,
    /// The pool whose data lies on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The folders of pools that lie on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<PathBuf>,
    /// unknown, well, note, watch, replace, failing.
    pub verdict: String,
    /// The verdict in words, with the figures it rests on.
    pub text: String,
    /// It sleeps, and was not asked now: what is said is from then.
    pub asleep: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_percent: Option<u64>,
    /// The highest temperature of each of the last days, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daily_temperatures_c: Vec<u32>,
}
