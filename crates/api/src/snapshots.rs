//! Snapshots of a volume: requests and answers.

use serde::{Deserialize, Serialize};

/// What is done with the snapshots of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// One snapshot. Bytes are those of the store, before redundancy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// A reason to keep a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHold {
    pub reason: String,
    /// Seconds since 1970; until it is released where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}
