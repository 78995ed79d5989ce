//! A bench that the daemon runs: started, watched, stopped. Its result is kept with those of `larder bench`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A bench to run, in the words of `larder bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BenchStart {
    pub subject: BenchSubject,
    /// quick, standard, thorough, throughput, iops, blocksize, access, encryption.
    pub preset: String,
    /// Of the result. Absent: the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Data on each subject, in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Of each repeat, in place of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Workloads such as read or random-write; none: those of the preset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

/// The thing to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum BenchSubject {
    /// A folder on each disk, or devices, which are only read: each alone, then all at once.
    Disk { paths: Vec<PathBuf> },
    /// The folder where a pool is mounted, or a folder on each disk for a pool that is made for this.
    Pool { paths: Vec<PathBuf> },
    /// The wire to a machine where `larder bench net --listen` runs.
    Net { host: String },
    /// A share of another machine as a URL, or a folder where one is mounted.
    Share {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<String>,
    },
}

/// The bench of the daemon: the one that runs, or else how the last one ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<BenchRunning>,
    /// Since larder was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<BenchEnded>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchRunning {
    pub title: String,
    pub preset: String,
    pub elapsed_s: f64,
    /// Estimated.
    pub left_s: f64,
    pub percent: u8,
    /// The workload that runs now.
    pub workload: String,
    /// Of `repeats`; 0 while its data is made.
    pub repeat: u32,
    pub repeats: u32,
    pub bytes_per_s: f64,
    pub operations_per_s: f64,
    /// It was told to stop, and takes away what it wrote.
    pub stopping: bool,
    /// The results so far, a line each.
    pub results: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchEnded {
    pub title: String,
    pub at_ms: u64,
    /// The kept result. Absent: nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Why it is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
