//! Live connections of clients, and what limits each.

use serde::{Deserialize, Serialize};

/// The connections of clients, watched for a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Top {
    pub at_ms: u64,
    pub window_ms: u64,
    /// The busiest first.
    pub connections: Vec<TopConnection>,
}

/// What limits a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TopLimit {
    /// Nothing is transferred.
    Nothing,
    /// The client: it asks one request after another, or is slow to take or to give.
    Client,
    /// The network, in the direction of the transfer.
    Wire,
    /// The processor of this machine, or the part of it that a control group leaves to larder.
    Processor,
    /// The disks below.
    Disks,
    /// A change is answered once it is durable, and the journal is what it waits for.
    Durability,
    /// Another client that has to give back a lease.
    OtherClient,
}

impl TopLimit {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "-",
            Self::Client => "client",
            Self::Wire => "wire",
            Self::Processor => "processor",
            Self::Disks => "disks",
            Self::Durability => "durability",
            Self::OtherClient => "another client",
        }
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TopConfidence {
    Open,
    Maybe,
    Likely,
    Certain,
}

/// One connection of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopConnection {
    /// Of this run of the daemon, counted from 1.
    pub id: u64,
    /// nfs, smb, sftp, webdav.
    pub door: String,
    /// Over NFS the user that the client named in its last read or write: a name that larder or the machine knows, or `uid NUMBER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub address: String,
    pub port: u16,
    pub since_ms: u64,
    /// read, write, list, other, idle.
    pub does: String,
    pub read_bytes_per_s: u64,
    pub written_bytes_per_s: u64,
    pub requests_per_s: f64,
    /// Of one read or write, on average.
    pub request_bytes: u64,
    /// Of one request, from its arrival until it is answered, on average.
    pub latency_us: u64,
    /// Requests under way, on average.
    pub under_way: f64,
    pub rtt_us: u64,
    /// Of the segments with data, in the direction of the transfer.
    pub lost_percent: f64,
    pub limited_by: TopLimit,
    /// The limit more exactly, for programs: docs/top.md lists them.
    pub cause: String,
    pub confidence: TopConfidence,
    pub sentence: String,
    /// What would help; absent where nothing is slower than it has to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Shares of the time.
    pub time: TopTime,
    pub figures: TopFigures,
}

/// Where the time of a connection went, in percent of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopTime {
    pub disks: f64,
    pub durability: f64,
    pub processor: f64,
    pub other_client: f64,
    /// Answers that were on the wire, or waited for it.
    pub sending: f64,
    /// Nothing was asked for, or the rest of a request had not come.
    pub client: f64,
}

/// What the verdict follows from, besides `time`. Shares are of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopFigures {
    pub rtt_min_us: u64,
    /// From an acknowledgement to the bytes that it let come.
    pub receiving_rtt_us: u64,
    /// Of the time: there was something to send or to be acknowledged; the client's window was full; this end's buffer was.
    pub sender_busy: f64,
    pub window_full: f64,
    pub buffer_full: f64,
    /// Of the samples: bytes not yet sent; a sender with enough to send; bytes that larder had not read.
    pub unsent: f64,
    pub wire_bound: f64,
    pub unread: f64,
    /// Of the steps between samples: those in which bytes came.
    pub steps_with_bytes: f64,
    /// Of the time, nothing came for far longer than packets are apart.
    pub silent: f64,
    /// What came in the best steps, beside the mean: 1 is even.
    pub burst: f64,
    /// Requests that the client has under way, by their rate and their time.
    pub asked_at_once: f64,
    /// Of the machine: periods in which a control group held larder back, cores' worth of its work, the share in which its
    /// busiest thread ran, and the time in which its threads waited for a core, of that in which they wanted one.
    pub throttled: f64,
    pub cores_used: f64,
    pub thread_busy: f64,
    pub delayed: f64,
}

/// A transfer that was slower than it had to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopWorst {
    pub at_ms: u64,
    /// While it was seen with this limit.
    pub lasted_ms: u64,
    /// Looks that saw it.
    pub looks: u64,
    pub door: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub address: String,
    pub does: String,
    pub bytes_per_s: u64,
    pub lost_percent: f64,
    pub limited_by: TopLimit,
    pub cause: String,
    pub sentence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}
