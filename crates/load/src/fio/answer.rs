//! fio's JSON (`--output-format=json+`) and its line of progress.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::control::Progress;
use super::super::error::BenchError;
use crate::workload::Latency;

/// All jobs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// Of the job that took longest.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) operations: u64,
    pub(super) cpu_s: f64,
    pub(super) latency: Option<Latency>,
    /// Bytes, operations and latency of what was read, and of what was written.
    pub(super) sides: [(u64, u64, Option<Latency>); 2],
}

impl Answer {
    pub(super) fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    pub(super) fn operations_per_s(&self) -> f64 {
        self.operations as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// fio puts warnings before the JSON.
pub(super) fn parse(bytes: &[u8]) -> Result<Answer, BenchError> {
    let begin = bytes.iter().position(|&b| b == b'{').unwrap_or(0);
    let json: Value = serde_json::from_slice(bytes.get(begin..).unwrap_or_default())
        .map_err(|e| BenchError::answer("fio", e.to_string()))?;
    let jobs = json["jobs"].as_array().filter(|jobs| !jobs.is_empty());
    let jobs = jobs.ok_or_else(|| BenchError::answer("fio", "there are no jobs in it"))?;
    let mut answer = Answer::default();
    let mut bins = [Bins::default(), Bins::default()];
    for job in jobs {
        if let Some(error) = job["error"].as_i64().filter(|&e| e != 0) {
            let why = std::io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(0));
            return Err(BenchError::tool("fio", format!("job {}: {why}", job["jobname"].as_str().unwrap_or("?"))));
        }
        for ((direction, bins), (bytes, operations, _)) in
            ["read", "write"].into_iter().zip(&mut bins).zip(&mut answer.sides)
        {
            let side = &job[direction];
            *bytes = bytes.saturating_add(side["io_bytes"].as_u64().unwrap_or(0));
            *operations = operations.saturating_add(side["total_ios"].as_u64().unwrap_or(0));
            answer.seconds = answer.seconds.max(side["runtime"].as_f64().unwrap_or(0.0) / 1e3);
            bins.add(&side["lat_ns"]);
        }
        let share = job["usr_cpu"].as_f64().unwrap_or(0.0) + job["sys_cpu"].as_f64().unwrap_or(0.0);
        answer.cpu_s += share / 100.0 * job["job_runtime"].as_f64().unwrap_or(0.0) / 1e3;
    }
    answer.bytes = answer.sides.iter().fold(0, |sum, (bytes, ..)| sum.saturating_add(*bytes));
    answer.operations = answer.sides.iter().fold(0, |sum, (_, operations, _)| sum.saturating_add(*operations));
    if answer.seconds <= 0.0 || answer.operations == 0 {
        return Err(BenchError::tool("fio", "nothing was read or written in the time it had"));
    }
    for ((_, _, latency), bins) in answer.sides.iter_mut().zip(&bins) {
        *latency = bins.latency();
    }
    let [mut all, writes] = bins;
    all.join(writes);
    answer.latency = all.latency();
    Ok(answer)
}

/// Latencies of all jobs and directions: how many requests took how many nanoseconds.
#[derive(Default)]
struct Bins {
    counts: BTreeMap<u64, u64>,
    total: f64,
    sum_ns: f64,
    max_ns: f64,
}

impl Bins {
    fn add(&mut self, latency: &Value) {
        let count = latency["N"].as_f64().unwrap_or(0.0);
        self.total += count;
        self.sum_ns += count * latency["mean"].as_f64().unwrap_or(0.0);
        self.max_ns = self.max_ns.max(latency["max"].as_f64().unwrap_or(0.0));
        for (ns, count) in latency["bins"].as_object().into_iter().flatten() {
            if let (Ok(ns), Some(count)) = (ns.parse::<u64>(), count.as_u64()) {
                let entry = self.counts.entry(ns).or_insert(0);
                *entry = entry.saturating_add(count);
            }
        }
    }

    fn join(&mut self, other: Self) {
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        for (ns, count) in other.counts {
            let entry = self.counts.entry(ns).or_insert(0);
            *entry = entry.saturating_add(count);
        }
    }

    fn latency(&self) -> Option<Latency> {
        let counted: u64 = self.counts.values().fold(0, |sum, &count| sum.saturating_add(count));
        if counted == 0 || self.total <= 0.0 {
            return None;
        }
        let at = |share: f64| {
            let wanted = share * counted as f64;
            let mut passed = 0.0;
            let reached = self.counts.iter().find(|(_, count)| {
                passed += **count as f64;
                passed >= wanted
            });
            reached.map_or(self.max_ns, |(&ns, _)| ns as f64) / 1e3
        };
        Some(Latency {
            mean_us: self.sum_ns / self.total / 1e3,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.max_ns / 1e3,
        })
    }
}

/// `Jobs: 2 (f=2): [m(2)][60.0%][r=158MiB/s,w=52.7MiB/s][r=40.5k,w=13.5k IOPS][eta 00m:02s]`
pub(super) fn progress(line: &str) -> Option<Progress> {
    let line = line.strip_prefix("Jobs: ")?;
    let mut progress = Progress::default();
    for part in line.split(['[', ']']) {
        if let Some(percent) = part.strip_suffix('%').and_then(|p| p.parse::<f64>().ok()) {
            progress.done = Some((percent / 100.0).clamp(0.0, 1.0));
        } else if part.ends_with("B/s") {
            progress.bytes_per_s = part.split(',').filter_map(rate).sum();
        } else if let Some(rates) = part.strip_suffix(" IOPS") {
            progress.operations_per_s = rates.split(',').filter_map(rate).sum();
        }
    }
    progress.done.map(|_| progress)
}

/// `r=52.7MiB/s` or `w=13.5k`.
fn rate(text: &str) -> Option<f64> {
    let (_, value) = text.split_once('=')?;
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(end)?;
    let factor = match unit {
        "" | "B/s" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "KiB/s" => 1024.0,
        "MiB/s" => 1024.0 * 1024.0,
        "GiB/s" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|n| n * factor)
}
