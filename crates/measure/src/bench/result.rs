//! The result of a bench: the JSON of `--json`, of the history and of `compare`.
//!
//! Rates are per second, bytes are bytes, times of day are milliseconds since 1970. Fields are added, never
//! given another meaning; one that has to change makes a new [`VERSION`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use larder_facts::samples::{CoreSeries, DiskSeries, MachineFacts, NetSeries, Samples, Series};
pub use larder_load::workload::{Caches, Kind, Knee, Latency, Moment, Note, Repeat, Side, Workload};

/// The key of a variant that says what encrypts.
pub(crate) const ENCRYPTION: &str = "encryption";
/// That of one that says whether a scrub ran meanwhile.
pub(crate) const SCRUB: &str = "scrub";

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
    /// Its name for a person: `disk /mnt/a`, `share nfs://nas/data`.
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
    /// The rates at which one core of this machine encrypts, where kinds of encryption were compared.
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

/// The layer at which a byte was measured, from the bottom to the top.
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
    /// From one place to another.
    Copy,
}

/// One workload on one subject, repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub layer: Layer,
    /// The measured thing: a path, a host, a URL without its password. Several of them with `, ` between.
    pub subject: String,
    /// How it was reached: `local`, `nfs3`, `smb3`, `sftp`, `webdav`, `mount`, `tcp`.
    pub access: String,
    /// Of a share: whether the machine that measures serves it itself. Where nobody has looked it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<bool>,
    /// The properties that a comparison is about: `encryption`, `compression`, `layout`, `disk`, ... and their values.
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
