//! Workloads and their results.
//!
//! These types are part of the format of results: fields are added, never given another meaning.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Read,
    Write,
    RandomRead,
    RandomWrite,
    /// Three quarters read.
    RandomMixed,
    /// One large file from beginning to end, one request at a time, as `cat` does.
    Cat,
    /// Many small files, each made, written and closed.
    CreateFiles,
    /// Many small files, each opened and read whole.
    ReadFiles,
    StatFiles,
    DeleteFiles,
    /// A tree of files of many sizes, copied to the subject.
    CopyTreeIn,
    /// ... and back.
    CopyTreeOut,
    /// From one place to another, as people copy: a large file, or a tree; flushed at the end.
    Copy,
    /// A pool checks all that it holds.
    Scrub,
    /// The wire towards the other end, and back.
    Send,
    Receive,
    SendReceive,
}

impl Kind {
    pub const ALL: [Self; 17] = [
        Self::Read,
        Self::Write,
        Self::RandomRead,
        Self::RandomWrite,
        Self::RandomMixed,
        Self::Cat,
        Self::CreateFiles,
        Self::ReadFiles,
        Self::StatFiles,
        Self::DeleteFiles,
        Self::CopyTreeIn,
        Self::CopyTreeOut,
        Self::Copy,
        Self::Scrub,
        Self::Send,
        Self::Receive,
        Self::SendReceive,
    ];

    /// Whether people count its operations rather than its bytes.
    pub fn counts_operations(self) -> bool {
        use Kind::*;
        matches!(self, RandomRead | RandomWrite | RandomMixed) || self.counts_files()
    }

    /// Small ones, made, read, looked at and deleted one after the other.
    pub fn counts_files(self) -> bool {
        matches!(self, Self::CreateFiles | Self::ReadFiles | Self::StatFiles | Self::DeleteFiles)
    }
}

/// The state of caches when a run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Passed by: O_DIRECT.
    Bypassed,
    /// Dropped on this machine before each repeat.
    Dropped,
    /// The data is at least twice the memory.
    TooSmall,
    /// Neither: memory was measured, wholly or in part.
    Warm,
    /// Of another machine: not known.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub kind: Kind,
    pub block_bytes: u64,
    /// Requests in flight, of each job.
    pub depth: u32,
    /// Processes, threads or streams.
    pub jobs: u32,
    /// Of all files together.
    pub data_bytes: u64,
    pub files: u64,
    pub caches: Caches,
    /// Whether the data can be compressed.
    pub compressible: bool,
    /// Whether writing ended with a flush that was waited for.
    pub synced: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Since the beginning of the bench.
    pub start_ms: u64,
    /// Of the part that counts, without warming up.
    pub seconds: f64,
    pub bytes: u64,
    pub operations: u64,
    /// The steady state where there is one: after the knee of a disk that writes to its cache first.
    pub bytes_per_s: f64,
    pub operations_per_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// Throughput as time goes by.
    #[serde(default)]
    pub over_time: Vec<Moment>,
    /// Processor time that the load itself took, where it is known: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_cpu_s: Option<f64>,
    /// Of the wire: TCP segments that its senders sent again, where both ends say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Of a workload that reads and writes: what of it was read...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Side>,
    /// ... and what was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Side>,
}

impl Repeat {
    /// As somebody measured it: nobody moves less than nothing in less than no time.
    pub fn is_sound(&self) -> bool {
        let sides = self.read.iter().chain(&self.write).flat_map(|side| [side.bytes_per_s, side.operations_per_s]);
        let own = [self.seconds, self.bytes_per_s, self.operations_per_s];
        self.is_finite() && own.into_iter().chain(sides).all(|value| value >= 0.0)
    }

    /// JSON has no word for what is not a number: a result that held one could not be read again.
    pub fn is_finite(&self) -> bool {
        let moments = self.over_time.iter().flat_map(|m| [m.bytes_per_s, m.operations_per_s]);
        let sides = || self.read.iter().chain(&self.write);
        let rates = sides().flat_map(|side| [side.bytes_per_s, side.operations_per_s]);
        let latencies = self.latency.iter().chain(sides().filter_map(|side| side.latency.as_ref()));
        let latency = latencies.flat_map(|l| [l.mean_us, l.p50_us, l.p95_us, l.p99_us, l.p999_us, l.max_us]);
        let knee = self.knee.iter().flat_map(|k| [k.at_s, k.before_bytes_per_s, k.after_bytes_per_s]);
        let own = [self.seconds, self.bytes_per_s, self.operations_per_s];
        own.into_iter()
            .chain(rates)
            .chain(self.load_cpu_s)
            .chain(moments)
            .chain(latency)
            .chain(knee)
            .all(f64::is_finite)
    }
}

/// One direction of a mixed workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    pub bytes: u64,
    pub operations: u64,
    pub bytes_per_s: f64,
    pub operations_per_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl Side {
    pub fn new(bytes: u64, operations: u64, seconds: f64, latency: Option<Latency>) -> Self {
        let per_s = |count: u64| count as f64 / seconds.max(1e-9);
        Self { bytes, operations, bytes_per_s: per_s(bytes), operations_per_s: per_s(operations), latency }
    }
}

/// Of single requests, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// The moment at which a disk's fast cache was full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Since the repeat's beginning.
    pub at_s: f64,
    /// Written until then.
    pub bytes: u64,
    pub before_bytes_per_s: f64,
    pub after_bytes_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Since the repeat's beginning: the end of the interval.
    pub at_ms: u64,
    pub bytes_per_s: f64,
    pub operations_per_s: f64,
}

/// Something a reader has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Stable, for programs: `memory-measured`, `caches-warm`, `no-fio`, ...
    pub code: String,
    /// A sentence: what, why, and what to do about it.
    pub text: String,
    /// Numbers that it concerns prove nothing.
    pub misleading: bool,
}

/// Times of one repeat.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    pub warm_up: Duration,
    pub measure_max: Duration,
    /// Whether sequential reading and writing begin anew where the data ends, until `measure_max`.
    pub again: bool,
}
