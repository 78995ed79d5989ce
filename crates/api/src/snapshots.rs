//! Snapshots of a volume: requests and answers.

use serde::{Deserialize, Serialize};

use crate::endpoint::Query;

/// What is done with the snapshots of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotsRequest {
    /// Without a name it is called after the time, in UTC.
    Create {
        name: Option<String>,
    },
    /// `names`: single ones and ranges, separated by commas: `a`, `a%b`, `a%`, `%b`. With `dry_run` nothing happens.
    Destroy {
        names: String,
        dry_run: bool,
    },
    Rename {
        name: String,
        to: String,
    },
    /// Until it is released; or until a time, in seconds since 1970, and not a moment less.
    Hold {
        name: String,
        reason: String,
        until: Option<i64>,
    },
    Release {
        name: String,
        reason: String,
    },
    /// The volume becomes what it was. With `destroy_later` later snapshots go; with `force` also where somebody uses it.
    Rollback {
        name: String,
        destroy_later: bool,
        force: bool,
    },
}

/// The snapshots of a volume, and the outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotsStatus {
    pub pool: String,
    pub volume: String,
    /// The names that the request was about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concerned: Vec<String>,
    /// The snapshot that keeps what was there before the volume went back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_as: Option<String>,
    /// Bytes that destroying them gives back, before redundancy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// Oldest first.
    pub snapshots: Vec<SnapshotStatus>,
}

/// Make a volume that begins as a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CloneRequest {
    pub snapshot: String,
    /// The name of the new volume, in the same pool.
    pub name: String,
}

/// A snapshot is wanted as a tar stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExportRequest {
    pub snapshot: String,
}

/// Asks for a snapshot as a stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SendRequest {
    pub snapshot: String,
    /// The snapshot that the receiver has.
    pub from: Option<String>,
    /// What `larder receive --token` said of an attempt that was cut off: what came before is left out.
    pub resume: Option<String>,
    /// The keyring alone, for a receiver that has the snapshot: what opens the volume has changed, and nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keys_only: bool,
}

/// A bound of a stream into a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReceiveQuery {
    /// The most bytes that the replica may take up, before redundancy. A smaller quota in its configuration counts as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

impl Query for ReceiveQuery {
    fn written(&self) -> String {
        self.quota_bytes.map(|bytes| format!("?quota_bytes={bytes}")).unwrap_or_default()
    }

    fn read(query: Option<&str>) -> Option<Self> {
        let Some(query) = query else { return Some(Self::default()) };
        let bytes = query.strip_prefix("quota_bytes=")?.parse().ok()?;
        Some(Self { quota_bytes: Some(bytes) })
    }
}

/// A snapshot came whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Received {
    pub pool: String,
    pub volume: String,
    pub snapshot: String,
}

/// What a replica has, and what came of a snapshot that did not come whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplicaState {
    /// The volume that it is a replica of.
    pub source: String,
    /// Oldest first.
    pub snapshots: Vec<SentSnapshot>,
    /// The snapshot that is to come, and the one before it.
    pub snapshot: Option<String>,
    pub from: Option<String>,
    /// For the sender's request.
    pub token: Option<String>,
    /// How often the ways to open it had changed when its keyring was made. `None`: it is not encrypted, or an older larder answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_changes: Option<u64>,
}

/// A snapshot, wherever it is: its number and its time tell it from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SentSnapshot {
    /// Its name when it was sent.
    pub name: String,
    /// Its number among the snapshots of its volume.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub created_ns: i64,
}

impl SentSnapshot {
    /// Whether the other is the same snapshot, whatever it is called.
    pub fn is(&self, other: &SentSnapshot) -> bool {
        self.number == other.number && self.created_ns == other.created_ns
    }
}

/// The header of a stream's answer with about how many bytes it has.
pub const STREAM_BYTES_HEADER: &str = "x-larder-bytes";

/// One snapshot. Bytes are those of the store, before redundancy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotStatus {
    pub name: String,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Bytes that nothing else needs.
    pub used_bytes: u64,
    /// Bytes that the files of then take up.
    pub referenced_bytes: u64,
    /// Bytes written since the snapshot before.
    pub written_bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<SnapshotHold>,
    /// Volumes that began as this snapshot, and keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clones: Vec<String>,
}

/// A reason to keep a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotHold {
    pub reason: String,
    /// Seconds since 1970; until it is released where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// A number for each kind of automatic snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotCounts {
    pub hourly: u32,
    pub daily: u32,
    pub weekly: u32,
    pub monthly: u32,
}

/// The automatic snapshots of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotSchedule {
    pub pool: String,
    pub volume: String,
    /// How many hours, days, weeks and months keep a snapshot.
    pub keep: SnapshotCounts,
    /// How many of them have one now.
    pub kept: SnapshotCounts,
    /// The newest automatic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// When the next one is taken, in milliseconds since 1970, if anything changes until then.
    pub next_ms: u64,
    /// Whether anything may have changed since the newest snapshot of the volume.
    pub changed: bool,
    /// The reason why none is taken, or not all are destroyed that should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Asks what is different in `later` (now, where there is none) from the snapshot `earlier`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffRequest {
    pub earlier: String,
    pub later: Option<String>,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffEntry {
    /// `created`, `modified`, `removed` or `renamed`.
    pub change: String,
    /// `file`, `directory`, `symlink` or `special`.
    pub kind: String,
    /// From the top of the volume.
    pub path: String,
    /// Where it was, if it is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_they_are_written() {
        for quota_bytes in [None, Some(0), Some(u64::MAX)] {
            let query = ReceiveQuery { quota_bytes };
            let text = query.written();
            assert_eq!(ReceiveQuery::read(text.strip_prefix('?')), Some(query));
        }
        for wrong in ["", "quota_bytes=", "quota_bytes=x", "other=1", "quota_bytes=1&other=1"] {
            assert_eq!(ReceiveQuery::read(Some(wrong)), None, "{wrong}");
        }
    }
}
