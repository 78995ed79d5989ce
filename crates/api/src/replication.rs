//! Replication of volumes to other machines: requests and answers.

use serde::{Deserialize, Serialize};

use crate::{Encrypt, SnapshotCounts, VolumeChange};

/// A change of what is replicated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplicationChange {
    /// After each snapshot from now on. A code of `larder replicate accept` makes the two machines known to each other first.
    Add {
        volume: String,
        to: String,
        limit: Option<String>,
        code: Option<String>,
        /// Its files are copied into a volume of these properties; without, its objects are sent as they lie.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        as_files: Option<Box<AsFiles>>,
    },
    /// No more. The replica stays.
    Remove { volume: String, to: Option<String> },
}

/// A copy with properties of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AsFiles {
    /// What is absent is as the volume has it.
    pub properties: VolumeChange,
    pub encrypt: Option<Encrypt>,
}

/// Replicate now, and answer when it is done. Without `to`: to all that are configured for the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Replicate {
    pub volume: String,
    pub to: Option<String>,
    /// Bytes a second at most.
    pub limit_bytes: Option<u64>,
    /// A snapshot is taken first if anything has changed since the newest.
    pub take: bool,
}

/// Let another machine send into a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Accept {
    /// POOL/NAME of the replica; the first snapshot makes it.
    pub replica: String,
    /// How many automatic snapshots stay; all of them where nothing is said.
    pub keep: Option<SnapshotCounts>,
    /// The most bytes that it may take up, before redundancy; 0: as many as there are. As before where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

/// What the other machine has to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Accepted {
    /// Tells the sender that it speaks to this machine, and this machine that it may. Good once, for an hour.
    pub code: String,
    /// The address that is listened on.
    pub addr: std::net::SocketAddr,
    pub replica: String,
}

/// The first request of a sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pair {
    /// The secret of the code, in hexadecimal digits.
    pub secret: String,
    /// POOL/NAME that it wants to send into.
    pub replica: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Paired {
    /// POOL/NAME that the sender may send into.
    pub replica: String,
}

/// All that is replicated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Replications {
    pub replications: Vec<ReplicationStatus>,
    /// Of the encrypted copy that was made, in the answer to that request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_key: Option<String>,
}

/// One volume on its way to one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplicationStatus {
    /// POOL/NAME.
    pub volume: String,
    pub to: String,
    /// The newest snapshot that is known to be there, and its time in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_ms: Option<u64>,
    /// How many snapshots are still to be sent, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The snapshot that is being sent, and how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<String>,
    pub sent_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// How long the receiver has taken nothing of it and said nothing, where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The newest snapshot that is there is older than `replication` may be.
    pub late: bool,
    /// The reason why nothing is sent, and when it is tried again, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ms: Option<u64>,
}
