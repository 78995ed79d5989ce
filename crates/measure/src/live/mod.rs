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
//! - `live.starved`: a process without a core takes its own samples late, and between them nothing is seen of what its requests wait for.
//!   So threads that wait for a core nearly all of the time are named first, if the look is late as well (`live.late`). A control group that this process cannot see (another
//!   namespace) shows only so.
//! - `live.late`: a kernel may count no wait while a control group holds a thread back. The look shows it nevertheless: its own
//!   thread does nothing but sleep and sample, so samples that come late had no core.
//! - `live.full_or_lossy`: a full wire drops what is too much, after it has queued it: then the round trip is far above
//!   its least. Losses without a queue are the wire's own.

mod cause;
mod ranking;
mod seen;
#[cfg(test)]
mod tests;
mod watched;
mod words;

use serde::Serialize;

use crate::reason::{Confidence, Evidence, ResourceId};
pub use cause::{Cause, Limit};
use seen::Seen;
pub use seen::{Deed, Figures, TimeShares};
pub use watched::{Around, Watched};

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
    pub figures: Figures,
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
        figures: seen.figures(),
        cause: found.cause,
        resource: found.resource,
        evidence: found.evidence,
        confidence: found.confidence,
        sentence,
        help,
    }
}
