//! What a bench found out: the JSON of `--json`, of the history and of `compare`.
//!
//! Rates are per second, bytes are bytes, times of day are milliseconds since 1970. Fields are added, never
//! given another meaning; one that has to change makes a new [`VERSION`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The key of a variant that says what encrypts.
pub(crate) const ENCRYPTION: &str = "encryption";

pub const SCHEMA: &str = "larder-bench";
pub const VERSION: u32 = 1;

/// One `larder bench`, whole or interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// Unique in the history: the time it began and what was measured.
    pub id: String,
    /// What a person calls it: `disk /mnt/a`, `share nfs://nas/data`.
    pub title: String,
    pub preset: String,
    pub started_ms: u64,
    pub ended_ms: u64,
    pub larder: String,
    /// Cut short by a person or an error; what is there is good.
    pub interrupted: bool,
    pub machine: MachineFacts,
    /// The other end, where a larder answered there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_machine: Option<FarMachine>,
    /// What one core of this machine encrypts, where kinds of encryption were compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ciphers: Vec<CipherRate>,
    pub runs: Vec<Run>,
    pub notes: Vec<Note>,
}

/// A cipher in memory, on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CipherRate {
    pub name: String,
    pub bytes_per_s: f64,
}

/// The other end of a wire or share, by what it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FarMachine {
    /// As whoever measured calls it; begins what of it was saturated: `nas: core 3`.
    pub name: String,
    /// Of what both ends spoke.
    pub version: u32,
    pub larder: String,
    pub machine: MachineFacts,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    pub host: String,
    /// Such as `Raspberry Pi 4 Model B Rev 1.4`, or a processor's name.
    pub model: String,
    pub processor: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub kernel: String,
}

/// Where a byte was measured, from the bottom to the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// One disk by itself.
    Disk,
    /// All disks at once, without a pool.
    Disks,
    /// Through the pool, on the machine itself.
    Pool,
    /// The wire, without storage.
    Net,
    /// A share, over whatever protocol.
    Share,
    /// Disks and wire at the same time, not through one another.
    Both,
}

/// One workload on one subject, repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub layer: Layer,
    /// What was measured: a path, a host, a URL without its password. Several of them with `, ` between.
    pub subject: String,
    /// How it was reached: `local`, `nfs3`, `smb3`, `sftp`, `webdav`, `mount`, `tcp`.
    pub access: String,
    /// Of a share: whether the machine that measures serves it itself. Where nobody has looked it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<bool>,
    /// What a comparison is about: `encryption`, `compression`, `layout`, `disk`, ... and its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variant: BTreeMap<String, String>,
    pub workload: Workload,
    /// The program that made the load, with its version: `fio 3.33`, `iperf3 3.12`, `larder`.
    pub with: String,
    pub repeats: Vec<Repeat>,
    /// Of the machine that measures.
    #[serde(default)]
    pub samples: Samples,
    /// Of the other end, where a larder answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_samples: Option<Samples>,
    /// The longest first.
    #[serde(default)]
    pub saturated: Vec<Saturation>,
    #[serde(default)]
    pub notes: Vec<Note>,
}

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
    /// The wire towards the other end, and back.
    Send,
    Receive,
    SendReceive,
}

impl Kind {
    pub const ALL: [Self; 15] = [
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

/// What was known about caches when a run began.
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
    pub(super) fn new(bytes: u64, operations: u64, seconds: f64, latency: Option<Latency>) -> Self {
        let per_s = |count: u64| count as f64 / seconds.max(1e-9);
        Self { bytes, operations, bytes_per_s: per_s(bytes), operations_per_s: per_s(operations), latency }
    }
}

impl Repeat {
    /// As somebody measured it: nobody moves less than nothing in less than no time.
    pub(super) fn is_sound(&self) -> bool {
        let sides = self.read.iter().chain(&self.write).flat_map(|side| [side.bytes_per_s, side.operations_per_s]);
        let own = [self.seconds, self.bytes_per_s, self.operations_per_s];
        self.is_finite() && own.into_iter().chain(sides).all(|value| value >= 0.0)
    }

    /// JSON has no word for what is not a number: a result that held one could not be read again.
    pub(super) fn is_finite(&self) -> bool {
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

/// Where a disk's fast cache was full.
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

/// What the machine did during a run. All series have as many values as `at_ms`; an unknown value is NaN in memory
/// and `null` in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Since the beginning of the bench: the end of each interval.
    pub at_ms: Vec<u64>,
    /// Percent of one core each.
    #[serde(default)]
    pub cores: Vec<CoreSeries>,
    #[serde(default)]
    pub disks: Vec<DiskSeries>,
    #[serde(default)]
    pub nets: Vec<NetSeries>,
    /// Degrees Celsius, by sensor.
    #[serde(default)]
    pub temperatures: Vec<Series>,
    /// MHz, by core.
    #[serde(default)]
    pub clocks: Vec<Series>,
    /// How often the processor was throttled because of heat or power, since the run began.
    #[serde(default)]
    pub throttled: u64,
    /// With the source's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<Series>,
    /// Percent of the periods in which a control group's quota held a server back, by the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    #[serde(with = "holes")]
    pub values: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSeries {
    pub core: u32,
    #[serde(with = "holes")]
    pub user: Vec<f64>,
    #[serde(with = "holes")]
    pub nice: Vec<f64>,
    #[serde(with = "holes")]
    pub system: Vec<f64>,
    #[serde(with = "holes")]
    pub iowait: Vec<f64>,
    /// Hard and soft.
    #[serde(with = "holes")]
    pub irq: Vec<f64>,
    #[serde(with = "holes")]
    pub steal: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSeries {
    pub disk: String,
    /// Percent of the time in which it had something to do.
    #[serde(with = "holes")]
    pub busy: Vec<f64>,
    #[serde(with = "holes")]
    pub read_bytes_per_s: Vec<f64>,
    #[serde(with = "holes")]
    pub write_bytes_per_s: Vec<f64>,
    /// Mean milliseconds of a request.
    #[serde(with = "holes")]
    pub latency_ms: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetSeries {
    pub interface: String,
    #[serde(with = "holes")]
    pub receive_bytes_per_s: Vec<f64>,
    #[serde(with = "holes")]
    pub send_bytes_per_s: Vec<f64>,
    /// TCP segments sent again, of the whole machine, in the interval.
    #[serde(with = "holes")]
    pub retransmits: Vec<f64>,
    /// What its link carries in one direction, where it has a speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s_max: Option<f64>,
}

/// Something that had no more to give, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// `core 3`, `all cores`, `disk sda`, `eth0`, `the quota of smbd (pid 7), 0.50 cores`; of the other end `nas: core 3`.
    pub what: String,
    /// The part of the run's time.
    pub share: f64,
    /// Since the beginning of the bench.
    pub from_ms: u64,
    pub to_ms: u64,
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

/// NaN in memory is `null` in JSON.
mod holes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
        let values: Vec<Option<f64>> = values.iter().map(|v| v.is_finite().then_some(*v)).collect();
        values.serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(from)?;
        Ok(values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect())
    }
}

impl Run {
    /// The median of the repeats, in what its kind counts: operations or bytes per second. `None` without repeats.
    pub fn median(&self) -> Option<f64> {
        let mut values = self.values();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
        Some((low + high) / 2.0)
    }

    /// The reads and the writes of a mixed workload as runs of their own, where every repeat tells them apart. Of the
    /// machine meanwhile the whole run tells.
    pub fn sides(&self) -> Vec<(&'static str, Run)> {
        let of = |name, side: fn(&Repeat) -> Option<&Side>| {
            let repeat = |r: &Repeat| {
                let side = side(r)?.clone();
                Some(Repeat {
                    start_ms: r.start_ms,
                    seconds: r.seconds,
                    bytes: side.bytes,
                    operations: side.operations,
                    bytes_per_s: side.bytes_per_s,
                    operations_per_s: side.operations_per_s,
                    latency: side.latency,
                    ..Repeat::default()
                })
            };
            let repeats = self.repeats.iter().map(repeat).collect::<Option<Vec<_>>>()?;
            let run =
                Run { repeats, samples: Samples::default(), far_samples: None, saturated: Vec::new(), ..self.clone() };
            (!run.repeats.is_empty()).then_some((name, run))
        };
        [of("its reads", |r| r.read.as_ref()), of("its writes", |r| r.write.as_ref())].into_iter().flatten().collect()
    }

    /// (Largest - smallest) / median; 0 for one repeat.
    pub fn spread(&self) -> Option<f64> {
        let values = self.values();
        let (low, high) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some((high - low) / self.median()?.max(f64::MIN_POSITIVE))
    }

    /// Of each repeat, in what its kind counts.
    pub fn values(&self) -> Vec<f64> {
        let of = |r: &Repeat| match self.workload.kind.counts_operations() {
            true => r.operations_per_s,
            false => r.bytes_per_s,
        };
        self.repeats.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_survive_json() {
        let series = Series { name: "x".into(), values: vec![1.5, f64::NAN] };
        let text = serde_json::to_string(&series).unwrap();
        assert_eq!(text, r#"{"name":"x","values":[1.5,null]}"#);
        let back: Series = serde_json::from_str(&text).unwrap();
        assert!(back.values[0] == 1.5 && back.values[1].is_nan());
    }
}
