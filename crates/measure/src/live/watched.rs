//! A connection and its machine, as they were watched for a second.

use larder_base::traffic::{Moment, Protocol};

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
    /// Threads that wanted to run and had no core, on the mean.
    pub waiting: f64,
    /// The share of the window by which samples came late (`live.late`).
    pub late: f64,
    /// The disk that was waited for most.
    pub disk: Option<String>,
    /// The log takes nothing before data has reached its place on the disks.
    pub log_full: bool,
    /// Of the fastest network card.
    pub line_bytes_per_s: Option<f64>,
}
