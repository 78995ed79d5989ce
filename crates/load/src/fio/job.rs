//! The job file (fio(1), "JOB FILE FORMAT").

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::super::error::BenchError;
use crate::workload::Kind;

/// Between two entries of the bandwidth log.
pub(super) const LOG_MS: u64 = 500;
/// Of what is called compressible: half of each block. Larger runs of zeroes than this do not look like data.
const COMPRESSIBLE_PERCENT: u32 = 50;
const COMPRESSIBLE_CHUNK_BYTES: u32 = 4096;

/// One file or device, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FioJob {
    pub(crate) kind: Kind,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    /// On each target.
    pub(crate) jobs: u32,
    pub(crate) targets: Vec<Target>,
    pub(crate) direct: bool,
    pub(crate) engine: &'static str,
    pub(crate) compressible: bool,
    pub(crate) warm_up_s: f64,
    pub(crate) seconds: f64,
}

impl FioJob {
    pub(crate) fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::RandomWrite | Kind::RandomMixed)
    }

    fn is_random(&self) -> bool {
        matches!(self.kind, Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed)
    }

    pub(crate) fn processes(&self) -> u32 {
        self.jobs.saturating_mul(u32::try_from(self.targets.len()).unwrap_or(u32::MAX))
    }

    /// A job file has no way to quote: what it cannot carry is refused, or fio would write elsewhere.
    pub(super) fn check(&self, logs: &Path) -> Result<(), BenchError> {
        self.targets.iter().map(|target| target.path.as_path()).chain([logs]).try_for_each(carried)
    }

    fn pattern(&self) -> &'static str {
        match self.kind {
            Kind::Write => "write",
            Kind::RandomRead => "randread",
            Kind::RandomWrite => "randwrite",
            Kind::RandomMixed => "randrw",
            _ => "read",
        }
    }

    /// Writing is seen whole: the flush at its end is also that of what was written while it warmed up, and the knee of
    /// a fast cache may lie anywhere. Without direct I/O a file is gone through once, since a second time it would come
    /// from memory.
    pub(super) fn text(&self, logs: &Path) -> String {
        let mut text = "[global]\n".to_owned();
        let ramp = if self.writes() || !self.direct { 0.0 } else { self.warm_up_s };
        let seconds = if ramp > 0.0 { self.seconds } else { self.seconds + self.warm_up_s };
        let mut put = |key: &str, value: String| {
            let _ = writeln!(text, "{key}={value}");
        };
        put("rw", self.pattern().to_owned());
        if self.kind == Kind::RandomMixed {
            put("rwmixread", "75".to_owned());
        }
        put("bs", self.block_bytes.to_string());
        put("ioengine", self.engine.to_owned());
        put("iodepth", self.depth.to_string());
        put("numjobs", self.jobs.to_string());
        put("direct", u8::from(self.direct).to_string());
        // Threads end with their process, whatever ends it.
        put("thread", "1".to_owned());
        put("runtime", format!("{seconds:.0}"));
        if self.direct || self.is_random() {
            put("time_based", "1".to_owned());
        }
        if ramp > 0.0 {
            put("ramp_time", format!("{ramp:.0}"));
        }
        if self.is_random() {
            put("norandommap", "1".to_owned());
            // Each repeat goes elsewhere: the same places again would be in caches.
            put("randrepeat", "0".to_owned());
        }
        if self.writes() {
            put("end_fsync", "1".to_owned());
            put("refill_buffers", "1".to_owned());
            if self.compressible {
                put("buffer_compress_percentage", COMPRESSIBLE_PERCENT.to_string());
                put("buffer_compress_chunk", COMPRESSIBLE_CHUNK_BYTES.to_string());
            }
        }
        put("allow_file_create", "0".to_owned());
        put("invalidate", "1".to_owned());
        put("lat_percentiles", "1".to_owned());
        put("clat_percentiles", "0".to_owned());
        put("log_avg_msec", LOG_MS.to_string());
        put("write_bw_log", logs.display().to_string());
        put("write_iops_log", logs.display().to_string());
        for (index, target) in self.targets.iter().enumerate() {
            text.push_str(&self.section(index, target));
        }
        text
    }

    /// Sequential jobs on one target have a part of it each; random ones share all of it.
    fn section(&self, index: usize, target: &Target) -> String {
        let jobs = u64::from(self.jobs.max(1));
        let shared = self.is_random() || jobs == 1;
        let part = if shared { target.bytes } else { target.bytes / jobs };
        let part = (part / self.block_bytes).max(1).saturating_mul(self.block_bytes);
        // fio splits names at colons.
        let name = target.path.display().to_string().replace(':', "\\:");
        let mut text = format!("\n[target{index}]\nfilename={name}\nsize={part}\n");
        if !shared {
            let _ = writeln!(text, "offset_increment={part}");
        }
        if self.writes() {
            // A pool or a server may take direct I/O into its memory: what is written a second time has to be on the
            // disks before, or it never gets there.
            let _ = writeln!(text, "fsync={}", part / self.block_bytes.max(1));
        }
        text
    }
}

fn carried(path: &Path) -> Result<(), BenchError> {
    let reason = match path.to_str() {
        None => "it is not UTF-8".to_owned(),
        Some(text) if text.chars().any(char::is_control) => "it has control characters".to_owned(),
        Some(text) if text.trim() != text => "it begins or ends with a blank".to_owned(),
        Some(text) => match text.chars().find(|c| ";#$\\\"".contains(*c)) {
            Some(c) => format!("it has a {c}"),
            None => return Ok(()),
        },
    };
    let what = format!("a job file of fio cannot carry the path {path:?}: {reason}");
    Err(BenchError::invalid(what, "measure a folder with a plainer name, or keep results in one"))
}
