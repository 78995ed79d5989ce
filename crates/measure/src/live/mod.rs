//! What limits a connection of a client now, by what was seen of it for a second: no load, no benchmark.
//!
//! It is the reasoning of `reason/` on other evidence: there a rate stands beside the limits of a chain, here the time of
//! one connection is divided among the resources that its requests waited for. Resources, evidence, confidence and
//! remedies are those of `reason/`.
//!
//! - `live.time_is_divided`: each sample gives its moment to what requests waited for; with none under way, to the wire
//!   while bytes are unsent or unacknowledged, else to the client. [`seen::Seen`] has the shares.
//! - `live.ranked`: [`ranking::RANKING`] orders the evidence, the strongest first, as `verdict::RANKING` does. A wire or
//!   a client that holds the bytes stands before the resources of this machine: while a sender waits for the wire,
//!   requests in this machine are only read ahead.
//! - `live.full_or_lossy`: a full wire drops what is too much, after it has queued it: then the round trip is far above
//!   its least. Losses without a queue are the wire's own.

mod ranking;
mod seen;
#[cfg(test)]
mod tests;
mod words;

use larder_base::traffic::{Moment, Protocol};
use serde::Serialize;

use crate::reason::{Confidence, Evidence, ResourceId};
use seen::Seen;
pub use seen::{Deed, TimeShares};

/// One connection, watched.
#[derive(Clone, Debug)]
pub struct Watched {
    pub protocol: Protocol,
    pub address: String,
    pub window_s: f64,
    /// At even distances, the first and the last at the ends of the window.
    pub moments: Vec<Moment>,
}

/// The machine meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// Share of the periods in which a control group held this process back.
    pub throttled: f64,
    /// Cores' worth of work of this process, and the cores that it may use.
    pub cores_used: f64,
    pub cores: f64,
    /// The share of its time in which the busiest thread ran.
    pub thread_busy: f64,
    /// Of the time in which threads wanted to run: the share in which others had the cores.
    pub delayed: f64,
    /// The disk that was waited for most.
    pub disk: Option<String>,
    /// The log takes nothing before data has reached its place on the disks.
    pub log_full: bool,
    /// Of the fastest network card.
    pub line_bytes_per_s: Option<f64>,
}

/// A verdict about a connection that somebody transfers something over, as evidence for the doctor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transfer {
    pub address: String,
    pub door: String,
    pub does: String,
    pub confidence: Confidence,
    pub sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// What limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Nothing,
    Client,
    Wire,
    Processor,
    Disks,
    Durability,
    OtherClient,
}

/// What limits it, more exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Idle,
    OneRequest,
    SlowToTake,
    SlowToGive,
    WireRate,
    WireLoss,
    Quota,
    OtherWork,
    Cores,
    DiskRead,
    DiskWrite,
    Journal,
    JournalFull,
    Lease,
}

impl Cause {
    /// Stable, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::OneRequest => "one-request",
            Self::SlowToTake => "slow-to-take",
            Self::SlowToGive => "slow-to-give",
            Self::WireRate => "rate",
            Self::WireLoss => "loss",
            Self::Quota => "quota",
            Self::OtherWork => "other-work",
            Self::Cores => "cores",
            Self::DiskRead => "disk-read",
            Self::DiskWrite => "disk-write",
            Self::Journal => "journal",
            Self::JournalFull => "journal-full",
            Self::Lease => "lease",
        }
    }

    pub fn limit(self) -> Limit {
        match self {
            Self::Idle => Limit::Nothing,
            Self::OneRequest | Self::SlowToTake | Self::SlowToGive => Limit::Client,
            Self::WireRate | Self::WireLoss => Limit::Wire,
            Self::Quota | Self::OtherWork | Self::Cores => Limit::Processor,
            Self::DiskRead | Self::DiskWrite => Limit::Disks,
            Self::Journal | Self::JournalFull => Limit::Durability,
            Self::Lease => Limit::OtherClient,
        }
    }
}

/// The answer about one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub does: Deed,
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    pub requests_per_s: f64,
    pub request_bytes: f64,
    pub latency_s: f64,
    pub under_way: f64,
    pub rtt_s: f64,
    pub lost: f64,
    pub time: TimeShares,
    pub cause: Cause,
    pub resource: Option<ResourceId>,
    pub evidence: Evidence,
    pub confidence: Confidence,
    pub sentence: String,
    pub help: Option<String>,
}

pub fn judge(watched: &Watched, around: &Around) -> Verdict {
    let seen = Seen::of(watched, around);
    let found = ranking::first(&seen);
    let (sentence, help) = words::of(&seen, found.cause);
    Verdict {
        does: seen.does,
        read_bytes_per_s: seen.read_bytes_per_s,
        written_bytes_per_s: seen.written_bytes_per_s,
        requests_per_s: seen.requests_per_s,
        request_bytes: seen.request_bytes,
        latency_s: seen.latency_s,
        under_way: seen.under_way,
        rtt_s: seen.rtt_s,
        lost: seen.lost(),
        time: seen.time,
        cause: found.cause,
        resource: found.resource,
        evidence: found.evidence,
        confidence: found.confidence,
        sentence,
        help,
    }
}
